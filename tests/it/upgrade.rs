//! A program takes the place of a running one: no connection is refused, no request
//! is lost, and one that can't start harms nothing.

use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::net::TcpStream;

use crate::page_commands::{Group, blocks_tried_by};
use crate::support::process::Process;
use crate::support::raw::Connection;
use crate::support::{Door, Setup, eventually};

const MIRROR: &str = "- {name: mirror, protocol: internal, host: echo, routes: [{paths: [/]}]}\n";
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
/// Clients that send one request after the other.
pub(crate) const CLIENTS: usize = 4;
const UPGRADES: usize = 20;

async fn door() -> Door {
    Setup::new().services(MIRROR).start().await
}

/// A process that a signal has started, killed at the end.
struct Successor(Pid);

impl Drop for Successor {
    fn drop(&mut self) {
        // It may have been succeeded.
        let _ = kill_process(self.0, Signal::KILL);
    }
}

fn upgrade(door: &Door) -> Child {
    door.command(&["run", "--upgrade", "-c", "doorward.yaml"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts")
}

/// The process that serves the door, by its own word.
async fn serving(door: &Door) -> Option<i32> {
    let mut connection = Connection::open(&door.admin()).await;
    connection
        .try_send(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        .await;
    let answer = connection.try_response().await?;
    let root: Value = serde_json::from_str(&answer.text()).ok()?;
    i32::try_from(root["pids"]["master"].as_i64()?).ok()
}

/// Waits until another process than `before` serves, alone.
async fn succeeded(door: &Door, before: i32) -> i32 {
    let now = eventually("a successor", || async {
        serving(door).await.filter(|pid| *pid != before)
    })
    .await;
    let ended = || !is_alive(before);
    eventually("the process before it to end", || async {
        ended().then_some(())
    })
    .await;
    now
}

fn pid(number: i32) -> Pid {
    Pid::from_raw(number).expect("a process")
}

/// Whether the process has not ended. Nobody may have asked yet how it did.
fn is_alive(number: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().map(str::trim_start);
    state.is_some_and(|state| !state.is_empty() && !state.starts_with('Z'))
}

/// Sends requests over kept connections until `stops`; yields what went wrong.
pub(crate) async fn client(
    authority: String,
    stops: Arc<AtomicBool>,
    served: Arc<AtomicUsize>,
) -> Option<String> {
    let mut kept: Option<Connection> = None;
    while !stops.load(Ordering::Relaxed) {
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => match TcpStream::connect(&authority).await {
                Ok(stream) => Connection::of(stream),
                Err(error) => return Some(format!("a connection was refused: {error}")),
            },
        };
        if !connection.try_send(REQUEST).await {
            return Some("a connection was cut before its request".to_owned());
        }
        let Some(answer) = connection.try_response().await else {
            return Some("a request was lost".to_owned());
        };
        if answer.status != 200 {
            return Some(format!("{answer:?}"));
        }
        served.fetch_add(1, Ordering::Relaxed);
        if answer.header("connection") != Some("close") {
            kept = Some(connection);
        }
    }
    None
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_upgrades_under_load_lose_no_request() {
    let door = door().await;
    let (stops, served) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| tokio::spawn(client(door.proxy(), stops.clone(), served.clone())))
        .collect();
    let mut serving = i32::try_from(door.pid()).expect("a small number");
    let mut successors = Vec::new();
    let mut started = Vec::new();
    for number in 0..UPGRADES {
        if number % 2 == 0 {
            kill_process(pid(serving), Signal::USR2).expect("it runs");
        } else {
            started.push(Process(upgrade(&door)));
        }
        serving = succeeded(&door, serving).await;
        successors.push(Successor(pid(serving)));
        // Each process has served before the next one comes.
        let before = served.load(Ordering::Relaxed);
        eventually("requests", || async {
            (served.load(Ordering::Relaxed) > before + CLIENTS).then_some(())
        })
        .await;
    }
    stops.store(true, Ordering::Relaxed);
    for client in clients {
        assert_eq!(client.await.expect("no panic"), None);
    }
}

#[tokio::test]
async fn the_command_of_the_page_relieves_the_process_that_serves() {
    let blocks = blocks_tried_by("the_command_of_the_page_relieves_the_process_that_serves");
    let [(_, block)] = &blocks[..] else {
        panic!("{blocks:?}")
    };
    let mut door = door().await;
    let before = serving(&door).await.expect("it serves");
    let _group = Group::start(&door, block, Stdio::null());
    succeeded(&door, before).await;
    assert!(door.wait_exit().await.success());
}

#[tokio::test]
async fn the_signal_of_the_page_starts_a_successor() {
    let blocks = blocks_tried_by("the_signal_of_the_page_starts_a_successor");
    let [(_, block)] = &blocks[..] else {
        panic!("{blocks:?}")
    };
    let door = door().await;
    let before = serving(&door).await.expect("it serves");
    // Other processes of this name are not the test's to signal.
    let commands = format!(
        "pidof() {{ [ \"$*\" = doorward ] && echo {}; }}\n{block}",
        door.pid()
    );
    let _group = Group::start(&door, &commands, Stdio::null());
    let _successor = Successor(pid(succeeded(&door, before).await));
}

#[tokio::test]
async fn an_idle_connection_is_told_by_its_next_answer() {
    let door = door().await;
    let mut idle = Connection::open(&door.proxy()).await;
    idle.send(REQUEST).await;
    assert_eq!(
        idle.response().await.header("connection"),
        Some("keep-alive")
    );
    // One that has sent nothing yet was accepted, too.
    let mut fresh = Connection::open(&door.proxy()).await;
    let before = i32::try_from(door.pid()).expect("a small number");
    let _successor = Process(upgrade(&door));
    door.wait_log("the word of the old process", |line| {
        line.contains("a successor serves")
    })
    .await;
    // Its workers hear of it a moment later, until which they answer as before.
    for connection in [&mut idle, &mut fresh] {
        loop {
            connection.send(REQUEST).await;
            let answer = connection.response().await;
            assert_eq!(answer.status, 200);
            if answer.header("connection") == Some("close") {
                break;
            }
        }
    }
    succeeded(&door, before).await;
}

#[tokio::test]
async fn a_successor_that_can_not_start_harms_nothing() {
    let mut door = door().await;
    let before = i32::try_from(door.pid()).expect("a small number");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("bound");
    for (wrong, by_signal) in [
        ("listen: [nowhere]".to_owned(), true),
        ("listen: [nowhere]".to_owned(), false),
        (format!("listen: [\"@PROXY@\", \"{taken}\"]"), true),
        (format!("listen: [\"@PROXY@\", \"{taken}\"]"), false),
    ] {
        let right = "listen: [\"@PROXY@\"]";
        door.edit("doorward.yaml", right, &wrong);
        door.clear_log();
        if by_signal {
            door.signal("USR2");
            door.wait_log("the end of the successor", |line| {
                line.contains("the successor has ended")
            })
            .await;
        } else {
            let status = upgrade(&door).wait().expect("it ends");
            assert_eq!(status.code(), Some(2));
        }
        if wrong.contains("@PROXY@") {
            door.wait_log("the word of the old process", |line| {
                line.contains("the successor ended before it was ready")
            })
            .await;
        }
        assert_eq!(serving(&door).await, Some(before));
        door.get("a", "/").await.expect(200);
        door.edit("doorward.yaml", &wrong, right);
    }
    let _successor = Process(upgrade(&door));
    succeeded(&door, before).await;
    door.get("a", "/").await.expect(200);
    assert!(door.wait_exit().await.success());
}

#[tokio::test]
async fn an_upgrade_of_nothing_is_a_start() {
    let mut door = Setup::new().services(MIRROR).lay_out();
    door.spawn_as(&["run", "--upgrade", "-c", "doorward.yaml"]);
    door.until_ready().await;
    let says_so = |line: &str| line.contains("there is none to relieve");
    door.wait_log("a warning", says_so).await;
    door.get("a", "/").await.expect(200);
}

#[tokio::test]
async fn listeners_on_files_are_taken_over_and_removed_addresses_let_go() {
    let door = Setup::new()
        .proxy(r#"{listen: ["@PROXY@", "unix:@DIR@/proxy.sock"], workers: 2}"#)
        .services(MIRROR)
        .start()
        .await;
    let before = i32::try_from(door.pid()).expect("a small number");
    let file = std::fs::metadata(door.path("proxy.sock")).expect("a socket");
    let _first = Process(upgrade(&door));
    let now = succeeded(&door, before).await;
    let same = std::fs::metadata(door.path("proxy.sock")).expect("a socket");
    let inode = std::os::unix::fs::MetadataExt::ino;
    assert_eq!(inode(&file), inode(&same));
    std::os::unix::net::UnixStream::connect(door.path("proxy.sock")).expect("it listens");
    // A file that somebody has removed is there again, or nobody would find it.
    std::fs::remove_file(door.path("proxy.sock")).expect("removed");
    let _second = Process(upgrade(&door));
    let now = succeeded(&door, now).await;
    std::os::unix::net::UnixStream::connect(door.path("proxy.sock")).expect("it listens");
    door.edit("doorward.yaml", ", \"unix:@DIR@/proxy.sock\"", "");
    let _third = Process(upgrade(&door));
    succeeded(&door, now).await;
    door.get("a", "/").await.expect(200);
    std::os::unix::net::UnixStream::connect(door.path("proxy.sock")).expect_err("nobody listens");
}
