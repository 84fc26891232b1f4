//! What the views lack, by reason.

use std::collections::BTreeMap;

use super::{super::lens::LossId, Data};

/// What a view lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Why, and of which view.
    pub id: LossId,
    /// How many.
    pub count: u64,
}

impl Data {
    /// Losses of all views by reason, those that happened. What several have lost is the same thing, and counts once.
    #[must_use]
    pub fn losses(&self) -> BTreeMap<String, u64> {
        let mut latency = self.latency.lost.clone();
        let functions = self.latency.functions.values();
        for (reason, count) in functions.flat_map(|function| &function.lost) {
            let sum = latency.entry(reason.clone()).or_default();
            *sum = sum.saturating_add(*count);
        }
        let others = [
            &latency,
            &self.hits.state.lost,
            &self.aside.waits.lost,
            &self.aside.syscalls.lost,
            &self.aside.calls.state.lost,
        ];
        let others = others
            .into_iter()
            .flatten()
            .chain(self.aside.explained.iter().flat_map(|explained| &explained.lost))
            .map(|(reason, count)| (reason.as_str(), *count));
        let mut lost: BTreeMap<String, u64> = BTreeMap::new();
        for (reason, count) in self
            .flame
            .lost()
            .into_iter()
            .chain(others)
            .filter(|(_, count)| *count > 0)
        {
            let most = lost.entry(reason.to_owned()).or_default();
            *most = count.max(*most);
        }
        lost
    }

    /// Losses of each view by itself, the most first.
    #[must_use]
    pub fn losses_by_view(&self) -> Vec<Loss> {
        let functions = self.latency.functions.values();
        let of_functions = functions.flat_map(|function| &function.lost);
        let latency = self
            .latency
            .lost
            .iter()
            .chain(of_functions)
            .map(|loss| (loss, "calls"));
        let others = [
            (&self.hits.state.lost, "hits"),
            (&self.aside.waits.lost, "waits"),
            (&self.aside.syscalls.lost, "system calls"),
            (&self.aside.calls.state.lost, "slowest calls"),
        ];
        let others = others
            .into_iter()
            .flat_map(|(lost, view)| lost.iter().map(move |loss| (loss, view)));
        let explained = self.aside.explained.iter();
        let explained = explained.flat_map(|explained| explained.lost.iter().map(|loss| (loss, "reasons")));
        let mut losses: Vec<Loss> = Vec::new();
        for ((reason, count), view) in latency.chain(others).chain(explained) {
            match losses
                .iter_mut()
                .find(|loss| loss.id.reason == *reason && loss.id.view == view)
            {
                Some(loss) => loss.count = loss.count.saturating_add(*count),
                None => losses.push(Loss {
                    id: LossId {
                        reason: reason.clone(),
                        view,
                    },
                    count: *count,
                }),
            }
        }
        losses.extend(self.flame.lost().into_iter().map(|(reason, count)| Loss {
            id: LossId {
                reason: reason.to_owned(),
                view: "samples",
            },
            count,
        }));
        losses.retain(|loss| loss.count > 0);
        losses.sort_by_key(|loss| std::cmp::Reverse(loss.count));
        losses
    }
}
