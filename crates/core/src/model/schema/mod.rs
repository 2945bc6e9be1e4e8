//! Schemas: the fields of a record, their types, defaults and constraints.
//!
//! One description serves everything that is done with a record from outside:
//! typing form values, filling defaults, validation with the Admin API's
//! messages, and the `/schemas` endpoints.

//!
//! [`Schema::read`] types what came in, [`Schema::complete`] fills it and
//! checks it, [`merge`] applies a partial update. What is wrong is gathered in
//! [`Violations`], all of it at once.

mod complete;
mod json_schema;
mod read;
mod to_json;
mod violations;

#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

pub use complete::merge;
pub use json_schema::{View, nullable};
pub use read::Source;
pub use violations::{Violation, Violations, as_position, failed_condition};

/// A check on a text; the error is the message shown.
pub type TextCheck = fn(&str) -> Result<(), String>;
/// A check on a record as a whole.
pub type Check = fn(&Map<String, Value>, &mut Violations);
/// Rewrites shorthands of an input into the fields that they stand for.
pub type Shorthand = fn(&mut Map<String, Value>, &mut Violations);

/// Fills fields whose defaults depend on other fields.
pub type Prefill = fn(&mut Map<String, Value>);

/// The fields of a record, in the order in which they are shown.
#[derive(Debug, Clone, Default)]
pub struct Schema {
    /// The fields.
    pub fields: Vec<Field>,
    /// Checks that involve several fields; run when no field is wrong by
    /// itself or together with what is.
    pub checks: Vec<Check>,
    /// Runs on an input before its values are typed.
    pub shorthand: Option<Shorthand>,
    /// Fills defaults that depend on other fields, before all others.
    pub prefill: Option<Prefill>,
    /// What `shorthand` rewrites, for those who describe the schema.
    pub inputs: Vec<Input>,
}

/// A field of inputs alone, which is rewritten into others.
#[derive(Debug, Clone)]
pub struct Input {
    /// Its name.
    pub name: &'static str,
    /// What it holds.
    pub kind: Type,
    /// The fields that need not be there where it is.
    pub stands_for: &'static [&'static str],
    /// What it means.
    pub description: &'static str,
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
    /// Whether the value is made up when it is absent (ids, times).
    pub auto: bool,
    /// Whether no two records may have the same value.
    pub unique: bool,
    /// The fewest elements of a list.
    pub len_min: usize,
    /// Other names under which the field is read, never shown.
    pub aliases: &'static [&'static str],
    /// Whether a reference to a vault may stand in the place of a text.
    pub referenceable: bool,
    /// Whether records have the field only where it is not null.
    pub is_rare: bool,
    /// What it means, for people; empty: nothing is said.
    pub description: &'static str,
}

/// What a field holds.
#[derive(Debug, Clone)]
pub enum Type {
    /// Text.
    String(Text),
    /// A whole number between two bounds, both included.
    Integer(i64, i64),
    /// One of these whole numbers.
    Choice(&'static [i64]),
    /// A number.
    Number,
    /// A number between two bounds, both included.
    Between(i64, i64),
    /// `true` or `false`.
    Boolean,
    /// A list in which order counts.
    Array(Box<Type>),
    /// A list without repetition, in which order does not count.
    Set(Box<Type>),
    /// Names (any) to values.
    Map(Box<Type>),
    /// Names (any) to values, where some names have types of their own.
    Members(Schema, Box<Type>),
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
    pub check: Option<TextCheck>,
    /// What JSON Schema calls that check, if it has a word for it.
    pub format: Option<&'static str>,
}

impl Schema {
    /// A schema of these fields.
    pub fn new(fields: Vec<Field>) -> Self {
        Self {
            fields,
            ..Self::default()
        }
    }

    /// Adds a check on the record as a whole.
    #[must_use]
    pub fn check(mut self, check: Check) -> Self {
        self.checks.push(check);
        self
    }

    /// Sets the rewriting of shorthands.
    #[must_use]
    pub fn shorthand(mut self, shorthand: Shorthand) -> Self {
        self.shorthand = Some(shorthand);
        self
    }

    /// Says which field of inputs alone the shorthand rewrites.
    #[must_use]
    pub fn input(
        mut self,
        name: &'static str,
        kind: Type,
        stands_for: &'static [&'static str],
        description: &'static str,
    ) -> Self {
        self.inputs.push(Input {
            name,
            kind,
            stands_for,
            description,
        });
        self
    }

    /// Sets the defaults that depend on other fields.
    #[must_use]
    pub fn prefill(mut self, prefill: Prefill) -> Self {
        self.prefill = Some(prefill);
        self
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

    /// A text that is not empty: the imitated gateway takes no other, if nothing else is
    /// said.
    pub fn some_text() -> Self {
        Self::checked(|text| match text {
            "" => Err("length must be at least 1".to_owned()),
            _ => Ok(()),
        })
    }

    /// One of the given words.
    pub fn word(one_of: &'static [&'static str]) -> Self {
        Type::String(Text {
            one_of,
            ..Text::default()
        })
    }

    /// A text that satisfies `check`.
    pub fn checked(check: TextCheck) -> Self {
        Type::String(Text {
            check: Some(check),
            ..Text::default()
        })
    }

    /// A text that satisfies `check`, which JSON Schema knows as `format`.
    pub fn formatted(format: &'static str, check: TextCheck) -> Self {
        Type::String(Text {
            check: Some(check),
            format: Some(format),
            ..Text::default()
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
            auto: false,
            unique: false,
            len_min: 0,
            aliases: &[],
            referenceable: false,
            is_rare: false,
            description: "",
        }
    }

    /// Says what the field means.
    #[must_use]
    pub fn described(mut self, description: &'static str) -> Self {
        self.description = description.trim_ascii();
        self
    }

    /// Says what the field holds, where its type alone does not.
    #[must_use]
    pub fn kind(mut self, kind: Type) -> Self {
        self.kind = kind;
        self
    }

    /// Leaves the field out of records that do not use it: the imitated gateway's have
    /// no such field.
    #[must_use]
    pub fn rare(mut self) -> Self {
        self.is_rare = true;
        self
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

    /// Says that the value is made up when it is absent.
    #[must_use]
    pub fn auto(mut self) -> Self {
        self.auto = true;
        self
    }

    /// Says that no two records may have the same value.
    #[must_use]
    pub fn unique(mut self) -> Self {
        self.unique = true;
        self
    }

    /// Refuses a list of fewer elements.
    #[must_use]
    pub fn len_min(mut self, len_min: usize) -> Self {
        self.len_min = len_min;
        self
    }

    /// Takes references to vaults in the place of texts: other checks are for what
    /// they stand for.
    #[must_use]
    pub fn referenceable(mut self) -> Self {
        self.referenceable = true;
        self
    }

    /// Reads the field under these names too.
    #[must_use]
    pub fn aliases(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }
}
