//! Records as command lines give them: JSON, and single members of it.

use std::io::{BufRead, Read};

use anyhow::Context;
use clap::Args;
use serde_json::{Map, Value};

/// Longest record, in bytes.
const RECORD_MAX: u64 = 256 * 1024;

/// Members of a record that are to be set or removed.
#[derive(Debug, Default, Args)]
pub(super) struct Members {
    /// Members as a JSON object; @FILE reads it from a file, - from standard input; null removes one
    #[arg(long, visible_alias = "settings", value_name = "JSON")]
    metadata: Option<String>,
    /// Sets one member: the value is JSON, or else text; NAME.PART sets a part of an object
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Removes a member
    #[arg(long, value_name = "NAME")]
    unset: Vec<String>,
}

impl Members {
    /// Writes what is to be set over `record`; what is to be removed becomes
    /// null there.
    pub(super) fn write_over(
        &self,
        record: &mut Map<String, Value>,
        input: &mut dyn BufRead,
    ) -> anyhow::Result<()> {
        if let Some(text) = &self.metadata {
            let text = text_of(text, input)?;
            let object = doorward_core::jose::json::object(text.as_bytes());
            record.extend(object.context("this is no JSON object")?);
        }
        for setting in &self.set {
            let (name, value) = setting.split_once('=').with_context(|| {
                format!("--set {setting}: write it as NAME=VALUE, such as scope=openid")
            })?;
            let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
            set(record, name, value).with_context(|| format!("--set {setting}"))?;
        }
        for name in &self.unset {
            record.insert(name.clone(), Value::Null);
        }
        Ok(())
    }
}

fn text_of(text: &str, input: &mut dyn BufRead) -> anyhow::Result<String> {
    let read = |source: &mut dyn Read| {
        let mut text = String::new();
        source.take(RECORD_MAX + 1).read_to_string(&mut text)?;
        anyhow::ensure!(text.len() as u64 <= RECORD_MAX, "is longer than 256 KiB");
        Ok(text)
    };
    match (text, text.strip_prefix('@')) {
        ("-", _) => read(input).context("standard input"),
        (_, Some(file)) => {
            let mut open = std::fs::File::open(file).with_context(|| file.to_owned())?;
            read(&mut open).with_context(|| file.to_owned())
        }
        (text, None) => Ok(text.to_owned()),
    }
}

fn set(record: &mut Map<String, Value>, name: &str, value: Value) -> anyhow::Result<()> {
    let Some((outer, inner)) = name.split_once('.') else {
        record.insert(name.to_owned(), value);
        return Ok(());
    };
    let part = record.entry(outer).or_insert(Value::Null);
    if part.is_null() {
        *part = Value::Object(Map::new());
    }
    let part = part.as_object_mut();
    set(
        part.with_context(|| format!("{outer} is no object"))?,
        inner,
        value,
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(members: &Members, input: &str) -> anyhow::Result<Value> {
        let mut record = Map::new();
        record.insert("kept".to_owned(), json!({"a": 1}));
        members.write_over(&mut record, &mut input.as_bytes())?;
        Ok(Value::Object(record))
    }

    fn set(settings: &[&str]) -> Members {
        Members {
            set: settings.iter().copied().map(str::to_owned).collect(),
            ..Members::default()
        }
    }

    #[test]
    fn values_are_json_or_text() {
        let all = set(&[
            "a=5",
            "b=true",
            "c=openid email",
            "d=[\"x\"]",
            "e=\"5\"",
            "f=",
        ]);
        let record = written(&all, "").expect("written");
        assert_eq!(record["a"], 5);
        assert_eq!(record["b"], true);
        assert_eq!(record["c"], "openid email");
        assert_eq!(record["d"], json!(["x"]));
        assert_eq!(record["e"], "5");
        assert_eq!(record["f"], "");
    }

    #[test]
    fn parts_of_objects_are_set_beside_the_others() {
        let record = written(&set(&["kept.b=2", "new.a.b=3"]), "").expect("written");
        assert_eq!(record["kept"], json!({"a": 1, "b": 2}));
        assert_eq!(record["new"], json!({"a": {"b": 3}}));
        assert!(written(&set(&["kept.a.b=2"]), "").is_err());
        assert!(written(&set(&["kept"]), "").is_err());
    }

    #[test]
    fn json_comes_from_the_line_or_from_standard_input() {
        let from = |text: &str| Members {
            metadata: Some(text.to_owned()),
            unset: vec!["x".to_owned()],
            ..Members::default()
        };
        let record = written(&from("-"), r#"{"x": 1, "y": 2}"#).expect("written");
        assert_eq!(record, json!({"kept": {"a": 1}, "x": null, "y": 2}));
        assert!(written(&from("@/nowhere/at all"), "").is_err());
        assert!(written(&from("[]"), "").is_err());
        assert!(written(&from(r#"{"a": 1, "a": 2}"#), "").is_err());
    }
}
