use profiler_common::values::{OUTPUT_BYTES, Outcome, State, Thread, run};
use profiler_scope::expression::parse;
use proptest::prelude::*;

use super::*;
use crate::values::render;

const SWITCH: &str = "name: sched_switch
ID: 276
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;
\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;
\tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;
\tfield:__data_loc char[] name;\toffset:40;\tsize:4;\tsigned:0;
\tfield:__rel_loc char[] near;\toffset:44;\tsize:4;\tsigned:0;
\tfield:bool urgent;\toffset:48;\tsize:1;\tsigned:0;
\tfield:__u8 saddr[4];\toffset:49;\tsize:4;\tsigned:0;
\tfield:void * skb;\toffset:56;\tsize:8;\tsigned:0;
\tfield:struct in6_addr to;\toffset:64;\tsize:16;\tsigned:0;

print fmt: \"prev_comm=%s\", REC->prev_comm
";

const OPEN: &str = "name: sys_enter_openat
ID: 782
format:
\tfield:int __syscall_nr;\toffset:8;\tsize:4;\tsigned:1;
\tfield:int dfd;\toffset:16;\tsize:8;\tsigned:0;
\tfield:const char * filename;\toffset:24;\tsize:8;\tsigned:0;
\tfield:umode_t mode;\toffset:40;\tsize:8;\tsigned:0;
";

/// Where the record of these tests lies, with what pointers lead to behind it.
const AT: u64 = 0x1000;

struct Memory(Vec<u8>);

impl Memory {
    fn at(&self, address: u64, length: usize) -> Option<&[u8]> {
        let start = usize::try_from(address.checked_sub(AT)?).ok()?;
        self.0.get(start..start.checked_add(length)?)
    }
}

impl Thread for Memory {
    fn register(&mut self, number: u8) -> u64 {
        assert_eq!(number, RECORD);
        AT
    }

    fn thread_pointer(&mut self) -> u64 {
        unreachable!()
    }

    fn word(&mut self, address: u64, size: u8) -> Option<u64> {
        let mut word = [0; 8];
        word[..size.into()].copy_from_slice(self.at(address, size.into())?);
        Some(u64::from_le_bytes(word))
    }

    fn copy(&mut self, address: u64, output: &mut [u8; OUTPUT_BYTES], at: u32, length: u32) -> bool {
        let (at, length) = (at as usize, length as usize);
        let Some(bytes) = self.at(address, length) else {
            return false;
        };
        output[at..at + length].copy_from_slice(bytes);
        true
    }

    fn copy_string(
        &mut self,
        address: u64,
        output: &mut [u8; OUTPUT_BYTES],
        at: u32,
        length: u32,
    ) -> Option<u32> {
        let start = usize::try_from(address.checked_sub(AT)?).ok()?;
        let text = self.0.get(start..)?.split(|byte| *byte == 0).next()?;
        let text = &text[..text.len().min(length as usize - 1)];
        let at = at as usize;
        output[at..at + text.len()].copy_from_slice(text);
        output[at + text.len()] = 0;
        u32::try_from(text.len() + 1).ok()
    }
}

fn switch() -> Memory {
    let mut bytes = vec![0; 128];
    let mut put = |at: usize, what: &[u8]| bytes[at..at + what.len()].copy_from_slice(what);
    put(8, b"redis\0old");
    put(24, &(-7_i32).to_le_bytes());
    put(32, &(-1_i64).to_le_bytes());
    put(40, &(0x0006_0000_u32 + 80).to_le_bytes());
    put(44, &(0x0005_0000_u32 + (90 - 48)).to_le_bytes());
    put(48, &[1]);
    put(49, &[10, 0, 0, 1]);
    put(56, &0x1234_u64.to_le_bytes());
    put(80, b"block\0");
    put(90, b"near\0");
    Memory(bytes)
}

fn shown(record: &Record, memory: &mut Memory, text: &str) -> String {
    let lowered = record.lower(&parse(text).unwrap()).unwrap();
    let mut state = State::START;
    run(&lowered.plan, &mut state, memory);
    match render(&lowered, &state) {
        crate::values::Reading::Ok(value) => value.to_string(),
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn fields_are_read_as_what_they_are() {
    let record = Record::parse(SWITCH).unwrap();
    assert_eq!(record.id, 276);
    let mut memory = switch();
    for (field, value) in [
        ("prev_comm", "\"redis\""),
        ("prev_pid", "-7"),
        ("prev_state", "-1"),
        ("name", "\"block\""),
        ("near", "\"near\""),
        ("urgent", "true"),
        ("saddr", "[10, 0, 0, 1]"),
        ("skb", "0x1234"),
    ] {
        assert_eq!(shown(&record, &mut memory, field), value, "{field}");
    }
}

#[test]
fn arguments_of_system_calls_have_their_own_size() {
    let record = Record::parse(OPEN).unwrap();
    let mut bytes = vec![0; 64];
    bytes[16..24].copy_from_slice(&(-100_i64).to_le_bytes());
    bytes[24..32].copy_from_slice(&(AT + 50).to_le_bytes());
    bytes[50..54].copy_from_slice(b"/etc");
    let mut memory = Memory(bytes);
    assert_eq!(shown(&record, &mut memory, "dfd"), "-100");
    assert_eq!(shown(&record, &mut memory, "arg0"), "-100");
    assert_eq!(shown(&record, &mut memory, "filename"), "\"/etc\"");
    assert_eq!(shown(&record, &mut memory, "arg1"), "\"/etc\"");
    assert!(record.lower(&parse("arg3").unwrap()).is_err());
}

#[test]
fn arguments_of_system_calls_are_in_registers() {
    let record = Record::parse(OPEN).unwrap().of_registers();
    let mut bytes = vec![0; 168];
    bytes[112..120].copy_from_slice(&(-100_i64).to_le_bytes());
    bytes[56..64].copy_from_slice(&0o644_u64.to_le_bytes());
    bytes[120..128].copy_from_slice(&257_u64.to_le_bytes());
    let mut memory = Memory(bytes);
    for (name, value) in [
        ("dfd", "-100"),
        ("filename", "0x0"),
        ("arg0", "-100"),
        ("__syscall_nr", "257"),
    ] {
        assert_eq!(shown(&record, &mut memory, name), value, "{name}");
    }
}

#[test]
fn parameters_of_functions_are_in_registers() {
    let parameter = |name: &str, type_name: &str, size, signed| Parameter {
        name: name.to_owned(),
        type_name: type_name.to_owned(),
        size,
        signed,
    };
    let known = vec![
        parameter("file", "struct file *", 8, false),
        parameter("whence", "int", 4, true),
        parameter("force", "bool", 1, false),
        parameter("count", "size_t", 8, false),
    ];
    let mut bytes = vec![0; 168];
    bytes[112..120].copy_from_slice(&0x1234_u64.to_le_bytes());
    bytes[104..112].copy_from_slice(&0x7777_7777_ffff_ffff_u64.to_le_bytes());
    bytes[96..104].copy_from_slice(&0x7701_u64.to_le_bytes());
    bytes[88..96].copy_from_slice(&4096_u64.to_le_bytes());
    bytes[64..72].copy_from_slice(&(-6_i64).to_le_bytes());
    let mut memory = Memory(bytes);
    let record = Record::of_function(Some(known));
    for (name, value) in [
        ("file", "0x1234"),
        ("whence", "-1"),
        ("arg1", "-1"),
        ("force", "true"),
        ("count", "4096"),
    ] {
        assert_eq!(shown(&record, &mut memory, name), value, "{name}");
    }
    assert!(record.lower(&parse("arg4").unwrap()).is_err());
    assert_eq!(shown(&Record::of_function(None), &mut memory, "arg5"), "-6");
}

#[test]
fn conditions_are_decided() {
    let record = Record::parse(SWITCH).unwrap();
    let mut memory = switch();
    let mut passes = |plan: ReadPlan| {
        let mut state = State::START;
        run(&plan, &mut state, &mut memory);
        state.outcome == Outcome::Ok as u8
    };
    let field = |text: &str| parse(text).unwrap();
    let number = |text: &str, comparison, constant: i64| {
        record
            .require(&field(text), comparison, |_, _| Ok(constant.cast_unsigned()))
            .unwrap()
    };
    assert!(passes(number("prev_pid", Comparison::Equal, -7)));
    assert!(!passes(number("prev_pid", Comparison::Greater, -7)));
    assert!(passes(number("skb", Comparison::Greater, 0x1000)));
    let text = |name: &str, comparison, text: &str| {
        record
            .require_text(&field(name), comparison, text.as_bytes())
            .unwrap()
    };
    for name in ["prev_comm", "name", "near"] {
        let held = match name {
            "prev_comm" => "redis",
            "name" => "block",
            _ => "near",
        };
        assert!(passes(text(name, Comparison::Equal, held)), "{name}");
        assert!(!passes(text(name, Comparison::NotEqual, held)), "{name}");
        assert!(!passes(text(name, Comparison::Equal, &held[1..])), "{name}");
    }
    assert!(
        record
            .require_text(&field("prev_pid"), Comparison::Equal, b"x")
            .is_err()
    );
}

#[test]
fn refuses_unreadable_fields_with_the_reason() {
    let record = Record::parse(SWITCH).unwrap();
    let refusal = |text: &str| record.lower(&parse(text).unwrap()).unwrap_err().to_string();
    assert!(refusal("to").contains("struct in6_addr"), "{}", refusal("to"));
    assert!(
        refusal("prev_pdi").contains("prev_pid"),
        "{}",
        refusal("prev_pdi")
    );
    assert!(
        refusal("common_pid").contains("no variable"),
        "{}",
        refusal("common_pid")
    );
    assert!(refusal("$rdi").contains("registers"));
    assert!(refusal("skb->len").contains("a part of skb"));
    assert!(refusal("return").contains("return value"));
    assert_eq!(Record::parse("no description"), None);
}

proptest! {
    #[test]
    fn a_damaged_description_does_no_harm(at in 0_usize..1100, byte in 0_u8..128, text in "[a-z_]{1,9}") {
        let mut damaged = SWITCH.as_bytes().to_vec();
        let at = at % damaged.len();
        damaged[at] = byte;
        let damaged = String::from_utf8(damaged).unwrap();
        if let Some(record) = Record::parse(&damaged) {
            let names: Vec<String> = record.names().map(str::to_owned).collect();
            for name in names.iter().chain([&text]) {
                if let Ok(expression) = parse(name) {
                    let _ = record.lower(&expression);
                }
            }
        }
    }
}
