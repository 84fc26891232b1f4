//! The inlined instances of a name in the files of a process, and the warnings about those that are left out.

use std::collections::BTreeMap;

use profiler_plan::{
    ModuleIndex,
    inlined::{self, InlinedInstance, LeftOut},
    names::Match,
};
use profiler_scope::Name;

use super::{
    super::{
        error::{Reason, SessionError},
        files::TargetFile,
    },
    warnings::{BareFiles, warn_once},
};

/// What is inlined of a name.
pub(super) struct Inlined {
    /// Those that can be timed, each with the number of its file.
    pub instances: Vec<(usize, InlinedInstance)>,
    left_out: Vec<LeftOut>,
    missing: Vec<String>,
    /// More than are looked at.
    beyond: usize,
}

impl Inlined {
    pub fn find(name: &Name, modules: &[&ModuleIndex], long_nops: bool) -> Self {
        let mut all = Self {
            instances: Vec::new(),
            left_out: Vec::new(),
            missing: Vec::new(),
            beyond: 0,
        };
        for (number, module) in modules.iter().enumerate() {
            if !module.has_debug_info() {
                continue;
            }
            let found = inlined::find(module, name, long_nops);
            all.instances
                .extend(found.instances.into_iter().map(|instance| (number, instance)));
            all.left_out.extend(found.left_out);
            all.beyond += found.too_many.unwrap_or(0);
            all.missing.extend(found.missing);
        }
        // A function whose whole name it is goes before those that only end in it, in other files too.
        let is_full = modules.iter().any(|module| {
            let mut matching = module.matching(name).into_iter();
            matching.any(|(_, kind)| kind == Match::Full)
        });
        let mut kinds = all.instances.iter().map(|(_, instance)| instance.kind);
        let is_full = is_full
            || kinds.any(|kind| kind == Match::Full)
            || all.left_out.iter().any(|left_out| left_out.kind == Match::Full);
        if is_full && matches!(name, Name::Exact(_)) {
            all.instances.retain(|(_, instance)| instance.kind == Match::Full);
            all.left_out.retain(|left_out| left_out.kind == Match::Full);
        }
        all
    }

    /// How many there are to be probed, or too many to be looked at.
    pub fn count(&self) -> usize {
        self.instances.len() + self.beyond
    }

    /// How many are left out, and why; `None` where none are.
    fn left_out(&self, name: &Name) -> Option<String> {
        if self.left_out.is_empty() {
            return None;
        }
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        for left_out in &self.left_out {
            *reasons.entry(left_out.reason.to_string()).or_default() += 1;
        }
        let mut reasons: Vec<(usize, String)> = reasons
            .into_iter()
            .map(|(reason, count)| (count, reason))
            .collect();
        reasons.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        let reasons: Vec<String> = reasons
            .into_iter()
            .map(|(count, reason)| format!("{count} {reason}"))
            .collect();
        Some(format!(
            "{} of {} inlined instances of {name} cannot be timed: {}",
            self.left_out.len(),
            self.left_out.len() + self.instances.len(),
            reasons.join(", ")
        ))
    }

    /// Why there is nothing to time, of what has no code of its own; `None` where it is not inlined either.
    pub fn refusal(&self, name: &Name) -> Option<SessionError> {
        let left_out = self.left_out(name)?;
        let message =
            format!("{left_out}; {name} has no code of its own: probe a function that calls it instead");
        Some(SessionError::new(Reason::FunctionOnlyInlined, message))
    }

    /// Says what is left out. `with_functions` are the numbers of the files that have functions of the name.
    pub fn warn<'a>(
        &self,
        warnings: &mut Vec<String>,
        bare: &mut BareFiles<'a>,
        files: &'a [TargetFile],
        name: &Name,
        with_functions: impl Iterator<Item = usize>,
    ) {
        if let Some(left_out) = self.left_out(name) {
            warn_once(warnings, left_out);
        }
        for missing in &self.missing {
            warn_once(warnings, missing.clone());
        }
        for file in with_functions.filter_map(|number| files.get(number)) {
            if !file.known.index.has_debug_info() {
                let lacking = format!(", so that inlined instances of {name} in it are not known");
                bare.warn(warnings, file, &lacking);
            }
        }
    }
}
