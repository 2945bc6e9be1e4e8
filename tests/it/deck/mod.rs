//! The imitated gateway's declarative tool, retold: what it wrote it must find
//! again, or it would write it forever.

mod client;

use std::sync::OnceLock;

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{Door, Setup};
use client::{State, diff, dump, filled, ping, sync, validate};

/// A gateway without any entity.
async fn empty() -> Door {
    let mut door = Setup::new().lay_out();
    door.write("routes.yaml", "_format_version: \"3.0\"\n");
    door.start().await;
    door
}

/// A gateway that runs a file of `conf/` with all that it names, on ports of its
/// own.
async fn shipped(config: &str) -> Door {
    let mut door = Setup::new().lay_out();
    for dir in ["conf/routes.d", "data"] {
        std::fs::create_dir_all(door.path(dir)).expect("a directory");
    }
    let root = env!("CARGO_MANIFEST_DIR");
    let ports = [
        ("0.0.0.0:8000", "@PROXY@"),
        ("127.0.0.1:8000", "@PROXY@"),
        (":8000", ":@PROXY_PORT@"),
        ("127.0.0.1:8001", "@ADMIN@"),
    ];
    for file in std::fs::read_dir(format!("{root}/conf")).expect("a directory") {
        let file = file.expect("a file").path();
        if file
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            let mut text = std::fs::read_to_string(&file).expect("text");
            for (from, to) in ports {
                text = text.replace(from, to);
            }
            let name = file.file_name().and_then(|name| name.to_str());
            door.write(&format!("conf/{}", name.expect("a name")), &text);
        }
    }
    door.use_config(config);
    door.start().await;
    door
}

/// An id as the tool makes them: before the record is.
fn id(name: &str) -> String {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()).to_string()
}

fn reference(name: &str) -> Value {
    json!({"id": id(name)})
}

/// A certificate, its key, and an authority, the same each time.
fn pems() -> &'static [String; 3] {
    static PEMS: OnceLock<[String; 3]> = OnceLock::new();
    PEMS.get_or_init(|| {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec!["a.example".to_owned()]).expect("parameters");
        let cert = params.self_signed(&key).expect("signs").pem();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = params.self_signed(&key).expect("signs").pem();
        [cert, key.serialize_pem(), ca]
    })
}

fn wanted() -> State {
    let mut state = State::new();
    let mut want = |kind: &'static str, name: &str, mut record: Value| {
        record["id"] = id(name).into();
        state.entry(kind).or_default().insert(id(name), record);
    };
    let [cert, key, ca] = pems();
    let record = json!({"cert": cert, "key": key, "tags": ["b", "a"]});
    want("certificates", "cert", record);
    want("ca_certificates", "ca", json!({"cert": ca}));
    for name in ["a.example", "*.b.example"] {
        want(
            "snis",
            name,
            json!({"name": name, "certificate": reference("cert")}),
        );
    }
    want(
        "consumers",
        "ada",
        json!({"username": "ada", "custom_id": "7", "tags": ["t"]}),
    );
    want("consumers", "eve", json!({"custom_id": "8"}));
    want(
        "services",
        "plain",
        json!({"name": "plain", "host": "balanced"}),
    );
    want(
        "services",
        "tls",
        json!({
            "name": "tls", "protocol": "https", "host": "h.example", "port": 8443, "path": "/p",
            "tls_verify": true, "tls_verify_depth": 2, "ca_certificates": [id("ca")],
            "client_certificate": reference("cert"), "retries": 0, "enabled": false
        }),
    );
    want(
        "services",
        "calls",
        json!({"name": "calls", "protocol": "grpc", "host": "g.example"}),
    );
    want(
        "upstreams",
        "balanced",
        json!({"name": "balanced", "tags": ["t"]}),
    );
    want(
        "upstreams",
        "hashed",
        json!({
            "name": "hashed", "algorithm": "consistent-hashing", "hash_on": "header",
            "hash_on_header": "x-user", "hash_fallback": "ip", "slots": 100,
            "client_certificate": reference("cert"),
            "healthchecks": {
                "threshold": 50,
                "active": {
                    "type": "https", "https_sni": "h.example", "headers": {"x-probe": ["1"]},
                    "healthy": {"interval": 5, "successes": 2},
                    "unhealthy": {"http_statuses": [500], "tcp_failures": 3}
                }
            }
        }),
    );
    for (position, target) in [
        "10.0.0.1:80",
        "h.example:8000",
        "[0000:0000:0000:0000:0000:0000:0000:0001]:81",
    ]
    .iter()
    .enumerate()
    {
        let record = json!({
            "target": target, "weight": position * 10, "upstream": reference("balanced")
        });
        want("targets", target, record);
    }
    want(
        "routes",
        "plain-route",
        json!({
            "name": "plain-route", "paths": ["/b", "/a", "~/x/(?<n>\\d+)$"],
            "hosts": ["z.example", "*.a.example"], "methods": ["POST", "GET"],
            "headers": {"x-v": ["2", "1"]}, "service": reference("plain"), "tags": ["t"]
        }),
    );
    want(
        "routes",
        "tls-route",
        json!({
            "protocols": ["https"], "snis": ["a.example"], "https_redirect_status_code": 301,
            "service": reference("tls"), "regex_priority": 3, "path_handling": "v1"
        }),
    );
    want(
        "routes",
        "calls-route",
        json!({
            "protocols": ["grpc", "grpcs"], "paths": ["/pkg.Svc/"], "strip_path": false,
            "service": reference("calls")
        }),
    );
    want(
        "routes",
        "lonely-route",
        json!({"hosts": ["lonely.example"]}),
    );
    want(
        "plugins",
        "sign-in",
        json!({
            "name": "openid-connect", "service": reference("plain"), "tags": ["t"],
            "config": {
                "issuer": "http://127.0.0.1:9/oauth2", "client_id": ["orders"],
                "client_secret": ["secret"], "scopes": ["openid", "profile"],
                "cache_tokens_salt": "salt", "ssl_verify": false
            }
        }),
    );
    let rate = json!({"rate": {"numberOfRequests": 6, "duration": "10 s"}});
    want(
        "plugins",
        "everywhere",
        json!({"name": "throttling", "config": rate}),
    );
    for (name, field, of) in [
        ("of-route", "route", "plain-route"),
        ("of-consumer", "consumer", "ada"),
    ] {
        let mut plugin = json!({
            "name": "throttling", "instance_name": name, "config": rate, "enabled": false,
            "protocols": ["https", "http"]
        });
        plugin[field] = reference(of);
        want("plugins", name, plugin);
    }
    state
}

#[tokio::test]
async fn a_second_diff_right_after_a_sync_is_empty() {
    let door = empty().await;
    ping(&door).await;
    let wanted = filled(&door, &wanted()).await;
    validate(&door, &wanted).await;
    let first = diff(&dump(&door, "").await, &wanted);
    assert_eq!(
        first.put.len(),
        wanted.values().map(|kind| kind.len()).sum::<usize>()
    );
    sync(&door, &first).await;
    let second = diff(&dump(&door, "").await, &wanted);
    assert!(second.is_empty(), "{second:#?}");
}

#[tokio::test]
async fn with_the_configurations_that_ship_a_sync_and_a_reset_come_to_rest() {
    for config in ["conf/doorward.yaml", "conf/demo.yaml"] {
        let door = shipped(config).await;
        ping(&door).await;
        let nothing = diff(&dump(&door, "").await, &State::new());
        assert!(nothing.is_empty(), "{config}: {nothing:#?}");
        let wanted = filled(&door, &wanted()).await;
        sync(&door, &diff(&dump(&door, "").await, &wanted)).await;
        let second = diff(&dump(&door, "").await, &wanted);
        assert!(second.is_empty(), "{config}: {second:#?}");
        sync(&door, &diff(&dump(&door, "").await, &State::new())).await;
        let nothing = diff(&dump(&door, "").await, &State::new());
        assert!(nothing.is_empty(), "{config}: {nothing:#?}");
        // What the files declare is there all the same, and shown when asked for.
        let list = door.admin_get("/services?declared=true").await;
        let list = list.expect(200).json();
        let identity = list["data"].as_array().expect("a list").iter();
        let mut identity = identity.filter(|service| service["name"] == "identity");
        let file = identity
            .next()
            .and_then(|found| found["declared_in"].as_str());
        assert!(
            file.is_some_and(|file| file.ends_with("routes.yaml")),
            "{list}"
        );
        door.admin_get("/services/identity").await.expect(200);
    }
}

#[tokio::test]
async fn changes_and_removals_converge_and_a_reset_leaves_nothing() {
    let door = empty().await;
    let before = filled(&door, &wanted()).await;
    sync(&door, &diff(&dump(&door, "").await, &before)).await;

    let mut after = wanted();
    let mut set = |kind: &'static str, name: &str, field: &str, value: Value| {
        let records = after.get_mut(kind).expect("a kind");
        records.get_mut(&id(name)).expect("a record")[field] = value;
    };
    set("services", "plain", "retries", json!(7));
    set("services", "tls", "path", Value::Null);
    set("routes", "plain-route", "hosts", Value::Null);
    set("upstreams", "hashed", "hash_fallback", json!("none"));
    set("targets", "10.0.0.1:80", "weight", json!(1));
    set("consumers", "ada", "tags", json!(["u"]));
    set("plugins", "everywhere", "enabled", json!(false));
    for (kind, name) in [
        ("plugins", "sign-in"),
        ("routes", "calls-route"),
        ("services", "calls"),
        ("targets", "[0000:0000:0000:0000:0000:0000:0000:0001]:81"),
        ("snis", "*.b.example"),
        ("consumers", "eve"),
    ] {
        after.get_mut(kind).expect("a kind").remove(&id(name));
    }
    let after = filled(&door, &after).await;
    let change = diff(&dump(&door, "").await, &after);
    assert_eq!(
        (change.put.len(), change.delete.len()),
        (7, 6),
        "{change:#?}"
    );
    sync(&door, &change).await;
    let second = diff(&dump(&door, "").await, &after);
    assert!(second.is_empty(), "{second:#?}");

    sync(&door, &diff(&dump(&door, "").await, &State::new())).await;
    for (kind, records) in dump(&door, "").await {
        assert!(records.is_empty(), "{kind}: {records:?}");
    }
}

#[tokio::test]
async fn what_lacks_the_selected_tags_is_left_alone() {
    let door = empty().await;
    let mut mine = wanted();
    for records in mine.values_mut() {
        for record in records.values_mut() {
            record["tags"] = json!(["team", "blue"]);
        }
    }
    let theirs = json!({"username": "theirs", "tags": ["team"]});
    door.admin_post("/consumers", &theirs).await.expect(201);
    let mine = filled(&door, &mine).await;
    let first = diff(&dump(&door, "blue,team").await, &mine);
    sync(&door, &first).await;
    let second = diff(&dump(&door, "blue,team").await, &mine);
    assert!(second.is_empty(), "{second:#?}");
    door.admin_get("/consumers/theirs").await.expect(200);
}
