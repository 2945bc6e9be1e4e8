//! What the pages show works: configuration is checked, commands are run.
//!
//! A YAML block is put where a page says that it belongs and given to `doorward
//! check`. Commands run in bash against a real process, a fresh one a block; an
//! HTTP error fails them. The walk-through has a test of its own, and so have blocks below
//! `<!-- tried by TEST -->`. What can't be run has `<!-- not run: REASON -->` above it, and
//! is counted here.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::tls::Authority;
use crate::support::{Door, Setup};

/// A fenced block of a page.
#[derive(Debug)]
struct Block {
    /// File and line, for messages.
    at: String,
    kind: String,
    text: String,
    /// Why it is not run.
    not_run: Option<String>,
    /// Whether a test of its own runs it.
    has_test: bool,
}

/// Every block of README.md and docs/.
fn blocks() -> Vec<Block> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = std::fs::read_dir(root.join("docs")).expect("a directory");
    let mut pages: Vec<_> = pages.map(|page| page.expect("a page").path()).collect();
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.push(root.join("README.md"));
    pages.sort();
    let mut blocks = Vec::new();
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("a page");
        let name = page.strip_prefix(root).expect("below the root");
        blocks.extend(blocks_of(&text, &name.display().to_string()));
    }
    blocks
}

fn blocks_of(page: &str, name: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut not_run = None;
    let mut has_test = false;
    let mut lines = page.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let reason = line.trim().strip_prefix("<!-- not run: ");
        if let Some(reason) = reason.and_then(|reason| reason.strip_suffix(" -->")) {
            not_run = Some(reason.to_owned());
            continue;
        }
        if line.trim().starts_with("<!-- tried by ") {
            has_test = true;
            continue;
        }
        let Some(kind) = line.trim_start().strip_prefix("```") else {
            assert!(not_run.is_none(), "{name}:{index}: a reason above no block");
            continue;
        };
        let inside = lines.by_ref().map(|(_, line)| line);
        let inside: Vec<_> = inside.take_while(|line| line.trim() != "```").collect();
        blocks.push(Block {
            at: format!("{name}:{}", index + 1),
            kind: kind.to_owned(),
            text: inside.join("\n"),
            not_run: not_run.take(),
            has_test: std::mem::take(&mut has_test),
        });
    }
    blocks
}

/// Blocks of these kinds show what is printed or sent, and are no input.
const SHOWN: &[&str] = &["text", "html"];
/// Blocks of these kinds are run by the test of the walk-through.
const WALKED: &[&str] = &[
    "sh walk",
    "sh walk reload",
    "sh restart",
    "sh start",
    "sh stop",
    "sh hup",
];

#[test]
fn every_metric_and_every_variable_of_the_log_is_in_the_pages() {
    let page = include_str!("../../docs/operation.md");
    let exposition = concat!(
        include_str!("../../crates/net/src/telemetry/exposition.rs"),
        include_str!("../../crates/net/src/telemetry/otlp.rs"),
        include_str!("../../crates/net/src/telemetry/target_exposition.rs"),
    );
    let listed = |name: &str| page.contains(&format!("| `{name}` |"));
    let is_name = |text: &&str| {
        let rest = text.strip_prefix("doorward_");
        rest.is_some_and(|rest| rest.bytes().all(|b| b == b'_' || b.is_ascii_lowercase()))
    };
    let names = exposition.split('"').filter(is_name);
    let missing: Vec<_> = names.filter(|name| !listed(name)).collect();
    assert_eq!(missing, [""; 0]);
    for variable in ["DOORWARD_CONFIG", "DOORWARD_LOG", "DOORWARD_LOG_FORMAT"] {
        assert!(listed(variable), "{variable}");
    }
    // Nothing is listed that is gone.
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `doorward_"));
    for name in rows.filter_map(|row| row.split('`').next()) {
        assert!(
            exposition.contains(&format!("\"doorward_{name}\"")),
            "{name}"
        );
    }
}

#[test]
fn every_block_of_the_pages_is_tried_or_says_why_not() {
    let blocks = blocks();
    let mut left = Vec::new();
    for block in &blocks {
        let tried = ["yaml", "json", "sh", "console"].contains(&block.kind.as_str());
        let known = tried || [SHOWN, WALKED].concat().contains(&block.kind.as_str());
        assert!(
            known,
            "{}: `{}` is no kind that is tried",
            block.at, block.kind
        );
        if let Some(reason) = &block.not_run {
            assert!(
                matches!(block.kind.as_str(), "sh" | "console"),
                "{}",
                block.at
            );
            assert!(reason.len() > 10, "{}: {reason}", block.at);
            left.push(&block.at);
        }
    }
    assert_eq!(
        left, [""; 0],
        "each block can be checked against the files that it is about"
    );
    assert!(blocks.len() > 60, "{}", blocks.len());
}

/// The spans of code in the pages that call the program, with their page.
fn spans() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = std::fs::read_dir(root.join("docs")).expect("a directory");
    let mut spans = Vec::new();
    for page in pages {
        let page = page.expect("a page").path();
        let name = page.display().to_string();
        if !name.ends_with(".md") || name.ends_with("/commands.md") {
            continue;
        }
        let text = std::fs::read_to_string(&page).expect("a page");
        // The odd pieces of a line are code.
        let odd = text
            .lines()
            .flat_map(|line| line.split('`').skip(1).step_by(2));
        let calls = odd.filter(|span| span.starts_with("doorward "));
        spans.extend(calls.map(|span| (name.clone(), span.to_owned())));
    }
    spans
}

#[test]
fn commands_and_options_that_the_pages_name_are_there() {
    let help: HashMap<&str, &str> = include_str!("../../docs/commands.md")
        .split("\n## ")
        .filter_map(|section| section.split_once('\n'))
        .collect();
    let mut seen = 0;
    for (page, span) in spans() {
        let mut command = "doorward".to_owned();
        let mut words = span.split(' ').skip(1).peekable();
        while let Some(word) = words.peek() {
            let longer = format!("{command} {word}");
            if !help.contains_key(&*longer) {
                break;
            }
            command = longer;
            words.next();
        }
        let text = help.get(&*command).copied().unwrap_or_default();
        let is_name = |word: &&str| word.bytes().all(|b| b == b'-' || b.is_ascii_lowercase());
        if text.contains("\nCommands:\n") {
            let unknown = words.next_if(|word| is_name(word) && !word.starts_with('-'));
            assert!(matches!(unknown, None | Some("help")), "{page}: {span}");
        }
        for option in words.filter(|word| word.starts_with("--") && is_name(word)) {
            assert!(text.contains(option), "{page}: {span}: {option}");
        }
        seen += 1;
    }
    assert!(seen > 60, "{seen}");
}

#[test]
fn the_instructions_of_the_page_on_capacity_are_those_that_are_held() {
    let number = |text: &str| text.trim().replace(',', "").parse::<i64>().ok();
    let cells = |row: &'static str| row.split('|').map(str::trim).collect::<Vec<_>>();
    let architecture = include_str!("../../ARCHITECTURE.md");
    let bare = architecture.lines().map(cells);
    let bare = bare.filter(|row| {
        row.get(1)
            .is_some_and(|cell| cell.starts_with("bare Pingora"))
    });
    let bare = bare.filter_map(|row| number(row[2])).next();
    let bare = bare.expect("the bare proxy has a row");
    let held = include_str!("../../benches/instructions.tsv").lines();
    let held: Vec<_> = held.filter_map(|line| line.split_once('\t')).collect();
    let page = include_str!("../../docs/how-to-capacity.md");
    let mut compared = 0;
    for row in page.lines().map(cells).filter(|row| row.len() == 5) {
        let name = match row[1] {
            "a token by `client_credentials`" => "client_credentials",
            name if name.starts_with("`openid-connect`") => "bearer and throttling",
            name => name,
        };
        let beyond = held.iter().find(|(known, _)| *known == name);
        let (Some((_, beyond)), Some(shown)) = (beyond, number(row[2])) else {
            continue;
        };
        let counted = bare + number(beyond).expect("a number");
        assert!((shown - counted).abs() * 50 < counted, "{name}: {counted}");
        compared += 1;
    }
    assert_eq!(compared, 3);
}

/// A text as a whole file: the main one, or one of entities.
enum Whole {
    Main(String),
    Entities(String),
}

/// Sections of the main file.
const SECTIONS: &[&str] = &[
    "proxy",
    "admin",
    "store",
    "acme",
    "entities",
    "identity",
    "broker",
    "redis",
    "audit",
    "telemetry",
];

/// What a YAML block is part of.
fn whole(block: &Block) -> Whole {
    let text = &block.text;
    let below = |head: &str, depth: usize| {
        let indent = " ".repeat(depth);
        let lines = text.lines().map(|line| format!("{indent}{line}\n"));
        format!("{head}{}", lines.collect::<String>())
    };
    let first = text
        .lines()
        .find(|line| !line.starts_with('#') && !line.is_empty());
    let key = first
        .and_then(|line| line.split(':').next())
        .unwrap_or_default();
    match key {
        "_format_version" => Whole::Entities(text.clone()),
        "- name" => Whole::Entities(below("_format_version: \"3.0\"\nservices:\n", 0)),
        "flows" => Whole::Entities(below(
            "_format_version: \"3.0\"\nservices:\n- name: a\n  url: http://127.0.0.1:9\n  \
             plugins:\n  - name: token-broker\n    config:\n      base_path: /a\n      \
             token_endpoint: https://a.example\n",
            6,
        )),
        "settings" => Whole::Main(below("identity:\n  realms:\n    /:\n", 6)),
        "realms" => Whole::Main(below("identity:\n", 2)),
        section if SECTIONS.contains(&section) => Whole::Main(text.clone()),
        other => panic!(
            "{}: where does a block belong that begins with {other}?",
            block.at
        ),
    }
}

/// A secret that is long enough, and a key in base64url.
const SECRET: &str = "a-secret-of-32-bytes-or-even-more-A";

/// Names of the configuration tokens of `text`.
fn tokens(text: &str) -> impl Iterator<Item = &str> {
    let found = text.split("&{").skip(1);
    found.filter_map(|rest| rest.split(['}', '|']).next())
}

/// Checks a main file, and the files that it names.
fn check(block: &Block, door: &Door, main: &str) {
    let elsewhere = [
        ("/run/", "run/"),
        ("/srv/", "srv/"),
        ("/var/log/", "log/"),
        ("/usr/local/bin/", "bin/"),
    ];
    let mut main = main.to_owned();
    for (from, to) in elsewhere {
        main = main.replace(from, &format!("{}/{to}", door.dir().display()));
    }
    // A package makes the directory of log files, as the program demands.
    let logs = door.dir().join("log/doorward");
    std::fs::create_dir_all(logs).expect("a directory");
    let mut check = door.command(&["check", "-c", "doorward.yaml"]);
    for name in tokens(&main) {
        match name.strip_prefix("file:") {
            Some(path) => write(&door.path(path), SECRET),
            None => {
                let name = name.replace(['.', '-'], "_").to_uppercase();
                check.env(name, SECRET);
            }
        }
    }
    door.write("doorward.yaml", &main);
    let output = check.stdin(Stdio::null()).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}\n{main}", block.at);
}

/// The files that blocks name beside them, or that a page has made before.
fn lay_out_files(door: &Door) {
    write(&door.path("leaked.txt"), "password\n");
    write(&door.path("routes.yaml"), "_format_version: \"3.0\"\n");
    write(
        &door.path("srv/gateway/config/config.json"),
        "{\"handler\": {\"type\": \
            \"StaticResponseHandler\", \"config\": {\"status\": 200}}}",
    );
    std::fs::create_dir_all(door.path("routes.d")).expect("a directory");
    let authority = Authority::new();
    let server = authority.client("localhost");
    write(&door.path("tls/ca.pem"), &authority.pem());
    write(&door.path("tls/localhost.pem"), &server.cert);
    write(&door.path("tls/localhost-key.pem"), &server.key);
    std::fs::create_dir_all(door.path("bin")).expect("a directory");
    std::os::unix::fs::symlink("/bin/true", door.path("bin/dns-record")).expect("a link");
}

fn write(path: &Path, text: &str) {
    let directory = path.parent().expect("a directory");
    std::fs::create_dir_all(directory).expect("a directory");
    std::fs::write(path, text).expect("a file");
}

#[test]
fn every_configuration_of_the_pages_is_accepted() {
    let (mut files, mut examples) = (0, 0);
    for block in blocks() {
        let door = Setup::new().lay_out();
        lay_out_files(&door);
        match block.kind.as_str() {
            "yaml" => {
                match whole(&block) {
                    Whole::Main(text) => check(&block, &door, &text),
                    Whole::Entities(text) => {
                        // Tokens of the entities are found in the main file's words.
                        door.write("entities.yaml", &text);
                        let names = tokens(&text).map(|name| format!("# &{{{name}}}\n"));
                        let main =
                            names.collect::<String>() + "entities: [entities.yaml]\nidentity: {}\n";
                        check(&block, &door, &main);
                    }
                }
                files += 1;
            }
            "json" => {
                let value: Value = serde_json::from_str(&block.text).expect(&block.at);
                if value.get("handler").is_some() {
                    door.write("route.json", &block.text);
                    check(&block, &door, "entities: [route.json]\n");
                    files += 1;
                } else {
                    examples += 1;
                }
            }
            _ => {}
        }
    }
    assert_eq!((files, examples), (91, 3));
}

/// What the commands of the pages find: the users, clients and proxies that the
/// pages speak of.
fn demonstrated() -> Setup {
    let identity = "
  base_url: http://@PROXY@
  lockout: {failures: 3, per_address: {failures: 3}}
  realms:
    /:
      users: [{userName: demo, password: demo-password}]
      clients:
        - {client_id: orders, client_secret: orders-secret, grant_types: [password], scope: READ}
        - {client_id: provisioning, client_secret: provisioning-secret, grant_types: [client_credentials], scope: 'scim:write'}
";
    let weather = "- name: weather\n  protocol: internal\n  host: echo\n  \
        routes: [{paths: [/weather]}]\n  plugins:\n  - {name: token-broker, config: \
        {base_path: /weather, token_endpoint: 'http://@PROXY@/oauth2/access_token'}}\n";
    Setup::new()
        .proxy("{listen: [\"@PROXY@\"], trusted_ips: [\"127.0.0.1\"]}")
        .identity(identity)
        .services(weather)
        .env("PROVISIONING_SECRET", "provisioning-secret")
}

/// Records of the broker that are there before a block's commands.
const BROKER: &str = "broker:
  products: [{name: weather, proxies: [weather], api_resources: ['/**'], scopes: [READ]}]
  developers: [{email: dev@example.com}]
  applications:
  - {name: orders, developer: dev@example.com, products: [weather], consumer_key: orders, consumer_secret: orders-secret}
";

/// Before every block: an HTTP error fails a command; somebody and some address
/// are locked; there is a user of the store, and names of former ones.
const BEFORE: &str = r#"
set -euo pipefail
curl() { command curl --silent --fail-with-body "$@"; }
for former in alice bob; do
  printf 'Wonderland-7\n' | doorward users add "$former" --password-stdin >former.txt
  doorward users delete "$former" >former.txt
done
printf 'Wonderland-7\n' | doorward users add alice --password-stdin >alice.txt
for _ in 1 2 3; do
  command curl -s -o locked.txt http://@PROXY@/json/authenticate -X POST \
    -H 'X-Service-Username: alice' -H 'X-Service-Password: wrong' -H 'X-Forwarded-For: 192.0.2.7'
done
"#;

/// Runs a script of a page; what it printed.
fn run(door: &Door, block: &Block, script: &str) -> String {
    let script = script
        .replace("https://id.example", &door.proxy_url(""))
        .replace("https://gateway.example.com", &door.proxy_url(""))
        .replace("localhost:8001", &door.admin());
    let lock = block.text.contains("lock");
    let before = if lock {
        door.fill(BEFORE)
    } else {
        door.fill(BEFORE).replace("1 2 3", "")
    };
    std::fs::create_dir_all(door.path("bin")).expect("a directory");
    let program = door.path("bin/doorward");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_doorward"), program).expect("a link");
    let path = std::env::var("PATH").expect("a path");
    let output = Command::new("bash")
        .arg("-c")
        .arg(format!("{before}\n{script}"))
        .current_dir(door.dir())
        .env("PATH", format!("{}:{path}", door.path("bin").display()))
        .env("DOORWARD_CONFIG", "doorward.yaml")
        .env("PROVISIONING_SECRET", "provisioning-secret")
        .stdin(Stdio::null())
        .output()
        .expect("bash starts");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr);
    let at = &block.at;
    assert!(
        output.status.success(),
        "{at}:\n{printed}\n{said}\n{}",
        door.log_text()
    );
    printed
}

/// Commands and what they print, of a console: `$ ` begins a command, the lines
/// after one that ends with a backslash belong to it.
fn console(text: &str) -> (String, String) {
    let (mut commands, mut printed) = (String::new(), String::new());
    let mut goes_on = false;
    for line in text.lines() {
        let command = line.strip_prefix("$ ").or(goes_on.then_some(line));
        match command {
            Some(command) => {
                commands.push_str(command);
                commands.push('\n');
                goes_on = command.ends_with('\\');
            }
            None => {
                printed.push_str(line);
                printed.push('\n');
            }
        }
    }
    (commands, printed)
}

#[tokio::test]
async fn every_command_of_the_pages_works() {
    let mut ran = 0;
    for block in blocks() {
        let console = match block.kind.as_str() {
            "sh" => (block.text.clone(), String::new()),
            "console" => console(&block.text),
            _ => continue,
        };
        if block.not_run.is_some() || block.has_test {
            continue;
        }
        let mut door = demonstrated().lay_out();
        if !block.text.contains("doorward broker") {
            let main = std::fs::read_to_string(door.path("doorward.yaml")).expect("the file");
            door.write("doorward.yaml", &(main + BROKER));
        }
        door.start().await;
        let (commands, wanted) = console;
        let printed = run(&door, &block, &commands);
        let fits = wanted.is_empty() || crate::walkthrough::matches(&printed, &wanted);
        assert!(fits, "{}: printed:\n{printed}\nwanted:\n{wanted}", block.at);
        ran += 1;
    }
    assert_eq!(ran, 8);
}

#[test]
fn blocks_are_found_with_their_reasons() {
    let page = "a\n```yaml\nx: 1\n```\n<!-- not run: it takes a week -->\n```sh\nsleep 1\n```\n";
    let found = blocks_of(page, "p.md");
    assert_eq!(
        (found[0].at.as_str(), found[0].text.as_str()),
        ("p.md:2", "x: 1")
    );
    assert_eq!(found[1].not_run.as_deref(), Some("it takes a week"));
    assert_eq!(
        console("$ a \\\n  b\nc\n"),
        ("a \\\n  b\n".to_owned(), "c\n".to_owned())
    );
}
