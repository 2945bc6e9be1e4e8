//! A line of StatsD, with or without tags.

use std::borrow::Cow;

use doorward_plugin_api::words;

/// A name in which no other line, field or tag can begin.
pub(super) fn clean(name: &str) -> Cow<'_, str> {
    let breaks = |c: char| c.is_control() || matches!(c, ':' | '|' | '@' | '#' | ',' | '[' | ']');
    if name.contains(breaks) {
        Cow::Owned(name.replace(breaks, "_"))
    } else {
        Cow::Borrowed(name)
    }
}

words! {
    /// How tags are written.
    pub(super) enum TagStyle {
        /// Behind the line, behind `#`.
        Dogstatsd = "dogstatsd",
        /// Behind the name, behind a comma.
        Influxdb = "influxdb",
        /// Behind the name, behind `#`.
        Librato = "librato",
        /// Behind the name, between brackets.
        Signalfx = "signalfx",
    }
}

/// Names and values; some tags are a name alone.
#[derive(Debug, Default)]
pub(super) struct Tags(Vec<(String, Option<String>)>);

impl Tags {
    pub(super) fn put(&mut self, name: &str, value: &str) {
        let value = clean(value).into_owned();
        self.0.push((name.to_owned(), Some(value)));
    }

    /// A tag of the configuration, as it stands there.
    pub(super) fn put_whole(&mut self, tag: &str) {
        self.0.push((tag.to_owned(), None));
    }

    fn joined(&self, between: char) -> String {
        let mut text = String::new();
        for (i, (name, value)) in self.0.iter().enumerate() {
            if i > 0 {
                text.push(',');
            }
            text.push_str(name);
            if let Some(value) = value {
                text.push(between);
                text.push_str(value);
            }
        }
        text
    }
}

/// A number, or the member of a set.
#[derive(Debug)]
pub(super) struct Line<'a> {
    pub(super) prefix: &'a str,
    pub(super) name: &'a str,
    pub(super) value: &'a str,
    pub(super) kind: &'static str,
    pub(super) rate: Option<f64>,
}

impl Line<'_> {
    /// The rate, if the receiver has to know it.
    fn rate(&self) -> String {
        let rate = self.rate.filter(|rate| (rate - 1.0).abs() > f64::EPSILON);
        rate.map_or_else(String::new, |rate| format!("|@{rate}"))
    }

    /// Without tags.
    pub(super) fn text(&self) -> String {
        let Line {
            prefix,
            name,
            value,
            kind,
            ..
        } = self;
        format!("{prefix}.{name}:{value}|{kind}{}", self.rate())
    }

    /// With tags.
    pub(super) fn with(&self, style: TagStyle, tags: &Tags) -> String {
        let Line {
            prefix,
            name,
            value,
            kind,
            ..
        } = self;
        let end = format!("{value}|{kind}{}", self.rate());
        match style {
            TagStyle::Dogstatsd => format!("{prefix}.{name}:{end}|#{}", tags.joined(':')),
            TagStyle::Influxdb => format!("{prefix}.{name},{}:{end}", tags.joined('=')),
            TagStyle::Librato => format!("{prefix}.{name}#{}:{end}", tags.joined('=')),
            TagStyle::Signalfx => format!("{prefix}.{name}[{}]:{end}", tags.joined('=')),
        }
    }
}
