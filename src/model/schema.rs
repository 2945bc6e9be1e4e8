//! Schemas: the fields of a record, their types, defaults and constraints.
//!
//! One description serves everything that is done with a record from outside:
//! typing form values, filling defaults, validation with the Admin API's
//! messages, and the `/schemas` endpoints.

use serde_json::Value;

/// The fields of a record, in the order in which they are shown.
#[derive(Debug, Clone, Default)]
pub struct Schema {
    /// The fields.
    pub fields: Vec<Field>,
}

/// One field of a record.
#[derive(Debug, Clone)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// What it holds.
    pub kind: Type,
    /// The value of a field that is absent. `None`: null.
    pub default: Option<Value>,
    /// Whether null is refused.
    pub required: bool,
}

/// What a field holds.
#[derive(Debug, Clone)]
pub enum Type {
    /// Text.
    String(Text),
    /// A whole number between two bounds, both included.
    Integer(i64, i64),
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// A list in which order counts.
    Array(Box<Type>),
    /// A list without repetition, in which order does not count.
    Set(Box<Type>),
    /// Names (any) to values.
    Map(Box<Type>),
    /// Named fields.
    Record(Schema),
    /// A reference `{"id": …}` to a record of the named entity.
    Foreign(&'static str),
    /// Any JSON value: who builds from the record checks it. A form value that
    /// reads as a JSON number, `true` or `false` becomes one.
    Any,
}

/// Constraints on a text.
#[derive(Debug, Clone, Default)]
pub struct Text {
    /// The allowed values; empty: any.
    pub one_of: &'static [&'static str],
    /// A check of its own; the error is the message shown.
    pub check: Option<fn(&str) -> Result<(), String>>,
}

impl Schema {
    /// A schema of these fields.
    pub fn new(fields: Vec<Field>) -> Self {
        Self { fields }
    }

    /// The field called `name`.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

impl Type {
    /// Any text.
    pub fn text() -> Self {
        Type::String(Text::default())
    }

    /// One of the given words.
    pub fn word(one_of: &'static [&'static str]) -> Self {
        Type::String(Text {
            one_of,
            check: None,
        })
    }

    /// A text that satisfies `check`.
    pub fn checked(check: fn(&str) -> Result<(), String>) -> Self {
        Type::String(Text {
            one_of: &[],
            check: Some(check),
        })
    }

    /// An array of `elements`.
    pub fn array(elements: Type) -> Self {
        Type::Array(Box::new(elements))
    }

    /// A set of `elements`.
    pub fn set(elements: Type) -> Self {
        Type::Set(Box::new(elements))
    }
}

impl Field {
    /// A field that may be absent and then is null.
    pub fn new(name: &'static str, kind: Type) -> Self {
        Self {
            name,
            kind,
            default: None,
            required: false,
        }
    }

    /// The value of the field when it is absent.
    #[must_use]
    pub fn default(mut self, value: impl Into<Value>) -> Self {
        self.default = Some(value.into());
        self
    }

    /// Refuses null.
    #[must_use]
    pub fn required(mut self) -> Self {
        self.required = true;
        self
    }
}
