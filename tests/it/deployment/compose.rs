//! The compose file: what it starts is no root and has a configuration that the
//! program takes.

use std::path::Path;
use std::process::Command;

use serde_yaml::Value;
use tempfile::TempDir;

use super::{client_python, documents, project, success, text};

const COMPOSE: &str = "deploy/compose.yaml";

fn services() -> Vec<(String, Value)> {
    let compose = documents(&text(COMPOSE)).remove(0);
    let services = compose["services"].as_mapping().expect("services").iter();
    let services = services.map(|(name, service)| {
        let mut service = service.clone();
        // An anchor's members stand below those of the service.
        service.apply_merge().expect("a mapping");
        (name.as_str().expect("a name").to_owned(), service)
    });
    services.collect()
}

/// Copies a folder and writes the secrets' folder of the copy for that of the
/// containers.
fn copied(from: &Path, to: &Path, secrets: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a text");
        let text = text.replace("/run/secrets", secrets.to_str().expect("UTF-8"));
        std::fs::write(to.join(path.file_name().expect("a name")), text).expect("a copy");
    }
}

#[test]
fn containers_are_no_root_and_cannot_write_their_programs() {
    let services = services();
    assert!(services.len() >= 6, "{services:?}");
    for (name, service) in services {
        assert_eq!(service["read_only"], Value::Bool(true), "{name}");
        assert_eq!(service["cap_drop"][0], "ALL", "{name}");
        assert_eq!(
            service["security_opt"][0], "no-new-privileges:true",
            "{name}"
        );
        let user = service["user"].as_str().unwrap_or_default();
        assert!(
            !user.is_empty() && user != "root" && !user.starts_with("0:"),
            "{name}: {user}"
        );
        assert!(service["healthcheck"]["test"].is_sequence(), "{name}");
        for port in service["ports"].as_sequence().into_iter().flatten() {
            let port = port.as_str().expect("a text");
            assert!(port.starts_with("127.0.0.1:"), "{name}: {port}");
        }
    }
}

#[test]
fn the_program_takes_what_the_containers_are_given() {
    let folder = TempDir::new().expect("a folder");
    let script = folder.path().join("secrets.sh");
    std::fs::copy(project("deploy/compose/secrets.sh"), &script).expect("a copy");
    success(&mut Command::new(&script));
    let secrets = folder.path().join("secrets");
    let made = std::fs::read(secrets.join("admin-token")).expect("a secret");
    success(&mut Command::new(&script));
    assert_eq!(
        std::fs::read(secrets.join("admin-token")).expect("a secret"),
        made
    );
    for name in ["doorward", "api"] {
        let to = folder.path().join(name);
        copied(&project("deploy/compose").join(name), &to, &secrets);
        let file = to.join(format!("{name}.yaml"));
        success(
            Command::new(env!("CARGO_BIN_EXE_doorward"))
                .arg("check")
                .arg("-c")
                .arg(file),
        );
    }
    // Each secret that the file declares is made.
    let compose = documents(&text(COMPOSE)).remove(0);
    for name in compose["secrets"].as_mapping().expect("secrets").keys() {
        assert!(
            secrets.join(name.as_str().expect("a name")).is_file(),
            "{name:?}"
        );
    }
}

#[test]
#[ignore = "needs python and its packages, which `make test` installs"]
fn the_compose_file_has_the_form_that_the_specification_gives() {
    let mut check = client_python("manifests.py");
    let services = success(check.arg("compose").arg(project(COMPOSE)));
    assert!(services.contains("doorward"), "{services}");
}

/// Has promtool check a configuration, whose token and rules lie at these paths.
fn check_prometheus(config: &str, token_at: &str, rules_at: &str) {
    let folder = TempDir::new().expect("a folder");
    let token = folder.path().join("admin-token");
    std::fs::write(&token, "a-token").expect("a file");
    let config = config.replace(token_at, token.to_str().expect("UTF-8"));
    let rules = project("deploy/prometheus/doorward.rules.yml");
    let config = config.replace(rules_at, rules.to_str().expect("UTF-8"));
    let path = folder.path().join("prometheus.yaml");
    std::fs::write(&path, config).expect("a file");
    success(
        Command::new("promtool")
            .args(["check", "config"])
            .arg(&path),
    );
}

#[test]
#[ignore = "needs promtool, which `make test` installs"]
fn promtool_takes_the_configuration_of_prometheus() {
    let config = text("deploy/compose/prometheus/prometheus.yaml");
    let (token, rules) = (
        "/run/secrets/admin-token",
        "/etc/prometheus/rules/doorward.rules.yml",
    );
    check_prometheus(&config, token, rules);
}

#[test]
#[ignore = "needs promtool, which `make test` installs"]
fn promtool_takes_the_configuration_of_the_page() {
    let page = text("docs/deployment.md");
    let (_, section) = page.split_once("\n## Prometheus\n").expect("a heading");
    let block = section.split("```text\n").nth(1).expect("a block");
    let block = block.split("```").next().expect("its end");
    check_prometheus(
        block,
        "/etc/prometheus/doorward-token",
        "doorward.rules.yml",
    );
}
