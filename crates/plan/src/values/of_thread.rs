//! What is known of the thread itself: its number and name, which no debug information is needed for.

use profiler_common::values::{Comparison, Instruction, Operation, thread};
use profiler_scope::expression::{Expression, OfThread, Root};

use super::{
    code::Code,
    lower::{Layout, Lowered, finish},
    refusal::{Refusal, unsupported},
    same_text::{matches, require_same},
    shape::{Form, Shape},
};

/// What an expression asks of the thread; `None` where it asks for something else.
///
/// # Errors
/// Where it asks for a part of that.
pub(super) fn asked(expression: &Expression) -> Result<Option<OfThread>, Refusal> {
    match (&expression.root, expression.steps.as_slice()) {
        (Root::Thread(part), []) => Ok(Some(*part)),
        (Root::Thread(part), _) => {
            unsupported(format!("a part of ${}, which is read as a whole", part.word()))
        }
        _ => Ok(None),
    }
}

/// How it is read.
pub(super) fn lower(part: OfThread) -> Result<Lowered, Refusal> {
    let instructions = match part {
        OfThread::Number => {
            let mut number = Code::register(thread::NUMBER, 0).instructions().to_vec();
            number.push(Instruction::new(Operation::Store).size(4));
            number
        }
        OfThread::Name => name(),
    };
    finish(&instructions, shape(part), Layout::Object, Vec::new())
}

/// Code that leaves it, and what it is; of the name, which is no number, nothing that is used.
pub(super) fn scalar(part: OfThread) -> (Code, Shape) {
    (Code::register(thread::NUMBER, 0), shape(part))
}

/// Instructions that reject a hit unless the thread is called so, or is not; a `*` at the end stands for any text.
pub(super) fn require_text(
    part: OfThread,
    comparison: Comparison,
    text: &[u8],
) -> Result<Vec<Instruction>, Refusal> {
    if part != OfThread::Name {
        return unsupported(format!(
            "${} is not text and cannot be compared with it",
            part.word()
        ));
    }
    let (text, is_beginning) = match text.strip_suffix(b"*") {
        Some(beginning) => (beginning, true),
        None => (text, false),
    };
    if text.contains(&b'*') {
        return unsupported("`*` in a thread's name but at its end");
    }
    if text.len() >= thread::NAME_BYTES {
        let most = thread::NAME_BYTES - 1;
        return unsupported(format!(
            "a thread's name of {} bytes: the kernel keeps {most} of it, so write the beginning and `*`",
            text.len()
        ));
    }
    let mut looked_for = text.to_vec();
    if !is_beginning {
        looked_for.push(0);
    }
    let mut compared = name();
    compared.push(Instruction::new(Operation::Constant).immediate(1));
    matches(&looked_for, &mut compared);
    require_same(compared, comparison, text)
}

/// Appends the name to the output.
fn name() -> Vec<Instruction> {
    let halves = thread::NAME.into_iter().flat_map(|half| {
        [
            Instruction::new(Operation::Register).register(half),
            Instruction::new(Operation::Store).size(8),
        ]
    });
    halves.collect()
}

fn shape(part: OfThread) -> Shape {
    match part {
        OfThread::Number => Shape {
            type_name: "tid".to_owned(),
            size: 4,
            form: Form::Integer { signed: false },
        },
        OfThread::Name => Shape {
            type_name: "comm".to_owned(),
            size: thread::NAME_BYTES as u64,
            form: Form::Characters {
                count: thread::NAME_BYTES as u64,
                may_be_bytes: false,
            },
        },
    }
}

#[cfg(test)]
mod tests {
    use profiler_common::values::{OUTPUT_BYTES, Outcome, ReadPlan, State, Thread, run};

    use super::*;

    /// A thread of this number and name.
    struct Named(u64, &'static str);

    impl Thread for Named {
        fn register(&mut self, number: u8) -> u64 {
            let mut name = [0; thread::NAME_BYTES];
            name[..self.1.len()].copy_from_slice(self.1.as_bytes());
            let (halves, _) = name.as_chunks::<8>();
            match number {
                thread::NUMBER => self.0,
                number if number == thread::NAME[0] => u64::from_le_bytes(halves[0]),
                number if number == thread::NAME[1] => u64::from_le_bytes(halves[1]),
                number => panic!("register {number}"),
            }
        }

        fn thread_pointer(&mut self) -> u64 {
            0
        }

        fn word(&mut self, _: u64, _: u8) -> Option<u64> {
            None
        }

        fn copy(&mut self, _: u64, _: &mut [u8; OUTPUT_BYTES], _: u32, _: u32) -> bool {
            false
        }

        fn copy_string(&mut self, _: u64, _: &mut [u8; OUTPUT_BYTES], _: u32, _: u32) -> Option<u32> {
            None
        }
    }

    fn is_called(name: &'static str, text: &str) -> bool {
        let holds = |comparison| {
            let plan = require_text(OfThread::Name, comparison, text.as_bytes()).unwrap();
            let mut state = State::START;
            run(&ReadPlan::new(&plan).unwrap(), &mut state, &mut Named(7, name));
            state.outcome == Outcome::Ok as u8
        };
        let is_equal = holds(Comparison::Equal);
        assert_ne!(is_equal, holds(Comparison::NotEqual), "{name} {text}");
        is_equal
    }

    #[test]
    fn a_name_is_compared_as_a_whole_or_by_its_beginning() {
        for (name, text, expected) in [
            ("clerk-1", "clerk-1", true),
            ("clerk-12", "clerk-1", false),
            ("clerk-", "clerk-1", false),
            ("clerk-12", "clerk-*", true),
            ("clerk-", "clerk-*", true),
            ("clerk", "clerk-*", false),
            ("porter", "*", true),
            ("fifteen-letters", "fifteen-letters", true),
            ("fifteen-letter", "fifteen-letters", false),
            ("fifteen-letters", "fifteen-letters*", true),
            ("", "", true),
            ("a", "", false),
        ] {
            assert_eq!(is_called(name, text), expected, "{name} {text}");
        }
    }

    #[test]
    fn what_no_thread_can_be_called_is_refused_with_the_reason() {
        for (part, text, words) in [
            (OfThread::Name, "sixteen--letters", "the kernel keeps 15 of it"),
            (OfThread::Name, "*-1", "but at its end"),
            (OfThread::Number, "7", "$tid is not text"),
        ] {
            let refused = require_text(part, Comparison::Equal, text.as_bytes()).unwrap_err();
            assert!(refused.to_string().contains(words), "{refused}");
        }
    }

    #[test]
    fn number_and_name_are_read() {
        for (part, bytes) in [
            (OfThread::Number, &[7, 0, 0, 0][..]),
            (OfThread::Name, b"clerk-1\0\0\0\0\0\0\0\0\0"),
        ] {
            let lowered = lower(part).unwrap();
            let mut state = State::START;
            run(&lowered.plan, &mut state, &mut Named(7, "clerk-1"));
            assert_eq!(&state.output[..state.length as usize], bytes);
        }
    }
}
