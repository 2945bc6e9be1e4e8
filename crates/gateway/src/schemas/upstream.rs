//! The Upstream and Target schemas.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::service::PROXY_PROTOCOLS;
use super::{address, checks, common};
use doorward_core::model::schema::{Field, Schema, Type, Violations};
use doorward_core::model::upstream::{ActiveCheck, PassiveCheck};

const HASHED: &[&str] = &[
    "none",
    "consumer",
    "ip",
    "header",
    "cookie",
    "path",
    "query_arg",
    "uri_capture",
];

/// Longest time that a check or the circuit breaker waits, in seconds.
const MAX_SECONDS: i64 = 65_535;

/// The fields of an upstream.
pub fn upstream() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let mut fields = common();
        fields.extend([
            Field::new("name", Type::checked(checks::upstream_name))
                .required()
                .unique(),
            Field::new(
                "algorithm",
                Type::word(&[
                    "consistent-hashing",
                    "least-connections",
                    "round-robin",
                    "latency",
                ]),
            )
            .default("round-robin"),
        ]);
        fields.extend(hashing());
        fields.extend([
            Field::new("slots", Type::Integer(10, 65_536)).default(10_000),
            Field::new("healthchecks", Type::Record(healthchecks())).required(),
            Field::new("host_header", Type::checked(checks::host_header)),
            Field::new("client_certificate", Type::Foreign("certificates")),
            Field::new("use_srv_name", Type::Boolean).default(false),
            Field::new("slow_start", Type::Integer(0, MAX_SECONDS)).default(0),
            Field::new("circuit_breaker", Type::Record(circuit_breaker())).required(),
            Field::new("proxy_protocol", Type::word(PROXY_PROTOCOLS)).rare(),
        ]);
        Schema::new(fields)
            .shorthand(hashing_is_consistent)
            .check(companions)
            .check(fallbacks)
    });
    &SCHEMA
}

/// The fields of a target.
pub fn target() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let fields = vec![
            Field::new("id", Type::formatted("uuid", checks::uuid)).auto(),
            Field::new("created_at", Type::Number).auto(),
            Field::new("updated_at", Type::Number).auto(),
            Field::new("upstream", Type::Foreign("upstreams")).required(),
            Field::new("target", Type::checked(checks::target)).required(),
            Field::new("weight", Type::Integer(0, 65_535)).default(100),
            Field::new("tags", Type::set(Type::checked(checks::tag))),
        ];
        Schema::new(fields).shorthand(write_in_full)
    });
    &SCHEMA
}

/// A stored target whose address may have been written in another form.
pub fn in_full(mut target: Map<String, Value>) -> Map<String, Value> {
    write_in_full(&mut target, &mut Violations::default());
    target
}

/// `host` becomes `host:port`.
fn write_in_full(input: &mut Map<String, Value>, _: &mut Violations) {
    if let Some(Value::String(target)) = input.get_mut("target")
        && let Ok(full) = address::target(target)
    {
        *target = full;
    }
}

fn hashing() -> Vec<Field> {
    let what = |name| Field::new(name, Type::word(HASHED)).default("none");
    let header = |name| Field::new(name, Type::checked(checks::any_header_name));
    let text = |name| Field::new(name, Type::checked(checks::some_text));
    vec![
        what("hash_on"),
        what("hash_fallback"),
        header("hash_on_header"),
        header("hash_fallback_header"),
        Field::new("hash_on_cookie", Type::checked(checks::cookie_name)),
        Field::new("hash_on_cookie_path", Type::checked(checks::path)).default("/"),
        text("hash_on_query_arg"),
        text("hash_fallback_query_arg"),
        text("hash_on_uri_capture"),
        text("hash_fallback_uri_capture"),
    ]
}

fn healthchecks() -> Schema {
    Schema::new(vec![
        Field::new("active", Type::Record(active())).required(),
        Field::new("passive", Type::Record(passive())).required(),
        Field::new("threshold", Type::Between(0, 100)).default(0),
    ])
}

fn seconds(name: &'static str, default: i64) -> Field {
    Field::new(name, Type::Between(0, MAX_SECONDS)).default(default)
}

fn count(name: &'static str) -> Field {
    Field::new(name, Type::Integer(0, 255)).default(0)
}

fn statuses(default: &[u16]) -> Field {
    Field::new("http_statuses", Type::array(Type::Integer(100, 999))).default(json!(default))
}

fn kind() -> Field {
    Field::new(
        "type",
        Type::word(&["tcp", "http", "https", "grpc", "grpcs"]),
    )
    .default("http")
}

fn active() -> Schema {
    let defaults = ActiveCheck::default();
    let healthy = vec![
        seconds("interval", 0),
        statuses(&defaults.healthy.http_statuses),
        count("successes"),
    ];
    let unhealthy = vec![
        seconds("interval", 0),
        statuses(&defaults.unhealthy.http_statuses),
        count("tcp_failures"),
        count("timeouts"),
        count("http_failures"),
    ];
    Schema::new(vec![
        kind(),
        seconds("timeout", 1),
        Field::new("concurrency", Type::Integer(1, 1 << 31)).default(10),
        Field::new("http_path", Type::checked(checks::path)).default("/"),
        Field::new("https_sni", Type::checked(checks::server_name)),
        Field::new("https_verify_certificate", Type::Boolean).default(true),
        Field::new(
            "headers",
            Type::Map(Box::new(Type::array(Type::some_text()))),
        ),
        Field::new("healthy", Type::Record(Schema::new(healthy))).required(),
        Field::new("unhealthy", Type::Record(Schema::new(unhealthy))).required(),
    ])
}

fn passive() -> Schema {
    let defaults = PassiveCheck::default();
    let healthy = vec![
        statuses(&defaults.healthy.http_statuses),
        count("successes"),
    ];
    let unhealthy = vec![
        statuses(&defaults.unhealthy.http_statuses),
        count("tcp_failures"),
        count("timeouts"),
        count("http_failures"),
    ];
    Schema::new(vec![
        kind(),
        Field::new("healthy", Type::Record(Schema::new(healthy))).required(),
        Field::new("unhealthy", Type::Record(Schema::new(unhealthy))).required(),
    ])
}

fn circuit_breaker() -> Schema {
    let number =
        |name, min, default: i64| Field::new(name, Type::Integer(min, 1_000_000)).default(default);
    Schema::new(vec![
        number("failures", 0, 0),
        Field::new("open_seconds", Type::Integer(1, MAX_SECONDS)).default(30),
        number("half_open_requests", 1, 1),
        number("max_requests", 0, 0),
    ])
}

/// Who says what to hash wants it hashed.
fn hashing_is_consistent(input: &mut Map<String, Value>, _: &mut Violations) {
    let hashes = input
        .get("hash_on")
        .and_then(Value::as_str)
        .is_some_and(|on| on != "none" && !on.is_empty());
    if hashes {
        input.insert("algorithm".to_owned(), "consistent-hashing".into());
    }
}

fn text<'a>(upstream: &'a Map<String, Value>, field: &str) -> &'a str {
    upstream
        .get(field)
        .and_then(Value::as_str)
        .unwrap_or("none")
}

fn is_set(upstream: &Map<String, Value>, field: &str) -> bool {
    upstream.get(field).is_some_and(|value| !value.is_null())
}

/// What is hashed must be named.
fn companions(upstream: &Map<String, Value>, violations: &mut Violations) {
    for given in ["hash_on", "hash_fallback"] {
        let companion = match text(upstream, given) {
            // There is one cookie, whoever uses it.
            "cookie" => "hash_on_cookie".to_owned(),
            what @ ("header" | "query_arg" | "uri_capture") => format!("{given}_{what}"),
            _ => continue,
        };
        if !is_set(upstream, &companion) {
            let message = "required field missing".to_owned();
            violations.put_conditional(given, &companion, message);
        }
    }
}

/// A fallback must be able to differ from what it stands in for.
fn fallbacks(upstream: &Map<String, Value>, violations: &mut Violations) {
    let (on, fallback) = (text(upstream, "hash_on"), text(upstream, "hash_fallback"));
    // A cookie is set where there is none, so nothing is left to a fallback.
    let only_none = matches!(on, "none" | "cookie") && fallback != "none";
    if only_none {
        let message = "expected one of: none".to_owned();
        violations.put_conditional("hash_on", "hash_fallback", message);
    } else if matches!(on, "consumer" | "ip" | "path")
        && (on == fallback || !HASHED.contains(&fallback))
    {
        let others: Vec<&str> = HASHED.iter().copied().filter(|what| *what != on).collect();
        let message = format!("expected one of: {}", others.join(", "));
        violations.put_conditional("hash_on", "hash_fallback", message);
    }
    for what in ["header", "query_arg", "uri_capture"] {
        let (first, second) = (format!("hash_on_{what}"), format!("hash_fallback_{what}"));
        let same = upstream.get(&first) == upstream.get(&second);
        if is_set(upstream, &first) && same {
            violations.put_entity(format!(
                "values of these fields must be distinct: '{first}', '{second}'"
            ));
        }
    }
}

#[cfg(test)]
mod tests;
