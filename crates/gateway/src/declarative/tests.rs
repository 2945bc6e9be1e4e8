mod groups;
mod kinds;

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::entities::{Entity, Origin, Record};
use doorward_core::model::plugin::Plugin;
use doorward_core::model::route::Route;
use doorward_core::model::service::Service;
use doorward_plugins::REGISTRY;

const NOW: i64 = 1_700_000_000_123;

fn read(text: &str) -> Result<Declared, Vec<DocumentError>> {
    load(&[(PathBuf::from("r.yaml"), text.to_owned())], NOW)
}

fn all<T: Entity>(entities: &DeclaredEntities) -> Vec<&Record<T>> {
    entities.of().collect()
}

fn good(text: &str) -> Declared {
    match read(text) {
        Ok(declared) => declared,
        Err(errors) => panic!("{errors:?}"),
    }
}

fn bad(text: &str) -> Vec<String> {
    read(text)
        .expect_err("is refused")
        .iter()
        .map(ToString::to_string)
        .collect()
}

const NESTED: &str = r#"
_format_version: "3.0"
_transform: true
services:
- name: orders
  url: http://127.0.0.1:9000/api
  routes:
  - name: orders
    hosts: [orders.localhost]
    plugins:
    - name: openid-connect
      config: {issuer: "http://localhost:8000/oauth2", client_id: orders, scopes: [openid]}
  plugins:
  - name: openid-connect
    enabled: false
    config:
      issuer: http://localhost:8000/oauth2
      leeway: "&{no.such.variable|7}"
routes:
- paths: [/x]
  service: orders
plugins:
- name: openid-connect
  route: orders
  service: {name: orders}
  config: {issuer: http://localhost}
"#;

#[test]
fn nested_and_flat_records_refer_to_each_other() {
    let declared = good(NESTED);
    let entities = &declared.entities;
    let service = all::<Service>(entities)[0];
    assert_eq!(service.value.host, "127.0.0.1");
    assert_eq!(service.value.port, 9000);
    assert_eq!(service.doc()["path"], "/api");
    assert_eq!(service.doc()["created_at"], json!(1_700_000_000));
    assert_eq!(service.origin, Origin::File(Arc::from(Path::new("r.yaml"))));
    for route in entities.of::<Route>() {
        assert_eq!(route.value.service.map(|s| s.id), Some(service.value.id));
    }
    let plugins = all::<Plugin>(entities);
    let [of_both, of_route, of_service] = plugins.as_slice() else {
        panic!("three plugins");
    };
    let route = all::<Route>(entities)[1].value.id;
    assert_eq!(of_route.value.route.map(|r| r.id), Some(route));
    assert_eq!(of_route.value.service, None);
    assert_eq!(of_route.value.config["client_id"], json!(["orders"]));
    assert_eq!(of_route.value.created_at, NOW);
    assert_eq!(
        of_service.value.service.map(|s| s.id),
        Some(service.value.id)
    );
    assert_eq!(of_service.value.config["leeway"], json!(7));
    assert!(!of_service.value.enabled);
    assert_eq!(of_both.value.route.map(|r| r.id), Some(route));
    assert_eq!(of_both.value.service.map(|s| s.id), Some(service.value.id));
}

#[test]
fn a_plugin_that_there_is_not_is_told_with_those_that_there_are() {
    let file = |name: &str| {
        let text = format!("_format_version: \"3.0\"\nplugins:\n- name: {name}\n");
        let errors = load(&[(PathBuf::from("r.yaml"), text)], NOW).expect_err("refused");
        errors[0].to_string()
    };
    let told = file("throtling");
    let begins = "r.yaml:3: plugins[0].name: there is no plugin 'throtling': expected one of ";
    assert!(told.starts_with(begins), "{told}");
    assert!(told.contains("openid-connect"), "{told}");
    assert!(told.ends_with("did you mean 'throttling'?"), "{told}");
    let far = file("zzz");
    assert!(!far.contains("did you mean"), "{far}");
}

#[test]
fn each_load_yields_equal_records() {
    let one = good(NESTED).entities;
    let two = good(NESTED).entities;
    assert!(one.of::<Service>().eq(two.of::<Service>()));
    assert!(one.of::<Route>().eq(two.of::<Route>()));
    assert!(one.of::<Plugin>().eq(two.of::<Plugin>()));
}

#[test]
fn a_record_elsewhere_does_not_change_an_id() {
    let one = good("_format_version: \"3.0\"\nroutes: [{paths: [/a]}, {paths: [/b]}]\n");
    let two = good("_format_version: \"3.0\"\nroutes: [{paths: [/c]}, {paths: [/b]}]\n");
    assert_eq!(
        all::<Route>(&one.entities)[1],
        all::<Route>(&two.entities)[1]
    );
}

#[test]
fn twins_without_names_are_two_records() {
    let declared = good("_format_version: \"3.0\"\nroutes: [{paths: [/a]}, {paths: [/a]}]\n");
    let routes = all::<Route>(&declared.entities);
    let [a, b] = routes.as_slice() else {
        panic!("two routes");
    };
    assert_ne!(a.value.id, b.value.id);
}

#[test]
fn records_of_one_file_refer_to_those_of_another() {
    let a = "_format_version: \"3.0\"\nroutes: [{paths: [/a], service: s}]\n";
    let b = "_format_version: \"3.0\"\nservices: [{name: s, host: h}]\n";
    let files = [
        (PathBuf::from("a.yaml"), a.to_owned()),
        (PathBuf::from("b.yaml"), b.to_owned()),
    ];
    let declared = load(&files, NOW).expect("is fine");
    assert_eq!(
        all::<Route>(&declared.entities)[0]
            .value
            .service
            .map(|s| s.id),
        Some(all::<Service>(&declared.entities)[0].value.id)
    );
}

#[test]
fn every_error_names_file_line_and_key() {
    let known: Vec<_> = REGISTRY.iter().map(|kind| kind.name).collect();
    let unknown = format!(
        "r.yaml:11: services[1].routes[0].plugins[0].name: there is no plugin 'nope': expected one \
         of {}",
        known.join(", ")
    );
    assert_eq!(
        bad("_format_version: \"3.0\"\n\
             bogus: 1\n\
             services:\n\
             - name: a\n\
             - host: b\n\
             \x20 port: x\n\
             \x20 routes:\n\
             \x20 - paths:\n\
             \x20   - /ok\n\
             \x20   - no\n\
             \x20   plugins: [{name: nope}]\n\
             \x20 plugins:\n\
             \x20 - name: openid-connect\n\
             \x20   config:\n\
             \x20     issuer: http://a\n\
             \x20     leeway: -1\n\
             partials:\n\
             - name: u\n"),
        [
            "r.yaml:2: bogus: unknown field",
            "r.yaml:4: services[0].host: required field missing",
            "r.yaml:6: services[1].port: expected an integer",
            "r.yaml:10: services[1].routes[0].paths[1]: should start with: / (fixed path) or ~/ (regex path)",
            unknown.as_str(),
            "r.yaml:16: services[1].plugins[0].config.leeway: value should be between 0 and 86400",
            "r.yaml:17: partials: 'partials' can't be served here; expected one of: \
             vaults, key_sets, keys, ca_certificates, certificates, snis, consumers, consumer_groups, \
             consumer_group_consumers, keyauth_credentials, basicauth_credentials, jwt_secrets, hmacauth_credentials, oauth2_credentials, acls, upstreams, targets, \
             services, routes, plugins",
        ]
    );
}

#[test]
fn references_to_nothing_are_told() {
    assert_eq!(
        bad("_format_version: \"3.0\"\nroutes:\n- paths: [/a]\n  service: nowhere\n"),
        ["r.yaml:4: routes[0].service: no service named 'nowhere' is declared"]
    );
    assert_eq!(
        bad(
            "_format_version: \"3.0\"\nservices:\n- host: a\n  routes:\n  - paths: [/a]\n    service: b\n"
        ),
        ["r.yaml:6: services[0].routes[0].service: is given already by the service around it"]
    );
}

#[test]
fn names_and_places_are_taken_once() {
    assert_eq!(
        bad("_format_version: \"3.0\"\nservices:\n- {name: a, host: a}\n- {name: a, host: b}\n"),
        ["r.yaml:4: services[1].name: 'a' is taken already at r.yaml:3"]
    );
    assert_eq!(
        bad("_format_version: \"3.0\"\nplugins:\n\
             - {name: openid-connect, config: {issuer: http://a}}\n\
             - {name: openid-connect, config: {issuer: http://b}}\n"),
        ["r.yaml:4: plugins[1]: is declared already at r.yaml:3"]
    );
}

#[test]
fn what_is_no_declarative_file_is_refused() {
    assert_eq!(
        bad("services: []\n"),
        ["r.yaml:1: required field missing: _format_version: \"3.0\""]
    );
    assert_eq!(
        bad("_format_version: 3.0\n"),
        [
            "r.yaml:1: _format_version: expected one of: \"1.1\", \"2.1\", \"3.0\" (a text, in quotes)"
        ]
    );
    assert_eq!(
        bad("name: r\nhandler: x\n"),
        ["r.yaml:1: required field missing: _format_version: \"3.0\""]
    );
    assert_eq!(bad("[1]\n"), ["r.yaml:1: expected a mapping"]);
    assert_eq!(
        bad("_format_version: \"3.0\"\nservices: {}\nroutes: [1]\n"),
        [
            "r.yaml:2: services: expected an array",
            "r.yaml:3: routes[0]: expected a record"
        ]
    );
    assert_eq!(
        bad("_format_version: \"3.0\"\nservices: [{}]\n"),
        ["r.yaml:2: services[0].host: required field missing"]
    );
}

#[test]
fn older_formats_mark_expressions() {
    let declared = good("_format_version: \"1.1\"\nroutes:\n- paths: [/plain, '/a/\\d+']\n");
    assert_eq!(
        all::<Route>(&declared.entities)[0].doc()["paths"],
        json!(["/plain", "~/a/\\d+"])
    );
}

#[test]
fn many_errors_are_cut_off() {
    let text = format!(
        "_format_version: \"3.0\"\nservices:\n{}",
        "- {}\n".repeat(500)
    );
    assert_eq!(bad(&text).len(), MAX_ERRORS);
}

#[test]
fn a_later_error_is_told_with_its_place() {
    let declared = good(NESTED);
    let error = |kind, id, error| DeclaredError { kind, id, error };
    let plugin = all::<Plugin>(&declared.entities)[2].value.id;
    let invalid = |field: &str| ChangeError::Invalid {
        field: field.to_owned(),
        message: "is odd".to_owned(),
    };
    let told = |error| declared.locate(&error).map(|e| e.to_string());
    assert_eq!(
        told(error("plugins", plugin, invalid("config.leeway"))).as_deref(),
        Some("r.yaml:18: services[0].plugins[0].config.leeway: is odd")
    );
    let route = all::<Route>(&declared.entities)[1].value.id;
    assert_eq!(
        told(error("routes", route, invalid("hosts.1"))).as_deref(),
        Some("r.yaml:9: services[0].routes[0].hosts[0]: is odd")
    );
    assert_eq!(told(error("routes", Uuid::nil(), invalid("hosts.1"))), None);
}

/// What is left out of this document, and what remains.
fn skipped(text: &str) -> (Vec<String>, Declared) {
    let document = Document::parse_foreign(text, Path::new("r.yaml")).expect("a document");
    let told = unsupported(document.clone());
    let declared = load_stored(document, &Entities::default(), NOW, true).expect("is fine");
    (told.iter().map(ToString::to_string).collect(), declared)
}

#[test]
fn what_nobody_runs_is_left_out_by_file_line_and_name() {
    let text = "_format_version: '3.0'\npartials:\n- name: gold\nplugins:\n\
        - name: pre-function\n- name: cors\n";
    let (told, declared) = skipped(text);
    assert_eq!(
        told,
        [
            "r.yaml:2: partials: 'partials' can't be served here",
            "r.yaml:5: plugins[0].name: 'pre-function' is a plugin that Doorward does not run: \
             it runs code of the configuration",
        ]
    );
    assert_eq!(declared.entities.items.len(), 1);
}

#[test]
fn a_slip_in_a_name_is_refused_and_never_left_out() {
    let text = "_format_version: '3.0'\nplugins:\n- name: key-auht\n";
    let document = Document::parse_foreign(text, Path::new("r.yaml")).expect("a document");
    assert!(unsupported(document.clone()).is_empty());
    assert!(load_stored(document, &Entities::default(), NOW, true).is_err());
}
