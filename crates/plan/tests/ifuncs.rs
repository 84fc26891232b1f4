//! Ifuncs: the words that say what they stand for, in files that compilers and linkers made.

#![expect(clippy::unwrap_used, reason = "a failure here is the test's")]

mod support;

use profiler_plan::{
    KernelAbility, Limits, ModuleIndex, PlanError,
    hazards::{Decision, Method},
    ifuncs::{Choices, Resolver, slots},
    plan,
};
use profiler_scope::Name;

use support::compile;

fn address_of(module: &ModuleIndex, name: &str) -> u64 {
    let mut functions = module.functions();
    let function = functions.find(|function| function.linkage_names().any(|known| known == name));
    function.unwrap().address()
}

#[test]
fn a_slot_says_what_an_ifunc_stands_for() {
    for flags in [
        &["-O2"][..],
        &["-O2", "-no-pie"],
        &["-O2", "-Wl,-z,now"],
        &["-O2", "-Wl,-z,lazy"],
    ] {
        let fixture = compile("gcc", "ifunc.c", flags);
        let modules = [&fixture.index];
        let name = Name::Exact("dispatched".to_owned());
        let resolver = Resolver {
            module: 0,
            address: address_of(&fixture.index, "dispatched"),
        };
        let found = slots(&name, &modules);
        assert!(!found.is_empty(), "{flags:?}");
        assert!(
            found.iter().all(|slot| slot.resolver == resolver),
            "{flags:?}: {found:?}"
        );
        assert_eq!(slots(&Name::Exact("caller".to_owned()), &modules), []);

        let chosen = address_of(&fixture.index, "chosen");
        let mut choices = Choices::default();
        // An address amid a function, and that of the resolver itself, are no choice.
        for no_choice in [chosen + 1, resolver.address, u64::MAX] {
            choices.add(resolver, no_choice, &modules);
        }
        assert_eq!(choices, Choices::default());
        let decision = Decision {
            method: Method::Ret,
            done_by_program: false,
            stacks_switch: false,
            reasons: vec![],
            warnings: vec![],
        };
        let planned = |choices: &Choices| {
            let ability = KernelAbility::default();
            plan(&name, &modules, choices, &decision, ability, Limits::default())
        };
        assert_eq!(
            planned(&choices),
            Err(PlanError::Indirect("dispatched".to_owned()))
        );
        choices.add(resolver, chosen, &modules);
        let plan = planned(&choices).unwrap();
        assert_eq!(plan.functions[0].name, "chosen");
        assert_eq!((plan.functions.len(), plan.skipped), (1, vec![]));
        assert_eq!(
            (plan.chosen[0].ifunc.as_str(), plan.chosen[0].function.as_str()),
            ("dispatched", "chosen")
        );
    }
}
