//! Programs of other makers as clients of the identity provider: libraries for
//! Node and Python, and a browser. What they do is in `tests/clients/`, a script
//! for each; here the real program is started for them, over TLS.
//!
//! `make test` installs what they need and runs them. `cargo test` alone leaves
//! them out and says so.

mod broker;
mod console;
mod descriptions;
mod directory;
mod federation;
mod keys;
mod logout;
mod mcp;
mod relying;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use keys::Keys;

use crate::page_commands::blocks_tried_by;
use crate::support::ports::Port;
use crate::support::tls::Authority;
use crate::support::{DEADLINE, Door, Setup};

/// A door that speaks TLS, and what its clients need to know.
struct Stage {
    door: Door,
    base: String,
    /// Where a script may be a client's site.
    site: Port,
    /// Where a script may be another provider.
    upstream: Port,
    /// Where the door listens besides, if it does.
    _more: Option<Port>,
    /// What the scripts said; after the door, whose long log is printed when it
    /// is dropped.
    output: ScriptOutput,
}

#[derive(Default)]
struct ScriptOutput(Mutex<String>);

impl Drop for ScriptOutput {
    fn drop(&mut self) {
        println!("{}", self.0.get_mut().expect("not poisoned"));
    }
}

impl Stage {
    /// A door without TLS that is running already.
    fn plain(door: Door) -> Self {
        Self {
            base: format!("http://{}", door.proxy()),
            site: Port::reserve(),
            upstream: Port::reserve(),
            _more: None,
            output: ScriptOutput::default(),
            door,
        }
    }

    /// Starts the program with the realms and clients of `identity.yaml`.
    async fn set() -> Self {
        let keys = Keys::make();
        let (tls, site, upstream) = (Port::reserve(), Port::reserve(), Port::reserve());
        let base = format!("https://{}", tls.authority());
        let realms = concat!(include_str!("federation.yaml"), "outbound:");
        let section = include_str!("identity.yaml").replacen("outbound:", realms, 1);
        let section = keys.fill(&section);
        let section = section
            .replace("@BASE@", &base)
            .replace("@UPSTREAM@", &upstream.authority())
            .replace("@SITE@", &format!("https://{}", site.authority()))
            .replace('\n', "\n  ");
        let proxy = format!(
            "{{listen: [\"@PROXY@\"], tls: {{listen: [\"{}\"], certificate: \"@DIR@/cert.pem\", \
             key: \"@DIR@/key.pem\"}}}}",
            tls.authority()
        );
        let setup = Setup::new()
            .proxy(&proxy)
            .identity(&format!("\n  {section}"));
        let mut door = setup.lay_out();
        let authority = Authority::new();
        let server = authority.client("127.0.0.1");
        door.write("ca.pem", &authority.pem());
        door.write("cert.pem", &server.cert);
        door.write("key.pem", &server.key);
        door.write("keys.json", &keys.json().to_string());
        door.start().await;
        Self {
            door,
            base,
            site,
            upstream,
            _more: Some(tls),
            output: ScriptOutput::default(),
        }
    }

    /// Runs a script to its end, which must be a good one.
    async fn run(&self, mut command: Command) {
        command
            .env("DOORWARD_BASE", &self.base)
            .env("DOORWARD_SITE", self.site.number().to_string())
            .env("DOORWARD_PROGRAM", env!("CARGO_BIN_EXE_doorward"))
            .env("DOORWARD_UPSTREAM", self.upstream.number().to_string())
            .env("DOORWARD_ADMIN", self.door.admin_url(""))
            .env("DOORWARD_KEYS", self.door.path("keys.json"))
            .env("DOORWARD_DIR", self.door.dir())
            .env("DOORWARD_SCREENSHOTS", root().join("target/screenshots"))
            .env("DOORWARD_PICTURES", pictures())
            // Whom to trust, as each of them is told.
            .env("NODE_EXTRA_CA_CERTS", self.door.path("ca.pem"))
            .env("REQUESTS_CA_BUNDLE", self.door.path("ca.pem"))
            .env("NO_PROXY", "127.0.0.1");
        let ended = tokio::task::spawn_blocking(move || finish(command));
        let output = ended.await.expect("the script is waited for");
        for stream in [&output.stderr, &output.stdout] {
            let said = String::from_utf8_lossy(stream);
            self.output.0.lock().expect("not poisoned").push_str(&said);
        }
        assert!(output.status.success(), "{}: see above", output.status);
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where pictures of pages go: below target/, unless `make pictures` says otherwise.
fn pictures() -> PathBuf {
    let place = std::env::var_os("DOORWARD_PICTURES").unwrap_or("target/pictures".into());
    root().join(place)
}

/// A script for Node, every case of which is printed.
fn node(script: &str) -> Command {
    let mut command = Command::new("node");
    command
        .args(["--test-reporter=spec", script])
        .current_dir(root().join("tests/clients"));
    command
}

/// A script for Python, in the environment that `make` fills.
fn python(script: &str) -> Command {
    let program: PathBuf = root().join("target/clients/venv/bin/python");
    let mut command = Command::new(program);
    command
        .args([script, "-v"])
        .current_dir(root().join("tests/clients"));
    command
}

/// Waits for the program, at most three times as long as for anything else.
fn finish(mut command: Command) -> Output {
    let command = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn();
    let mut child = child.unwrap_or_else(|error| {
        panic!("{error}: {command:?} cannot be started; `make test` installs it")
    });
    let pipes = (child.stdout.take(), child.stderr.take());
    let (out, err) = (collect(pipes.0), collect(pipes.1));
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("our own process") {
            break status;
        }
        if started.elapsed() > 3 * DEADLINE {
            child.kill().expect("our own process can be killed");
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    Output {
        status,
        stdout: out.join().expect("a thread that reads"),
        stderr: err.join().expect("a thread that reads"),
    }
}

fn collect(pipe: Option<impl std::io::Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        let _ = pipe.expect("piped").read_to_end(&mut all);
        all
    })
}

#[tokio::test]
#[ignore = "needs node and its packages, which `make test` installs"]
async fn openid_client_does_every_grant() {
    Stage::set().await.run(node("openid-client.mjs")).await;
}

#[tokio::test]
#[ignore = "needs node and its packages, which `make test` installs"]
async fn oauth4webapi_finds_every_answer_valid() {
    Stage::set().await.run(node("oauth4webapi.mjs")).await;
}

#[tokio::test]
#[ignore = "needs python and its packages, which `make test` installs"]
async fn authlib_does_every_grant_that_it_knows() {
    Stage::set().await.run(python("authlib_client.py")).await;
}

#[tokio::test]
#[ignore = "needs python and its packages, which `make test` installs"]
async fn testers_of_scim_find_nothing() {
    Stage::set().await.run(python("scim_client.py")).await;
}

#[tokio::test]
#[ignore = "needs node, its packages and chromium, which `make test` installs"]
async fn chromium_shows_every_page() {
    Stage::set().await.run(node("browser.mjs")).await;
}

#[tokio::test]
#[ignore = "needs node and its packages, which `make test` installs"]
async fn both_libraries_push_and_sign_their_requests() {
    Stage::set().await.run(node("requests.mjs")).await;
}

#[tokio::test]
#[ignore = "needs node and its packages, which `make test` installs"]
async fn clients_register_themselves_by_both_libraries() {
    Stage::set().await.run(node("registration.mjs")).await;
}

#[tokio::test]
#[ignore = "needs node, its packages and chromium, which `make test` installs"]
async fn chromium_shows_the_pages_for_devices_and_frames() {
    Stage::set().await.run(node("browser-devices.mjs")).await;
}

#[tokio::test]
#[ignore = "needs node, its packages and chromium, which `make test` installs"]
async fn a_client_in_a_page_of_chromium_signs_its_user_in() {
    Stage::set().await.run(node("single-page.mjs")).await;
}

#[tokio::test]
#[ignore = "needs node and its packages, which `make test` installs"]
async fn the_official_suite_would_find_nothing_in_fapi() {
    Stage::set().await.run(node("conformance-fapi.mjs")).await;
}

#[tokio::test]
#[ignore = "needs node and its packages, which `make test` installs"]
async fn the_official_suite_would_find_nothing_in_registration_and_logouts() {
    Stage::set()
        .await
        .run(node("conformance-dynamic.mjs"))
        .await;
}

#[tokio::test]
#[ignore = "needs node and its packages, which `make test` installs"]
async fn the_official_suite_would_find_nothing() {
    Stage::set().await.run(node("conformance.mjs")).await;
}

#[tokio::test]
#[ignore = "needs node, its packages and chromium, which `make test` installs"]
async fn chromium_enrols_and_uses_second_factors_and_passkeys() {
    // Passkeys need a name: there are none at an address, and none where the
    // certificate is not trusted.
    let local = Port::reserve();
    let base = format!("http://localhost:{}", local.number());
    let proxy = format!("{{listen: [\"@PROXY@\", \"{}\"]}}", local.authority());
    let users = ["demo", "alice", "bob", "carol", "dora"];
    let users = users.map(|name| format!("{{userName: {name}, password: Ch4ng31t-{name}}}"));
    let identity = format!(
        "\n  base_url: {base}\n  realms:\n    /:\n      users: [{}]\n",
        users.join(", ")
    );
    let keys = Keys::make();
    let setup = Setup::new().proxy(&proxy).identity(&identity);
    let mut door = setup.lay_out();
    door.write("keys.json", &keys.json().to_string());
    door.start().await;
    let stage = Stage {
        base: base.clone(),
        _more: Some(local),
        ..Stage::plain(door)
    };
    let mut command = node("passkeys.mjs");
    command.env("DOORWARD_LOCAL", &base);
    stage.run(command).await;
    // The operator sees what was registered as the page shows it.
    let test = "chromium_enrols_and_uses_second_factors_and_passkeys";
    let (_, block) = blocks_tried_by(test).pop().expect("a block");
    let listed = stage.door.shell(&block.replace(" ann", " bob"));
    let listed = String::from_utf8(listed.stdout).expect("UTF-8");
    let has_row = |line: &str| {
        let cells: Vec<_> = line.split('\t').collect();
        cells.len() == 5 && cells[1] == "passkey" && cells[3].ends_with('Z')
    };
    assert!(listed.lines().any(has_row), "{listed}");
}
