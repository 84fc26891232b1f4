//! Code that sets the stack pointer by hand is told from what compilers write.

#![expect(clippy::unwrap_used, reason = "a failure here is the test's")]

mod support;

use std::process::Command;

use profiler_plan::{
    KernelAbility,
    hazards::{Hazards, Method, ModuleHazards, exit_method},
};
use support::run;

/// A switch as coroutines have it: `at_load` is where it loads the other one's stack pointer.
const SWITCH: &str = "push %rbx
    push %rbp
    mov %rsp, (%rdi)
at_load:
    mov (%rsi), %rsp
    pop %rbp
    pop %rbx
    ret";

/// The assembly of one function, with unwind rows that say how far it reaches.
fn with_rows(code: &str) -> String {
    format!(".cfi_startproc\n{code}\n.cfi_endproc\n")
}

/// What is found in a library that has nothing but this, and the address of its label `at_load`.
fn of_source(compiler: &str, name: &str, source: &str, flags: &[&str]) -> (Hazards, Option<String>) {
    let directory = tempfile::tempdir().unwrap();
    let (source_path, path) = (directory.path().join(name), directory.path().join("library.so"));
    std::fs::write(&source_path, source).unwrap();
    run(Command::new(compiler)
        .args(["-nostdlib", "-shared", "-fPIC"])
        .args(flags)
        .arg("-o")
        .arg(&path)
        .arg(&source_path));
    let found = ModuleHazards::scan("library.so", &std::fs::read(&path).unwrap()).unwrap();
    let symbols = run(Command::new("nm").arg(&path));
    let label = symbols.lines().find_map(|line| line.strip_suffix(" t at_load"));
    let address = label.map(|address| format!("{:#x}", u64::from_str_radix(address, 16).unwrap()));
    (Hazards::of([("library.so", &found)]), address)
}

fn of_assembly(code: &str) -> (Hazards, Option<String>) {
    let source = format!(".text\n.globl code\n.type code, @function\ncode:\n{code}\n.size code, . - code\n");
    of_source("gcc", "code.s", &source, &[])
}

/// It may switch stacks, by the load at the label.
fn is_switch(code: &str) {
    let (hazards, address) = of_assembly(code);
    let found = hazards
        .stack_switch
        .as_ref()
        .unwrap_or_else(|| panic!("{code}: {hazards:?}"));
    assert_eq!(found.sign, format!("the load of rsp at {}", address.unwrap()));
    assert_eq!(hazards.stack_pointer, None, "{code}");
    let decision = exit_method(&hazards, KernelAbility::default(), false, None);
    assert_eq!((decision.method, decision.stacks_switch), (Method::Ret, true));
}

/// It sets the stack pointer at the label, and nothing says what for.
fn is_other(code: &str) {
    let (hazards, address) = of_assembly(code);
    let found = hazards
        .stack_pointer
        .as_ref()
        .unwrap_or_else(|| panic!("{code}: {hazards:?}"));
    assert_eq!(found.sign, format!("the load of rsp at {}", address.unwrap()));
    assert_eq!(hazards.stack_switch, None, "{code}");
    let decision = exit_method(&hazards, KernelAbility::default(), false, None);
    assert_eq!((decision.method, decision.stacks_switch), (Method::Ret, false));
}

fn is_harmless(code: &str) {
    assert_eq!(of_assembly(code).0, Hazards::default(), "{code}");
}

#[test]
fn a_switch_is_found_with_unwind_rows_and_without() {
    is_switch(SWITCH);
    is_switch(&with_rows(SWITCH));
}

#[test]
fn a_switch_by_way_of_another_register_is_found() {
    is_switch(&with_rows(
        "mov %rsp, %rax\n mov %rax, (%rdi)\n mov (%rsi), %rax\n at_load: mov %rax, %rsp\n ret",
    ));
    // Kept on the stack that it leaves, and told by what it returns.
    is_switch(&with_rows("mov %rsp, (%rdx)\n at_load: mov %rdi, %rsp\n ret"));
}

#[test]
fn an_exchange_is_a_switch() {
    for exchange in ["xchg %rsp, (%rdi)", "xchg %rdi, %rsp", "xchg %rax, %rsp"] {
        is_switch(&format!("at_load: {exchange}\n ret"));
        is_switch(&with_rows(&format!("at_load: {exchange}\n ret")));
    }
}

#[test]
fn any_other_load_of_the_stack_pointer_is_found() {
    let leaves = "at_load: mov %rcx, %rsp\n pop %rcx\n jmp *%rcx";
    is_other(leaves);
    is_other(&with_rows(leaves));
    is_other(&with_rows("at_load: mov %gs:16, %rsp\n ret"));
    is_other(&with_rows("at_load: mov 8(%rdi), %rsp\n ret"));
    // Another slot than the one that it was kept in, and a register that a callee has changed since.
    is_other(&with_rows(
        "push %rbp\n mov %rsp, %rbp\n mov %rsp, -16(%rbp)\n at_load: mov -24(%rbp), %rsp\n ret",
    ));
    is_other(&with_rows(
        "mov %rsp, %rcx\n call *%rdi\n at_load: mov %rcx, %rsp\n ret",
    ));
    is_other(&with_rows(
        "mov %rsp, %rax\n call 1f\n at_load: mov %rax, %rsp\n 1: ret",
    ));
    is_other(&with_rows(
        "mov %rsp, %rbx\n mov (%rdi), %rbx\n at_load: mov %rbx, %rsp\n ret",
    ));
}

#[test]
fn a_function_may_put_back_its_own_stack_pointer() {
    let harmless = [
        "push %rbp\n mov %rsp, %rbp\n sub $32, %rsp\n mov %rbp, %rsp\n pop %rbp\n ret",
        "and $-64, %rsp\n mov %rax, 8(%rsp)\n mov 8(%rsp), %rsp\n ret",
        "push %rbp\n mov %rsp, %rbp\n mov %rsp, -40(%rbp)\n sub %rdi, %rsp\n mov -40(%rbp), %rsp\n leave\n ret",
        "mov %rsp, %rbx\n sub %rdi, %rsp\n call *%rsi\n mov %rbx, %rsp\n ret",
        "mov %rsp, %rax\n sub %rdi, %rax\n and $-16, %rax\n mov %rax, %rsp\n ret",
        // On a way that begins behind a return, after a jump backwards, and through a table.
        "mov %rsp, %rbx\n test %rdi, %rdi\n je 1f\n pop %rbx\n ret\n 1: mov %rbx, %rsp\n ret",
        "jmp 2f\n 1: mov %rbx, %rsp\n ret\n 2: mov %rsp, %rbx\n call *%rdi\n jmp 1b",
        "mov %rsp, %rbx\n jmp *(%rdi,%rsi,8)\n pop %rbx\n ret\n mov %rbx, %rsp\n ret",
        // The callee is known to leave the register alone.
        "mov %rsp, %r9\n sub %rdi, %rsp\n call 1f\n mov %r9, %rsp\n ret\n 1: ret",
        // An address of the stack is passed on, and no other one loaded.
        "lea 8(%rsp), %rax\n mov %rax, (%rdi)\n mov %rsp, 8(%rdi)\n ret",
    ];
    for code in harmless {
        is_harmless(&with_rows(code));
    }
}

#[test]
fn arrays_of_variable_length_are_not_stack_switches() {
    let source = "
        #include <alloca.h>
        extern void use(void *, long);
        long arrays(long n, long m) {
            for (long i = 0; i < n; i++) {
                char array[i + m];
                use(array, i);
                if (array[0] == 3) continue;
                long inner[m];
                use(inner, m);
            }
            use(alloca(n), n);
            _Alignas(64) char aligned[64];
            use(aligned, m);
            return n;
        }";
    for compiler in ["gcc", "clang"] {
        for flags in [
            &["-O0"][..],
            &["-O1"],
            &["-O2"],
            &["-O3", "-fno-omit-frame-pointer"],
            &["-Os", "-fomit-frame-pointer"],
        ] {
            let (hazards, _) = of_source(compiler, "arrays.c", source, flags);
            assert_eq!(hazards, Hazards::default(), "{compiler} {flags:?}");
        }
    }
}

#[test]
fn ignores_stack_switches_inside_other_instructions_if_unwind_rows_tell() {
    // 48 89 cc is `mov %rcx, %rsp`, here a part of a number.
    let code = "movabs $0x1122cc8948334455, %rax\n ret";
    is_harmless(&with_rows(code));
    let (hazards, _) = of_assembly(code);
    assert!(
        hazards.stack_pointer.is_some(),
        "nothing says where instructions begin"
    );
    // 48 94 at the end of this is `xchg %rax, %rsp`: it counts, and as no switch.
    let jump = "jmp *0x9448(%rbx)\n";
    is_harmless(&with_rows(jump));
    let (hazards, _) = of_assembly(&jump.repeat(20));
    assert!(
        hazards.stack_pointer.is_some() && hazards.stack_switch.is_none(),
        "{hazards:?}"
    );
    // The same behind data, where decoding from the beginning is of no use: 06 is no instruction.
    let (hazards, _) = of_assembly(&with_rows(&format!("jmp 1f\n .byte 6\n 1: {code}")));
    assert!(hazards.stack_pointer.is_some(), "there is data among the code");
}

#[test]
fn a_file_without_section_headers_is_looked_through_too() {
    let directory = tempfile::tempdir().unwrap();
    let (source, path) = (
        directory.path().join("code.s"),
        directory.path().join("library.so"),
    );
    std::fs::write(&source, format!("{SWITCH}\n")).unwrap();
    run(Command::new("gcc")
        .args(["-nostdlib", "-shared", "-o"])
        .arg(&path)
        .arg(&source));
    let mut bytes = std::fs::read(&path).unwrap();
    // e_shoff; e_shentsize, e_shnum and e_shstrndx.
    bytes[0x28..0x30].fill(0);
    bytes[0x3a..0x40].fill(0);
    let found = ModuleHazards::scan("library.so", &bytes).unwrap();
    assert!(Hazards::of([("library.so", &found)]).stack_switch.is_some());
}

#[test]
fn more_than_is_looked_at_counts_as_found() {
    // Each of a great many functions has a number that looks like a load.
    let function = with_rows("movabs $0x1122cc8948334455, %rax\n ret");
    is_harmless(&format!(".rept 4000\n{function}\n.endr"));
    let (hazards, _) = of_assembly(&format!(".rept 5000\n{function}\n.endr"));
    assert!(hazards.stack_pointer.is_some());
    // Functions that are too large alone, and together.
    let large = |bytes: u32| {
        with_rows(&format!(
            ".skip {bytes}, 0x90\n movabs $0x1122cc8948334455, %rax\n ret"
        ))
    };
    is_harmless(&large(1_000_000));
    for (count, bytes) in [(1, 1_100_000), (5, 1_000_000)] {
        let (hazards, _) = of_assembly(&format!(".rept {count}\n{}\n.endr", large(bytes)));
        assert!(
            hazards.stack_pointer.is_some(),
            "{count} functions of {bytes} bytes"
        );
    }
}

#[test]
fn where_return_probes_are_unsafe_in_any_case_only_a_switch_is_told_as_well() {
    let throws = "call _Unwind_RaiseException@PLT\n";
    let (hazards, _) = of_assembly(&with_rows(&format!("{throws} mov %rcx, %rsp\n ret")));
    assert!(
        hazards.unwinding.is_some() && hazards.stack_pointer.is_none(),
        "{hazards:?}"
    );
    let (hazards, _) = of_assembly(&with_rows(&format!("{throws} {SWITCH}")));
    assert!(
        hazards.unwinding.is_some() && hazards.stack_switch.is_some(),
        "{hazards:?}"
    );
}
