//! Commands of the pages that serve until they are stopped: each is started as it stands,
//! with other ports and directories, asked, and stopped.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::json;

use crate::support::ports::Port;
use crate::support::{Door, Setup, Upstream, eventually, http};

/// The blocks of all pages that name this test, with their pages.
pub(crate) fn blocks_tried_by(test: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = std::fs::read_dir(root.join("docs")).expect("a directory");
    let mut paths: Vec<_> = pages.map(|page| page.expect("a page").path()).collect();
    paths.push(root.join("README.md"));
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths.sort();
    let mark = format!("<!-- tried by {test} -->\n```sh\n");
    let mut found = Vec::new();
    for path in paths {
        let page = std::fs::read_to_string(&path).expect("a page");
        for rest in page.split(&mark).skip(1) {
            let (block, _) = rest.split_once("\n```").expect("the end of a block");
            found.push((path.display().to_string(), block.to_owned()));
        }
    }
    found
}

/// A shell and all that it has started, which end together.
pub(crate) struct Group(Child);

impl Group {
    /// Runs commands of a page in the background.
    pub(crate) fn start(door: &Door, commands: &str, stdout: Stdio) -> Self {
        let mut bash = door.bash(commands);
        bash.stdin(Stdio::null()).stdout(stdout).process_group(0);
        let errors = std::fs::File::create(door.path("errors.txt")).expect("a file");
        Self(bash.stderr(errors).spawn().expect("bash starts"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // It is waited for only here: the number is still its own.
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

/// The commands on ports and in directories of the test.
fn moved(block: &str, door: &Door, upstream: &Upstream) -> String {
    let number = |authority: String| authority.rsplit(':').next().expect("a port").to_owned();
    let (port, admin) = (number(door.proxy()), number(door.admin()));
    let mut commands = block
        .replace("--from :8000", &format!("--from 127.0.0.1:{port}"))
        .replace("127.0.0.1:8000", &format!("127.0.0.1:{port}"))
        .replace("http.server 3000", &format!("http.server {port}"));
    for target in ["127.0.0.1:9000", "127.0.0.1:3000"] {
        commands = commands.replace(target, upstream.url("").trim_start_matches("http://"));
    }
    if commands.contains("doorward proxy") {
        commands.push_str(&format!(" --admin 127.0.0.1:{admin} --state state"));
        if !commands.contains("--from") {
            commands.push_str(&format!(" --from 127.0.0.1:{port}"));
        }
    }
    if commands.contains("make upstream") {
        let root = env!("CARGO_MANIFEST_DIR");
        commands.push_str(&format!(" -C '{root}' UPSTREAM=127.0.0.1:{port}"));
    }
    if commands.contains("start-dev") {
        commands.push_str(&format!(" --port {port} --admin-port {admin}"));
    }
    commands
}

#[tokio::test]
async fn the_commands_of_the_pages_that_serve_do_so() {
    let upstream = Upstream::echo().await;
    let blocks = blocks_tried_by("the_commands_of_the_pages_that_serve_do_so");
    assert_eq!(blocks.len(), 8, "{blocks:?}");
    for (page, block) in blocks {
        let door = Setup::new().lay_out();
        std::fs::create_dir_all(door.path("web")).expect("a directory");
        door.write("web/index.html", "<title>web</title>");
        let (path, status) = match &*block {
            block if block.contains("--mcp") => ("/mcp", 401),
            block if block.contains("--login") => ("/", 302),
            block if block.contains("start-dev") => ("/open", 200),
            _ => ("/", 200),
        };
        let commands = moved(&block, &door, &upstream);
        let _group = Group::start(&door, &commands, Stdio::null());
        let what = format!("{page}: {commands}");
        let answer = eventually(&what, || async {
            let request = http::client().get(door.proxy_url(path));
            request.send().await.ok().map(|answer| answer.status())
        });
        let answer = answer.await.as_u16();
        let errors = || std::fs::read_to_string(door.path("errors.txt"));
        assert_eq!(answer, status, "{what}: {:?}", errors());
    }
}

#[tokio::test]
async fn the_command_of_the_page_follows_the_audit_log() {
    let blocks = blocks_tried_by("the_command_of_the_page_follows_the_audit_log");
    let [(_, block)] = &blocks[..] else {
        panic!("{blocks:?}")
    };
    let door = Setup::new().start().await;
    let followed = door.path("followed.txt");
    let file = std::fs::File::create(&followed).expect("a file");
    // What jq prints into a file comes when its buffer is full.
    let commands = block.replace("jq ", "jq --unbuffered ");
    let _group = Group::start(&door, &commands, file.into());
    let mut number = 0;
    eventually("the event to be followed", || {
        number += 1;
        let service = json!({"name": format!("s{number}"), "url": "http://127.0.0.1:9"});
        let (door, followed) = (&door, &followed);
        async move {
            door.admin_post("/services", &service).await.expect(201);
            let text = std::fs::read_to_string(followed).expect("the file");
            text.contains("\"entity.create\"").then_some(())
        }
    })
    .await;
}

#[test]
fn blocks_that_a_test_tries_are_found() {
    let blocks = blocks_tried_by("the_command_of_the_page_ends_one_token");
    assert_eq!(blocks.len(), 1, "{blocks:?}");
    assert!(blocks[0].1.starts_with("doorward broker revoke"));
    // No port is the same twice.
    assert_ne!(Port::reserve().number(), Port::reserve().number());
}
