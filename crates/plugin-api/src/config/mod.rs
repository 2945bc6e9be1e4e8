//! Typed configuration: one struct is the schema of a record and what it is read into.
//!
//! A plugin lists its fields once, with [`config!`](macro@crate::config). Each has its name,
//! its type, its default, its bounds and what it means. The schema is made of the
//! list, and so is the reader. A test fails for a field that nobody reads, unless its name
//! begins with `_`.
//!
//! ```ignore
//! config! {
//!     struct Config {
//!         /// The header that has the identifier.
//!         #[field(default("X-Request-ID"))]
//!         header_name: HeaderName,
//!         /// How long to wait, in milliseconds.
//!         #[field(kind(Type::Integer(1, 60_000)), default(1000), required)]
//!         timeout: u32,
//!     }
//! }
//! ```

mod values;

#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use crate::ConfigError;
use doorward_core::model::schema::Type;
pub use values::{AnyText, header_name, url_text};

// The macros name them by this path, whatever their user imports.
#[doc(hidden)]
pub use doorward_core::model::schema::{Field, Schema, Type as FieldType};
#[doc(hidden)]
pub use serde_json::{Map as JsonMap, Value as JsonValue};

/// A type that a field can have.
pub trait FieldValue: Sized {
    /// What the schema says of it, if the field says nothing else.
    fn kind() -> Type;

    /// What a field that is null holds, and by default its `default`. `None`: the schema
    /// has to refuse null.
    fn of_null(default: Option<&Value>) -> Option<Self> {
        Self::read(default?).ok()
    }

    /// What is wrong with a field that is null and may not be.
    fn missing() -> &'static str {
        "required field missing"
    }

    /// Whether a value says nothing, as null does: an empty text in the place of one
    /// that may be missing.
    fn is_blank(_value: &Value) -> bool {
        false
    }

    /// Reads a value that satisfies the schema and is not null.
    ///
    /// # Errors
    /// [`ConfigError`] for a value that the schema can't judge. Its field is a path
    /// inside the value, and empty for the value itself.
    fn read(value: &Value) -> Result<Self, ConfigError>;
}

/// What a field holds is one of several words.
pub trait FieldWord: Copy {
    /// The word that it is.
    fn word(self) -> &'static str;
}

/// Reads the field of a record that satisfies its schema. Its type says what null is.
///
/// # Errors
/// [`ConfigError`] with the path of what is wrong.
#[doc(hidden)]
pub fn read_field<T: FieldValue>(
    config: &Map<String, Value>,
    row: impl Fn() -> Field,
    name: &str,
) -> Result<T, ConfigError> {
    let value = match config.get(name) {
        None | Some(Value::Null) => {
            let default = row().default.filter(|default| !default.is_null());
            T::of_null(default.as_ref()).ok_or_else(|| wrong(T::missing()))
        }
        Some(value) => T::read(value),
    };
    value.map_err(|error| error.within(name))
}

/// Reads a record for a check of several fields, whatever else is wrong with it: a
/// field that is wrong by itself counts as if it was absent. A text that must be there
/// has a stand-in, which says nothing. `None`: there is no record without the field.
pub fn read_for_check<T: FieldValue>(config: &Map<String, Value>) -> Option<T> {
    if let Ok(read) = T::read(&Value::Object(config.clone())) {
        return Some(read);
    }
    let Type::Record(schema) = T::kind() else {
        return None;
    };
    T::read(&Value::Object(sound(schema, config))).ok()
}

/// The fields that are right by themselves, and in the place of each other one what it
/// is if it is absent.
fn sound(schema: Schema, config: &Map<String, Value>) -> Map<String, Value> {
    let mut sound_fields = Map::new();
    for field in schema.fields {
        let name = field.name;
        let value = match (&field.kind, config.get(name)) {
            (Type::Record(inner), Some(Value::Object(record))) => {
                Some(sound(inner.clone(), record).into())
            }
            (_, value) => value.cloned(),
        };
        let value = value.map(|value| (name.to_owned(), value));
        let mut alone: Map<_, _> = value.into_iter().collect();
        let schema = Schema::new(vec![field]);
        if !schema.validate(&alone).is_empty() {
            alone.clear();
        }
        schema.fill(&mut alone);
        if let Some(text) = stand_in(&schema, &alone) {
            alone.insert(name.to_owned(), text.into());
        }
        sound_fields.extend(alone);
    }
    sound_fields
}

/// What stands in for the text of a required field that is absent, where one text is as
/// good as another. Of several words, each would say something.
fn stand_in(schema: &Schema, record: &Map<String, Value>) -> Option<&'static str> {
    let [field] = schema.fields.as_slice() else {
        return None;
    };
    let Type::String(text) = &field.kind else {
        return None;
    };
    let is_absent = record.get(field.name).is_none_or(Value::is_null);
    if !field.required || field.auto || !is_absent {
        return None;
    }
    let candidates = match text.one_of {
        [] => &["x", "http://x/", "/x"],
        [word] => std::slice::from_ref(word),
        _ => return None,
    };
    let mut fitting = candidates.iter().copied();
    fitting.find(|text| {
        let record = Map::from_iter([(field.name.to_owned(), Value::from(*text))]);
        schema.validate(&record).is_empty()
    })
}

/// An error of a value itself.
pub(crate) fn wrong(message: impl Into<String>) -> ConfigError {
    ConfigError {
        field: String::new(),
        message: message.into(),
    }
}

/// Defines a struct whose fields are those of a record: see [the module](mod@crate::config).
///
/// The documentation of a field is its description in the schema. `#[field(…)]` names
/// methods of [`Field`] that are called on its row
/// of the schema. `as "name"` gives a field another name in the record. `as ..` makes a
/// field of several rows: those of another struct of this macro, which stand in the same
/// record.
#[macro_export]
macro_rules! config {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $(
                $(#[doc = $doc:literal])*
                $(#[field($($method:ident $(($($arg:expr),* $(,)?))?),* $(,)?)])?
                $field_vis:vis $field:ident $(as $wire:tt)? : $type:ty
            ),* $(,)?
        }
    ) => {
        $(#[$meta])*
        $vis struct $name {
            $($(#[doc = $doc])* $field_vis $field: $type,)*
        }

        impl $name {
            /// The rows of the schema.
            $vis fn fields() -> Vec<$crate::config::Field> {
                Vec::from([$(
                    $crate::config!(
                        @rows $field [$($wire)?] $type,
                        [$($doc),*] [$($($method($($($arg),*)?)),*)?]
                    )
                ),*])
                .concat()
            }

            /// Reads a record that satisfies the schema.
            $vis fn read(
                config: &$crate::config::JsonMap<String, $crate::config::JsonValue>,
            ) -> Result<Self, $crate::ConfigError> {
                Ok(Self {
                    $($field: $crate::config!(
                        @read config, $field [$($wire)?] $type,
                        [$($($method($($($arg),*)?)),*)?]
                    )?,)*
                })
            }
        }

        impl $crate::config::FieldValue for $name {
            fn kind() -> $crate::config::FieldType {
                $crate::config::FieldType::Record($crate::config::Schema::new(Self::fields()))
            }

            fn read(value: &$crate::config::JsonValue) -> Result<Self, $crate::ConfigError> {
                match value {
                    $crate::config::JsonValue::Object(record) => Self::read(record),
                    _ => Err($crate::config::not_a("record")),
                }
            }
        }
    };
    (@rows $field:ident [..] $type:ty, $docs:tt $methods:tt) => { <$type>::fields() };
    (@rows $field:ident $wire:tt $type:ty, $docs:tt $methods:tt) => {
        vec![$crate::config!(@row $field $wire $type, $docs $methods)]
    };
    (
        @row $field:ident [$($wire:literal)?] $type:ty,
        [$($doc:literal),*] [$($method:ident($($arg:expr),*)),*]
    ) => {
        $crate::config::Field::new(
            $crate::config!(@name $field $($wire)?),
            <$type as $crate::config::FieldValue>::kind(),
        )
        .described(concat!($($doc),*))
        $(.$method($($arg),*))*
    };
    (@read $config:ident, $field:ident [..] $type:ty, $methods:tt) => { <$type>::read($config) };
    (@read $config:ident, $field:ident [$($wire:literal)?] $type:ty, $methods:tt) => {
        $crate::config::read_field(
            $config,
            || $crate::config!(@row $field [$($wire)?] $type, [] $methods),
            $crate::config!(@name $field $($wire)?),
        )
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $wire:literal) => { $wire };
}

/// Defines an enum whose variants are the words that a field can have.
#[macro_export]
macro_rules! words {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident {
            $($(#[doc = $doc:literal])* $variant:ident = $word:literal),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name {
            $($(#[doc = $doc])* $variant,)*
        }

        impl $name {
            /// The words.
            $vis const WORDS: &'static [&'static str] = &[$($word),*];

            /// What a word stands for.
            $vis fn named(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }

        impl $crate::config::FieldWord for $name {
            fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }

        impl $crate::config::FieldValue for $name {
            fn kind() -> $crate::config::FieldType {
                $crate::config::FieldType::word(Self::WORDS)
            }

            fn read(value: &$crate::config::JsonValue) -> Result<Self, $crate::ConfigError> {
                let word = value.as_str().and_then(Self::named);
                word.ok_or_else(|| $crate::config::not_one_of(Self::WORDS))
            }
        }
    };
}

/// The error of a value that has another type than its field.
#[doc(hidden)]
pub fn not_a(expected: &str) -> ConfigError {
    wrong(format!("expected a {expected}"))
}

/// The error of a word that is none of these.
#[doc(hidden)]
pub fn not_one_of(words: &[&str]) -> ConfigError {
    wrong(format!("expected one of: {}", words.join(", ")))
}
