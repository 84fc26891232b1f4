//! Taking probes off the target.

use std::collections::HashSet;

use profiler_common::probe::{Cookie, ProbeId};

use super::{attachment::Attachment, links::Links};
use crate::kernel::{
    Engine,
    closing::{self, Closing},
    events::EventLink,
    kernel_functions::FunctionLinks,
    leaving::Held,
    perf,
    watched_calls::Call,
};

impl Engine {
    /// Takes some probes of functions off the target: they count nothing any more, and what they have counted can still be read until
    /// [`Self::detach`]. Where one link holds many places, the others are to be [attached again](Self::attach_again), and calls that begin
    /// meanwhile are not seen. Whether they are.
    pub fn take_off(&mut self, attachment: &mut Attachment, probes: &HashSet<ProbeId>) -> bool {
        self.time_no_more(probes);
        let stays = |cookie: u64| !probes.contains(&Cookie(cookie).probe());
        if let Links::Perf { entries, exits } = &mut attachment.links {
            let [mut first, mut then] = [Vec::new(), Vec::new()];
            for (links, placed) in entries.iter_mut().zip(&attachment.entries) {
                first.extend(perf::keep(links, &placed.sites, stays));
            }
            for (links, placed) in exits.iter_mut().zip(&attachment.exits) {
                then.extend(perf::keep(links, &placed.sites, stays));
            }
            // Links may be closed at present, to be opened again.
            for placed in attachment.entries.iter_mut().chain(&mut attachment.exits) {
                placed.sites.retain(|site| stays(site.cookie));
            }
            attachment.closing.push(closing::close_events(first, then));
            return false;
        }
        let links = std::mem::replace(&mut attachment.links, self.no_links());
        self.close_for_others(links, true, attachment);
        for placed in attachment.entries.iter_mut().chain(&mut attachment.exits) {
            placed.sites.retain(|site| stays(site.cookie));
        }
        attachment.entries.retain(|placed| !placed.sites.is_empty());
        attachment.exits.retain(|placed| !placed.sites.is_empty());
        true
    }

    /// Takes probes off the target; what they have counted can still be read until [`Self::detach`]. They are off once the attachment
    /// is [settled](Attachment::is_settled).
    pub fn quiesce(&mut self, attachment: &mut Attachment) {
        self.hold_unmatched(attachment);
        attachment.anew = None;
        let links = std::mem::replace(&mut attachment.links, self.no_links());
        let places = self.drop_places(
            std::mem::take(&mut attachment.watched),
            std::mem::take(&mut attachment.events),
            std::mem::take(&mut attachment.function_links),
        );
        attachment.closing.push(places);
        attachment.closing.extend(links.close());
    }

    /// As [`Self::quiesce`], while the session goes on: their spans count no more, and later records do not lie in those that were begun.
    pub fn silence(&mut self, attachment: &mut Attachment, now_ns: impl FnOnce() -> u64) {
        self.quiesce(attachment);
        self.time_no_more(&attachment.probes);
        self.leave_unended(attachment.probes().iter().copied(), now_ns());
    }

    /// As [`Self::silence`], and they are off the target when this returns, unless a program of the kernel's still runs there: they are not
    /// safe any more for the target.
    pub fn silence_now(&mut self, attachment: &mut Attachment, now_ns: impl FnOnce() -> u64) {
        self.hold_unmatched(attachment);
        self.time_no_more(&attachment.probes);
        match std::mem::replace(&mut attachment.links, self.no_links()) {
            Links::Perf { entries, exits } => {
                let (exits, late_exits) = perf::links(exits);
                let (entries, late_entries) = perf::links(entries);
                // Not by turns with those of others. What sees calls end is what is not safe.
                let closing = closing::close_events_at_once(exits, entries);
                let late = closing::close(late_exits, late_entries);
                attachment.closing.extend([closing, late]);
            }
            links @ Links::Multi { .. } => {
                let closing = links.close();
                for closing in &closing {
                    closing.wait();
                }
                attachment.closing.extend(closing);
            }
        }
        self.silence(attachment, now_ns);
    }

    /// Detaches probes: they count nothing any more. Their slots are given back once they are off the target, which others do not
    /// wait for. Spans that are still open are forgotten with them.
    pub fn detach(&mut self, attachment: Attachment) {
        let Attachment {
            probes,
            sites,
            plans,
            links,
            watched,
            events,
            function_links,
            mut closing,
            ..
        } = attachment;
        let places = self.drop_places(watched, events, function_links);
        closing.push(places);
        closing.extend(links.at_once().close());
        // What they go by is nobody else's as long as their programs may run.
        self.time_no_more(&probes);
        for probe in &probes {
            self.hits.close(*probe);
        }
        let held = Held::Probes { probes, sites, plans };
        self.leave(held, closing);
    }

    /// Has programs begin and end no spans at these probes, where they still run.
    fn time_no_more<'a>(&self, probes: impl IntoIterator<Item = &'a ProbeId>) {
        for probe in probes {
            self.counts.silence(*probe);
        }
    }

    /// As [`Self::detach`], and waits until they are off the target, as long as that is of use.
    pub fn detach_and_wait(&mut self, mut attachment: Attachment) {
        self.quiesce(&mut attachment);
        attachment.wait_until_settled();
        self.detach(attachment);
    }

    /// Detaches from places of the kernel.
    fn drop_places(
        &mut self,
        watched: Vec<Call>,
        events: Vec<EventLink>,
        functions: FunctionLinks,
    ) -> Closing {
        for call in watched {
            self.unwatch_call(call);
        }
        let [mut first, then] = functions.by_order();
        first.extend(closing::links(events));
        closing::close_events(first, then)
    }
}
