//! Rules on parameters: those of the query, and those of forms.

use std::borrow::Cow;

use url::form_urlencoded;

use super::config::Text;
use crate::field_rules::RuleLists;
use crate::settings::wrong;
use doorward_plugin_api::ConfigError;

/// Rules on the parameters of a query. Names count with their case.
#[derive(Debug)]
pub(super) struct QueryRules {
    pub(super) remove: Box<[Box<str>]>,
    pub(super) rename: Box<[(Box<str>, Text)]>,
    pub(super) replace: Box<[(Box<str>, Text)]>,
    pub(super) add: Box<[(Box<str>, Text)]>,
    pub(super) append: Box<[(Box<str>, Text)]>,
}

/// A parameter; one without `=` has no value.
type Parameter<'a> = (Cow<'a, str>, Option<Cow<'a, str>>);

impl QueryRules {
    /// The rules of these lists, which are called `name` in the configuration. `value`
    /// reads what is behind the colon.
    pub(super) fn read(
        name: &str,
        lists: &RuleLists<'_>,
        mut value: impl FnMut(&str) -> Result<Text, String>,
    ) -> Result<Self, ConfigError> {
        let mut pairs = |operation: &str, entries: &[Box<str>]| {
            let entries = entries.iter().map(|text| {
                let (key, rest) = text.split_once(':').unwrap_or((text, ""));
                let value = value(rest);
                let value =
                    value.map_err(|message| wrong(&format!("{operation}.{name}"), message))?;
                Ok((key.into(), value))
            });
            entries.collect::<Result<Box<[_]>, ConfigError>>()
        };
        Ok(Self {
            rename: pairs("rename", lists.rename)?,
            replace: pairs("replace", lists.replace)?,
            add: pairs("add", lists.add)?,
            append: pairs("append", lists.append)?,
            remove: lists.remove.into(),
        })
    }

    /// Whether the query stays as it is.
    pub(super) fn is_empty(&self) -> bool {
        self.remove.is_empty()
            && self.rename.is_empty()
            && self.replace.is_empty()
            && self.add.is_empty()
            && self.append.is_empty()
    }

    /// The parameters after the rules, encoded anew.
    pub(super) fn apply_to<'a>(
        &'a self,
        query: &str,
        text: impl Fn(&'a Text) -> &'a str,
    ) -> String {
        let mut all = parse(query);
        let is = |name: &str, parameter: &Parameter<'_>| parameter.0 == name;
        for name in &self.remove {
            all.retain(|parameter| !is(name, parameter));
        }
        for (old, new) in &self.rename {
            let new = text(new);
            let there = all.iter().any(|parameter| is(old, parameter));
            if there && **old != *new {
                all.retain(|parameter| !is(new, parameter));
                for parameter in all.iter_mut().filter(|parameter| is(old, parameter)) {
                    parameter.0 = Cow::Borrowed(new);
                }
            }
        }
        for (name, value) in &self.replace {
            let mut first = true;
            let value = Some(Cow::Borrowed(text(value)));
            all.retain_mut(|parameter| {
                if !is(name, parameter) {
                    return true;
                }
                parameter.1.clone_from(&value);
                std::mem::take(&mut first)
            });
        }
        for (name, value) in &self.add {
            if !all.iter().any(|parameter| is(name, parameter)) {
                all.push((Cow::Borrowed(name), Some(Cow::Borrowed(text(value)))));
            }
        }
        for (name, value) in &self.append {
            all.push((Cow::Borrowed(name), Some(Cow::Borrowed(text(value)))));
        }
        write(&all)
    }
}

/// Parameters, encoded anew.
pub(super) fn rewritten(query: &str) -> String {
    write(&parse(query))
}

fn parse(query: &str) -> Vec<Parameter<'_>> {
    let parts = query.split('&').filter(|part| !part.is_empty());
    let parameters = parts.map(|part| {
        let bare = !part.contains('=');
        let mut decoded = form_urlencoded::parse(part.as_bytes());
        let (name, value) = decoded.next().unwrap_or_default();
        (name, (!bare).then_some(value))
    });
    parameters.collect()
}

fn write(parameters: &[Parameter<'_>]) -> String {
    let mut out = String::new();
    let encode = |out: &mut String, text: &str| {
        for piece in form_urlencoded::byte_serialize(text.as_bytes()) {
            // A blank is `%20`, which every reader knows.
            out.push_str(if piece == "+" { "%20" } else { piece });
        }
    };
    for (name, value) in parameters {
        if !out.is_empty() {
            out.push('&');
        }
        encode(&mut out, name);
        if let Some(value) = value {
            out.push('=');
            encode(&mut out, value);
        }
    }
    out
}
