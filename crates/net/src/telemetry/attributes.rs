//! Attributes of messages of OTLP (opentelemetry-proto, `common/v1/common.proto` and
//! `resource/v1/resource.proto`).

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;

/// An attribute with a text for its value.
pub fn text(name: &str, value: impl Into<String>) -> KeyValue {
    attribute(name, text_value(value))
}

/// An attribute with a number for its value.
pub fn number(name: &str, value: impl Into<i64>) -> KeyValue {
    let value = Some(Value::IntValue(value.into()));
    attribute(name, AnyValue { value })
}

/// A text where any value may be.
pub fn text_value(value: impl Into<String>) -> AnyValue {
    let value = Some(Value::StringValue(value.into()));
    AnyValue { value }
}

fn attribute(name: &str, value: AnyValue) -> KeyValue {
    KeyValue {
        key: name.to_owned(),
        value: Some(value),
        ..KeyValue::default()
    }
}

/// A resource with the attributes that the operator has `chosen`, and what of `own` is
/// known and was not chosen.
pub fn resource<T: AsRef<str>>(own: &[(&str, &str)], chosen: &[(T, T)]) -> Resource {
    let is_chosen = |name: &str| chosen.iter().any(|(other, _)| other.as_ref() == name);
    let own = own.iter().copied();
    let own = own.filter(|(name, value)| !value.is_empty() && !is_chosen(name));
    let chosen = chosen.iter();
    let chosen = chosen.map(|(name, value)| (name.as_ref(), value.as_ref()));
    Resource {
        attributes: own
            .chain(chosen)
            .map(|(name, value)| text(name, value))
            .collect(),
        ..Resource::default()
    }
}
