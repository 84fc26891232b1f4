//! OpenTelemetry's messages, which files hold and collectors take as requests.
//!
//! | file | idea |
//! |---|---|
//! | `profiles` | stacks with weights, in a format that is still developed |
//! | `metrics` | histograms of durations |

mod metrics;
mod profiles;

use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value::Value},
    resource::v1::Resource,
};

pub use self::{
    metrics::{SCALE, message as metrics, write as encoded_metrics},
    profiles::write as encoded_profiles,
};

/// Keys of attributes, by <https://opentelemetry.io/docs/specs/semconv/> where that has one.
mod key {
    pub const SERVICE: &str = "service.name";
    pub const BUILD_ID: &str = "process.executable.build_id.gnu";
    pub const FRAME_TYPE: &str = "profile.frame.type";
    pub const FUNCTION: &str = "code.function.name";
    pub const COMMENTS: &str = "profiler.comments";
    pub const MODULE: &str = "profiler.module";
    pub const SCOPE: &str = "profiler.scope";
}

fn text_value(text: &str) -> AnyValue {
    AnyValue {
        value: Some(Value::StringValue(text.to_owned())),
    }
}

/// An attribute of this key; `None` without a text.
fn attribute(key: &str, text: &str) -> Option<KeyValue> {
    (!text.is_empty()).then(|| KeyValue {
        key: key.to_owned(),
        value: Some(text_value(text)),
        ..KeyValue::default()
    })
}

/// What was measured: the title is the name of a service.
fn resource(title: &str) -> Resource {
    Resource {
        attributes: attribute(key::SERVICE, title).into_iter().collect(),
        ..Resource::default()
    }
}

/// Who measured it.
fn instrumentation() -> InstrumentationScope {
    InstrumentationScope {
        name: "profiler".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}
