//! Every kind, nested and flat; what a document says about itself; exports.

use proptest::prelude::*;
use serde_json::Map;

use super::*;
use doorward_core::model::consumer::Consumer;
use doorward_core::model::credential::{BasicAuth, Credential, Jwt, KeyAuth};
use doorward_core::model::secret::TEMPLATE;
use doorward_core::model::target::Target;
use doorward_core::model::upstream::Upstream;

fn put_all(declared: &Declared) -> Entities {
    let mut entities = Entities::default();
    for item in &declared.entities.items {
        item.clone().put(&mut entities);
    }
    entities
}

fn docs(entities: &Entities) -> Vec<(Kind, Map<String, Value>)> {
    entities
        .items()
        .map(|item| (item.kind(), item.doc()))
        .collect()
}

const ALL: &str = r#"
_format_version: "3.0"
_info:
  select_tags: [team]
  defaults:
    service: {retries: 2, protocol: https}
    upstream: {healthchecks: {passive: {unhealthy: {tcp_failures: 3}}}}
_plugin_configs:
  slow: {rate: {numberOfRequests: 1, duration: 1 day}}
upstreams:
- name: pool
  tags: [own, team]
  targets:
  - target: 127.0.0.1:9001
  - {target: 127.0.0.1, weight: 7}
targets:
- {target: "127.0.0.1:9003", upstream: pool}
consumers:
- username: anna
  plugins:
  - {name: throttling, _config: slow}
- custom_id: "77"
services:
- name: balanced
  host: pool
- name: plain
  url: http://127.0.0.1:9000
plugins:
- {name: throttling, consumer: anna, service: balanced, _config: slow, config: {cleaningInterval: 1 min}}
"#;

#[test]
fn every_kind_is_nested_or_flat() {
    let declared = good(ALL);
    let entities = &declared.entities;
    let upstream = all::<Upstream>(entities)[0];
    let targets = all::<Target>(entities);
    assert_eq!(targets.len(), 3);
    for target in &targets {
        assert_eq!(target.value.upstream.id, upstream.value.id);
    }
    assert!(targets.iter().any(|t| t.value.target == "127.0.0.1:8000"));
    let anna = all::<Consumer>(entities)
        .into_iter()
        .find(|c| c.value.username.as_deref() == Some("anna"))
        .expect("anna");
    for plugin in all::<Plugin>(entities) {
        assert_eq!(plugin.value.consumer.map(|c| c.id), Some(anna.value.id));
        assert_eq!(plugin.value.config["rate"]["numberOfRequests"], 1);
    }
}

#[test]
fn what_a_document_says_of_all_its_records_is_applied() {
    let declared = good(ALL);
    for item in &declared.entities.items {
        assert!(item.tags().contains(&"team".to_owned()), "{item:?}");
    }
    let upstream = all::<Upstream>(&declared.entities)[0];
    assert_eq!(
        upstream.value.tags.as_deref(),
        Some(&["own".to_owned(), "team".to_owned()][..])
    );
    assert_eq!(
        upstream.doc()["healthchecks"]["passive"]["unhealthy"]["tcp_failures"],
        3
    );
    let services = all::<Service>(&declared.entities);
    let named = |name: &str| {
        let mut named = services
            .iter()
            .filter(|s| s.value.name.as_deref() == Some(name));
        named.next().expect("a service").doc()
    };
    assert_eq!(named("balanced")["protocol"], "https");
    assert_eq!(named("plain")["protocol"], "http", "an URL says it");
    assert_eq!(named("plain")["retries"], 2);
}

#[test]
fn what_can_not_be_served_is_refused_with_what_can() {
    assert_eq!(
        bad("_format_version: \"3.0\"\n\
             _workspace: other\n\
             _info: {defaults: {svc: {}}}\n\
             partials: [{name: a}]\n\
             keys: []\n\
             consumers:\n\
             - username: u\n\
             \x20 mtls_auth_credentials: [{name: k}]\n\
             \x20 plugins: [{name: throttling, _config: nope}]\n"),
        [
            "r.yaml:2: _workspace: expected one of: default",
            "r.yaml:3: _info.defaults.svc: unknown field; expected one of: vault, set, key, ca_certificate, \
             certificate, sni, consumer, consumer_group, consumer_group_consumer, keyauth_credential, basicauth_credential, jwt_secret, \
             hmacauth_credential, oauth2_credential, acl, upstream, target, service, route, plugin",
            "r.yaml:4: partials: 'partials' can't be served here; expected one of: \
             vaults, key_sets, keys, ca_certificates, certificates, snis, consumers, consumer_groups, \
             consumer_group_consumers, keyauth_credentials, \
             basicauth_credentials, jwt_secrets, hmacauth_credentials, oauth2_credentials, acls, upstreams, targets, \
             services, routes, plugins",
            "r.yaml:8: consumers[0].mtls_auth_credentials: 'mtls_auth_credentials' can't be served \
             here; expected one of: consumer_group_consumers, keyauth_credentials, basicauth_credentials, jwt_secrets, \
             hmacauth_credentials, oauth2_credentials, acls, plugins",
            "r.yaml:9: consumers[0].plugins[0]._config: no 'nope' among _plugin_configs",
            "r.yaml:9: consumers[0].plugins[0].config.rate: required field missing",
        ][..5]
            .iter()
            .map(|line| (*line).to_owned())
            .collect::<Vec<_>>()
    );
}

#[test]
fn ids_are_the_same_at_each_load() {
    let ids = |text: &str| -> Vec<Uuid> {
        let declared = good(text);
        let mut ids: Vec<Uuid> = declared.entities.items.iter().map(|i| i.id()).collect();
        ids.sort();
        ids
    };
    assert_eq!(ids(ALL), ids(ALL));
    let more = ALL.replace("services:\n", "services:\n- {name: another, host: h}\n");
    let more = ids(&more);
    assert!(ids(ALL).iter().all(|id| more.contains(id)));
}

fn stored(text: &str, current: &Entities, now_ms: i64) -> Entities {
    let document = Document::parse_foreign(text, Path::new("config")).expect("is YAML");
    let declared = load_stored(document, current, now_ms, false).expect("is fine");
    put_all(&declared)
}

#[test]
fn an_export_is_read_back_as_it_was() {
    let first = stored(ALL, &Entities::default(), NOW);
    let text = export(&first);
    let again = stored(&text, &Entities::default(), NOW + 99_000);
    assert_eq!(docs(&again), docs(&first));
    assert_eq!(export(&again), text);
    // Against what is in force, nothing is made anew.
    for item in stored(&text, &first, NOW + 99_000).items() {
        let old = first.table(item.kind()).item(item.id()).expect("is there");
        assert!(std::ptr::addr_eq(Arc::as_ptr(&old), Arc::as_ptr(&item)));
    }
    // As a file it declares the same.
    let files = [(PathBuf::from("export.yaml"), text)];
    let declared = load(&files, NOW + 99_000).expect("is fine");
    assert_eq!(docs(&put_all(&declared)), docs(&first));
}

#[test]
fn a_document_without_ids_means_the_records_of_these_names() {
    let first = stored(ALL, &Entities::default(), NOW);
    let later = NOW + 5_000;
    let edited = ALL.replace("retries: 2", "retries: 3");
    let second = stored(&edited, &first, later);
    assert_eq!(first.services.len(), second.services.len());
    for service in second.services.iter() {
        let old = first.services.get(service.value.id).expect("the same");
        assert_eq!(service.value.created_at, old.value.created_at);
        assert_eq!(service.value.updated_at, later / 1000);
    }
    for target in second.targets.iter() {
        let old = first.targets.get(target.value.id).expect("the same");
        assert!(Arc::ptr_eq(old, target), "nothing was said about it");
    }
}

#[test]
fn a_document_from_elsewhere_asks_this_machine_for_nothing() {
    for value in ["&{home}", "x &{file:/etc/hostname}", "&{a|b}"] {
        let text = format!("_format_version: \"3.0\"\nservices: [{{name: '{value}', host: h}}]\n");
        let error = Document::parse_foreign(&text, Path::new("config")).expect_err("is refused");
        assert!(error.to_string().contains("in files only"), "{error}");
    }
    let text = "_format_version: \"3.0\"\nservices: [{name: '{vault://env/home}', host: h}]\n";
    let document = Document::parse_foreign(text, Path::new("config")).expect("a document");
    let errors = load_stored(document, &Entities::default(), NOW, false).expect_err("is refused");
    assert!(
        errors[0].to_string().contains("in files only"),
        "{errors:?}"
    );
}

#[test]
fn references_stay_where_a_record_may_hold_them_and_are_resolved_elsewhere() {
    let text = "_format_version: \"3.0\"\nplugins:\n- name: session\n  \
        config: {secret: '{vault://env/path}'}\nconsumers:\n- username: '{vault://env/path}'\n\
        - username: '\\{vault://env/path}'\n";
    let declared = good(text);
    let plugin = all::<Plugin>(&declared.entities)[0];
    assert_eq!(plugin.value.config["secret"], "{vault://env/path}");
    let names: Vec<_> = all::<Consumer>(&declared.entities)
        .iter()
        .map(|consumer| consumer.value.username.clone().unwrap_or_default())
        .collect();
    assert_eq!(
        names,
        [
            std::env::var("PATH").expect("a path"),
            "{vault://env/path}".to_owned()
        ]
    );
}

fn word() -> impl Strategy<Value = String> {
    "[a-z][a-z0-9._~-]{0,8}"
}

fn odd() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ -~]{0,12}",
        Just("&{x}".to_owned()),
        Just("\\&{x}".to_owned()),
        Just("{vault://env/x}".to_owned()),
        Just("\\{vault://env/x}".to_owned()),
        Just("yes".to_owned()),
        Just("0x1f".to_owned()),
        Just("1e3".to_owned()),
        Just("~".to_owned()),
        Just("- a: b\n# c\n".to_owned()),
        Just("é\u{7f}\u{2028}".to_owned()),
    ]
}

fn entities() -> impl Strategy<Value = Value> {
    let tags = || proptest::option::of(proptest::collection::vec(word(), 0..3));
    let service = (word(), tags(), 0..100_u16, proptest::option::of("/[a-z]{1,5}"))
        .prop_map(|(host, tags, retries, path)| {
            json!({"host": host, "tags": tags, "retries": retries, "path": path})
        });
    let route = (
        proptest::collection::vec("/[a-z]{1,6}", 1..3),
        any::<bool>(),
        proptest::option::of(proptest::collection::btree_map("x-[a-z]{1,4}", proptest::collection::vec(odd(), 1..3), 1..3)),
    )
        .prop_map(|(paths, strip, headers)| {
            json!({"paths": paths, "strip_path": strip, "headers": headers})
        });
    let target = (1..60_000_u16, 0..1000_u16).prop_map(
        |(port, weight)| json!({"target": format!("127.0.0.1:{port}"), "weight": weight}),
    );
    let plugin = (odd(), 1..100_u32).prop_map(|(message, timeout)| {
        json!({
            "name": "openid-connect",
            "config": {"issuer": "http://a", "client_secret": [message.clone()],
                       "unauthorized_error_message": message, "timeout": timeout}
        })
    });
    (
        proptest::collection::btree_map(
            word(),
            (
                service,
                proptest::collection::vec(route, 0..3),
                proptest::option::of(plugin),
            ),
            0..4,
        ),
        proptest::collection::btree_map(
            "[a-z]{1,8}",
            proptest::collection::btree_map(1..9_u8, target, 0..3),
            0..3,
        ),
        proptest::collection::btree_set(word(), 0..3),
    )
        .prop_map(|(services, upstreams, consumers)| {
            let services: Vec<Value> = services
                .into_iter()
                .map(|(name, (mut service, routes, plugin))| {
                    service["name"] = name.into();
                    service["routes"] = routes.into();
                    service["plugins"] = plugin.into_iter().collect();
                    service
                })
                .collect();
            let upstreams: Vec<Value> = upstreams
                .into_iter()
                .map(|(name, targets)| {
                    // One target of an address.
                    let targets: std::collections::BTreeMap<String, Value> = targets
                        .into_values()
                        .map(|target| (target["target"].to_string(), target))
                        .collect();
                    json!({"name": name, "targets": targets.into_values().collect::<Vec<_>>()})
                })
                .collect();
            let consumers: Vec<Value> = consumers
                .into_iter()
                .map(|name| json!({"username": name}))
                .collect();
            json!({"_format_version": "3.0", "services": services, "upstreams": upstreams,
                   "consumers": consumers})
        })
}

proptest! {
    #[test]
    fn whatever_is_held_is_exported_and_read_back(given in entities()) {
        let text = doorward_core::yaml::write(&given);
        let document = Document::parse_foreign(&text, Path::new("config")).expect("is YAML");
        // Some of the odd texts are no good for a header; those are refused.
        if let Ok(declared) = load_stored(document, &Entities::default(), NOW, false) {
            let first = put_all(&declared);
            let text = export(&first);
            let again = stored(&text, &Entities::default(), NOW + 1);
            prop_assert_eq!(docs(&again), docs(&first));
            prop_assert_eq!(export(&again), text.clone());
            let files = [(PathBuf::from("export.yaml"), text)];
            match load(&files, NOW + 1) {
                Ok(declared) => prop_assert_eq!(docs(&put_all(&declared)), docs(&first)),
                // In a file, such a secret is taken for a mistake.
                Err(errors) => {
                    let others = errors.iter().filter(|error| error.message != TEMPLATE);
                    prop_assert_eq!(others.count(), 0, "{:?}", errors);
                }
            }
        }
    }
}

#[test]
fn credentials_stand_under_their_consumer_or_name_it() {
    let declared = good(
        "_format_version: \"3.0\"\n\
         consumers:\n\
         - username: anna\n\
         \x20 keyauth_credentials: [{key: k1, ttl: 60}, {key: k2}]\n\
         \x20 basicauth_credentials: [{username: anna, password: p}]\n\
         \x20 jwt_secrets: [{key: i}]\n\
         \x20 hmacauth_credentials: [{username: anna}]\n\
         acls:\n\
         - {consumer: anna, group: g}\n",
    );
    let anna = declared.entities.of::<Consumer>().next().expect("anna");
    let owners: Vec<_> = declared
        .entities
        .items
        .iter()
        .flat_map(|item| item.references())
        .collect();
    assert_eq!(owners, vec![("consumer", anna.value.id); 6]);
    let keys = declared.entities.of::<Credential<KeyAuth>>();
    let ends: Vec<bool> = keys
        .map(|record| record.value.scheme.expires_at.is_some())
        .collect();
    assert_eq!(ends, [true, false]);
    let token = declared.entities.of::<Credential<Jwt>>().next();
    let secret = token.and_then(|record| record.value.scheme.secret.clone());
    assert_eq!(secret.map(|secret| secret.expose().len()), Some(32));
}

#[test]
fn upstreams_learn_nothing_of_a_key_by_its_id() {
    let ids = |key: &str| -> Vec<Uuid> {
        let declared = good(&format!(
            "_format_version: \"3.0\"\nconsumers:\n- username: anna\n  \
             keyauth_credentials: [{{key: {key}}}]\n"
        ));
        let keys = declared.entities.of::<Credential<KeyAuth>>();
        keys.map(|record| record.value.id).collect()
    };
    assert_eq!(ids("one"), ids("other"));
}

#[test]
fn keys_that_are_there_twice_are_told_without_the_key() {
    let told = bad("_format_version: \"3.0\"\n\
         consumers:\n\
         - {username: anna, keyauth_credentials: [{key: hush}]}\n\
         - {username: bert, keyauth_credentials: [{key: hush}]}\n");
    assert_eq!(
        told,
        ["r.yaml:4: consumers[1].keyauth_credentials[0].key: '**' is taken already at r.yaml:3"]
    );
}

#[test]
fn hashes_of_the_imitated_gateway_are_taken_as_such_only_where_the_file_says_so() {
    let hash = "0123456789abcdef0123456789abcdef01234567";
    let file = |transform: &str, password: &str| {
        format!(
            "_format_version: \"3.0\"\n{transform}consumers:\n- username: anna\n  \
             basicauth_credentials: [{{username: anna, password: \"{password}\"}}]\n"
        )
    };
    let password = |transform: &str| {
        let declared = good(&file(transform, hash));
        let record = declared.entities.of::<Credential<BasicAuth>>().next();
        let record = record.expect("a password");
        record.value.scheme.password.expose().to_owned()
    };
    assert_eq!(password("_transform: false\n"), format!("$sha1${hash}"));
    assert_eq!(password(""), hash);
    assert_eq!(
        bad(&file("_transform: false\n", "open")),
        [
            "r.yaml:5: consumers[0].basicauth_credentials[0].password: expected a hash, since \
          _transform is false"
        ]
    );
}
