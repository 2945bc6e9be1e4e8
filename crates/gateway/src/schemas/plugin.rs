//! The Plugin schema: the same for all kinds, but for `config`.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::{checks, common};
use doorward_core::model::schema::{Field, Schema, Type, Violations};
use doorward_plugin_api::Kind;
use doorward_plugins::REGISTRY;

/// The protocols that plugins can be limited to, all by default.
const PROTOCOLS: &[&str] = &["grpc", "grpcs", "http", "https"];

/// Kinds whose files list the protocols of streams too, which no route here has:
/// whether they do by default.
const OF_STREAMS: &[(&str, bool)] = &[
    ("datadog", false),
    ("file-log", false),
    ("grpc-web", false),
    ("http-log", false),
    ("ip-restriction", true),
    ("loggly", false),
    ("prometheus", false),
    ("proxy-cache", false),
    ("request-transformer", false),
    ("session", false),
    ("statsd", false),
    ("syslog", false),
    ("tcp-log", false),
    ("udp-log", false),
    ("zipkin", false),
];
const WITH_STREAMS: &[&str] = &["grpc", "grpcs", "http", "https", "tcp", "tls"];
const ALL_PROTOCOLS: &[&str] = &[
    "grpc",
    "grpcs",
    "http",
    "https",
    "tcp",
    "tls",
    "tls_passthrough",
    "udp",
];

/// The field `protocols` of a kind.
fn protocols(kind: &str) -> Field {
    let of_streams = OF_STREAMS.iter().find(|(name, _)| *name == kind);
    let (accepted, default) = match of_streams {
        None => (PROTOCOLS, PROTOCOLS),
        Some((_, true)) => (ALL_PROTOCOLS, WITH_STREAMS),
        Some((_, false)) => (ALL_PROTOCOLS, PROTOCOLS),
    };
    Field::new("protocols", Type::set(Type::word(accepted)))
        .default(json!(default))
        .required()
        .len_min(1)
}

/// The fields of a plugin of the kind called `name`.
///
/// # Errors
/// That there is no such kind.
pub fn plugin(name: Option<&Value>) -> Result<&'static Schema, Violations> {
    static SCHEMAS: LazyLock<HashMap<&'static str, Schema>> = LazyLock::new(|| {
        REGISTRY
            .iter()
            .map(|kind| {
                let mut schema = plugin_of((kind.schema)());
                for field in &mut schema.fields {
                    if field.name == "protocols" {
                        *field = protocols(kind.name);
                    }
                }
                let schema = if kind.of_consumers {
                    schema
                } else {
                    schema.check(of_no_consumer)
                };
                let schema = if takes_groups(kind) {
                    schema
                } else {
                    schema.check(of_no_group)
                };
                (kind.name, schema)
            })
            .collect()
    });
    match name {
        Some(Value::String(name)) => SCHEMAS.get(name.as_str()).ok_or_else(|| {
            let message = format!(
                "plugin '{name}' not enabled; add it to the 'plugins' configuration property"
            );
            Violations::of("name", message)
        }),
        None | Some(Value::Null) => Err(Violations::of("name", "required field missing")),
        Some(_) => Err(Violations::of("name", "expected a string")),
    }
}

/// Whether plugins of a kind may be for a group of consumers: those that may be for one
/// consumer, with the exceptions of the imitated gateway.
fn takes_groups(kind: &Kind) -> bool {
    match kind.name {
        "standard-webhooks" => true,
        // For one consumer they are accepted, though they run before it is known.
        "correlation-id" | "zipkin" => false,
        _ => kind.of_consumers,
    }
}

/// The fields of a plugin whose `config` has the given ones.
pub fn plugin_of(config: &Schema) -> Schema {
    let mut fields = common();
    fields.extend([
        Field::new("name", Type::text()).required(),
        Field::new("instance_name", Type::checked(checks::name)).unique(),
        Field::new("service", Type::Foreign("services")),
        Field::new("route", Type::Foreign("routes")),
        Field::new("consumer", Type::Foreign("consumers")),
        Field::new("consumer_group", Type::Foreign("consumer_groups")),
        Field::new("enabled", Type::Boolean)
            .default(true)
            .required(),
        protocols(""),
        Field::new("config", Type::Record(config.clone())).required(),
    ]);
    let flat = |schema: Schema, name| {
        let id = Type::formatted("uuid", checks::uuid);
        let description = "The reference of the same name, in the older dialect.";
        schema.input(name, id, &[], description)
    };
    let schema = Schema::new(fields)
        .shorthand(nest_references)
        .check(of_one_or_of_many);
    REFERENCES
        .iter()
        .fold(schema, |schema, (name, _)| flat(schema, name))
}

/// References of the older dialect, and what they stand for.
const REFERENCES: [(&str, &str); 4] = [
    ("service_id", "service"),
    ("route_id", "route"),
    ("consumer_id", "consumer"),
    ("consumer_group_id", "consumer_group"),
];

/// It would never run: it does before the consumer is known.
fn of_no_consumer(plugin: &Map<String, Value>, violations: &mut Violations) {
    if is_set(plugin, "consumer") {
        violations.put("consumer", "value must be null");
    }
}

/// The same of a group of consumers.
fn of_no_group(plugin: &Map<String, Value>, violations: &mut Violations) {
    if is_set(plugin, "consumer_group") {
        violations.put("consumer_group", "value must be null");
    }
}

/// One for a consumer and for a group, too, would run for hardly anybody.
fn of_one_or_of_many(plugin: &Map<String, Value>, violations: &mut Violations) {
    if is_set(plugin, "consumer") && is_set(plugin, "consumer_group") {
        let fields = "'consumer', 'consumer_group'";
        violations.put_entity(format!(
            "only one of these fields must be non-empty: {fields}"
        ));
    }
}

fn is_set(plugin: &Map<String, Value>, field: &str) -> bool {
    plugin.get(field).is_some_and(|value| !value.is_null())
}

/// `service_id: x` is `service: {id: x}` in the older dialect; the nested form
/// wins, so that what was read can be written back.
fn nest_references(input: &mut Map<String, Value>, _: &mut Violations) {
    for (flat, nested) in REFERENCES {
        if let Some(id) = input.remove(flat) {
            let reference = if id.is_null() || id == "" {
                Value::Null
            } else {
                json!({"id": id})
            };
            let dotted = format!("{nested}.");
            if !input.keys().any(|key| key.starts_with(&dotted)) {
                input.entry(nested).or_insert(reference);
            }
        }
    }
}
