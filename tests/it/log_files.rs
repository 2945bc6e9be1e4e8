//! The access log and the audit log as files that others rotate, and daemons of logs.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde_json::Value;
use tokio::net::UnixDatagram;
use tokio::time::timeout;

use crate::support::raw::Connection;
use crate::support::{DEADLINE, Door, Setup, eventually};

/// A door whose access log and audit log are files.
async fn door() -> Door {
    let mut door = Setup::new().lay_out();
    log_to(&door, "@DIR@/access.log", "@DIR@/audit.jsonl");
    door.start().await;
    door
}

fn log_to(door: &Door, access: &str, audit: &str) {
    let both = format!("access_log: \"{access}\", metrics: true}}\naudit: {{file: \"{audit}\"}}");
    door.edit("doorward.yaml", "access_log: stdout, metrics: true}", &both);
}

/// A request that the access log has under `path`, once.
async fn request(door: &Door, path: &str) {
    door.get("a.test", path).await.expect(404);
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

async fn has(path: &Path, wanted: &str) {
    eventually(wanted, async || text(path).contains(wanted).then_some(())).await;
}

fn rename(path: &Path, end: &str) -> PathBuf {
    let to = path.with_extension(end);
    std::fs::rename(path, &to).expect("renamed");
    to
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("a file").mode() & 0o7777
}

#[tokio::test]
async fn the_access_log_is_opened_again_after_a_rename_and_loses_no_line() {
    let door = door().await;
    let log = door.path("access.log");
    request(&door, "/first").await;
    has(&log, "/first").await;
    std::fs::set_permissions(&log, PermissionsExt::from_mode(0o640)).expect("permissions");

    // Renamed, and nobody says a word.
    let first = rename(&log, "1");
    request(&door, "/second").await;
    has(&log, "/second").await;
    assert_eq!(
        mode(&log),
        0o640,
        "the permissions are those of the old file"
    );

    // Renamed, and another one made in its place.
    let second = rename(&log, "2");
    std::fs::write(&log, "").expect("made");
    std::fs::set_permissions(&log, PermissionsExt::from_mode(0o604)).expect("permissions");
    request(&door, "/third").await;
    has(&log, "/third").await;
    assert_eq!(mode(&log), 0o604, "what was made stays as it was made");

    // Copied and emptied.
    let third = log.with_extension("3");
    std::fs::copy(&log, &third).expect("copied");
    std::fs::File::create(&log).expect("emptied");
    request(&door, "/fourth").await;
    has(&log, "/fourth").await;
    assert!(text(&log).starts_with('{'), "from the start of the file");

    // Renamed under traffic.
    let old = log.with_extension("4");
    for n in 0..50 {
        if n == 25 {
            std::fs::rename(&log, &old).expect("renamed");
        }
        request(&door, &format!("/traffic/{n}/")).await;
    }
    has(&log, "/traffic/49/").await;
    let all: String = [first, second, third, old, log]
        .iter()
        .map(|path| text(path))
        .collect();
    for path in ["/first", "/second", "/third"] {
        assert_eq!(all.matches(&format!("{path}\"")).count(), 1, "{path}");
    }
    for n in 0..50 {
        assert_eq!(all.matches(&format!("/traffic/{n}/")).count(), 1, "{n}");
    }
}

#[tokio::test]
async fn both_log_files_are_opened_again_on_sighup_and_sigusr1() {
    let mut door = door().await;
    for (n, signal) in ["USR1", "HUP", "USR1"].into_iter().enumerate() {
        for log in ["access.log", "audit.jsonl"] {
            rename(&door.path(log), &n.to_string());
        }
        door.signal(signal);
        for log in ["access.log", "audit.jsonl"] {
            // With no request and no record that would be written there.
            let path = door.path(log);
            eventually("the file", async || path.exists().then_some(())).await;
        }
    }
    assert!(door.exited().is_none(), "SIGUSR1 does not end the process");
    request(&door, "/still").await;
    has(&door.path("access.log"), "/still").await;
}

#[tokio::test]
async fn the_audit_file_goes_on_after_a_rename() {
    let door = door().await;
    let log = door.path("audit.jsonl");
    has(&log, "process.start").await;
    let old = rename(&log, "1");
    door.client_token("read").await;
    has(&log, "token.issue").await;
    assert!(!text(&old).contains("token.issue"));
    assert_eq!(mode(&log), 0o600);
}

#[tokio::test]
async fn a_log_file_in_a_missing_directory_refuses_the_start_and_fails_the_check() {
    for (access, audit, key) in [
        (
            "@DIR@/no/access.log",
            "@DIR@/a.jsonl",
            "telemetry.access_log",
        ),
        ("@DIR@/access.log", "@DIR@/no/audit.jsonl", "audit.file"),
        // A directory is no file.
        ("@DIR@", "@DIR@/a.jsonl", "telemetry.access_log"),
        // Nor does a daemon listen there.
        ("syslog:@DIR@/no", "@DIR@/a.jsonl", "telemetry.access_log"),
        ("journal:@DIR@", "@DIR@/a.jsonl", "telemetry.access_log"),
    ] {
        let mut door = Setup::new().lay_out();
        log_to(&door, access, audit);
        let checked = door.run(&["check", "-c", "doorward.yaml"]);
        let said = String::from_utf8_lossy(&checked.stderr);
        assert_eq!(checked.status.code(), Some(1), "{said}");
        let tells = |line: &&str| {
            line.starts_with("doorward: doorward.yaml:") && line.contains(&format!(": {key}: "))
        };
        assert_eq!(said.lines().filter(tells).count(), 1, "{said}");
        // The line of the file below it, and carets.
        assert_eq!(said.lines().count(), 4, "{said}");
        assert!(!door.path("access.log").exists(), "a check makes nothing");
        door.spawn();
        assert_eq!(
            door.wait_exit().await.code(),
            Some(2),
            "{}",
            door.log_text()
        );
        let log = door.log_text();
        assert_eq!(log.lines().filter(tells).count(), 1, "{log}");
        assert!(!log.contains("panicked"), "{log}");
    }
}

#[test]
fn a_check_tells_of_log_files_and_of_entities_at_once() {
    let door = Setup::new().lay_out();
    log_to(&door, "@DIR@/no/access.log", "@DIR@/no/audit.jsonl");
    door.edit("routes.yaml", "services:", "servixes:");
    let checked = door.run(&["check", "-c", "doorward.yaml"]);
    let said = String::from_utf8_lossy(&checked.stderr);
    for key in ["telemetry.access_log", "audit.file", "servixes"] {
        assert!(said.contains(&format!(": {key}: ")), "{key}: {said}");
    }
}

/// The next message of a program that logs.
async fn message(receiver: &UnixDatagram) -> String {
    let mut message = [0; 4096];
    let length = receiver.recv(&mut message);
    let length = timeout(DEADLINE, length).await.expect("in time");
    String::from_utf8_lossy(&message[..length.expect("a message")]).into_owned()
}

#[tokio::test]
async fn log_daemons_get_a_message_for_each_request() {
    for (daemon, head) in [
        ("syslog", "<30>doorward[@PID@]: {"),
        (
            "journal",
            "PRIORITY=6\nSYSLOG_FACILITY=3\nSYSLOG_IDENTIFIER=doorward\nMESSAGE={",
        ),
    ] {
        let mut door = Setup::new().lay_out();
        log_to(&door, &format!("{daemon}:@DIR@/daemon"), "@DIR@/a.jsonl");
        let socket = door.path("daemon");
        let listen = || UnixDatagram::bind(&socket).expect("a socket");
        let mut receiver = listen();
        door.start().await;
        let head = head.replace("@PID@", &door.pid().to_string());
        for path in ["/first", "/second"] {
            request(&door, path).await;
            let text = message(&receiver).await;
            assert!(text.starts_with(&head), "{text}");
            let object: Value = serde_json::from_str(&text[head.len() - 1..]).expect(&text);
            assert_eq!(object["path"], path);
            // The daemon is started anew.
            drop(receiver);
            std::fs::remove_file(&socket).expect("removed");
            receiver = listen();
        }
    }
}

#[tokio::test]
async fn a_log_daemon_that_takes_nothing_holds_up_no_request_and_no_end() {
    let mut door = Setup::new().lay_out();
    log_to(&door, "syslog:@DIR@/daemon", "@DIR@/a.jsonl");
    let _receiver = std::os::unix::net::UnixDatagram::bind(door.path("daemon")).expect("a socket");
    door.start().await;
    // More than such a socket takes.
    let mut connection = Connection::open(&door.proxy()).await;
    for _ in 0..2000 {
        connection
            .send(b"GET /nowhere HTTP/1.1\r\nHost: a\r\n\r\n")
            .await;
        assert_eq!(connection.response().await.status, 404);
    }
    let lost = "doorward_access_log_lost_total";
    eventually("lines that are counted as lost", || async {
        let metrics = door.admin_get("/metrics").await.body;
        let line = metrics.lines().find(|line| line.starts_with(lost))?;
        (!line.ends_with(" 0")).then_some(())
    })
    .await;
    door.signal("TERM");
    assert!(door.wait_exit().await.success());
}
