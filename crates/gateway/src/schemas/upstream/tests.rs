use serde_json::{Map, Value, json};

use super::*;
use doorward_core::model::schema::Source;
use doorward_core::model::upstream::{Healthchecks, Upstream};

fn map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn made(schema: &Schema, input: Value) -> Result<Map<String, Value>, Violations> {
    schema.complete(schema.read(map(input), Source::Json)?)
}

fn upstream_with(more: Value) -> Result<Map<String, Value>, String> {
    let mut input = map(json!({"name":"u"}));
    input.extend(map(more));
    made(upstream(), Value::Object(input)).map_err(|violations| violations.message())
}

fn refused(more: Value) -> String {
    upstream_with(more).expect_err("is refused")
}

#[test]
fn an_upstream_has_the_defaults_of_the_interface() {
    let record = upstream_with(json!({})).expect("is fine");
    assert_eq!(
        record["healthchecks"],
        json!({
            "active": {
                "type": "http", "timeout": 1, "concurrency": 10, "http_path": "/",
                "https_sni": null, "https_verify_certificate": true, "headers": null,
                "healthy": {"interval": 0, "http_statuses": [200, 302], "successes": 0},
                "unhealthy": {
                    "interval": 0, "http_statuses": [429, 404, 500, 501, 502, 503, 504, 505],
                    "tcp_failures": 0, "timeouts": 0, "http_failures": 0
                }
            },
            "passive": {
                "type": "http",
                "healthy": {
                    "http_statuses": [
                        200, 201, 202, 203, 204, 205, 206, 207, 208, 226, 300, 301, 302, 303,
                        304, 305, 306, 307, 308
                    ],
                    "successes": 0
                },
                "unhealthy": {
                    "http_statuses": [429, 500, 503],
                    "tcp_failures": 0, "timeouts": 0, "http_failures": 0
                }
            },
            "threshold": 0
        })
    );
    for (field, value) in [
        ("algorithm", json!("round-robin")),
        ("hash_on", json!("none")),
        ("hash_fallback", json!("none")),
        ("hash_on_cookie_path", json!("/")),
        ("slots", json!(10_000)),
        ("use_srv_name", json!(false)),
        ("host_header", json!(null)),
        ("slow_start", json!(0)),
    ] {
        assert_eq!(record[field], value, "{field}");
    }
}

#[test]
fn the_typed_view_shows_the_document_again() {
    let record = upstream_with(json!({
        "id": "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "created_at": 1, "updated_at": 2,
        "healthchecks": {"active": {"timeout": 0.5}}
    }))
    .expect("is fine");
    let typed: Upstream =
        serde_json::from_value(Value::Object(record.clone())).expect("an upstream");
    assert_eq!(
        serde_json::to_value(&typed).expect("json"),
        Value::Object(record)
    );
    let mut healthchecks = Healthchecks::default();
    healthchecks.active.timeout = 0.5;
    assert_eq!(typed.healthchecks, healthchecks);
}

#[test]
fn what_is_hashed_must_be_named() {
    for (given, companion) in [
        (json!({"hash_on":"header"}), "hash_on_header"),
        (json!({"hash_on":"cookie"}), "hash_on_cookie"),
        (json!({"hash_on":"query_arg"}), "hash_on_query_arg"),
        (json!({"hash_on":"uri_capture"}), "hash_on_uri_capture"),
    ] {
        assert_eq!(
            refused(given),
            format!(
                "2 schema violations (failed conditional validation given value of field \
                 'hash_on'; {companion}: required field missing)"
            )
        );
    }
    assert_eq!(
        refused(json!({"hash_on":"ip","hash_fallback":"header"})),
        "2 schema violations (failed conditional validation given value of field \
         'hash_fallback'; hash_fallback_header: required field missing)"
    );
}

#[test]
fn a_fallback_must_be_able_to_differ() {
    assert_eq!(
        refused(json!({"hash_fallback":"ip"})),
        "2 schema violations (failed conditional validation given value of field 'hash_on'; \
         hash_fallback: expected one of: none)"
    );
    let message = refused(json!({"hash_on":"ip","hash_fallback":"ip"}));
    assert!(
        message.contains("hash_fallback: expected one of: none, consumer"),
        "{message}"
    );
    assert_eq!(
        refused(json!({
            "hash_on":"header","hash_fallback":"header",
            "hash_on_header":"x-a","hash_fallback_header":"x-a"
        })),
        "schema violation (values of these fields must be distinct: 'hash_on_header', \
         'hash_fallback_header')"
    );
    upstream_with(json!({
        "hash_on":"header","hash_fallback":"header",
        "hash_on_header":"x-a","hash_fallback_header":"x-b"
    }))
    .expect("is fine");
}

#[test]
fn an_unknown_word_of_what_is_hashed_is_told_with_those_that_may_stand_there() {
    let all = "none, consumer, ip, header, cookie, path, query_arg, uri_capture";
    assert_eq!(
        refused(json!({"hash_on":"nope"})),
        format!("schema violation (hash_on: expected one of: {all})")
    );
    // The word of `hash_on` is none of those of the fallback.
    assert_eq!(
        refused(json!({"hash_on":"consumer","hash_fallback":"nope"})),
        "2 schema violations (failed conditional validation given value of field 'hash_on'; \
         hash_fallback: expected one of: none, ip, header, cookie, path, query_arg, uri_capture)"
    );
    assert_eq!(
        refused(json!({"hash_on":"header","hash_on_header":"x-a","hash_fallback":"nope"})),
        format!("schema violation (hash_fallback: expected one of: {all})")
    );
    assert_eq!(
        refused(json!({"hash_fallback":"nope"})),
        "2 schema violations (failed conditional validation given value of field 'hash_on'; \
         hash_fallback: expected one of: none)"
    );
}

#[test]
fn whoever_hashes_hashes_consistently() {
    let algorithm = |more: Value| upstream_with(more).expect("is fine")["algorithm"].clone();
    assert_eq!(algorithm(json!({"hash_on":"ip"})), "consistent-hashing");
    assert_eq!(
        algorithm(json!({"hash_on":"ip","algorithm":"least-connections"})),
        "consistent-hashing"
    );
    assert_eq!(algorithm(json!({"hash_on":"none"})), "round-robin");
}

#[test]
fn fields_of_an_upstream_are_checked() {
    for (field, value, message) in [
        (
            "name",
            json!("10.0.0.1"),
            "Invalid name; no ip addresses allowed",
        ),
        ("name", json!("a:80"), "Invalid name; no port allowed"),
        (
            "name",
            json!("a b"),
            "Invalid name; must be a valid hostname",
        ),
        ("slots", json!(9), "value should be between 10 and 65536"),
        (
            "algorithm",
            json!("random"),
            "expected one of: consistent-hashing, least-connections, round-robin, latency",
        ),
        ("host_header", json!("a b"), "invalid value: a b"),
        ("hash_on_cookie_path", json!("x"), "should start with: /"),
        (
            "hash_on_cookie",
            json!("a b"),
            "bad cookie name 'a b', allowed characters are A-Z, a-z, 0-9, '_', and '-'",
        ),
        (
            "slow_start",
            json!(-1),
            "value should be between 0 and 65535",
        ),
    ] {
        assert_eq!(
            refused(Value::Object(Map::from_iter([(field.to_owned(), value)]))),
            format!("schema violation ({field}: {message})")
        );
    }
    assert_eq!(
        refused(json!({"healthchecks":{
            "active":{"timeout":-1,"http_path":"x","healthy":{"http_statuses":[99]}},
            "threshold":101
        }})),
        "4 schema violations (healthchecks.active.healthy.http_statuses.1: value should be \
         between 100 and 999; healthchecks.active.http_path: should start with: /; \
         healthchecks.active.timeout: value should be between 0 and 65535; \
         healthchecks.threshold: value should be between 0 and 100)"
    );
    assert_eq!(
        refused(json!({"circuit_breaker":{"open_seconds":0}})),
        "schema violation (circuit_breaker.open_seconds: value should be between 1 and 65535)"
    );
}

#[test]
fn a_target_has_a_port_and_a_weight() {
    let id = json!({"id": "6ba7b810-9dad-11d1-80b4-00c04fd430c8"});
    let record = made(target(), json!({"target":"a","upstream":id})).expect("is fine");
    assert_eq!(record["target"], "a:8000");
    assert_eq!(record["weight"], 100);
    let message = |input: Value| made(target(), input).expect_err("is refused").message();
    assert_eq!(
        message(json!({"target":"a b","upstream":id})),
        "schema violation (target: Invalid target ('a b'); not a valid hostname or ip address)"
    );
    assert_eq!(
        message(json!({"target":"a","upstream":id,"weight":65536})),
        "schema violation (weight: value should be between 0 and 65535)"
    );
    assert_eq!(
        message(json!({"target":"a"})),
        "schema violation (upstream: required field missing)"
    );
}
