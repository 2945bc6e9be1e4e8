//! What counts as saying a confined value.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::json;

use super::config::Rules;
use super::request_values::{BodyKind, Unreadable};
use doorward_core::model::user::name;
use doorward_core::model::user::name_place::NamePlace;

fn config() -> Rules {
    let config = json!({
        "header_names": ["X-Service-Username"],
        "parameter_names": ["username", "value"],
        "values": ["amadmin"],
    });
    Rules::read(config.as_object().expect("an object")).expect("it is valid")
}

fn in_header(name: &str, value: &[u8]) -> bool {
    let mut headers = HeaderMap::new();
    headers.append("x-service-username", HeaderValue::from_static("demo"));
    let name: HeaderName = name.parse().expect("a name");
    headers.append(name, HeaderValue::from_bytes(value).expect("a value"));
    config().in_headers(&headers)
}

#[test]
fn every_spelling_of_the_value_is_the_value() {
    for value in [
        "amadmin",
        "AmAdmin",
        "  amadmin\t",
        "\"amadmin\"",
        " \" amadmin \" ",
        "=?utf-8?q?amadmin?=",
        "=?UTF-8?Q?=61=6D=61dmin?=",
        "=?utf-8?b?YW1hZG1pbg==?=",
        "=?utf-8?B?QU1BRE1JTg?=",
        "=?iso-8859-1?q?amadmin?=",
        "=?windows-1252*en?q?amadmin?=",
        "=?utf-8?q?am?= =?us-ascii?b?YWRtaW4=?=",
        "=?utf-8?q?am?==?utf-8?q?admin?=",
        "am=?utf-8?q?admin?=",
        "=?utf-8?q?_amadmin_?=",
    ] {
        assert!(in_header("x-service-username", value.as_bytes()), "{value}");
    }
    assert!(in_header("x-service-username", b"\xa0amadmin\xa0"));
}

#[test]
fn other_values_and_other_headers_pass() {
    for value in [
        "demo",
        "amadmin2",
        "xamadmin",
        "am admin",
        "",
        "=?utf-8?q?demo?=",
    ] {
        assert!(
            !in_header("x-service-username", value.as_bytes()),
            "{value}"
        );
    }
    assert!(!in_header("x-service-password", b"amadmin"));
}

#[test]
fn a_name_with_underscores_is_the_same_header() {
    for name in [
        "X-Service_Username",
        "x_service_username",
        "X_SERVICE-USERNAME",
    ] {
        assert!(in_header(name, b"amadmin"), "{name}");
    }
}

#[test]
fn a_letter_that_folds_into_another_is_that_letter() {
    let config = json!({"header_names": ["x"], "values": ["desk", "Stra\u{df}e"]});
    let config = Rules::read(config.as_object().expect("an object")).expect("valid");
    for value in ["DESK", "de\u{17f}k", "STRASSE", "stra\u{df}e"] {
        let mut headers = HeaderMap::new();
        headers.append(
            "x",
            HeaderValue::from_bytes(value.as_bytes()).expect("a value"),
        );
        assert!(config.in_headers(&headers), "{value}");
    }
}

#[test]
fn parameters_of_queries_and_forms_are_decoded() {
    let config = config();
    for form in [
        "username=amadmin",
        "user%6eame=%61madmin",
        "a=b&username=demo&username=+AMADMIN+",
        "USERNAME=amadmin",
    ] {
        assert!(config.in_form(form.as_bytes()), "{form}");
    }
    for form in ["username=demo", "password=amadmin", "username", ""] {
        assert!(!config.in_form(form.as_bytes()), "{form}");
    }
}

#[test]
fn members_of_json_are_found_at_any_depth_repeated_or_escaped() {
    let config = config();
    for text in [
        r#"{"username": "amadmin"}"#,
        r#"{"callbacks": [{"input": [{"name": "IDToken1", "value": "AMADMIN"}]}]}"#,
        r#"{"username": "amadmin", "username": "demo"}"#,
        r#"{"user\u006eame": "\u0061madmin"}"#,
        r#"[{"username": {"given": ["demo", "amadmin"]}}]"#,
    ] {
        assert_eq!(config.in_json(text.as_bytes()), Ok(true), "{text}");
    }
    for text in [
        r#"{"name": "amadmin", "n": [1, -1, 1.5, null, true]}"#,
        "{}",
        " ",
        "7",
    ] {
        assert_eq!(config.in_json(text.as_bytes()), Ok(false), "{text}");
    }
    let deep = "[".repeat(10_000);
    for text in ["{", "{} {}", "amadmin", deep.as_str(), "\u{feff}{}"] {
        assert_eq!(config.in_json(text.as_bytes()), Err(Unreadable));
    }
}

#[test]
fn a_body_is_what_its_type_says_if_it_says_one_thing() {
    let kind = |types: &[&'static str], coding: Option<&'static str>| {
        let mut headers = HeaderMap::new();
        for kind in types {
            headers.append(CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        if let Some(coding) = coding {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding));
        }
        BodyKind::of(&headers)
    };
    let form = "application/x-www-form-urlencoded";
    assert_eq!(kind(&[form], None), Some(BodyKind::Form));
    assert_eq!(
        kind(&["Application/JSON ; charset=utf-8"], None),
        Some(BodyKind::Json)
    );
    assert_eq!(
        kind(&["application/scim+json"], Some("identity")),
        Some(BodyKind::Json)
    );
    assert_eq!(kind(&[form], Some("gzip")), Some(BodyKind::Unknown));
    assert_eq!(
        kind(&[form, "application/json"], None),
        Some(BodyKind::Unknown)
    );
    assert_eq!(kind(&["text/plain"], Some("gzip")), None);
    assert_eq!(kind(&[], None), None);
}

#[test]
fn every_letter_that_sign_in_takes_for_one_of_the_name_is_refused() {
    let mut tried = 0;
    for letter in '\0'..=char::MAX {
        let folded = name::key(letter.encode_utf8(&mut [0; 4]));
        if folded.is_empty() || !"amadmin".contains(&folded) {
            continue;
        }
        let written = "amadmin".replacen(&folded, &letter.to_string(), 1);
        assert_eq!(name::key(&written), "amadmin", "{written}");
        assert!(
            in_header("x-service-username", written.as_bytes()),
            "{written}"
        );
        let word = format!("=?utf-8?b?{}?=", STANDARD.encode(&written));
        assert!(in_header("x-service-username", word.as_bytes()), "{word}");
        let form: String = url::form_urlencoded::byte_serialize(written.as_bytes()).collect();
        assert!(
            config().in_form(format!("username={form}").as_bytes()),
            "{written}"
        );
        let json = json!({"callbacks": [{"input": [{"value": written}]}]}).to_string();
        assert_eq!(config().in_json(json.as_bytes()), Ok(true), "{written}");
        let basic = format!("Basic {}", STANDARD.encode(format!("{written}:secret")));
        assert!(in_header("authorization", basic.as_bytes()), "{written}");
        tried += 1;
    }
    assert!(tried > 100, "{tried}");
    for quoted in [
        "\u{ff02}\u{430}madmin\u{ff02}",
        "\u{3000}\u{ff41}madmin\u{2003}",
    ] {
        assert!(
            in_header("x-service-username", quoted.as_bytes()),
            "{quoted}"
        );
    }
    let latin_1 = b"\xaamadmin";
    assert!(in_header("x-service-username", latin_1));
}

#[test]
fn a_text_that_is_too_long_for_a_name_is_not_folded() {
    let long = "\u{fdfa}".repeat(20_000);
    assert!(!config().may_fold(&long));
    assert!(!in_header("x-service-username", long.as_bytes()));
}

#[test]
fn without_a_list_every_parameter_that_names_a_user_is_watched() {
    let read = |config: serde_json::Value| {
        Rules::read(config.as_object().expect("an object")).expect("it is valid")
    };
    let usual = read(json!({"header_names": ["x"], "values": ["amadmin"]}));
    for name in NamePlace::parameters() {
        assert!(
            usual.in_form(format!("{name}=amadmin").as_bytes()),
            "{name}"
        );
        let json = json!({ name: "amadmin" }).to_string();
        assert_eq!(usual.in_json(json.as_bytes()), Ok(true), "{name}");
    }
    let none = read(json!({"header_names": ["x"], "values": ["amadmin"],
        "parameter_names": [], "basic_auth": false}));
    assert!(!none.in_form(b"username=amadmin"));
    let mut headers = HeaderMap::new();
    headers.append(AUTHORIZATION, HeaderValue::from_static("Basic amadmin:x"));
    assert!(!none.in_headers(&headers));
    assert!(usual.in_headers(&headers));
}
