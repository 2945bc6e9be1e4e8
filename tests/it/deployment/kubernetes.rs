//! The manifests and the chart: nodes that are no root, and a configuration that
//! the program takes.

use std::path::Path;

use serde_yaml::Value;

use super::{documents, success, text};
use crate::support::{Door, Setup, eventually};

pub(super) const MANIFESTS: &str = "deploy/kubernetes/doorward.yaml";

/// The manifest of this kind and name.
fn manifest<'a>(all: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let named = |one: &&Value| one["kind"] == kind && one["metadata"]["name"] == name;
    all.iter()
        .find(named)
        .unwrap_or_else(|| panic!("no {kind} {name}"))
}

/// Writes what a ConfigMap or Secret holds as the kubelet does: a folder of this
/// version, and links that lead to it.
fn mount(folder: &Path, version: &str, files: &Value) {
    let written = folder.join(version);
    std::fs::create_dir_all(&written).expect("a folder");
    for (name, text) in files.as_mapping().expect("files") {
        let (name, text) = (
            name.as_str().expect("a name"),
            text.as_str().expect("a text"),
        );
        std::fs::write(written.join(name), text).expect("a file");
        let link = folder.join(name);
        if !link.exists() {
            std::os::unix::fs::symlink(Path::new("..data").join(name), link).expect("a link");
        }
    }
    let next = folder.join("..data_tmp");
    std::os::unix::fs::symlink(version, &next).expect("a link");
    std::fs::rename(next, folder.join("..data")).expect("the link is replaced");
}

/// The keys of the Secret that the nodes need, with a database of one's own.
fn secrets(store: &str) -> Value {
    let files = [
        ("store-url", store),
        ("admin-token", "an-admin-token-for-tests"),
        (
            "master-key",
            "bWFzdGVyLWtleS1mb3ItdGVzdHMtb25seS0wMTIzNDU2Nzg5",
        ),
    ];
    let files = files.map(|(name, text)| (Value::from(name), Value::from(format!("{text}\n"))));
    Value::Mapping(files.into_iter().collect())
}

/// Mounts all that the nodes get below `door`'s folder, with its ports.
pub(super) fn mount_all(door: &Door, manifests: &[Value]) {
    let folder = door.path("etc");
    let mut main = manifest(manifests, "ConfigMap", "doorward")["data"].clone();
    let file = main["doorward.yaml"].as_str().expect("a text");
    let file = file
        .replace("/etc/doorward", folder.to_str().expect("UTF-8"))
        .replace("0.0.0.0:8001", &door.admin())
        .replace("0.0.0.0:8000", &door.proxy());
    main["doorward.yaml"] = file.into();
    let entities = &manifest(manifests, "ConfigMap", "doorward-entities")["data"];
    let store = door.fill("sqlite:@DIR@/doorward.db");
    for (name, files) in [
        ("main", &main),
        ("entities", entities),
        ("secrets", &secrets(&store)),
    ] {
        mount(&folder.join(name), "..1", files);
    }
}

#[tokio::test]
async fn nodes_take_what_they_are_given_and_changes_of_it() {
    let manifests = documents(&text(MANIFESTS));
    let mut door = Setup::new().lay_out();
    mount_all(&door, &manifests);
    let config = "etc/main/doorward.yaml";
    success(&mut door.command(&["check", "-c", config]));
    door.use_config(config);
    door.spawn();
    // The Admin API has a token, which the check of health finds by itself.
    let health = |flag: &str| door.run(&["health", flag, "-c", config]).status.success();
    eventually("the node to be ready", || async {
        health("--ready").then_some(())
    })
    .await;
    assert!(health("--live"));
    door.get("any.test", "/shop").await.expect(404);
    let entities = "routes.yaml: |\n  _format_version: \"3.0\"\n  services:\n  \
        - {name: echo, protocol: internal, host: echo, routes: [{name: shop, paths: [/shop]}]}\n";
    let entities: Value = serde_yaml::from_str(entities).expect("YAML");
    mount(&door.path("etc/entities"), "..2", &entities);
    std::fs::remove_dir_all(door.path("etc/entities/..1")).expect("the old version goes");
    eventually("the change to be in force", || async {
        (door.get("any.test", "/shop").await.status == 200).then_some(())
    })
    .await;
}

#[test]
fn nodes_are_no_root_and_are_left_time_to_drain() {
    let manifests = documents(&text(MANIFESTS));
    let pod = &manifest(&manifests, "Deployment", "doorward")["spec"]["template"]["spec"];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], Value::Bool(true));
    assert_eq!(
        pod["securityContext"]["seccompProfile"]["type"],
        "RuntimeDefault"
    );
    assert_eq!(pod["automountServiceAccountToken"], Value::Bool(false));
    let container = &pod["containers"][0];
    assert_eq!(
        container["securityContext"]["readOnlyRootFilesystem"],
        Value::Bool(true)
    );
    assert_eq!(
        container["securityContext"]["allowPrivilegeEscalation"],
        Value::Bool(false)
    );
    assert_eq!(
        container["securityContext"]["capabilities"]["drop"][0],
        "ALL"
    );
    // Neither is by the store: a start mends no database.
    for probe in ["startupProbe", "livenessProbe"] {
        let command = container[probe]["exec"]["command"]
            .as_sequence()
            .expect("a command");
        assert_eq!(command.last(), Some(&Value::from("--live")), "{probe}");
    }
    let config = manifest(&manifests, "ConfigMap", "doorward")["data"]["doorward.yaml"].as_str();
    let config: Value = serde_yaml::from_str(config.expect("a text")).expect("YAML");
    let drain = config["proxy"]["drain_seconds"].as_u64().expect("a number");
    let sleep = container["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64();
    let grace = pod["terminationGracePeriodSeconds"]
        .as_u64()
        .expect("a number");
    assert!(grace > drain + sleep.expect("a number"), "{grace}");
    // What is mounted is there, and nothing is mounted as a single file.
    let mounts = container["volumeMounts"].as_sequence().expect("mounts");
    assert!(mounts.iter().all(|mount| mount.get("subPath").is_none()));
    let mut replicas = manifests
        .iter()
        .filter_map(|one| one["spec"]["replicas"].as_u64());
    assert!(replicas.next().is_some_and(|replicas| replicas > 1));
    manifest(&manifests, "PodDisruptionBudget", "doorward");
    manifest(&manifests, "NetworkPolicy", "doorward");
}
