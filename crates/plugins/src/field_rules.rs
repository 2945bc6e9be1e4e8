//! Rules on header fields, as both transformers have them: remove, rename,
//! replace, add, append, in this order.

use http::header::{CONNECTION, CONTENT_LENGTH, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::settings::{header_name, wrong};
use doorward_plugin_api::ConfigError;

/// Headers that say where a message ends or belong to one connection. They are
/// the gateway's to write: another value would let two readers see two messages.
const FRAMING: [HeaderName; 8] = [
    CONNECTION,
    CONTENT_LENGTH,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// `name:value`, split at the first colon; `None`: there is none.
pub(crate) fn pair(text: &str) -> Option<(&str, &str)> {
    text.split_once(':')
}

/// The check of an entry `name:value` of a header.
pub(crate) fn check_header_pair(text: &str) -> Result<(), String> {
    let (name, value) = pair(text).ok_or_else(|| format!("invalid value: {text}"))?;
    header(name)?;
    HeaderValue::from_bytes(value.as_bytes()).map_err(|_| format!("invalid value: {text}"))?;
    Ok(())
}

/// The check of an entry `old:new`.
pub(crate) fn check_header_names(text: &str) -> Result<(), String> {
    let (old, new) = pair(text).ok_or_else(|| format!("invalid value: {text}"))?;
    header(old).and_then(|_| header(new)).map(drop)
}

/// The check of an entry that removes a header.
pub(crate) fn check_header_to_remove(text: &str) -> Result<(), String> {
    to_remove(text).map(drop)
}

/// The header that an entry removes. What follows a colon says nothing: files have
/// `name:value` there too.
pub(crate) fn to_remove(text: &str) -> Result<HeaderName, String> {
    header(pair(text).map_or(text, |(name, _)| name))
}

/// The header called `text`, if a rule may touch it.
pub(crate) fn header(text: &str) -> Result<HeaderName, String> {
    let invalid = || format!("'{text}' is not a valid header");
    header_name(text).map_err(|_| invalid())?;
    let name = HeaderName::try_from(text).map_err(|_| invalid())?;
    if FRAMING.contains(&name) {
        return Err(format!(
            "'{text}' can't be changed here: the gateway writes what frames a message"
        ));
    }
    Ok(name)
}

/// Rules on header fields; `V` becomes the value.
#[derive(Debug)]
pub(crate) struct FieldRules<V> {
    pub(crate) remove: Box<[HeaderName]>,
    pub(crate) rename: Box<[(HeaderName, HeaderName)]>,
    pub(crate) replace: Box<[(HeaderName, V)]>,
    pub(crate) add: Box<[(HeaderName, V)]>,
    pub(crate) append: Box<[(HeaderName, V)]>,
}

/// What a configuration lists for each operation on headers.
pub(crate) struct RuleLists<'a> {
    pub(crate) remove: &'a [Box<str>],
    pub(crate) rename: &'a [Box<str>],
    pub(crate) replace: &'a [Box<str>],
    pub(crate) add: &'a [Box<str>],
    pub(crate) append: &'a [Box<str>],
}

impl<V> FieldRules<V> {
    /// The rules of these lists, where `value` reads what is behind the colon.
    pub(crate) fn read(
        lists: &RuleLists<'_>,
        mut value: impl FnMut(&str) -> Result<V, String>,
    ) -> Result<Self, ConfigError> {
        let mut pairs = |operation: &'static str, entries: &[Box<str>]| {
            let at = |message: String| wrong(&format!("{operation}.headers"), message);
            let entries = entries.iter().map(|text| {
                let (name, rest) =
                    pair(text).ok_or_else(|| at(format!("invalid value: {text}")))?;
                Ok((header(name).map_err(at)?, value(rest).map_err(at)?))
            });
            entries.collect::<Result<Box<[_]>, ConfigError>>()
        };
        let replace = pairs("replace", lists.replace)?;
        let add = pairs("add", lists.add)?;
        let append = pairs("append", lists.append)?;
        let names: Result<_, _> = lists.remove.iter().map(|text| to_remove(text)).collect();
        let renames = lists.rename.iter().map(|text| {
            let (old, new) = pair(text).ok_or_else(|| format!("invalid value: {text}"))?;
            Ok((header(old)?, header(new)?))
        });
        let renames: Result<_, String> = renames.collect();
        Ok(Self {
            remove: names.map_err(|message| wrong("remove.headers", message))?,
            rename: renames.map_err(|message| wrong("rename.headers", message))?,
            replace,
            add,
            append,
        })
    }
}

/// A head whose fields rules can change.
pub(crate) trait Fields {
    /// The fields as they are.
    fn fields(&self) -> &HeaderMap;
    /// Removes all of a name.
    fn remove(&mut self, name: &HeaderName);
    /// Adds one.
    fn append(&mut self, name: &HeaderName, value: HeaderValue);

    /// Puts one in the place of all of a name.
    fn set(&mut self, name: &HeaderName, value: HeaderValue) {
        self.remove(name);
        self.append(name, value);
    }

    /// Gives the fields called `old` the name `new`, over any of that name.
    fn rename(&mut self, old: &HeaderName, new: &HeaderName) {
        if old == new || !self.fields().contains_key(old) {
            return;
        }
        let values: Vec<_> = self.fields().get_all(old).iter().cloned().collect();
        self.remove(old);
        self.remove(new);
        for value in values {
            self.append(new, value);
        }
    }
}

impl Fields for HeaderMap {
    fn fields(&self) -> &HeaderMap {
        self
    }

    fn remove(&mut self, name: &HeaderName) {
        self.remove(name);
    }

    fn append(&mut self, name: &HeaderName, value: HeaderValue) {
        // There is room: the fields of a request are bounded, and so are the rules.
        let _ = self.try_append(name, value);
    }
}

impl Fields for pingora::http::ResponseHeader {
    fn fields(&self) -> &HeaderMap {
        &self.headers
    }

    fn remove(&mut self, name: &HeaderName) {
        self.remove_header(name);
    }

    fn append(&mut self, name: &HeaderName, value: HeaderValue) {
        // A name and a value that are already those of a message.
        let _ = self.append_header(name.clone(), value);
    }
}

impl<V> FieldRules<V> {
    /// Applies the rules; `text` makes a value of what is behind the colon.
    pub(crate) fn apply(&self, head: &mut impl Fields, text: impl Fn(&V) -> HeaderValue) {
        for name in &self.remove {
            head.remove(name);
        }
        for (old, new) in &self.rename {
            head.rename(old, new);
        }
        for (name, value) in &self.replace {
            if head.fields().contains_key(name) {
                head.set(name, text(value));
            }
        }
        for (name, value) in &self.add {
            if !head.fields().contains_key(name) {
                head.append(name, text(value));
            }
        }
        for (name, value) in &self.append {
            head.append(name, text(value));
        }
    }
}
