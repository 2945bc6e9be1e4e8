//! What `deploy/` holds for operators: rules and dashboards, manifests, the
//! compose file and the packages.
//!
//! Tests that call a program of another maker are left out by `cargo test`
//! alone; `make test` installs what they need and runs them.

mod compose;
mod container;
mod helm;
mod image;
mod kubernetes;
mod monitoring;
mod packages;
mod page;
mod page_commands;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::process::Process;

/// A path of the project.
fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A text of the project.
fn text(path: &str) -> String {
    let whole = project(path);
    std::fs::read_to_string(&whole).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The files of a folder whose names end so, in the order of their names.
fn files(folder: &str, end: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(project(folder)).expect("a folder");
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.retain(|path| path.to_string_lossy().ends_with(end));
    files.sort();
    assert!(!files.is_empty(), "{folder} has no {end}");
    files
}

/// Every document of a YAML text.
fn documents(text: &str) -> Vec<serde_yaml::Value> {
    let documents = serde_yaml::Deserializer::from_str(text);
    let documents = documents.map(|document| {
        serde::Deserialize::deserialize(document).unwrap_or_else(|error| panic!("{error}:\n{text}"))
    });
    documents
        .filter(|value: &serde_yaml::Value| !value.is_null())
        .collect()
}

/// What a command says when it ends with success.
fn success(command: &mut Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let [stdout, stderr] =
        [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(status.success(), "{command:?}\n{stdout}\n{stderr}");
    stdout
}

/// Python with the packages of the tests, about to run a script of `tests/clients`.
fn client_python(script: &str) -> Command {
    let mut command = Command::new(project("target/clients/venv/bin/python"));
    command.arg(project("tests/clients").join(script));
    command
}

/// Helm, of the system or as `make deps-deploy` has built it.
fn helm() -> Command {
    let built = project("target/tools/bin/helm");
    Command::new(if built.is_file() {
        built
    } else {
        PathBuf::from("helm")
    })
}
