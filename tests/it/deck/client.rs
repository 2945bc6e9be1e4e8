//! What the imitated gateway's declarative tool does with a gateway, call by
//! call (gateway-admin-api §11): read everything, fill a wanted state from the
//! schemas, compare, and write the difference.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::support::{Answer, Door};

/// Records by kind, each kind by id.
pub(super) type State = BTreeMap<&'static str, BTreeMap<String, Value>>;

/// The kinds in the order in which they are created; deleted in reverse.
const STAGES: [&[&str]; 4] = [
    &["certificates", "ca_certificates", "consumers"],
    &["services", "upstreams", "snis"],
    &["routes", "targets"],
    &["plugins"],
];

/// Writes that are under way at once.
const PARALLEL: usize = 10;

/// Kinds that a gateway may lack, but only so.
const OPTIONAL: &[&str] = &[
    "/key-auths",
    "/hmac-auths",
    "/jwts",
    "/basic-auths",
    "/oauth2",
    "/acls",
    "/mtls-auths",
    "/consumer_groups",
    "/vaults",
    "/keys",
    "/key-sets",
    "/partials",
    "/filter-chains",
    "/custom-plugins",
    "/cloned-plugins",
];

/// The difference between two states.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Diff {
    /// Records to create or replace, with how they are now.
    pub(super) put: Vec<(&'static str, Value, Option<Value>)>,
    /// Records to delete.
    pub(super) delete: Vec<(&'static str, Value)>,
}

impl Diff {
    pub(super) fn is_empty(&self) -> bool {
        self.put.is_empty() && self.delete.is_empty()
    }
}

/// `ping`: what it needs to know of the gateway.
pub(super) async fn ping(door: &Door) {
    let answer = door.admin_get("/").await.expect(200);
    let server = answer.header("server");
    assert!(
        !server.is_empty() && !server.contains("ai-gateway"),
        "{server}"
    );
    let about = answer.json();
    let version = about["version"].as_str().expect("a text");
    let numbers: Vec<&str> = version.split('.').collect();
    assert!(
        numbers[0].parse() == Ok(3) && numbers[1].parse::<u32>().is_ok(),
        "{version}"
    );
    assert!(about["configuration"]["database"].is_string());
    assert_ne!(about["configuration"]["database"], "off");
}

/// `dump`: every list, page by page.
pub(super) async fn dump(door: &Door, tags: &str) -> State {
    for path in OPTIONAL {
        let status = door.admin_get(&format!("{path}?size=1000")).await.status;
        assert!(matches!(status, 200 | 404), "{path}: {status}");
    }
    let mut state = State::new();
    for stage in STAGES {
        for kind in stage.iter().filter(|kind| **kind != "targets") {
            state.insert(kind, list(door, &format!("/{kind}"), tags).await);
        }
    }
    let mut targets = BTreeMap::new();
    for upstream in state["upstreams"].keys() {
        targets.extend(list(door, &format!("/upstreams/{upstream}/targets"), tags).await);
    }
    state.insert("targets", targets);
    state
}

async fn list(door: &Door, path: &str, tags: &str) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    let mut offset = String::new();
    loop {
        let mut url = format!("{path}?size=1000");
        for (name, value) in [("offset", offset.as_str()), ("tags", tags)] {
            if !value.is_empty() {
                let value: String =
                    url::form_urlencoded::byte_serialize(value.as_bytes()).collect();
                url = format!("{url}&{name}={value}");
            }
        }
        let page = door.admin_get(&url).await.expect(200).json();
        for record in page["data"].as_array().expect("a list") {
            found.insert(id(record), record.clone());
        }
        match page.get("offset") {
            None | Some(Value::Null) => return found,
            Some(next) => next.as_str().expect("a text").clone_into(&mut offset),
        }
    }
}

fn id(record: &Value) -> String {
    record["id"].as_str().expect("an id").to_owned()
}

/// The wanted state with the defaults that the schemas tell.
pub(super) async fn filled(door: &Door, wanted: &State) -> State {
    let mut filled = wanted.clone();
    for kind in ["services", "routes", "upstreams", "targets"] {
        let schema = door
            .admin_get(&format!("/schemas/{kind}"))
            .await
            .expect(200)
            .json();
        let defaults = defaults(&schema["fields"]);
        for record in filled.entry(kind).or_default().values_mut() {
            fill(record, &defaults);
        }
    }
    for plugin in filled.entry("plugins").or_default().values_mut() {
        let name = plugin["name"].as_str().expect("a name").to_owned();
        let schema = door
            .admin_get(&format!("/schemas/plugins/{name}"))
            .await
            .expect(200)
            .json();
        let field = |wanted: &str| {
            let fields = schema["fields"].as_array().expect("fields");
            let found = fields.iter().find_map(|field| field.get(wanted));
            found
                .unwrap_or_else(|| panic!("no {wanted} in the schema of {name}"))
                .clone()
        };
        plugin["config"] = fill_config(&field("config"), &plugin["config"]);
        fill(
            plugin,
            &json!({"protocols": field("protocols")["default"], "enabled": true}),
        );
    }
    filled
}

/// The default of each field, of records by their fields.
fn defaults(fields: &Value) -> Value {
    let mut all = Map::new();
    for field in fields.as_array().expect("fields") {
        for (name, field) in field.as_object().expect("a field") {
            let default = match field["type"].as_str() {
                Some("record") => defaults(&field["fields"]),
                _ => field.get("default").cloned().unwrap_or(Value::Null),
            };
            all.insert(name.clone(), default);
        }
    }
    Value::Object(all)
}

/// What is absent, null or an empty list is taken from the defaults.
fn fill(record: &mut Value, defaults: &Value) {
    let (Value::Object(record), Value::Object(defaults)) = (record, defaults) else {
        return;
    };
    for (name, default) in defaults {
        let slot = record.entry(name.clone()).or_insert(Value::Null);
        match slot {
            Value::Null => *slot = default.clone(),
            Value::Array(list) if list.is_empty() => *slot = default.clone(),
            Value::Object(_) => fill(slot, default),
            _ => {}
        }
    }
}

/// A plugin's configuration, in which null is a value.
fn fill_config(schema: &Value, config: &Value) -> Value {
    let mut filled = config.as_object().cloned().unwrap_or_default();
    for field in schema["fields"].as_array().expect("fields") {
        for (name, field) in field.as_object().expect("a field") {
            let given = config.get(name);
            let is_map = field.get("keys").is_some() && field.get("values").is_some();
            let of_records = field["elements"]["type"] == "record";
            match given {
                Some(Value::Object(_)) if !is_map => {}
                Some(Value::Array(list)) if of_records && !list.is_empty() => {}
                Some(_) => continue,
                None => {}
            }
            let value = match (field["type"].as_str(), given) {
                (Some("record"), Some(_)) => fill_config(field, &config[name]),
                (Some("record"), None) if field["required"] == true => {
                    fill_config(field, &json!({}))
                }
                (Some("array" | "set"), Some(Value::Array(list))) => list
                    .iter()
                    .map(|element| fill_config(&field["elements"], element))
                    .collect(),
                (Some("json"), Some(given)) => given.clone(),
                _ => field.get("default").cloned().unwrap_or(Value::Null),
            };
            filled.insert(name.clone(), value);
        }
    }
    Value::Object(filled)
}

/// What has to be written to get from one state to the other.
pub(super) fn diff(current: &State, wanted: &State) -> Diff {
    let mut diff = Diff::default();
    for stage in STAGES {
        for kind in stage {
            let none = BTreeMap::new();
            let now = current.get(kind).unwrap_or(&none);
            let then = wanted.get(kind).unwrap_or(&none);
            for (id, record) in then {
                let old = now.get(id);
                if old.is_none_or(|old| typed(kind, old) != typed(kind, record)) {
                    diff.put.push((kind, record.clone(), old.cloned()));
                }
            }
            for (id, record) in now {
                if !then.contains_key(id) {
                    diff.delete.push((kind, record.clone()));
                }
            }
        }
    }
    diff
}

/// The fields that the tool knows, as it compares them.
fn typed(kind: &str, record: &Value) -> Value {
    let known: &[&str] = match kind {
        "services" => &[
            "id",
            "name",
            "protocol",
            "host",
            "port",
            "path",
            "retries",
            "connect_timeout",
            "write_timeout",
            "read_timeout",
            "enabled",
            "client_certificate",
            "tls_verify",
            "tls_verify_depth",
            "ca_certificates",
            "tags",
        ],
        "routes" => &[
            "id",
            "name",
            "protocols",
            "methods",
            "hosts",
            "paths",
            "headers",
            "snis",
            "sources",
            "destinations",
            "https_redirect_status_code",
            "regex_priority",
            "strip_path",
            "preserve_host",
            "path_handling",
            "request_buffering",
            "response_buffering",
            "service",
            "tags",
        ],
        "upstreams" => &[
            "id",
            "name",
            "host_header",
            "client_certificate",
            "algorithm",
            "slots",
            "healthchecks",
            "hash_on",
            "hash_fallback",
            "hash_on_header",
            "hash_fallback_header",
            "hash_on_cookie",
            "hash_on_cookie_path",
            "hash_on_query_arg",
            "hash_fallback_query_arg",
            "hash_on_uri_capture",
            "hash_fallback_uri_capture",
            "use_srv_name",
            "tags",
        ],
        "targets" => &["id", "target", "weight", "upstream", "tags"],
        "consumers" => &["id", "username", "custom_id", "tags"],
        "certificates" => &["id", "cert", "key", "tags"],
        "ca_certificates" => &["id", "cert", "tags"],
        "snis" => &["id", "name", "certificate", "tags"],
        _ => &[
            "id",
            "name",
            "instance_name",
            "service",
            "route",
            "consumer",
            "config",
            "enabled",
            "protocols",
            "tags",
        ],
    };
    let mut typed: Map<String, Value> = known
        .iter()
        .filter_map(|field| Some(((*field).to_owned(), record.get(*field)?.clone())))
        .collect();
    if kind == "plugins" {
        sort_lists(&mut typed["config"]);
        typed.get_mut("protocols").into_iter().for_each(sort_lists);
    } else {
        // Typed structs omit what is unset, at every depth.
        typed.values_mut().for_each(drop_nulls);
    }
    typed.get_mut("tags").into_iter().for_each(sort_lists);
    typed.retain(|field, value| {
        let empty =
            value.is_null() || (field == "tags" && value.as_array().is_some_and(Vec::is_empty));
        !empty
    });
    Value::Object(typed)
}

fn drop_nulls(value: &mut Value) {
    if let Value::Object(map) = value {
        map.retain(|_, value| !value.is_null());
        map.values_mut().for_each(drop_nulls);
    }
}

fn sort_lists(value: &mut Value) {
    match value {
        Value::Array(list) => {
            list.iter_mut().for_each(sort_lists);
            list.sort_by_key(Value::to_string);
        }
        Value::Object(map) => map.values_mut().for_each(sort_lists),
        _ => {}
    }
}

/// `sync`: writes the difference, stage by stage, several at once.
pub(super) async fn sync(door: &Door, diff: &Diff) {
    for stage in STAGES.iter().rev() {
        let gone = diff.delete.iter().filter(|(kind, _)| stage.contains(kind));
        let gone: Vec<_> = gone.collect();
        for some in gone.chunks(PARALLEL) {
            let writes = some.iter().map(|(kind, record)| async move {
                let answer = door.admin_delete(&path(kind, record)).await;
                assert!(answer.status < 300, "{kind}: {}", answer.body);
            });
            join_all(writes).await;
        }
    }
    for stage in STAGES {
        let put = diff.put.iter().filter(|(kind, ..)| stage.contains(kind));
        let put: Vec<_> = put.collect();
        for some in put.chunks(PARALLEL) {
            let writes = some.iter().map(|(kind, record, _)| async move {
                let answer = write(door, kind, record).await;
                assert!(answer.status < 300, "{kind}: {} {record}", answer.body);
            });
            join_all(writes).await;
        }
    }
}

async fn write(door: &Door, kind: &str, record: &Value) -> Answer {
    let mut body = record.clone();
    // Unset fields are left out, except in a plugin's configuration.
    if kind == "plugins" {
        body.as_object_mut()
            .expect("a record")
            .retain(|_, value| !value.is_null());
    } else {
        drop_nulls(&mut body);
    }
    let answer = door
        .admin_json(Method::PUT, &path(kind, record), &body)
        .await;
    if kind == "targets" && answer.status == 404 {
        let upstream = record["upstream"]["id"].as_str().expect("an upstream");
        return door
            .admin_post(&format!("/upstreams/{upstream}/targets"), &body)
            .await;
    }
    answer
}

fn path(kind: &str, record: &Value) -> String {
    match kind {
        "targets" => {
            let upstream = record["upstream"]["id"].as_str().expect("an upstream");
            format!("/upstreams/{upstream}/targets/{}", id(record))
        }
        _ => format!("/{kind}/{}", id(record)),
    }
}

/// `validate`: each record is asked about.
pub(super) async fn validate(door: &Door, wanted: &State) {
    for (kind, records) in wanted {
        for record in records.values() {
            let path = format!("/schemas/{kind}/validate");
            door.admin_post(&path, record).await.expect(200);
        }
    }
}
