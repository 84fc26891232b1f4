//! NDJSON as tests look at it.

use serde_json::Value;

pub use profiler_testkit::json::objects as parse;

/// The keys of an object, in order.
pub fn keys(object: &Value) -> Vec<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}
