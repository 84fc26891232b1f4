//! A function's source as JSON: a `source` object, then a `line` object for each line.

use profiler_proto::v1;
use serde_json::{Value, json};

use super::{
    json::{SCHEMA, integer, known, line as push},
    source::lines_of_variables,
};

/// The objects of a function.
#[must_use]
pub fn function(source: &v1::SourceFunction) -> String {
    let function = source.function.clone().unwrap_or_default();
    let mut lines = String::new();
    push(
        &mut lines,
        &json!({
            "type": "source",
            "schema": SCHEMA,
            "function": function.name,
            "linkage_name": known(&function.linkage_name),
            "file": known(&function.file),
            "line": number(function.line),
            "last_line": number(source.last_line),
            "marked_line": number(source.marked_line),
            "has_text": source.has_text,
            "module": function.module,
            "address": if function.address == 0 { Value::Null } else { integer(function.address) },
            "size": integer(function.size),
            "ranges": ranges(&source.ranges),
            "instances": source.instances.iter().map(|of| instance(of, &function.file)).collect::<Vec<_>>(),
            "variables": variables(source),
            "missing": source.missing,
            "warnings": source.warnings,
        }),
    );
    for of in &source.lines {
        push(&mut lines, &line(of, source, &function));
    }
    lines
}

fn line(line: &v1::SourceLine, source: &v1::SourceFunction, function: &v1::Function) -> Value {
    let own = line.file.is_empty();
    let file = if own { &function.file } else { &line.file };
    let everywhere = line.variables.iter().map(|&at| (at, true));
    let in_part = line.variables_in_part.iter().map(|&at| (at, false));
    let mut readable: Vec<(u32, bool)> = everywhere.chain(in_part).collect();
    readable.sort_unstable();
    let readable: Vec<Value> = readable
        .into_iter()
        .filter_map(|(at, everywhere)| Some((source.variables.get(at as usize)?, everywhere)))
        .map(|(variable, everywhere)| {
            json!({"name": variable.name, "type": variable.r#type, "everywhere": everywhere})
        })
        .collect();
    let sites: Vec<Value> = line.sites.iter().copied().map(integer).collect();
    json!({
        "type": "line",
        "schema": SCHEMA,
        "function": function.name,
        "module": function.module,
        "address": if function.address == 0 { Value::Null } else { integer(function.address) },
        "file": if line.line == 0 { Value::Null } else { known(file) },
        "line": number(line.line),
        "marked": line.marked,
        "text": if source.has_text && own && line.line != 0 { line.text.as_str().into() } else { Value::Null },
        "sites": sites,
        "branches": line.branches.iter().map(|of| branch(of, &function.file)).collect::<Vec<_>>(),
        "calls": line.calls.iter().map(call).collect::<Vec<_>>(),
        "inlined": line.inlined.iter().map(|of| instance(of, &function.file)).collect::<Vec<_>>(),
        "variables": readable,
        "counts": line.counts.iter().map(count).collect::<Vec<_>>(),
    })
}

fn count(count: &v1::SourceCount) -> Value {
    json!({"session": count.session, "step": count.step, "count": integer(count.count)})
}

fn number(line: u32) -> Value {
    if line == 0 { Value::Null } else { line.into() }
}

fn ranges(ranges: &[v1::AddressRange]) -> Value {
    ranges
        .iter()
        .map(|range| json!([integer(range.begin), integer(range.end)]))
        .collect()
}

fn position(position: Option<&v1::SourcePosition>, own: &str) -> Value {
    let Some(v1::SourcePosition { address, file, line }) = position else {
        return Value::Null;
    };
    let file = if file.is_empty() { own } else { file };
    json!({
        "address": integer(*address),
        "file": if *line == 0 { Value::Null } else { known(file) },
        "line": number(*line),
    })
}

fn branch(branch: &v1::SourceBranch, own: &str) -> Value {
    json!({
        "address": integer(branch.address),
        "instruction": branch.mnemonic,
        "taken": position(branch.taken.as_ref(), own),
        "else": position(branch.otherwise.as_ref(), own),
        "loop": branch.is_loop,
    })
}

fn call(call: &v1::SourceCall) -> Value {
    let kind = match call.kind() {
        v1::CallKind::Direct => "direct",
        v1::CallKind::Plt => "plt",
        v1::CallKind::Indirect | v1::CallKind::Unspecified => "indirect",
    };
    let address = |address: u64| {
        if address == 0 {
            Value::Null
        } else {
            integer(address)
        }
    };
    json!({
        "address": integer(call.address),
        "return_address": address(call.return_address),
        "callee": known(&call.callee),
        "callee_address": address(call.callee_address),
        "kind": kind,
        "tail": call.return_address == 0,
    })
}

fn instance(instance: &v1::SourceInstance, own: &str) -> Value {
    let file = if instance.call_file.is_empty() {
        own
    } else {
        &instance.call_file
    };
    json!({
        "function": instance.function,
        "call_file": if instance.call_line == 0 { Value::Null } else { known(file) },
        "call_line": number(instance.call_line),
        "ranges": ranges(&instance.ranges),
    })
}

fn variables(source: &v1::SourceFunction) -> Vec<Value> {
    source
        .variables
        .iter()
        .zip(lines_of_variables(source))
        .map(|(variable, lines)| {
            json!({
                "name": variable.name,
                "type": variable.r#type,
                "kind": if variable.parameter { "parameter" } else { "local" },
                "line": number(variable.line),
                "inlined_from": known(&variable.inlined_from),
                "ranges": ranges(&variable.ranges),
                "lines": lines,
            })
        })
        .collect()
}
