//! Typed objects of route files: a struct has a field for each key.
//!
//! [`object!`] names a key once, with the type of its value and its default. A field
//! knows its place, so that what is wrong with it is told there. The compiler finds the
//! fields that nobody reads.

use std::marker::PhantomData;
use std::ops::Deref;

use serde_json::Value;
use url::Url;

use super::settings::{Declared, Place, Settings};
use doorward_expr::Expression;
use doorward_expr::duration::{self, Length};
use doorward_plugin_api::ConfigError;

/// Defines a struct whose fields are those of an object's `config`.
///
/// `as "name"` gives a field another name in the file; further names follow behind `|`,
/// and the first that is there counts. `= value` is what an absent field is. `as ..`
/// makes a field of the fields of another such struct. `idle` lists keys that have no
/// effect, some with the reason for it. Where it stands, operators are warned of keys
/// that the struct does not have; elsewhere others read the rest of the object.
macro_rules! object {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident<$life:lifetime> {
            $(
                $(#[$field_meta:meta])*
                $field:ident $(as $wire:tt $(| $alias:literal)*)? : $type:ty $(= $default:expr)?
            ),* $(,)?
        }
        $(idle { $($idle:literal $(: $reason:expr)?),* $(,)? })?
    ) => {
        $(#[$meta])*
        $vis struct $name<$life> {
            $(
                $(#[$field_meta])*
                $vis $field: $crate::chain::object::object!(@type $life [$($wire)?] $type),
            )*
        }

        impl<$life> $crate::chain::object::Object<$life> for $name<$life> {
            fn names() -> Vec<&'static str> {
                Vec::from([$(
                    $crate::chain::object::object!(
                        @names $field [$($wire $($alias)*)?] $type
                    )
                ),*])
                .concat()
            }

            fn read(
                settings: &$crate::chain::settings::Settings<$life>,
            ) -> Result<Self, doorward_plugin_api::ConfigError> {
                $(settings.warn_of_others(
                    &Self::names(),
                    &[$(($idle, $crate::chain::object::object!(@reason $($reason)?))),*],
                );)?
                Ok(Self {
                    $($field: $crate::chain::object::object!(
                        @read settings, $field [$($wire $($alias)*)?] $type, $($default)?
                    )?,)*
                })
            }
        }
    };
    (@type $life:lifetime [..] $type:ty) => { $type };
    (@type $life:lifetime $wire:tt $type:ty) => { $crate::chain::object::Field<$life, $type> };
    (@names $field:ident [..] $type:ty) => {
        <$type as $crate::chain::object::Object<'_>>::names()
    };
    (@names $field:ident [$($wire:literal)*] $type:ty) => {
        $crate::chain::object::object!(@list $field $($wire)*).to_vec()
    };
    (@read $settings:ident, $field:ident [..] $type:ty,) => {
        <$type as $crate::chain::object::Object<'_>>::read($settings)
    };
    (@read $settings:ident, $field:ident [$($wire:literal)*] $type:ty,) => {
        $settings.field::<$type>(&$crate::chain::object::object!(@list $field $($wire)*))
    };
    (@read $settings:ident, $field:ident [$($wire:literal)*] $type:ty, $default:expr) => {
        $settings.field_or::<$type>(
            &$crate::chain::object::object!(@list $field $($wire)*),
            || $default,
        )
    };
    (@list $field:ident) => { [stringify!($field)] };
    (@list $field:ident $($wire:literal)+) => { [$($wire),+] };
    (@reason) => { None };
    (@reason $reason:expr) => { Some($reason) };
}
pub(crate) use object;

/// A struct of [`object!`].
pub(crate) trait Object<'a>: Sized {
    /// The names of its fields.
    fn names() -> Vec<&'static str>;

    /// Reads the `config` of an object.
    ///
    /// # Errors
    /// [`ConfigError`] with the path of the field at fault.
    fn read(settings: &Settings<'a>) -> Result<Self, ConfigError>;
}

/// A field of an object, and what it has been read into.
pub(crate) struct Field<'a, T> {
    /// Where it stands.
    pub(super) place: Place<'a>,
    /// What it holds.
    pub(crate) value: T,
}

impl<'a, T> Deref for Field<'a, T> {
    type Target = Place<'a>;

    fn deref(&self) -> &Place<'a> {
        &self.place
    }
}

/// A type that a field can have.
pub(crate) trait FieldType<'a>: Sized {
    /// Reads the field at a place, which may be absent.
    ///
    /// # Errors
    /// [`ConfigError`] for a value of another type, and for none where there must be one.
    fn read(place: &Place<'a>) -> Result<Self, ConfigError>;
}

/// What a value that is there is read into.
pub(crate) trait GivenValue<'a>: Sized {
    /// Reads a value, which is not null.
    ///
    /// # Errors
    /// [`ConfigError`] for a value of another type.
    fn read(place: &Place<'a>, value: &Value) -> Result<Self, ConfigError>;
}

impl<'a, T: GivenValue<'a>> FieldType<'a> for Option<T> {
    fn read(place: &Place<'a>) -> Result<Self, ConfigError> {
        let value = place.value();
        value.map(|value| T::read(place, value)).transpose()
    }
}

/// A text, which may be an expression without a request.
impl<'a> GivenValue<'a> for String {
    fn read(place: &Place<'a>, value: &Value) -> Result<Self, ConfigError> {
        match value {
            Value::String(text) => place.evaluated(text),
            _ => Err(place.wrong("must be a text")),
        }
    }
}

/// True or false, also as text.
impl<'a> GivenValue<'a> for bool {
    fn read(place: &Place<'a>, value: &Value) -> Result<Self, ConfigError> {
        let flag = match value {
            Value::Bool(flag) => Some(*flag),
            Value::String(text) => {
                let text = place.evaluated(text)?;
                let is = |word: &str| text.eq_ignore_ascii_case(word);
                is("true").then_some(true).or(is("false").then_some(false))
            }
            _ => None,
        };
        flag.ok_or_else(|| place.wrong("must be true or false"))
    }
}

/// A duration such as `10 seconds`.
impl<'a> GivenValue<'a> for Length {
    fn read(place: &Place<'a>, value: &Value) -> Result<Self, ConfigError> {
        match value {
            Value::String(text) => duration::parse(&place.evaluated(text)?)
                .map_err(|fault| place.wrong(fault.to_string())),
            _ => Err(place.wrong("must be a text such as `10 seconds`")),
        }
    }
}

/// An absolute URL of HTTP.
impl<'a> GivenValue<'a> for Url {
    fn read(place: &Place<'a>, value: &Value) -> Result<Self, ConfigError> {
        let url = Self::parse(&<String as GivenValue>::read(place, value)?).ok();
        let url = url.filter(|url| matches!(url.scheme(), "http" | "https"));
        url.ok_or_else(|| place.wrong("must be an http or https URL"))
    }
}

/// An expression.
impl<'a> GivenValue<'a> for Expression {
    fn read(place: &Place<'a>, value: &Value) -> Result<Self, ConfigError> {
        match value {
            Value::String(text) => place.compile(text),
            _ => Err(place.wrong("must be a text")),
        }
    }
}

/// Members that have names of their own, each of this type.
impl<'a> GivenValue<'a> for Settings<'a> {
    fn read(place: &Place<'a>, value: &Value) -> Result<Self, ConfigError> {
        match value {
            Value::Object(object) => Ok(place.inner(object)),
            _ => Err(place.wrong("must be an object")),
        }
    }
}

/// A text that must be there and not be empty.
impl<'a> FieldType<'a> for String {
    fn read(place: &Place<'a>) -> Result<Self, ConfigError> {
        let text = Option::<Self>::read(place)?.filter(|text| !text.is_empty());
        text.ok_or_else(|| place.wrong("is required"))
    }
}

/// Types of fields that must be there.
macro_rules! required {
    ($($type:ty),*) => {$(
        impl<'a> FieldType<'a> for $type {
            fn read(place: &Place<'a>) -> Result<Self, ConfigError> {
                Option::<Self>::read(place)?.ok_or_else(|| place.wrong("is required"))
            }
        }
    )*};
}
required!(Url, Expression);

/// Texts as they are written: a list of them, or one alone.
impl<'a> FieldType<'a> for Vec<String> {
    fn read(place: &Place<'a>) -> Result<Self, ConfigError> {
        place
            .value()
            .map_or(Ok(Self::new()), |value| texts(place, value))
    }
}

fn texts(place: &Place<'_>, value: &Value) -> Result<Vec<String>, ConfigError> {
    let wrong = || place.wrong("must be a list of texts");
    match value {
        Value::String(text) => Ok(vec![text.clone()]),
        Value::Array(items) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned).ok_or_else(wrong))
            .collect(),
        _ => Err(wrong()),
    }
}

/// Texts, or one alone, for each of the names in an object.
pub(crate) type TextLists = Vec<(String, Vec<String>)>;

impl<'a> FieldType<'a> for TextLists {
    fn read(place: &Place<'a>) -> Result<Self, ConfigError> {
        let object = match place.value() {
            None => return Ok(Self::new()),
            Some(Value::Object(object)) => object,
            Some(_) => return Err(place.wrong("must be an object of lists of texts")),
        };
        let entries = object.iter().map(|(name, value)| {
            let listed = match value {
                Value::Null => Vec::new(),
                value => texts(&place.at(name), value)?,
            };
            Ok((name.clone(), listed))
        });
        entries.collect()
    }
}

/// Any value: its reader looks at it.
pub(crate) struct AnyValue;

impl<'a> FieldType<'a> for AnyValue {
    fn read(_place: &Place<'a>) -> Result<Self, ConfigError> {
        Ok(Self)
    }
}

/// A value that counts, and is read, in some cases alone.
pub(crate) struct DeferredValue<T>(PhantomData<T>);

impl<'a, T> FieldType<'a> for DeferredValue<T> {
    fn read(_place: &Place<'a>) -> Result<Self, ConfigError> {
        Ok(Self(PhantomData))
    }
}

impl<'a, T: FieldType<'a>> Field<'a, DeferredValue<T>> {
    /// The value.
    ///
    /// # Errors
    /// As of [`FieldType::read`].
    pub(crate) fn read(&self) -> Result<T, ConfigError> {
        T::read(&self.place)
    }
}

/// Names of other objects, or such objects themselves.
pub(crate) struct Reference;

impl<'a> FieldType<'a> for Reference {
    fn read(_place: &Place<'a>) -> Result<Self, ConfigError> {
        Ok(Self)
    }
}

impl<'a> Field<'a, Reference> {
    /// The one object.
    ///
    /// # Errors
    /// [`ConfigError`] for a name of no object.
    pub(crate) fn declared(&self) -> Result<Option<Declared<'a>>, ConfigError> {
        self.place.declared()
    }

    /// The objects of a list; one may stand alone.
    ///
    /// # Errors
    /// [`ConfigError`] for a name of no object.
    pub(crate) fn all_declared(&self) -> Result<Vec<Declared<'a>>, ConfigError> {
        self.place.all_declared()
    }
}
