//! Lines that are reached: counted to the hit, values those that the target has, conditions decided in the kernel.

use std::{path::PathBuf, sync::Arc, time::Instant};

use profiler_common::{instruction::Action, values::Comparison};
use profiler_daemon::{
    kernel::{Attachment, Config, Engine, Gates, Hit, HitSpec, LookSpec, Record},
    session::SessionInfo,
};
use profiler_plan::{
    ModuleIndex, lines,
    values::{self, DebugFile, DebugSections, Lowered, Returns, Site},
};

use super::{
    fixture::{self, Fixture},
    service::{ROOT, Service},
};

/// Of every level of optimization the same program.
const LEVELS: [&str; 3] = ["hits_o0", "hits_o1", "hits_o2"];

const SOURCE: &str = include_str!("../fixtures/engine/hits.c");

/// What a value is compared with.
enum Constant {
    Number(u64),
    Text(&'static str),
}

struct Target {
    path: PathBuf,
    hits: usize,
    fixture: Fixture,
}

impl Target {
    fn start(name: &str) -> Self {
        Self::start_with(name, &fixture::spec(name).args)
    }

    fn start_with(name: &str, arguments: &[String]) -> Self {
        Self {
            path: fixture::directory().join(name),
            hits: arguments[0].parse().unwrap(),
            fixture: Fixture::start(name, arguments),
        }
    }

    /// What is done at the marked line.
    fn spec(
        &self,
        required: &[(&str, Comparison, Constant)],
        expressions: &[&str],
    ) -> (HitSpec, Vec<Lowered>) {
        let bytes = std::fs::read(&self.path).unwrap();
        let line = SOURCE.lines().position(|line| line.contains("probed")).unwrap() + 1;
        let index = ModuleIndex::new(Arc::new(bytes.clone())).unwrap();
        let found = lines::find(&index, "hits.c", line as u64).unwrap();
        let [site] = found.sites.as_slice() else {
            panic!("{found:?}");
        };
        let sections = DebugSections::load(&bytes, &bytes).unwrap();
        let file = DebugFile::new(&sections);
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.fixture.pid())).unwrap();
        let bias = u64::from_str_radix(maps.split('-').next().unwrap(), 16).unwrap();
        let at = Site {
            address: site.address,
            bias,
        };
        let lowered: Vec<Lowered> = expressions
            .iter()
            .map(|text| values::lower(&file, at, &profiler_scope::expression::parse(text).unwrap()).unwrap())
            .collect();
        let required = required
            .iter()
            .map(|(text, comparison, constant)| {
                let expression = profiler_scope::expression::parse(text).unwrap();
                match constant {
                    Constant::Number(number) => {
                        values::require(&file, at, &expression, *comparison, |_, _| Ok(*number)).unwrap()
                    }
                    Constant::Text(text) => {
                        let returns = Returns::AtInstruction;
                        values::require_text(&file, at, returns, &expression, *comparison, text.as_bytes())
                            .unwrap()
                    }
                }
            })
            .collect();
        let elf = object::File::parse(bytes.as_slice()).unwrap();
        let segment = object::Object::segments(&elf)
            .find(|segment| {
                let start = object::ObjectSegment::address(segment);
                (start..start + object::ObjectSegment::size(segment)).contains(&site.address)
            })
            .unwrap();
        let offset = site.address - object::ObjectSegment::address(&segment)
            + object::ObjectSegment::file_range(&segment).0;
        let spec = HitSpec {
            offset,
            action: Action::LEAVE,
            done_by_program: false,
            look: LookSpec {
                required,
                values: lowered.iter().map(|lowered| lowered.plan).collect(),
                followed: Vec::new(),
                decided: Vec::new(),
                interval_ns: 0,
                records: true,
                stack: false,
            },
            branch: None,
            gates: Gates::default(),
            of_kernel: None,
        };
        (spec, lowered)
    }

    /// What it computes is what it does without probes.
    fn says_its_sum(&self) {
        let sum = (0..i64::try_from(self.hits).unwrap()).fold(0_i64, |sum, n| (sum + 2 * n + n % 7) ^ n);
        let told = format!("sink {sum}\n");
        assert!(self.fixture.output.contains(&told), "{}", self.fixture.output);
    }

    /// Lets it run; gives what was recorded meanwhile, for all of which the ring buffer has room.
    fn run(&mut self, engine: &mut Engine, attachment: &Attachment) -> Vec<Hit> {
        engine.admit_any(&[self.fixture.pid()]).unwrap();
        self.fixture.run();
        self.says_its_sum();
        let mut hits = Vec::new();
        engine.drain(usize::MAX, |record| {
            if let Record::Hit(hit) = record {
                hits.push(hit);
            }
        });
        let pid = self.fixture.pid();
        assert!(
            hits.iter()
                .all(|hit| hit.tgid == pid && attachment.probes() == [hit.probe])
        );
        assert!(hits.is_sorted_by_key(|hit| hit.ts_ns));
        hits
    }

    /// Lets it end, unharmed.
    fn end(self) {
        assert_eq!(self.fixture.finish().status, Some(0));
    }
}

fn engine() -> Engine {
    Engine::load(&Config {
        ring_bytes: 64 << 20,
        ..Config::default()
    })
    .unwrap()
}

#[test]
#[ignore = "attaches probes: needs root"]
fn values_are_the_targets() {
    let mut engine = engine();
    for level in LEVELS {
        let mut target = Target::start(level);
        let (spec, lowered) = target.spec(
            &[],
            &[
                "n",
                "twice",
                "request->kind",
                "request->name",
                "request->cost",
                "*request",
            ],
        );
        let attachment = engine
            .attach_hits(target.fixture.pid(), &target.path, &[spec])
            .unwrap();
        let hits = target.run(&mut engine, &attachment);
        let counts = engine.hit_counts(attachment.probes()[0]);
        assert_eq!(counts.reached, target.hits as u64, "{counts:?}");
        assert_eq!(hits.len(), target.hits, "{counts:?}");
        for (n, hit) in hits.iter().enumerate() {
            let number = |index: usize| {
                let value = &hit.values[index];
                assert_eq!(value.outcome, 1, "{level}: value {index} of hit {n}: {value:?}");
                let mut bytes = [0; 8];
                bytes[..value.bytes.len()].copy_from_slice(&value.bytes);
                u64::from_le_bytes(bytes)
            };
            assert_eq!(number(0), n as u64);
            if level != "hits_o2" {
                assert_eq!(number(1), 2 * n as u64);
            }
            assert_eq!(number(2), n as u64 % 7);
            assert_eq!(number(4), (n as f64 / 2.0).to_bits());
            let name = ["alpha", "beta", "gamma"][n % 3];
            let text = &hit.values[3].bytes;
            assert!(
                text.windows(name.len()).any(|bytes| bytes == name.as_bytes()),
                "{level}: {text:?}"
            );
        }
        drop(lowered);
        engine.detach(attachment);
        target.end();
    }
}

#[test]
#[ignore = "attaches probes: needs root"]
fn conditions_are_decided_in_the_kernel() {
    let mut engine = engine();
    let mut target = Target::start("hits_o2");
    let least = target.hits * 9 / 10;
    let (spec, _) = target.spec(
        &[
            ("n", Comparison::GreaterOrEqual, Constant::Number(least as u64)),
            ("request->kind", Comparison::Equal, Constant::Number(3)),
        ],
        &["n"],
    );
    let attachment = engine
        .attach_hits(target.fixture.pid(), &target.path, &[spec])
        .unwrap();
    let hits = target.run(&mut engine, &attachment);
    let expected = (least..target.hits).filter(|n| n % 7 == 3).count();
    let counts = engine.hit_counts(attachment.probes()[0]);
    assert_eq!(hits.len(), expected, "{counts:?}");
    assert_eq!(counts.reached, target.hits as u64);
    assert_eq!(counts.rejected, (target.hits - expected) as u64);
    engine.detach(attachment);
    target.end();
}

#[test]
#[ignore = "attaches probes: needs root"]
fn text_is_compared_in_the_kernel() {
    let mut engine = engine();
    for level in LEVELS {
        for (comparison, text, is_asked) in [
            (Comparison::Equal, "beta", (|n| n % 3 == 1) as fn(usize) -> bool),
            (Comparison::NotEqual, "beta", |n| n % 3 != 1),
            (Comparison::Equal, "bet", |_| false),
            (Comparison::Equal, "betas", |_| false),
            (Comparison::NotEqual, "alpha and more than a word", |_| true),
        ] {
            let mut target = Target::start(level);
            let condition = ("request->name", comparison, Constant::Text(text));
            let (spec, _) = target.spec(&[condition], &["n"]);
            let attachment = engine
                .attach_hits(target.fixture.pid(), &target.path, &[spec])
                .unwrap();
            let hits = target.run(&mut engine, &attachment);
            let counts = engine.hit_counts(attachment.probes()[0]);
            let shown: Vec<usize> = hits
                .iter()
                .map(|hit| usize::from(hit.values[0].bytes[0]))
                .collect();
            let asked = (0..target.hits).filter(|n| is_asked(*n));
            let asked: Vec<usize> = asked.map(|n| n & 0xff).collect();
            assert_eq!(shown, asked, "{level}: {comparison:?} {text:?}: {counts:?}");
            assert_eq!(counts.reached, target.hits as u64);
            engine.detach(attachment);
            target.end();
        }
    }
}

#[test]
#[ignore = "attaches probes: needs root"]
fn no_more_than_the_limit_is_recorded() {
    let mut engine = engine();
    let mut target = Target::start("hits_o2");
    let (mut spec, _) = target.spec(&[], &["n"]);
    // A hundred a second: of a burst of a second, a hundred and one.
    spec.look.interval_ns = 10_000_000;
    let attachment = engine
        .attach_hits(target.fixture.pid(), &target.path, &[spec])
        .unwrap();
    let start = Instant::now();
    let hits = target.run(&mut engine, &attachment);
    let most = 102 + start.elapsed().as_millis() as usize / 10;
    let counts = engine.hit_counts(attachment.probes()[0]);
    assert!(
        (100..=most).contains(&hits.len()),
        "{} of {most}: {counts:?}",
        hits.len()
    );
    assert_eq!(counts.reached, target.hits as u64);
    assert_eq!(
        hits.len() as u64 + counts.limited,
        target.hits as u64,
        "{counts:?}"
    );
    engine.detach(attachment);
    target.end();
}

#[test]
#[ignore = "attaches probes: needs root"]
fn threads_that_come_at_once_do_not_take_each_others_turn() {
    let mut engine = engine();
    let hits = if fixture::small_scale() { 2000 } else { 20_000 };
    let mut target = Target::start_with("hits_o2", &[hits.to_string(), "beside".to_owned()]);
    let (mut spec, _) = target.spec(&[], &[]);
    // Far more than there are.
    spec.look.interval_ns = 1;
    let attachment = engine
        .attach_hits(target.fixture.pid(), &target.path, &[spec])
        .unwrap();
    engine.admit_any(&[target.fixture.pid()]).unwrap();
    target.fixture.run();
    let counts = engine.hit_counts(attachment.probes()[0]);
    assert_eq!((counts.reached, counts.limited), (2 * hits, 0));
    engine.detach(attachment);
    target.end();
}

#[test]
#[ignore = "attaches probes: needs root"]
fn lines_whose_instructions_programs_do_are_counted_and_do_no_harm() {
    let marked = SOURCE.lines().position(|line| line.contains("probed")).unwrap() + 1;
    let begins = SOURCE
        .lines()
        .position(|line| line.contains("void serve("))
        .unwrap()
        + 1;
    for level in LEVELS {
        let service = Service::start();
        let mut target = Target::start(level);
        let pid = target.fixture.pid();
        // Not every line has code.
        let attach = |line: usize| service.attach(pid, &format!("serve/hits.c:{line}")).ok();
        let sessions: Vec<SessionInfo> = (begins..begins + 12).filter_map(attach).collect();
        assert!(sessions.len() >= 5, "{level}: {} lines", sessions.len());
        for session in &sessions {
            println!("{level} {}: {:?}", session.scope, session.warnings);
        }
        target.fixture.run();
        target.says_its_sum();
        let counted = service.handle.counted(ROOT, vec![pid]);
        let counted = service.runtime.block_on(counted).unwrap();
        let step = format!("hits.c:{marked}");
        let of_line: Vec<u64> = counted
            .iter()
            .filter(|counted| counted.step == step)
            .map(|counted| counted.count)
            .collect();
        assert_eq!(of_line, [target.hits as u64], "{level}");
        for session in &sessions {
            service.end(session);
        }
        target.end();
    }
}
