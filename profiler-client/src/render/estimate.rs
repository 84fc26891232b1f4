//! What attaching a scope would do, for people.

use profiler_proto::v1;

use super::{
    escape::terminal,
    text,
    units::{count, duration, number, percent, ratio},
};
use crate::live::line::in_words;

/// Places that are listed.
const MAX_ROWS: usize = 40;

/// The places as a table, and what all of it comes to.
#[must_use]
pub fn estimate(estimate: &v1::EstimateScopeResponse, width: Option<usize>) -> String {
    let pids: Vec<String> = estimate.pids.iter().map(u32::to_string).collect();
    let places: usize = estimate.steps.iter().map(|step| step.places.len()).sum();
    let mut shown = in_lines(
        &format!(
            "nothing is attached; {} would be probed in process {}\n",
            counted(places, "place", "places"),
            pids.join(", "),
        ),
        width,
    );
    if estimate.features > 0 {
        let looked_at = format!(
            "in its calls, {} branches, calls and values would be looked at, some at a time\n",
            estimate.features
        );
        shown += &in_lines(&looked_at, width);
    }
    if places > 0 {
        shown.push('\n');
        shown += &table(estimate, width);
        if places > MAX_ROWS {
            shown += &format!("… and {} more places\n", count((places - MAX_ROWS) as u64));
        }
    }
    shown.push('\n');
    shown + &in_lines(&sums(estimate), width)
}

/// Lines, divided where they are wider than that.
fn in_lines(lines: &str, width: Option<usize>) -> String {
    let Some(width) = width else {
        return lines.to_owned();
    };
    let lines = lines.lines().flat_map(|line| in_words(line, width));
    lines.map(|line| line + "\n").collect()
}

/// How many places, in words.
#[must_use]
pub fn places_in_words(places: usize) -> String {
    let noun = if places == 1 { "place" } else { "places" };
    format!("{} {noun}", count(places as u64))
}

/// What probes would take of CPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostCores {
    /// In cores, of the places of which it is known: those of the kernel have no known cost.
    pub known: f64,
    /// Of some it is not.
    pub is_least: bool,
}

/// What the probes of all places would take.
#[must_use]
pub fn cost_cores(estimate: &v1::EstimateScopeResponse) -> CostCores {
    let places = estimate.steps.iter().flat_map(|step| &step.places);
    let (known, unknown): (Vec<_>, Vec<_>) = places
        .map(|place| cpu_share(estimate, place))
        .partition(Option::is_some);
    CostCores {
        known: known.into_iter().flatten().sum(),
        is_least: !unknown.is_empty(),
    }
}

impl CostCores {
    /// In words.
    #[must_use]
    pub fn in_words(self) -> String {
        let about = if self.is_least { "at least" } else { "about" };
        format!("{about} {} of a core", percent(self.known))
    }
}

/// The same as a share of what the target would take then, in words; `None` where it is not known of all.
#[must_use]
pub fn share_of_target(estimate: &v1::EstimateScopeResponse) -> Option<String> {
    let samples = estimate.samples.as_ref()?;
    let cost = sum(estimate, cpu_share)?;
    let sampled = seconds(samples.sampled);
    let all = cost + seconds(samples.cpu) / sampled;
    (sampled > 0.0 && all > 0.0).then(|| format!("about {} of the target's CPU time", percent(cost / all)))
}

fn counted(number: usize, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}

/// How the table becomes as narrow as a terminal: instructions, addresses, steps and ends give way to places and costs.
const NARROWED: text::Narrowed<'_> = text::Narrowed {
    cut: &[(0, 8), (1, 28), (2, 16), (3, 16)],
    left_out: &[3, 2, 0, 4],
};

fn table(estimate: &v1::EstimateScopeResponse, width: Option<usize>) -> String {
    let titles = [
        "STEP",
        "PLACE",
        "AT",
        "INSTRUCTION",
        "END",
        "TIME INSIDE",
        "HITS/S",
        "A HIT",
        "OF A CORE",
    ];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    for step in &estimate.steps {
        let mut places: Vec<_> = step.places.iter().collect();
        places.sort_by_key(|place| std::cmp::Reverse((place.hits, place.samples_inside)));
        rows.extend(places.into_iter().map(|place| row(estimate, step, place)));
    }
    rows.truncate(MAX_ROWS + 1);
    text::narrowed_table(&rows, &[0, 1, 2, 3, 4], NARROWED, width)
}

fn row(
    estimate: &v1::EstimateScopeResponse,
    step: &v1::EstimatedStep,
    place: &v1::EstimatedPlace,
) -> Vec<String> {
    let stepped = |is: bool| if is { " (stepped)" } else { "" };
    let instruction = if place.instruction.is_empty() {
        "-".to_owned()
    } else {
        format!(
            "{}{}",
            terminal(&place.instruction),
            stepped(place.single_stepped)
        )
    };
    let end = match place.exit_method() {
        v1::ExitMethod::Return => "return probe".to_owned(),
        v1::ExitMethod::Ret => format!("{} × ret{}", place.exits, stepped(place.exit_single_stepped)),
        v1::ExitMethod::Never => "never returns".to_owned(),
        v1::ExitMethod::SystemCall => "tracepoint".to_owned(),
        v1::ExitMethod::KernelFunction => "kernel probe".to_owned(),
        v1::ExitMethod::Unspecified | v1::ExitMethod::Auto => "-".to_owned(),
    };
    let module = place.module.rsplit('/').next().unwrap_or_default();
    let at = match place.address {
        // Of the kernel, not of a file.
        0 if module.starts_with('[') => terminal(module).into_owned(),
        address => format!("{}+{address:#x}", terminal(module)),
    };
    let known = |shown: Option<String>| shown.unwrap_or_else(|| "-".to_owned());
    vec![
        terminal(&step.step).into_owned(),
        terminal(if place.function.is_empty() {
            &place.site
        } else {
            &place.function
        })
        .into_owned(),
        at,
        instruction,
        end,
        known(inside(estimate, place).map(percent)),
        known(hits_per_s(estimate, place).map(number)),
        known(place.hit_cost_ns.map(|ns| duration(ns as f64))),
        known(cpu_share(estimate, place).map(percent)),
    ]
}

/// Share of the samples that are inside of a place's function.
pub(super) fn inside(estimate: &v1::EstimateScopeResponse, place: &v1::EstimatedPlace) -> Option<f64> {
    let samples = estimate.samples.as_ref()?.samples;
    Some(ratio(place.samples_inside?, samples))
}

/// Hits per second of a place.
pub(super) fn hits_per_s(estimate: &v1::EstimateScopeResponse, place: &v1::EstimatedPlace) -> Option<f64> {
    let counted = seconds(estimate.counted);
    (counted > 0.0).then_some(place.hits? as f64 / counted)
}

/// What probing a place would cost the target, as a share of one core.
pub(super) fn cpu_share(estimate: &v1::EstimateScopeResponse, place: &v1::EstimatedPlace) -> Option<f64> {
    Some(hits_per_s(estimate, place)? * place.hit_cost_ns? as f64 / 1e9)
}

/// The same of all places; `None` where one is not known.
pub(super) fn sum(
    estimate: &v1::EstimateScopeResponse,
    of: fn(&v1::EstimateScopeResponse, &v1::EstimatedPlace) -> Option<f64>,
) -> Option<f64> {
    let places = estimate.steps.iter().flat_map(|step| &step.places);
    places.map(|place| of(estimate, place)).sum()
}

pub(super) fn seconds(duration: Option<prost_types::Duration>) -> f64 {
    duration.map_or(0.0, |duration| {
        duration.seconds as f64 + f64::from(duration.nanos) / 1e9
    })
}

fn sums(estimate: &v1::EstimateScopeResponse) -> String {
    let mut lines = String::new();
    if let Some(samples) = &estimate.samples {
        let sampled = seconds(samples.sampled);
        let cores = if sampled > 0.0 {
            seconds(samples.cpu) / sampled
        } else {
            0.0
        };
        lines += &format!(
            "sampled for {}: {} samples, {cores:.2} cores busy\n",
            duration(sampled * 1e9),
            count(samples.samples),
        );
    }
    match (seconds(estimate.counted), sum(estimate, hits_per_s)) {
        (counted, Some(hits)) if counted > 0.0 => {
            let cost = sum(estimate, cpu_share).map_or_else(String::new, |share| {
                format!(", about {} of a core", percent(share))
            });
            lines += &format!(
                "counted for {}: {} hits/s{cost}\n",
                duration(counted * 1e9),
                number(hits)
            );
        }
        _ if estimate.steps.is_empty() => {}
        _ => lines += "how often the places are reached is not known from samples: --measure counts it\n",
    }
    lines
}
