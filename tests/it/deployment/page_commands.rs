//! Commands of the pages for programs that are not run here, as Docker and kubectl: a
//! shell runs the blocks as they stand, and what the programs are told is held against
//! the files that it is about.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_yaml::Value;
use tempfile::TempDir;

use super::kubernetes::MANIFESTS;
use super::{documents, project, success, text};
use crate::page_commands::blocks_tried_by;

/// What a shell calls these programs with, in the order of the calls. A block of the page
/// that names `test` runs in `folder`; the programs print `answer`.
fn calls(test: &str, folder: &Path, programs: &[&str], answer: &str) -> Vec<Vec<String>> {
    let notes = folder.join("calls");
    std::fs::write(&notes, "").expect("a file");
    let mut commands =
        "note() { { printf '%s\\037' \"$@\"; printf '\\036'; } >>\"$NOTES\"; }\n".to_owned();
    for program in programs {
        commands.push_str(&format!(
            "{program}() {{ note {program} \"$@\"; printf '%s' \"$ANSWER\"; }}\n"
        ));
    }
    let blocks = blocks_tried_by(test);
    assert!(!blocks.is_empty(), "{test}");
    for (_, block) in blocks {
        commands.push_str(&block);
        commands.push('\n');
    }
    let mut bash = Command::new("bash");
    bash.args(["-e", "-u", "-o", "pipefail", "-c", &commands]);
    success(
        bash.current_dir(folder)
            .env("NOTES", &notes)
            .env("ANSWER", answer),
    );
    let noted = std::fs::read_to_string(&notes).expect("a file");
    let calls = noted.split_terminator('\u{1e}');
    calls
        .map(|call| call.split_terminator('\u{1f}').map(str::to_owned).collect())
        .collect()
}

/// What stands behind an instruction of the image's file.
fn instruction(file: &str, name: &str) -> Vec<String> {
    let mut lines = file.lines().filter_map(|line| line.strip_prefix(name));
    let line = lines.next().unwrap_or_else(|| panic!("no {name}"));
    line.split_whitespace().map(str::to_owned).collect()
}

/// The name that `docker build` gives the image of the project.
fn built(call: &[String]) -> &str {
    let [docker, build, flag, image, folder] = call else {
        panic!("{call:?}")
    };
    assert_eq!(
        [docker, build, flag, folder].map(String::as_str),
        ["docker", "build", "-t", "."]
    );
    assert!(project("Dockerfile").is_file());
    image
}

#[test]
fn the_commands_for_docker_in_the_page_fit_the_image() {
    let folder = TempDir::new().expect("a folder");
    let test = "the_commands_for_docker_in_the_page_fit_the_image";
    let calls = calls(test, folder.path(), &["docker"], "");
    let [build, run] = &calls[..] else {
        panic!("{calls:?}")
    };
    let file = text("Dockerfile");
    let ports = instruction(&file, "EXPOSE ");
    let mut arguments = run[2..].iter();
    let (mut published, mut given, mut image) = (BTreeSet::new(), BTreeSet::new(), None);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().expect("a value").as_str();
        match argument.as_str() {
            "--read-only" => {}
            "--cap-drop" => assert_eq!(value(), "ALL"),
            "-p" => {
                let (host, port) = value().rsplit_once(':').expect("two ports");
                // The Admin API is for this machine alone.
                assert!(port == "8000" || host.starts_with("127.0.0.1:"), "{host}");
                published.insert(port.to_owned());
            }
            "-v" => {
                let (_, place) = value().split_once(':').expect("a volume");
                assert_eq!([place], instruction(&file, "VOLUME ")[..]);
            }
            "--tmpfs" => {
                let place = value();
                assert!(
                    file.contains(&format!("/image{place} {place}\n")),
                    "{place}"
                );
            }
            "-e" => {
                let (name, value) = value().split_once('=').expect("a value");
                assert!(value.len() >= 16, "{name}");
                given.insert(name.to_owned());
            }
            flag if flag.starts_with('-') => panic!("{flag}"),
            name => assert_eq!(image.replace(name.to_owned()), None),
        }
    }
    assert_eq!(image.as_deref(), Some(built(build)));
    assert_eq!(published, BTreeSet::from_iter(ports));
    // What has no default has to be given.
    let config = text("deploy/container/doorward.yaml");
    let references = config.split("\"&{").skip(1);
    let names = references.filter_map(|rest| rest.split('}').next());
    let names = names.filter(|name| !name.contains('|'));
    let required: BTreeSet<_> = names
        .map(|name| name.replace('.', "_").to_uppercase())
        .collect();
    assert_eq!(given, required, "of the page, and of the file");
}

#[test]
fn the_commands_for_compose_in_the_page_fit_its_files() {
    let folder = TempDir::new().expect("a folder");
    let folder = folder.path();
    std::fs::create_dir_all(folder.join("deploy/compose")).expect("a folder");
    for file in ["deploy/compose.yaml", "deploy/compose/secrets.sh"] {
        std::fs::copy(project(file), folder.join(file)).expect("a copy");
    }
    let test = "the_commands_for_compose_in_the_page_fit_its_files";
    let answer = r#"{"access_token":"a-token","scope":"profile"}"#;
    let calls = calls(test, folder, &["docker", "curl"], answer);
    let [build, up, token, api] = &calls[..] else {
        panic!("{calls:?}")
    };
    assert_eq!(up[..3], ["docker", "compose", "-f"]);
    assert_eq!(up[4..], ["up", "--wait"]);
    let compose = documents(&text(&up[3])).remove(0);
    let gateway = &compose["services"]["doorward"];
    assert_eq!(gateway["image"], built(build));
    assert_eq!(gateway["ports"][0], "127.0.0.1:8000:8000");
    let config = documents(&text("deploy/compose/doorward/doorward.yaml")).remove(0);
    let client = &config["identity"]["realms"]["/"]["clients"][0];
    let secret = folder.join("deploy/compose/secrets/client-secret");
    let secret = std::fs::read_to_string(secret).expect("a secret");
    let sent: BTreeSet<_> = token.iter().map(String::as_str).collect();
    assert!(sent.contains("http://localhost:8000/oauth2/access_token"));
    assert!(sent.contains(&*format!("client_secret={}", secret.trim_end())));
    let id = client["client_id"].as_str().expect("a text");
    assert!(sent.contains(&*format!("client_id={id}")), "{token:?}");
    let grants = client["grant_types"].as_sequence().expect("a list");
    assert!(grants.contains(&"client_credentials".into()));
    assert!(sent.contains("grant_type=client_credentials"), "{token:?}");
    let scope = sent.iter().find_map(|field| field.strip_prefix("scope="));
    let allowed = client["scope"].as_str().expect("a text");
    assert!(allowed.split(' ').any(|word| Some(word) == scope));
    let routes = documents(&text("deploy/compose/doorward/routes.yaml")).remove(0);
    let path = &routes["services"][0]["routes"][0]["paths"][0];
    let path = path.as_str().expect("a path");
    assert!(
        api[1].starts_with(&format!("http://localhost:8000{path}/")),
        "{api:?}"
    );
    assert_eq!(api[2..], ["-H", "Authorization: Bearer a-token"]);
}

#[test]
fn the_commands_for_a_cluster_in_the_page_fit_chart_and_manifests() {
    let folder = TempDir::new().expect("a folder");
    let test = "the_commands_for_a_cluster_in_the_page_fit_chart_and_manifests";
    let calls = calls(test, folder.path(), &["kubectl", "helm"], "");
    let [namespace, secret, install, apply] = &calls[..] else {
        panic!("{calls:?}")
    };
    let kustomization = documents(&text("deploy/kubernetes/kustomization.yaml")).remove(0);
    let name = kustomization["namespace"].as_str().expect("a name");
    assert_eq!(namespace[..], ["kubectl", "create", "namespace", name]);
    let made = documents(&text("deploy/kubernetes/namespace.yaml")).remove(0);
    assert_eq!(made["metadata"]["name"], name);
    assert_eq!(
        secret[..6],
        ["kubectl", "-n", name, "create", "secret", "generic"]
    );
    let manifests = text(MANIFESTS);
    assert!(manifests.contains(&format!("secretName: {},", secret[6])));
    let literals = secret[7..].iter().map(|argument| {
        let literal = argument.strip_prefix("--from-literal=");
        let (key, value) = literal
            .and_then(|it| it.split_once('='))
            .expect("a literal");
        assert!(value.len() >= 16, "{key}");
        key
    });
    let files = manifests.split("/etc/doorward/secrets/").skip(1);
    let files = files.filter_map(|rest| rest.split('}').next());
    assert_eq!(BTreeSet::from_iter(literals), BTreeSet::from_iter(files));
    assert_eq!(install[..2], ["helm", "install"]);
    let chart = documents(&text(&format!("{}/Chart.yaml", install[3]))).remove(0);
    assert_eq!(chart["name"], *install[2]);
    assert_eq!(install[4..7], ["--namespace", name, "--values"]);
    let values = documents(&text(&format!("{}/values.yaml", install[3]))).remove(0);
    let page = text("docs/deployment.md");
    assert!(page.contains(&format!("Put them into `{}`:", install[7])));
    assert!(
        values
            .get("image")
            .is_some_and(|image| image.get("tag").is_some())
    );
    assert_eq!(apply[..3], ["kubectl", "apply", "-k"]);
    assert_eq!(apply[3], "deploy/kubernetes");
    for file in kustomization["resources"].as_sequence().expect("a list") {
        let file = Path::new(&apply[3]).join(file.as_str().expect("a name"));
        assert!(project(file.to_str().expect("UTF-8")).is_file(), "{file:?}");
    }
}

#[test]
fn the_commands_for_deck_in_the_page_name_its_file_and_its_listener() {
    let folder = TempDir::new().expect("a folder");
    let test = "the_commands_for_deck_in_the_page_name_its_file_and_its_listener";
    let calls = calls(test, folder.path(), &["deck"], "");
    let page = text("docs/how-to-ci.md");
    let config = page.split("# doorward.yaml\n").nth(1).expect("a file");
    let config = config.split("```").next().expect("its end");
    let config: Value = serde_yaml::from_str(config).expect("YAML");
    let listener = config["admin"]["listen"].as_str().expect("an address");
    let address = format!("http://{}", listener.replace("127.0.0.1", "localhost"));
    let mut steps = Vec::new();
    for call in &calls {
        let [deck, gateway, step, file, flag, told, more @ ..] = &call[..] else {
            panic!("{call:?}")
        };
        assert_eq!(
            [deck, gateway, flag].map(String::as_str),
            ["deck", "gateway", "--kong-addr"]
        );
        assert_eq!(*told, address);
        assert!(page.contains(&format!("```yaml\n# {file}\n")), "{file}");
        let is_job = step == "diff";
        assert_eq!(more == ["--non-zero-exit-code"], is_job, "{call:?}");
        steps.push(step.as_str());
    }
    assert_eq!(steps, ["validate", "diff", "sync"]);
}

#[test]
fn the_first_command_of_the_readme_starts_the_demo() {
    let blocks = blocks_tried_by("the_first_command_of_the_readme_starts_the_demo");
    let [(_, block)] = &blocks[..] else {
        panic!("{blocks:?}")
    };
    let target = block.strip_prefix("make ").expect("a target");
    // What make would do, without doing it.
    let mut make = Command::new("make");
    make.args(["--no-print-directory", "-n", target]);
    let told = success(make.current_dir(project("")).env_remove("MAKEFLAGS"));
    let last = told.trim_end().lines().next_back().expect("a command");
    let (program, config) = last.split_once(" run -c ").expect("a configuration");
    assert!(program.ends_with("/doorward"), "{last}");
    success(
        Command::new(env!("CARGO_BIN_EXE_doorward"))
            .args(["check", "-c", config])
            .current_dir(project("")),
    );
}
