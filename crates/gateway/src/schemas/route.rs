//! The Route schema.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::{checks, common};
use doorward_core::model::schema::{Field, Schema, Type, Violation, Violations};

/// What can be served; streams (`tcp`, `tls`, `udp`, `tls_passthrough`) can't.
const PROTOCOLS: &[&str] = &["grpc", "grpcs", "http", "https"];

/// The fields of a route.
pub fn route() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let mut fields = common();
        fields.extend(matchers());
        fields.extend([
            Field::new(
                "https_redirect_status_code",
                Type::Choice(&[426, 301, 302, 307, 308]),
            )
            .default(426)
            .required(),
            Field::new("regex_priority", Type::Integer(i64::MIN, i64::MAX)).default(0),
            flag("strip_path", true),
            flag("preserve_host", false),
            flag("request_buffering", true),
            flag("response_buffering", true),
            Field::new("path_handling", Type::word(&["v0", "v1"]))
                .default("v0")
                .required(),
            Field::new("service", Type::Foreign("services")),
        ]);
        Schema::new(fields)
            .prefill(grpc_keeps_paths)
            .check(one_family_of_protocols)
            .check(something_is_matched)
            .check(grpc_is_not_rewritten)
            .check(header_names)
            .check(snis_need_https)
            .check(no_stream_fields)
            .check(no_streams)
    });
    &SCHEMA
}

fn matchers() -> Vec<Field> {
    vec![
        Field::new("name", Type::checked(checks::name)).unique(),
        Field::new("protocols", Type::set(Type::word(PROTOCOLS)))
            .default(json!(["http", "https"]))
            .required()
            .len_min(1),
        Field::new("methods", Type::set(Type::checked(checks::method))),
        Field::new("hosts", Type::array(Type::checked(checks::route_host))),
        Field::new("paths", Type::array(Type::checked(checks::route_path))),
        Field::new(
            "headers",
            Type::Map(Box::new(Type::array(Type::some_text()))),
        ),
        Field::new("snis", Type::set(Type::checked(checks::sni))),
        Field::new("sources", Type::set(address())),
        Field::new("destinations", Type::set(address())),
    ]
}

/// What routes of TCP streams match; such routes can't be served.
fn address() -> Type {
    Type::Record(Schema::new(vec![
        Field::new("ip", Type::some_text()),
        Field::new("port", Type::Integer(0, 65_535)),
    ]))
}

fn flag(name: &'static str, default: bool) -> Field {
    Field::new(name, Type::Boolean).default(default).required()
}

fn protocols(route: &Map<String, Value>) -> impl Iterator<Item = &str> {
    let list = route.get("protocols").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str)
}

fn is_set(route: &Map<String, Value>, field: &str) -> bool {
    match route.get(field) {
        Some(Value::Array(list)) => !list.is_empty(),
        Some(Value::Object(map)) => !map.is_empty(),
        _ => false,
    }
}

fn speaks(route: &Map<String, Value>, wanted: &[&str]) -> bool {
    protocols(route).any(|protocol| wanted.contains(&protocol))
}

fn one_family_of_protocols(route: &Map<String, Value>, violations: &mut Violations) {
    if speaks(route, &["http", "https"]) && speaks(route, &["grpc", "grpcs"]) {
        violations.put(
            "protocols",
            "these sets are mutually exclusive: ('http', 'https'), ('grpc', 'grpcs')",
        );
    }
}

fn something_is_matched(route: &Map<String, Value>, violations: &mut Violations) {
    if speaks(route, checks::STREAMS) {
        return;
    }
    let mut fields = vec!["hosts", "headers", "paths"];
    let protocol = ["https", "grpcs", "http", "grpc"]
        .into_iter()
        .find(|protocol| speaks(route, &[protocol]))
        .unwrap_or("http");
    if protocol.starts_with("http") {
        fields.insert(0, "methods");
    }
    if protocol.ends_with('s') {
        fields.push("snis");
    }
    if fields
        .iter()
        .any(|field| is_set(route, field) || violations.has(field))
    {
        return;
    }
    let quoted: Vec<String> = fields.iter().map(|field| format!("'{field}'")).collect();
    violations.put_entity(format!(
        "must set one of {} when 'protocols' is '{protocol}'",
        quoted.join(", "),
    ));
}

/// The default of `strip_path` is false for gRPC: the path names the method.
fn grpc_keeps_paths(route: &mut Map<String, Value>) {
    if !route.contains_key("strip_path") && speaks(route, &["grpc", "grpcs"]) {
        route.insert("strip_path".to_owned(), false.into());
    }
}

/// The path of a call is its method's name, its method always POST.
fn grpc_is_not_rewritten(route: &Map<String, Value>, violations: &mut Violations) {
    if !speaks(route, &["grpc", "grpcs"]) {
        return;
    }
    let strips = route.get("strip_path").is_some_and(|strip| *strip == true);
    for (field, is_wrong) in [
        ("strip_path", strips),
        ("methods", is_set(route, "methods")),
    ] {
        if is_wrong {
            let message = format!("cannot set '{field}' when 'protocols' is 'grpc' or 'grpcs'");
            violations.put(field, message);
        }
    }
}

fn header_names(route: &Map<String, Value>, violations: &mut Violations) {
    let headers = route.get("headers").and_then(Value::as_object);
    for (name, values) in headers.into_iter().flatten() {
        if let Err(message) = checks::header_name(name) {
            violations.put("headers", message);
        }
        let single = values.as_array().filter(|list| list.len() == 1);
        let pattern = single
            .and_then(|list| list[0].as_str())
            .and_then(|value| value.strip_prefix("~*"));
        if let Some(Err(message)) = pattern.map(checks::regex) {
            let mut inside = Violations::default();
            inside.put(name, message);
            violations.put("headers", Violation::Record(inside));
        }
    }
}

fn snis_need_https(route: &Map<String, Value>, violations: &mut Violations) {
    let allowed = speaks(route, &["https", "grpcs"]) || speaks(route, checks::STREAMS);
    if is_set(route, "snis") && !allowed {
        violations.put_entity(
            "'snis' can only be set when 'protocols' is 'grpcs', 'https', 'tls' or 'tls_passthrough'",
        );
        violations.put("snis", "length must be 0");
    }
}

/// Says of the protocols of streams why they are not among those expected. Rules on
/// what routes of other protocols match would mislead.
fn no_streams(route: &Map<String, Value>, violations: &mut Violations) {
    if speaks(route, checks::STREAMS) {
        violations.put_entity(format!(
            "{}, and TLS is not passed through by its server name",
            checks::NO_STREAMS,
        ));
    }
}

fn no_stream_fields(route: &Map<String, Value>, violations: &mut Violations) {
    if speaks(route, checks::STREAMS) {
        return;
    }
    let family = if speaks(route, &["grpc", "grpcs"]) {
        "'grpc' or 'grpcs'"
    } else {
        "'http' or 'https'"
    };
    for field in ["sources", "destinations"] {
        if is_set(route, field) {
            let message = format!("cannot set '{field}' when 'protocols' is {family}");
            violations.put(field, message);
        }
    }
}
