use std::path::Path;

use serde::Deserialize;
use serde_json::json;

use super::*;

fn environment(name: &str) -> Option<String> {
    match name {
        "ORDERS_SECRET" => Some("s3cret".to_owned()),
        "TRICKY" => Some("&{orders.secret}".to_owned()),
        "BUNDLE" => Some(r#"{"user":"ann"}"#.to_owned()),
        _ => None,
    }
}

fn parse(text: &str) -> Result<Document, DocumentError> {
    Document::parse_with(text, Path::new("conf/x.yaml"), &environment)
}

fn value(text: &str) -> Value {
    parse(text).expect("parses").value().clone()
}

fn message(text: &str) -> String {
    parse(text).expect_err("is refused").to_string()
}

#[test]
fn scalars_keep_their_yaml_types() {
    assert_eq!(
        value("a: 1\nb: x\nc: true\nd:\ne: 1.5\nf: '2'\ng: [1, {h: -3}]\n"),
        json!({"a":1,"b":"x","c":true,"d":null,"e":1.5,"f":"2","g":[1,{"h":-3}]})
    );
}

#[test]
fn an_empty_document_is_an_empty_mapping() {
    assert_eq!(value(""), json!({}));
    assert_eq!(value("# nothing\n"), json!({}));
}

#[test]
fn numbers_and_booleans_as_keys_become_text() {
    assert_eq!(value("200: ok\ntrue: x\n"), json!({"200":"ok","true":"x"}));
}

#[test]
fn a_duplicate_key_is_refused_on_its_second_line() {
    assert_eq!(
        message("a:\n  b: 1\n  c: 2\n  b: 3\n"),
        "conf/x.yaml:4: a: duplicate key 'b'"
    );
}

#[test]
fn a_syntax_error_names_its_line() {
    let text = message("a: 1\nb: [1, 2\nc: 3\n");
    assert!(text.starts_with("conf/x.yaml:3: "), "{text}");
}

#[test]
fn an_unquoted_token_is_explained() {
    let text = message("a: 1\nsecret: &{orders.secret}\n");
    assert!(text.starts_with("conf/x.yaml:2:"), "{text}");
    assert!(text.contains("needs quotes"), "{text}");
}

#[test]
fn tags_and_several_documents_are_refused() {
    assert!(message("a: !include b.yaml\n").contains("tags"));
    assert!(message("a: 1\n---\nb: 2\n").contains("more than one document"));
}

#[test]
fn merge_keys_fill_what_is_not_overridden() {
    assert_eq!(
        value("base: &base {a: 1, b: 2}\nx:\n  <<: *base\n  b: 3\n"),
        json!({"base":{"a":1,"b":2},"x":{"a":1,"b":3}})
    );
}

#[test]
fn billion_laughs_are_refused() {
    let mut text = String::from("a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
    for level in 1..12 {
        let before = format!("*a{}", level - 1);
        let list = vec![before; 9].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{list}]\n"));
    }
    let error = parse(&text).expect_err("is refused");
    assert!(
        error.message.contains("too much") || error.message.contains("repetition"),
        "{error}"
    );
}

#[test]
fn a_long_text_repeated_by_aliases_is_refused() {
    let mut text = format!("a: &a {}\nb:\n", "x".repeat(1 << 20));
    text.push_str(&"- *a\n".repeat(10_000));
    assert!(message(&text).contains("too much"));
}

#[test]
fn deep_nesting_is_refused() {
    assert!(message(&format!("a: {}{}", "[".repeat(110), "]".repeat(110))).contains("nested"));
    parse(&format!("a: {}{}", "[".repeat(5000), "]".repeat(5000))).expect_err("is refused");
}

#[test]
fn tokens_are_resolved_from_the_environment() {
    assert_eq!(
        value("a: '&{orders.secret}'\nb: 'x-&{orders.secret}-y'\nc: '{vault://env/orders-secret}'"),
        json!({"a":"s3cret","b":"x-s3cret-y","c":"s3cret"})
    );
}

#[test]
fn defaults_apply_and_may_nest() {
    assert_eq!(
        value("a: '&{no.such|7}'\nb: '&{no.such|&{nor.this|&{orders.secret}}}'\nc: '&{no.such|}'"),
        json!({"a":"7","b":"s3cret","c":""})
    );
}

#[test]
fn an_escaped_token_is_literal() {
    assert_eq!(
        value(r"a: '\&{orders.secret}'"),
        json!({"a":"&{orders.secret}"})
    );
}

#[test]
fn runtime_expressions_are_left_alone() {
    assert_eq!(value("a: ${request.uri}"), json!({"a":"${request.uri}"}));
}

#[test]
fn what_a_token_resolves_to_is_not_resolved_again() {
    assert_eq!(value("a: '&{tricky}'"), json!({"a":"&{orders.secret}"}));
}

#[test]
fn a_vault_reference_may_name_a_key_of_a_json_variable() {
    assert_eq!(value("a: '{vault://env/bundle/user}'"), json!({"a":"ann"}));
    assert!(message("a: '{vault://aws/x}'").contains("only {vault://env/"));
}

#[test]
fn an_unresolved_token_is_an_error_with_its_line() {
    assert_eq!(
        message("a: 1\nb:\n- c: '&{no.such}'\n"),
        "conf/x.yaml:3: b[0].c: configuration token 'no.such' has no value: set NO_SUCH in the \
         environment, or give a default as &{no.such|default}"
    );
    assert!(message("a: '&{no.such'").contains("not closed"));
    assert!(message("a: '&{no such}'").contains("not a name"));
}

#[test]
fn tokens_read_files_beside_the_document() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("secret"), "from file\n").expect("written");
    let file = directory.path().join("x.yaml");
    let document = Document::parse_with(
        "a: '&{file:secret}'\nb: '&{file:absent|none}'",
        &file,
        &environment,
    )
    .expect("parses");
    assert_eq!(document.value(), &json!({"a":"from file","b":"none"}));
}

#[test]
fn json_files_are_read_as_json() {
    let file = Path::new("conf/x.json");
    let text = "{\n\t\"a\": \"\\ud83d\\ude00\",\n\t\"b\": {\"c\": 1}\n}";
    let document = Document::parse_with(text, file, &environment).expect("parses");
    assert_eq!(document.value(), &json!({"a":"😀","b":{"c":1}}));
    assert_eq!(document.line_of(&["b".into(), "c".into()]), Some(3));
    let error = Document::parse_with("{\"a\":1,\n\"a\":2}", file, &environment);
    assert_eq!(error.expect_err("is refused").line, Some(2));
}

#[test]
fn lines_are_those_of_keys_and_of_elements() {
    let document = parse(
        "a: 1\nb:\n  - c: x\n    d:\n      e: 2\n  - c: y\n  - [1,\n     2]\nf: |\n  text\ng: z\n",
    )
    .expect("parses");
    let line = |path: &[PathSegment]| document.line_of(path);
    assert_eq!(line(&["a".into()]), Some(1));
    assert_eq!(line(&["b".into()]), Some(2));
    assert_eq!(line(&["b".into(), 0.into(), "d".into()]), Some(4));
    assert_eq!(
        line(&["b".into(), 0.into(), "d".into(), "e".into()]),
        Some(5)
    );
    assert_eq!(line(&["b".into(), 1.into()]), Some(6));
    assert_eq!(line(&["b".into(), 2.into(), 1.into()]), Some(8));
    assert_eq!(line(&["g".into()]), Some(11));
    // The nearest parent of what does not exist.
    assert_eq!(line(&["b".into(), 1.into(), "zzz".into()]), Some(6));
    assert_eq!(line(&["nowhere".into()]), Some(1));
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sample {
    #[serde(default)]
    port: u16,
    #[serde(default)]
    list: Vec<Inner>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Inner {
    name: String,
}

fn sample(text: &str) -> String {
    parse(text)
        .expect("parses")
        .deserialize::<Sample>()
        .expect_err("does not fit")
        .to_string()
}

#[test]
fn what_does_not_fit_is_told_with_line_and_path() {
    assert_eq!(
        sample("port: 1\nlist:\n- name: a\n- name: [x]\n"),
        "conf/x.yaml:4: list[1].name: expected a string, not a list"
    );
    assert_eq!(
        sample("list:\n- {}\n"),
        "conf/x.yaml:2: list[0]: missing field `name`"
    );
    let unknown = sample("port: 1\nlist:\n- name: a\n  nmae: b\n");
    assert!(
        unknown.starts_with("conf/x.yaml:4: list[0].nmae: unknown field"),
        "{unknown}"
    );
}

#[test]
fn all_that_does_not_fit_is_told_by_lines() {
    let text = "port: x\nlist:\n- name: [x]\n- name: b\n- nme: c\n- name: 5\nprot: 1\n";
    let errors = parse(text).expect("parses").deserialize_whole::<Sample>();
    let errors = errors.expect_err("does not fit");
    let told: Vec<_> = errors.iter().map(|error| error.to_string()).collect();
    let begins = [
        "conf/x.yaml:1: port: expected a whole number from 0 to 65535, not a string",
        "conf/x.yaml:3: list[0].name: expected a string, not a list",
        "conf/x.yaml:5: list[2].nme: unknown field `nme`, expected `name`; did you mean `name`?",
        "conf/x.yaml:6: list[3].name: expected a string, not a number",
        "conf/x.yaml:7: prot: unknown field `prot`, expected `port` or `list`; did you mean `port`?",
    ];
    assert_eq!(told.len(), begins.len() + 1, "{told:#?}");
    for begin in begins {
        assert!(
            told.iter().any(|told| told == begin),
            "{begin} in {told:#?}"
        );
    }
    assert!(told[2].contains("list[2]: missing field `name`") || told[3].contains("missing field"));
}

#[test]
fn a_number_beyond_all_bounds_is_told_where_it_stands() {
    let wanted = "port: expected a whole number from 0 to 65535, not a number";
    for text in ["99999999999999999999", "-99999999999999999999"] {
        let told = sample(&format!("list: []\nport: {text}\n"));
        assert_eq!(told, format!("conf/x.yaml:2: {wanted}"));
    }
}

#[test]
fn what_a_check_finds_is_told_together_with_what_does_not_fit() {
    let text = "port: x\nlist:\n- name: bad\n- name: good\n- name: worse\n";
    let document = parse(text).expect("parses");
    // It tells one thing at a time.
    let read = document.deserialize_checked::<Sample>(|sample| {
        let bad = |name: &str| matches!(name, "bad" | "worse");
        let at = sample.list.iter().position(|item| bad(&item.name));
        let at = at.map(|at| (vec!["list".into(), at.into()], "is not good".to_owned()));
        at.into_iter().collect()
    });
    let errors = read.map(drop).expect_err("is wrong");
    let told: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "conf/x.yaml:1: port: expected a whole number from 0 to 65535, not a string",
            "conf/x.yaml:3: list[0]: is not good",
            "conf/x.yaml:5: list[2]: is not good",
        ]
    );
}

#[test]
fn what_a_check_misses_because_it_was_left_out_is_not_told() {
    let document = parse("port: x\nlist: []\n").expect("parses");
    let read = document.deserialize_checked::<Sample>(|sample| {
        let missing = (vec!["list".into()], "needs a port".to_owned());
        (sample.port == 0).then_some(missing).into_iter().collect()
    });
    assert_eq!(read.map(drop).expect_err("is wrong").len(), 1);
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_document() {
    let yaml = parse("\u{feff}port: 1\n").expect("parses");
    assert_eq!(yaml.value(), &serde_json::json!({"port": 1}));
    let wrong = parse("\u{feff}a: 1\nport: x\n").expect("parses");
    assert_eq!(wrong.line_of(&["port".into()]), Some(2));
    let json = Document::parse("\u{feff}{\"port\": 1}", Path::new("x.json"));
    assert_eq!(json.expect("parses").value(), yaml.value());
}

#[test]
fn a_resolved_secret_is_never_quoted_in_an_error() {
    let text = sample("port: '&{orders.secret}'");
    assert_eq!(
        text,
        "conf/x.yaml:1: port: expected a whole number from 0 to 65535, not a string"
    );
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "([ -~]|\n|\t|: |- |&\\{|\\}|é){0,120}") {
        if let Ok(document) = parse(&text) {
            let _ = document.line_of(&["a".into(), 1.into(), "b".into()]);
        }
        let _ = Document::parse_with(&text, Path::new("x.json"), &environment);
    }
}
