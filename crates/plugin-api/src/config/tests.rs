//! A struct and its schema are one list.

use std::collections::BTreeMap;

use http::HeaderName;
use serde_json::{Map, Value, json};
use url::Url;

use super::*;
use doorward_core::model::schema::Schema;
use doorward_core::model::secret::Secret;

crate::words! {
    /// How.
    enum Mode {
        /// In a hurry.
        Fast = "fast",
        /// With care.
        Slow = "slow-and-steady",
    }
}

crate::config! {
    /// A record inside.
    #[derive(Debug)]
    struct Inner {
        /// Where to.
        #[field(required)]
        url: Url,
        /// How often.
        #[field(kind(Type::Integer(1, 9)), default(3), required)]
        tries as "maxTries": u16,
    }
}

crate::config! {
    /// What has to be chosen.
    #[derive(Debug)]
    struct Choice {
        /// How.
        #[field(required)]
        _mode as "mode": Mode,
    }
}

crate::config! {
    /// What several records have.
    #[derive(Debug)]
    struct Group {
        /// One of a group.
        #[field(default(1), required)]
        first: u16,
        /// Another one.
        second: Option<String>,
    }
}

crate::config! {
    #[derive(Debug)]
    struct Config {
        /// The header
        /// of the thing.
        #[field(default("X-Thing"), required)]
        header: HeaderName,
        /// How.
        #[field(default("fast"))]
        mode: Mode,
        /// Whether.
        flag: bool,
        /// What may be missing.
        limit: Option<f64>,
        /// Kept to itself.
        #[field(referenceable)]
        secret: Option<Secret>,
        /// Some.
        names: Vec<String>,
        /// By name.
        labels: BTreeMap<String, i64>,
        /// Beside the others.
        group as ..: Group,
        /// Inside.
        inner: Vec<Inner>,
        /// Whatever.
        other: Value,
    }
}

fn complete(config: &Value) -> Map<String, Value> {
    let Value::Object(config) = config.clone() else {
        panic!("a record: {config}");
    };
    Schema::new(Config::fields())
        .complete(config)
        .expect("a valid record")
}

#[test]
fn a_record_is_read_as_its_schema_completes_it() {
    let config = complete(&json!({
        "mode": "slow-and-steady", "limit": 1.5, "secret": "sesame", "names": ["a", "b"],
        "labels": {"x": -1}, "inner": [{"url": "https://a.example/x"}], "other": [null],
    }));
    let config = Config::read(&config).expect("a configuration");
    assert_eq!(config.header, "x-thing");
    assert_eq!(config.mode, Mode::Slow);
    assert_eq!(config.mode.word(), "slow-and-steady");
    assert!(!config.flag);
    assert_eq!(config.limit, Some(1.5));
    assert!(config.secret.is_some_and(|secret| secret.matches("sesame")));
    assert_eq!(config.names, ["a", "b"]);
    assert_eq!(config.labels.get("x"), Some(&-1));
    assert_eq!(config.inner[0].url.as_str(), "https://a.example/x");
    assert_eq!(config.inner[0].tries, 3);
    assert_eq!(config.other, json!([null]));
}

#[test]
fn null_is_what_the_type_makes_of_it() {
    let config = complete(&json!({"mode": null, "names": null, "limit": null}));
    let config = Config::read(&config).expect("a configuration");
    assert_eq!((config.mode, config.limit), (Mode::Fast, None));
    assert!(config.secret.is_none() && config.names.is_empty() && config.labels.is_empty());
    assert!(config.inner.is_empty() && config.other.is_null());
    let empty = complete(&json!({"secret": "x"}));
    let empty = empty.into_iter().map(|(name, value)| match &*name {
        "secret" => (name, json!("")),
        _ => (name, value),
    });
    let config = Config::read(&empty.collect()).expect("a configuration");
    assert!(config.secret.is_none(), "an empty text is none");
    let mut no_url = complete(&json!({}));
    no_url.insert("inner".to_owned(), json!([{"url": null}]));
    let error = Config::read(&no_url).expect_err("an address");
    assert_eq!(error.to_string(), "inner.1.url: required field missing");
}

#[test]
fn an_error_names_the_path_of_what_is_wrong() {
    for (wrong, field) in [
        (json!({"header": "a b"}), "header"),
        (json!({"mode": "other"}), "mode"),
        (json!({"names": ["a", 1]}), "names.2"),
        (json!({"labels": {"x": "y"}}), "labels.x"),
        (
            json!({"inner": [{"url": "https://a.example", "maxTries": "1"}]}),
            "inner.1.maxTries",
        ),
        (
            json!({"inner": [{"url": "no", "maxTries": 1}]}),
            "inner.1.url",
        ),
        (
            json!({"inner": [{"url": "https://a.example", "maxTries": 70_000}]}),
            "inner.1.maxTries",
        ),
    ] {
        let mut config = complete(&json!({}));
        config.extend(wrong.as_object().cloned().unwrap_or_default());
        let error = Config::read(&config).expect_err(field);
        assert_eq!(error.field, field, "{error}");
    }
}

#[test]
fn the_schema_says_what_the_list_says() {
    let schema = Schema::new(Config::fields()).to_json();
    let row = |name: &str| {
        let mut rows = schema.as_array().into_iter().flatten();
        rows.find_map(|row| row.get(name)).expect(name)
    };
    assert_eq!(
        row("header"),
        &json!({"type": "string", "default": "X-Thing", "required": true,
                "description": "The header of the thing."})
    );
    assert_eq!(row("mode")["one_of"], json!(["fast", "slow-and-steady"]));
    assert_eq!(row("secret")["referenceable"], true);
    let inner = &row("inner")["elements"]["fields"][1]["maxTries"];
    assert_eq!(inner["between"], json!([1, 9]));
}

#[test]
fn a_header_name_has_letters_digits_dashes_and_underscores() {
    assert!(header_name("X-A_1").is_ok());
    assert!(header_name("").is_err());
    assert!(header_name("x y").is_err());
}

#[test]
fn the_fields_of_a_group_stand_among_those_of_its_record() {
    let fields = Config::fields();
    let names: Vec<_> = fields.iter().map(|field| field.name).collect();
    assert_eq!(names[6..10], ["labels", "first", "second", "inner"]);
    let config = Config::read(&complete(&json!({"mode": "fast", "second": "x"})));
    let group = config.expect("a configuration").group;
    assert_eq!((group.first, group.second.as_deref()), (1, Some("x")));
    let mut wrong = complete(&json!({}));
    wrong.insert("first".to_owned(), json!(70_000));
    assert_eq!(Config::read(&wrong).expect_err("too much").field, "first");
}

#[test]
fn a_check_sees_the_fields_that_are_right() {
    let mut config = complete(&json!({"mode": "slow-and-steady", "names": ["a"]}));
    config.insert("limit".to_owned(), json!("much"));
    config.insert("header".to_owned(), json!("a b"));
    let config: Config = read_for_check(&config).expect("a configuration");
    assert_eq!((config.mode, config.limit), (Mode::Slow, None));
    assert_eq!(config.header, "x-thing");
    assert_eq!(config.names, ["a"]);
    // Any text will do for one that is missing. Each of several words says something.
    let inner: Inner = read_for_check(&Map::new()).expect("a stand-in");
    assert_eq!((inner.url.as_str(), inner.tries), ("http://x/", 3));
    assert!(read_for_check::<Choice>(&Map::new()).is_none());
}
