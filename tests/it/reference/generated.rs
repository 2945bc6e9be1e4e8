//! Pages that are generated: `make reference` writes them, the test compares.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;

use serde_json::Value;

use super::{fields, file};
use crate::support::{Door, Setup};

/// The address that the provider has in its description.
const BASE: &str = "https://id.example";

/// What stands above a page that nobody edits.
const NOTE: &str = "<!-- Generated from the code by `make reference`. -->\n";

/// The files below docs/ and what has to be in them.
async fn pages() -> BTreeMap<&'static str, String> {
    let setup = Setup::new().identity(&format!(
        "\n  base_url: {BASE}\n  mount: false\n  hashing: {{memory_kib: 64, passes: 1}}"
    ));
    let door = setup.start().await;
    let admin = door.admin_get("/openapi.json").await.expect(200).json();
    let provider = door.admin_get("/openapi/provider.json").await;
    let provider = provider.expect(200).json();
    let broker = door.admin_get("/openapi/token-broker.json").await;
    let broker = broker.expect(200).json();
    BTreeMap::from([
        ("commands.md", commands()),
        ("entity-fields.md", entities(&door, &admin).await),
        ("plugin-fields.md", plugins(&door).await),
        ("api-operations.md", operations(&admin, &provider, &broker)),
        ("openapi/admin.json", lines(&admin)),
        ("openapi/provider.json", lines(&provider)),
        ("openapi/token-broker.json", lines(&broker)),
    ])
}

#[tokio::test]
async fn generated_pages_are_what_the_program_says() {
    let writes = std::env::var_os("DOORWARD_WRITE_REFERENCE").is_some();
    let mut stale = Vec::new();
    for (name, wanted) in pages().await {
        let path = file("docs").join(name);
        if writes {
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
            std::fs::write(&path, &wanted).expect("the page is written");
        }
        let is = std::fs::read_to_string(&path).unwrap_or_default();
        if is != wanted {
            let mut both = is.lines().zip(wanted.lines());
            let differing = both.find(|(is, wanted)| is != wanted);
            stale.push(format!("docs/{name}: {differing:?}"));
        }
    }
    assert!(stale.is_empty(), "run `make reference`: {stale:#?}");
}

/// Every command with what `--help` says.
fn commands() -> String {
    let mut text = format!(
        "{NOTE}# Commands and options\n\nWhat `--help` says of each command. The \
         [command line](command-line.md) says what they are for.\n"
    );
    let mut left = vec![Vec::new()];
    while let Some(command) = left.pop() {
        let help = help(&command);
        let name = [&["doorward".to_owned()][..], &command].concat().join(" ");
        let _ = write!(text, "\n## {name}\n\n```text\n{}\n```\n", help.trim_end());
        for below in subcommands(&help).into_iter().rev() {
            left.push([&command[..], &[below]].concat());
        }
    }
    text
}

/// What the program says of a command, the same wherever it runs.
fn help(command: &[String]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_doorward"))
        .args(command)
        .arg("--help")
        .env_clear()
        .output()
        .expect("it starts");
    let text = String::from_utf8(output.stdout).expect("it prints UTF-8");
    let lines = text.lines().map(str::trim_end);
    lines.map(|line| format!("{line}\n")).collect()
}

/// The names below `Commands:`.
fn subcommands(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| {
        let name = line.strip_prefix("  ")?;
        // What goes on has a deeper indent.
        (!name.starts_with(' ')).then(|| name.split(' ').next().unwrap_or_default())
    });
    names
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

/// The fields of every kind of record that the Admin API makes.
async fn entities(door: &Door, admin: &Value) -> String {
    let mut text = format!(
        "{NOTE}# Fields of entities\n\nWhat `GET /schemas/ENTITY` of the [Admin API](admin-api.md) \
         says of each kind of record. Declarative files have the same fields.\n"
    );
    let schemas = admin["components"]["schemas"].as_object();
    let names = schemas.expect("schemas").keys();
    let names = names.filter_map(|name| name.strip_suffix("-create"));
    let names = names.filter(|name| !name.starts_with("config-") && !name.starts_with("plugin-"));
    for name in names {
        let answer = door.admin_get(&format!("/schemas/{name}s")).await;
        let fields = &answer.expect(200).json()["fields"];
        let _ = write!(text, "\n## {name}s\n{}", fields::table(fields));
    }
    text
}

/// The fields of the configuration of every plugin.
async fn plugins(door: &Door) -> String {
    let mut text = format!(
        "{NOTE}# Fields of plugins\n\nWhat `GET /schemas/plugins/NAME` of the [Admin API](admin-api.md) \
         says of `config`. [Plugins](plugins.md) and [everyday plugins](everyday-plugins.md) \
         say what the fields do.\n"
    );
    let enabled = door.admin_get("/plugins/enabled").await.expect(200).json();
    for name in enabled["enabled_plugins"].as_array().expect("a list") {
        let name = name.as_str().expect("a name");
        let answer = door.admin_get(&format!("/schemas/plugins/{name}")).await;
        let schema = answer.expect(200).json();
        let fields = schema["fields"].as_array().expect("fields");
        let config = fields.iter().find_map(|field| field.get("config"));
        let config = &config.expect("a config")["fields"];
        let _ = write!(text, "\n## {name}\n{}", fields::table(config));
    }
    text
}

/// The parts of a description whose members have lines of their own.
const PARTS: [&str; 5] = ["", "paths", "components", "schemas", "responses"];

/// A description with a line for each path, schema and answer, so that a change is
/// seen.
fn lines(description: &Value) -> String {
    let mut text = String::new();
    add_lines(&mut text, "", description);
    text.push('\n');
    text
}

fn add_lines(text: &mut String, part: &str, value: &Value) {
    let Some(members) = value.as_object().filter(|_| PARTS.contains(&part)) else {
        return text.push_str(&value.to_string());
    };
    for (index, (name, value)) in members.iter().enumerate() {
        text.push_str(if index == 0 { "{\n" } else { ",\n" });
        let _ = write!(text, "{}:", Value::from(name.as_str()));
        add_lines(text, name, value);
    }
    text.push_str("\n}");
}

/// Every operation of the descriptions.
fn operations(admin: &Value, provider: &Value, broker: &Value) -> String {
    let mut text = format!(
        "{NOTE}# Operations of the interfaces\n\nPaths, methods and what they do. The whole descriptions in OpenAPI \
         3.1 are [admin.json](openapi/admin.json), [provider.json](openapi/provider.json) and \
         [token-broker.json](openapi/token-broker.json). A running program serves them on its \
         admin listener, with its own addresses: at `/openapi.json`, `/openapi/provider.json` \
         and `/openapi/token-broker.json`.\n"
    );
    for (title, description) in [
        ("Admin API", admin),
        ("Identity provider", provider),
        ("Token broker", broker),
    ] {
        let _ = write!(text, "\n## {title}\n\n| operation | |\n|---|---|\n");
        for (path, item) in description["paths"].as_object().expect("paths") {
            for (method, operation) in item.as_object().expect("methods") {
                let summary = operation["summary"].as_str().expect("a summary");
                let method = method.to_ascii_uppercase();
                let _ = writeln!(text, "| `{method} {path}` | {summary} |");
            }
        }
    }
    text
}
