//! The Service schema.

use std::sync::LazyLock;

use serde_json::{Map, Value};
use url::Url;

use super::{MAX_TIMEOUT, checks, common};
use doorward_core::model::schema::{Field, Schema, Type, Violations, failed_condition};

/// The schemes towards an upstream that can be served. `internal` is an
/// upstream inside the process, named by `host`.
const PROTOCOLS: &[&str] = &["grpc", "grpcs", "http", "https", "internal"];

/// Versions of the PROXY protocol.
pub(super) const PROXY_PROTOCOLS: &[&str] = &["v1", "v2"];

/// The fields of a service.
pub fn service() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let timeout = |name| {
            Field::new(name, Type::Integer(1, MAX_TIMEOUT))
                .default(60_000)
                .required()
        };
        let mut fields = common();
        fields.extend([
            Field::new("name", Type::checked(checks::name)).unique(),
            Field::new("enabled", Type::Boolean)
                .default(true)
                .required(),
            Field::new("retries", Type::Integer(0, 32_767))
                .default(5)
                .required(),
            Field::new("protocol", Type::word(PROTOCOLS))
                .default("http")
                .required(),
            Field::new("host", Type::checked(checks::service_host)).required(),
            Field::new("port", Type::Integer(0, 65_535))
                .default(80)
                .required(),
            Field::new("path", Type::checked(checks::service_path)),
            timeout("connect_timeout"),
            timeout("write_timeout"),
            timeout("read_timeout"),
            Field::new("client_certificate", Type::Foreign("certificates")),
            Field::new("tls_verify", Type::Boolean),
            Field::new("tls_verify_depth", Type::Integer(0, 64)),
            Field::new(
                "ca_certificates",
                Type::array(Type::formatted("uuid", checks::uuid)),
            ),
            Field::new("proxy_protocol", Type::word(PROXY_PROTOCOLS)).rare(),
            Field::new("socket", Type::checked(checks::socket_path)).rare(),
        ]);
        Schema::new(fields)
            .shorthand(expand_url)
            .input(
                "url",
                Type::text(),
                &["host"],
                "Stands for `protocol`, `host`, `port` and `path`, where they are absent.",
            )
            .check(tls_fields_need_https)
            .check(grpc_has_no_path)
            .check(clients_are_named_over_http1)
            .check(sockets_lead_out)
            .check(no_streams)
    });
    &SCHEMA
}

/// `url` stands for protocol, host, port and path; fields that are given
/// themselves win over it.
fn expand_url(input: &mut Map<String, Value>, violations: &mut Violations) {
    let Some(value) = input.remove("url") else {
        return;
    };
    let Value::String(text) = value else {
        if !value.is_null() {
            violations.put("url", "expected a string");
        }
        return;
    };
    // What has no scheme is a path, as in the imitated gateway: the schema tells
    // whether it is one, and that the host is missing.
    if !text.is_empty() && !text.contains("://") {
        input.entry("path").or_insert(text.into());
        input.entry("host").or_insert(Value::Null);
        return;
    }
    match parts_of_url(&text) {
        Ok(parts) => {
            for (field, value) in parts {
                input.entry(field).or_insert(value);
            }
        }
        Err(message) => violations.put("url", message),
    }
}

fn parts_of_url(text: &str) -> Result<[(&'static str, Value); 4], &'static str> {
    // The library would silently repair what is not a URL at all.
    let (scheme, rest) = text.split_once("://").ok_or("invalid url")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if authority.is_empty() {
        return Err("missing host in url");
    }
    let url = Url::parse(&format!("{}://{authority}", scheme.to_ascii_lowercase()))
        .map_err(|_| "invalid url")?;
    if !url.username().is_empty() || url.password().is_some() || authority.contains('@') {
        return Err("must not have credentials");
    }
    // A query and a fragment are left out, as in the imitated gateway.
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let host = url.host_str().ok_or("missing host in url")?;
    let port = url.port_or_known_default().unwrap_or(80);
    let path = if path.is_empty() {
        Value::Null
    } else {
        path.into()
    };
    Ok([
        ("protocol", scheme.to_ascii_lowercase().into()),
        ("host", host.into()),
        ("port", port.into()),
        ("path", path),
    ])
}

/// Says of the protocols of streams why they are not among those expected.
fn no_streams(service: &Map<String, Value>, violations: &mut Violations) {
    let protocol = service.get("protocol").and_then(Value::as_str);
    if protocol.is_some_and(|protocol| checks::STREAMS.contains(&protocol)) {
        violations.put_entity(checks::NO_STREAMS);
    }
}

const TLS_FIELDS: [&str; 4] = [
    "client_certificate",
    "tls_verify",
    "tls_verify_depth",
    "ca_certificates",
];

fn tls_fields_need_https(service: &Map<String, Value>, violations: &mut Violations) {
    let tls = service
        .get("protocol")
        .is_some_and(|protocol| protocol == "https" || protocol == "grpcs");
    for field in TLS_FIELDS.into_iter().filter(|_| !tls) {
        must_be_unset(service, field, violations);
    }
}

/// Its path is that of the method that is called.
fn grpc_has_no_path(service: &Map<String, Value>, violations: &mut Violations) {
    let grpc = service
        .get("protocol")
        .is_some_and(|protocol| protocol == "grpc" || protocol == "grpcs");
    if grpc {
        must_be_unset(service, "path", violations);
    }
}

/// Connections of HTTP/2 are shared by requests of many clients, and there are none
/// inside the process.
fn clients_are_named_over_http1(service: &Map<String, Value>, violations: &mut Violations) {
    let http1 = service
        .get("protocol")
        .is_none_or(|protocol| protocol == "http" || protocol == "https");
    if !http1 {
        must_be_unset(service, "proxy_protocol", violations);
    }
}

/// Nothing is connected to inside the process.
fn sockets_lead_out(service: &Map<String, Value>, violations: &mut Violations) {
    let is_internal = |protocol: &Value| protocol == "internal";
    if service.get("protocol").is_some_and(is_internal) {
        must_be_unset(service, "socket", violations);
    }
}

fn must_be_unset(service: &Map<String, Value>, field: &str, violations: &mut Violations) {
    if service.get(field).is_some_and(|value| !value.is_null()) {
        violations.put_entity(failed_condition("protocol"));
        violations.put(field, "value must be null");
    }
}
