//! The setting `telemetry.access_log`: a place alone, or a place with a format and
//! conditions.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::Format;
use super::selection::{Selection, StatusRange};
use super::template::Template;
use doorward_expr::duration::{self, Length};

/// The format that other programs call combined. It has paths without query strings,
/// which may hold secrets.
const COMBINED: &str = "{client_ip} - {user} [{time_clf}] \"{method} {path} {protocol}\" {status} \
                        {bytes} \"{referer}\" \"{user_agent}\"";

/// The access log as configured.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields, remote = "Self")]
pub struct AccessLogConfig {
    /// `stdout`, `off`, `syslog`, `journal`, or a file to append to.
    pub to: String,
    format: Option<FormatName>,
    template: Option<String>,
    sample: f64,
    statuses: Vec<String>,
    min_duration: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FormatName {
    Json,
    Combined,
    Template,
}

/// What is wrong with a key of the setting.
pub type Finding = (&'static str, String);

impl Default for AccessLogConfig {
    fn default() -> Self {
        Self::to("stdout")
    }
}

impl AccessLogConfig {
    /// All requests as JSON.
    fn to(place: &str) -> Self {
        Self {
            to: place.to_owned(),
            format: None,
            template: None,
            sample: 1.0,
            statuses: Vec::new(),
            min_duration: None,
        }
    }

    /// Whether it can be used.
    ///
    /// # Errors
    /// The key and what is wrong with it.
    pub fn check(&self) -> Result<(), Finding> {
        self.compile().map(drop)
    }

    /// How lines are written, and which requests have one.
    pub(super) fn compile(&self) -> Result<(Format, Selection), Finding> {
        Ok((self.compile_format()?, self.selection()?))
    }

    fn compile_format(&self) -> Result<Format, Finding> {
        let usual = match self.template {
            Some(_) => FormatName::Template,
            None => FormatName::Json,
        };
        let text = match (self.format.unwrap_or(usual), &self.template) {
            (FormatName::Json, None) => return Ok(Format::Json),
            (FormatName::Combined, None) => COMBINED,
            (FormatName::Template, Some(text)) => text,
            (FormatName::Template, None) => {
                return Err(("format", "needs a template".to_owned()));
            }
            (FormatName::Json | FormatName::Combined, Some(_)) => {
                return Err(("template", "needs the format template".to_owned()));
            }
        };
        let template = Template::parse(text).map_err(|message| ("template", message))?;
        Ok(Format::Template(template))
    }

    fn selection(&self) -> Result<Selection, Finding> {
        if !(0.0..=1.0).contains(&self.sample) {
            let message = "value should be between 0 and 1".to_owned();
            return Err(("sample", message));
        }
        let statuses = self.statuses.iter().map(|text| {
            StatusRange::parse(text).ok_or_else(|| {
                let message = format!("'{text}' is neither a status nor a class such as 5xx");
                ("statuses", message)
            })
        });
        let min_duration = self
            .min_duration
            .as_deref()
            .map(|text| match duration::parse(text) {
                Ok(Length::Finite(least)) => Ok(least),
                _ => Err((
                    "min_duration",
                    format!("'{text}' is no time, such as `500 ms`"),
                )),
            });
        Ok(Selection::new(
            self.sample,
            statuses.collect::<Result<_, _>>()?,
            min_duration.transpose()?,
        ))
    }
}

impl<'de> Deserialize<'de> for AccessLogConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Section)
    }
}

struct Section;

impl<'de> Visitor<'de> for Section {
    type Value = AccessLogConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stdout, off, a file, or a map with to")
    }

    fn visit_str<E>(self, place: &str) -> Result<AccessLogConfig, E> {
        Ok(AccessLogConfig::to(place))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<AccessLogConfig, A::Error> {
        // The function that is derived, which reads a map alone.
        AccessLogConfig::deserialize(MapAccessDeserializer::new(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> AccessLogConfig {
        serde_json::from_str(text).expect("a setting")
    }

    #[test]
    fn a_place_alone_is_json_of_all_requests() {
        let config = read("\"off\"");
        assert_eq!(config.to, "off");
        assert!(matches!(config.compile(), Ok((Format::Json, _))));
        assert_eq!(read("{\"format\": \"combined\"}").to, "stdout");
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused_by_their_key() {
        for (text, key) in [
            ("{\"format\": \"template\"}", "format"),
            (
                "{\"format\": \"combined\", \"template\": \"{path}\"}",
                "template",
            ),
            ("{\"template\": \"{pth}\"}", "template"),
            ("{\"sample\": 1.5}", "sample"),
            ("{\"statuses\": [\"6xx\"]}", "statuses"),
            ("{\"min_duration\": \"soon\"}", "min_duration"),
        ] {
            let refused = read(text).check().expect_err(text);
            assert_eq!(refused.0, key, "{text}");
        }
        let (_, message) = read("{\"template\": \"{pth}\"}")
            .check()
            .expect_err("no field");
        assert!(message.contains("did you mean {path}?"), "{message}");
    }
}
