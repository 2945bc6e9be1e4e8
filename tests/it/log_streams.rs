//! What the program prints, where nobody reads it or it can't be written.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, PipeReader, Write};
use std::process::Stdio;

use reqwest::Method;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use serde_json::json;

use crate::support::raw::exchange;
use crate::support::{DEADLINE, Door, Setup, Upstream, eventually};

/// What is wrong with a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Nobody reads, and the pipe is full.
    Full,
    /// The reader is gone.
    Closed,
    /// The disk is full.
    Disk,
}

/// A stream with `fault`, and the end that nobody reads.
fn stream(fault: Fault) -> (Stdio, Option<PipeReader>) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    match fault {
        Fault::Disk => {
            let full = File::options().append(true).open("/dev/full");
            (full.expect("a device").into(), None)
        }
        Fault::Closed => (writer.into(), None),
        Fault::Full => {
            let flags = fcntl_getfl(&writer).expect("flags");
            fcntl_setfl(&writer, flags | OFlags::NONBLOCK).expect("flags");
            let lines = [b'\n'; 4096];
            let full = loop {
                if let Err(error) = writer.write(&lines) {
                    break error;
                }
            };
            assert_eq!(full.kind(), ErrorKind::WouldBlock);
            fcntl_setfl(&writer, flags).expect("flags");
            (writer.into(), Some(reader))
        }
    }
}

/// A door to `upstream`, and to one that is not there.
fn setup(upstream: &Upstream) -> Setup {
    let services = format!(
        "- {{name: api, url: '{}', routes: [{{paths: [/api]}}]}}\n\
         - {{name: gone, url: 'http://127.0.0.1:1', retries: 0, routes: [{{paths: [/gone]}}]}}\n",
        upstream.url("")
    );
    // So many lines that no buffer takes them.
    Setup::new()
        .services(&services)
        .env("DOORWARD_LOG", "trace")
}

/// Requests of every kind are answered, and each writes lines.
async fn use_it(door: &Door) {
    for _ in 0..40 {
        door.get("a.test", "/api").await.expect(200);
        door.get("a.test", "/nowhere").await.expect(404);
        door.get("a.test", "/gone").await.expect(502);
        door.admin_get("/services").await.expect(200);
        let ambiguous = b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n";
        let refused = exchange(&door.proxy(), ambiguous).await;
        assert_eq!(refused.map(|answer| answer.status), Some(400));
    }
    door.client_token("read").await;
}

async fn dropped(door: &Door, stream: &str) -> f64 {
    let text = door.admin_get("/metrics").await.expect(200).body;
    let start = format!("doorward_log_lines_dropped_total{{stream=\"{stream}\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&start));
    line.and_then(|number| number.parse().ok())
        .expect("the metric")
}

#[tokio::test]
async fn streams_that_take_nothing_hold_up_no_request_no_reload_and_no_end() {
    let upstream = Upstream::echo().await;
    for (stdout, stderr) in [
        (Fault::Full, Fault::Full),
        (Fault::Closed, Fault::Closed),
        (Fault::Disk, Fault::Disk),
    ] {
        let mut door = setup(&upstream).lay_out();
        let ((out, _unread_out), (err, _unread_err)) = (stream(stdout), stream(stderr));
        door.spawn_printing(out, err);
        door.until_ready().await;
        use_it(&door).await;
        door.edit("routes.yaml", "[/api]", "[/api, /more]");
        door.signal("HUP");
        eventually("the reload", async || {
            (door.get("a.test", "/more").await.status == 200).then_some(())
        })
        .await;
        eventually("dropped lines in the metric", async || {
            use_it(&door).await;
            (dropped(&door, "stderr").await > 0.0).then_some(())
        })
        .await;
        if stdout != Fault::Full {
            assert!(dropped(&door, "access_log").await > 0.0, "{stdout:?}");
        }
        door.signal("TERM");
        assert_eq!(door.wait_exit().await.code(), Some(0), "{stdout:?}");
    }
}

#[tokio::test]
async fn a_reader_that_comes_back_is_told_once_how_many_lines_were_dropped() {
    let upstream = Upstream::echo().await;
    let mut door = setup(&upstream).lay_out();
    let (err, unread) = stream(Fault::Full);
    door.spawn_printing(Stdio::null(), err);
    door.until_ready().await;
    eventually("dropped lines", async || {
        door.get("a.test", "/api").await.expect(200);
        (dropped(&door, "stderr").await > 0.0).then_some(())
    })
    .await;
    let lines = BufReader::new(unread.expect("a reader")).lines();
    let told = tokio::task::spawn_blocking(move || {
        let mut lines = lines.map_while(Result::ok);
        lines.any(|line| line.contains("log lines were dropped"))
    });
    let told = tokio::time::timeout(DEADLINE, told).await;
    assert!(told.expect("a line in time").expect("no panic"));
}

#[tokio::test]
async fn what_waits_to_be_printed_is_printed_before_the_end() {
    let upstream = Upstream::echo().await;
    let mut door = setup(&upstream).start().await;
    for n in 0..20 {
        door.get("a.test", &format!("/api/{n}")).await.expect(200);
    }
    door.signal("TERM");
    assert_eq!(door.wait_exit().await.code(), Some(0));
    let log = door.log_text();
    for n in 0..20 {
        let path = format!("\"path\":\"/api/{n}\"");
        assert_eq!(log.matches(&path).count(), 1, "{path}");
    }
    assert!(log.contains(" stopped"), "{log}");
}

#[tokio::test]
async fn commands_whose_reader_has_gone_end_quietly() {
    let door = Setup::new().start().await;
    for arguments in [
        &["users", "list", "-c", "doorward.yaml"][..],
        &["users", "show", "demo", "-c", "doorward.yaml"],
        &["realms", "list", "-c", "doorward.yaml"],
        &["clients", "list", "-c", "doorward.yaml"],
        &["keys", "list", "-c", "doorward.yaml"],
        &["sessions", "list", "-c", "doorward.yaml"],
        &["audit", "list", "-c", "doorward.yaml"],
        &["audit", "export", "-c", "doorward.yaml"],
        &["store", "check", "-c", "doorward.yaml"],
        &["store", "export", "-", "-c", "doorward.yaml"],
        &["config", "export", "-c", "doorward.yaml"],
        &["check", "-c", "doorward.yaml"],
        &["explain", "--refusals"],
        &["completions", "bash"],
        &["help"],
    ] {
        let (closed, _) = stream(Fault::Closed);
        let output = door
            .command(arguments)
            .stdin(Stdio::null())
            .stdout(closed)
            .stderr(Stdio::piped())
            .spawn()
            .and_then(std::process::Child::wait_with_output)
            .expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code().is_some_and(|code| code < 2),
            "{arguments:?}: {said}"
        );
        assert_eq!(said, "", "{arguments:?}");
    }
}

#[tokio::test]
async fn a_command_does_its_work_whether_or_not_anybody_reads() {
    let door = Setup::new().start().await;
    let add = ["realms", "create", "/quiet", "-c", "doorward.yaml"];
    let (closed, _) = stream(Fault::Closed);
    let (closed_too, _) = stream(Fault::Closed);
    let mut child = door
        .command(&add)
        .stdin(Stdio::null())
        .stdout(closed)
        .stderr(closed_too)
        .spawn()
        .expect("it starts");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    let shown = door.run(&["realms", "list", "-c", "doorward.yaml"]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("/quiet"));
}

#[tokio::test]
async fn a_command_that_can_not_print_to_a_full_disk_says_so() {
    let door = Setup::new().start().await;
    for arguments in [
        &["users", "list", "-c", "doorward.yaml"][..],
        &["check", "-c", "doorward.yaml"],
        &["completions", "bash"],
    ] {
        let (full, _) = stream(Fault::Disk);
        let output = door
            .command(arguments)
            .stdin(Stdio::null())
            .stdout(full)
            .stderr(Stdio::piped())
            .spawn()
            .and_then(std::process::Child::wait_with_output)
            .expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("No space left"), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{said}");
    }
}

#[tokio::test]
async fn an_operator_changes_the_level_of_the_log_for_a_while() {
    let upstream = Upstream::echo().await;
    let door = setup(&upstream).env("DOORWARD_LOG", "error").start().await;
    let level = || async {
        let told = door.admin_get("/debug/node/log-level").await.expect(200);
        told.json()["message"].as_str().expect("a text").to_owned()
    };
    let choose = async |path: &str| {
        let path = format!("/debug/node/log-level/{path}");
        door.admin_json(Method::PUT, &path, &json!({})).await
    };
    assert_eq!(level().await, "log level: error");
    assert!(!door.log_text().contains("DEBUG"), "{}", door.log_text());
    let answer = choose("debug?timeout=0").await.expect(200).json();
    assert_eq!(answer["message"], "log level changed");
    assert_eq!(level().await, "log level: debug");
    eventually("lines for those who look for a fault", || async {
        use_it(&door).await;
        door.log_text().contains("DEBUG").then_some(())
    })
    .await;
    let answer = choose("debug").await.expect(200).json();
    assert_eq!(answer["message"], "log level is already debug");
    choose("warn?timeout=1").await.expect(200);
    // Then it is again what it was at the start.
    eventually("the level is the old one", || async {
        (level().await == "log level: error").then_some(())
    })
    .await;
    let audit = door.admin_get("/audit?kind=log.level").await.expect(200);
    let events = audit.json()["data"].as_array().map(Vec::len);
    assert_eq!(events, Some(3), "{}", audit.body);
}
