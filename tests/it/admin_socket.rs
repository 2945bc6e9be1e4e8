//! The admin listener on a Unix socket: who may open its file is the operator.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};

use crate::support::{Door, Setup, eventually};

fn lay_out(settings: &str) -> Door {
    let admin = format!("{{listen: \"unix:@DIR@/admin.sock\"{settings}}}");
    Setup::new().admin(&admin).lay_out()
}

async fn started(mut door: Door) -> Door {
    door.spawn();
    eventually("the socket", || async {
        UnixStream::connect(door.path("admin.sock")).await.ok()
    })
    .await;
    door
}

/// The answer to a request over the socket; none where nobody listens.
async fn ask(door: &Door, target: &str, host: &str, lines: &str) -> Option<String> {
    let mut stream = UnixStream::connect(door.path("admin.sock")).await.ok()?;
    let request =
        format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{lines}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    (!answer.is_empty()).then_some(answer)
}

async fn status(door: &Door, host: &str, lines: &str) -> String {
    let answer = ask(door, "/status", host, lines).await.expect("an answer");
    answer.chars().skip("HTTP/1.1 ".len()).take(3).collect()
}

fn mode(door: &Door) -> u32 {
    let metadata = std::fs::metadata(door.path("admin.sock")).expect("there");
    metadata.permissions().mode() & 0o777
}

#[tokio::test]
async fn operators_and_commands_come_by_the_socket() {
    let door = started(lay_out("")).await;
    assert_eq!(mode(&door), 0o600);
    assert_eq!(status(&door, "localhost", "").await, "200");
    // Nobody comes by TCP.
    TcpStream::connect(door.admin())
        .await
        .expect_err("no listener");
    door.run_well(&["health"]);
    door.run_well(&["health", "--live"]);
    door.run_well(&["config", "export", "-o", "out.yaml"]);
    let explained = door.run(&[
        "explain",
        "GET",
        "/nowhere",
        "--json",
        "-c",
        "doorward.yaml",
    ]);
    assert!(!explained.stdout.is_empty(), "{explained:?}");
    let said = String::from_utf8_lossy(&explained.stderr);
    assert!(!said.contains("nobody answers"), "{said}");
}

#[tokio::test]
async fn a_name_that_a_stranger_chose_is_refused_on_the_socket_too() {
    let door = started(lay_out("")).await;
    assert_eq!(status(&door, "evil.test", "").await, "403");
    let page = "Origin: http://evil.test\r\n";
    assert_eq!(status(&door, "localhost", page).await, "403");
}

#[tokio::test]
async fn a_socket_that_others_may_open_asks_for_the_token() {
    let token = ", token: \"0123456789abcdef\", socket_mode: \"0660\"";
    let door = started(lay_out(token)).await;
    assert_eq!(mode(&door), 0o660);
    assert_eq!(status(&door, "localhost", "").await, "401");
    let shown = "Kong-Admin-Token: 0123456789abcdef\r\n";
    assert_eq!(status(&door, "localhost", shown).await, "200");
    door.run_well(&["health"]);
}

#[test]
fn a_socket_that_others_may_open_without_a_token_is_refused() {
    for (settings, key) in [
        (", socket_mode: \"0660\"", "admin.socket_mode"),
        (", socket_mode: \"0606\"", "admin.socket_mode"),
        (", socket_mode: \"999\"", "admin.socket_mode"),
    ] {
        let door = lay_out(settings);
        let output = door.run(&["check", "-c", "doorward.yaml"]);
        assert!(!output.status.success(), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(key), "{said}");
    }
    let door = Setup::new()
        .admin("{listen: \"unix:admin.sock\"}")
        .lay_out();
    let output = door.run(&["check", "-c", "doorward.yaml"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("admin.listen") && said.contains("unix:/PATH"),
        "{said}"
    );
}

#[tokio::test]
async fn a_successor_takes_the_socket_over() {
    let mut door = started(lay_out("")).await;
    let serving = |door: &Door| {
        let path = door.path("admin.sock");
        async move {
            let mut stream = UnixStream::connect(path).await.ok()?;
            let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            stream.write_all(request).await.ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.ok()?;
            let root: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1)?).ok()?;
            root["pids"]["master"].as_u64()
        }
    };
    eventually("the process to be ready", || serving(&door)).await;
    let mut successor = door
        .command(&["run", "--upgrade", "-c", "doorward.yaml"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    assert!(door.wait_exit().await.success());
    let pid = eventually("an answer of the successor", || serving(&door)).await;
    assert_eq!(pid, u64::from(successor.id()));
    assert_eq!(mode(&door), 0o600);
    successor.kill().expect("our own process can be killed");
    successor.wait().expect("it can be waited for");
}
