//! Blocks of the pages that programs of other makers read: each names the test that
//! gives it to them. The jobs of the page on CI are run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_yaml::Value;
use tempfile::TempDir;

const CI: &str = include_str!("../../docs/how-to-ci.md");

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The pages with their names.
fn pages() -> Vec<(String, String)> {
    let docs = std::fs::read_dir(root().join("docs")).expect("a directory");
    let mut paths: Vec<_> = docs.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths.push(root().join("README.md"));
    paths.sort();
    let page = |path: PathBuf| {
        let name = path.strip_prefix(root()).expect("below the root");
        let text = std::fs::read_to_string(&path).expect("a page");
        (name.display().to_string(), text)
    };
    paths.into_iter().map(page).collect()
}

/// The names of the functions below a directory.
fn functions(directory: &Path, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            functions(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("a source");
            let after = text.split("fn ").skip(1);
            let found = after.filter_map(|rest| rest.split('(').next());
            names.extend(found.map(str::to_owned));
        }
    }
}

/// Blocks that show neither what a command printed nor what tries them.
fn untried(name: &str, page: &str, tests: &BTreeSet<String>) -> Vec<String> {
    let mut untried = Vec::new();
    let (mut before, mut above) = ("", "");
    let mut lines = page.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let Some(kind) = line.trim_start().strip_prefix("```") else {
            // What is printed stands right below its commands.
            if !line.trim().is_empty() {
                (before, above) = ("", line.trim());
            }
            continue;
        };
        let comment = above
            .strip_prefix("<!-- ")
            .and_then(|above| above.strip_suffix(" -->"));
        let test = comment.and_then(|comment| comment.strip_prefix("tried by "));
        let reason = comment.and_then(|comment| comment.strip_prefix("shown: "));
        let is_output = before.starts_with("sh") || before == "console";
        let is_tried = test.is_some_and(|test| tests.contains(test));
        let is_shown = reason.is_some_and(|reason| reason.len() > 10);
        let names_none = test.is_some() && !is_tried;
        if names_none || kind == "text" && !(is_output || is_tried || is_shown) {
            untried.push(format!("{name}:{}", index + 1));
        }
        lines.by_ref().find(|(_, line)| line.trim() == "```");
        (before, above) = (kind, "");
    }
    untried
}

#[test]
fn every_block_that_is_no_output_names_the_test_that_tries_it() {
    let mut tests = BTreeSet::new();
    functions(&root().join("tests/it"), &mut tests);
    let mut found = Vec::new();
    for (name, page) in pages() {
        // That page is printed by the program.
        if name != "docs/commands.md" {
            found.extend(untried(&name, &page, &tests));
        }
    }
    assert_eq!(found, [""; 0]);
}

#[test]
fn a_block_that_nothing_tries_is_found() {
    let tests = BTreeSet::from(["a_test".to_owned()]);
    let page = "```sh\na\n```\n```text\nprinted\n```\n\n```text\nmore\n```\n\nFor another:\n\n```text\nx\n```\n\n\
                <!-- tried by a_test -->\n```text\ny\n```\n\n<!-- tried by none -->\n```text\nz\n```\n\n\
                <!-- tried by none -->\n```sh\nz\n```\n";
    assert_eq!(untried("p", page, &tests), ["p:8", "p:14", "p:24", "p:29"]);
}

#[test]
fn every_page_with_steps_is_walked_through() {
    let walks = include_str!("walkthrough.rs");
    let with_steps = pages()
        .into_iter()
        .filter(|(_, page)| page.contains("\n```sh walk"));
    let forgotten: Vec<_> = with_steps
        .filter(|(name, _)| !walks.contains(&format!("../../{name}\"")))
        .map(|(name, _)| name)
        .collect();
    assert_eq!(forgotten, [""; 0]);
}

/// The commands of a page.
fn commands(page: &str) -> String {
    let mut commands = String::new();
    for block in page.split("\n```").skip(1).step_by(2) {
        let (kind, text) = block.split_once('\n').unwrap_or_default();
        if kind == "console" || kind == "sh" || kind.starts_with("sh walk") {
            commands.push_str(text);
            commands.push('\n');
        }
    }
    commands
}

#[test]
fn pages_say_which_programs_their_commands_need() {
    let makefile = include_str!("../../Makefile");
    let needs = makefile.lines().find(|line| line.starts_with("NEEDS  "));
    let needs = needs.expect("what the tests need");
    let mut said = 0;
    for (name, page) in pages() {
        let commands = commands(&page);
        for program in ["jq", "openssl"] {
            let mut words = commands.split(|c: char| c.is_whitespace() || c == '(');
            if words.any(|word| word == program) {
                assert!(page.contains(&format!("`{program}`")), "{name}: {program}");
                assert!(needs.contains(&format!(" {program}:")), "{program}");
                said += 1;
            }
        }
    }
    assert!(said > 10, "{said}");
}

/// The block of the page on CI that holds this text.
fn job(inside: &str) -> Value {
    let mut blocks = CI.split("```text\n").skip(1);
    let block = blocks.find_map(|rest| {
        let (block, _) = rest.split_once("```")?;
        block.contains(inside).then_some(block)
    });
    serde_yaml::from_str(block.expect(inside)).expect("YAML")
}

/// Runs the commands of a job as its shell does, among the files of the page.
fn run(folder: &Path, commands: &str) -> Output {
    let bin = folder.join("bin");
    std::fs::create_dir_all(&bin).expect("a folder");
    let link = bin.join("doorward");
    if !link.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_doorward"), link).expect("a link");
    }
    let path = std::env::var("PATH").expect("a path");
    let mut bash = Command::new("bash");
    bash.args(["-e", "-o", "pipefail", "-c", commands])
        .current_dir(folder);
    bash.env("PATH", format!("{}:{path}", bin.display()));
    bash.env("APP_SECRET", "only-for-the-check")
        .stdin(Stdio::null());
    bash.output().expect("bash starts")
}

#[test]
fn the_jobs_of_the_page_check_the_files() {
    let folder = TempDir::new().expect("a folder");
    let folder = folder.path();
    for block in CI.split("```yaml\n# ").skip(1) {
        let (name, text) = block.split_once('\n').expect("a name");
        let text = text.split("```").next().expect("an end");
        std::fs::write(folder.join(name), text).expect("a file");
    }
    let github = job("actions/checkout");
    let doorward = &github["jobs"]["doorward"];
    assert_eq!(doorward["env"]["APP_SECRET"], "only-for-the-check");
    let steps = doorward["steps"].as_sequence().expect("steps");
    let check = steps.last().expect("a step")["run"]
        .as_str()
        .expect("commands");
    let gitlab = job("resource_group");
    assert_eq!(gitlab["deploy"]["resource_group"], "production");
    let script = gitlab["doorward"]["script"][0].as_str().expect("a command");
    for commands in [check, script] {
        let output = run(folder, commands);
        assert!(output.status.success(), "{commands}: {output:?}");
    }
    let routes = std::fs::read_to_string(folder.join("routes.yaml")).expect("a file");
    std::fs::write(
        folder.join("routes.yaml"),
        routes.replace("hosts:", "host:"),
    )
    .expect("a file");
    let output = run(folder, check);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{printed}");
    let annotation = "::error file=routes.yaml,line=7::services[0].routes[0].host: unknown field";
    assert!(printed.contains(annotation), "{printed}");
    assert!(!run(folder, script).status.success());
}
