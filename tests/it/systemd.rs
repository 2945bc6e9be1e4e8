//! The program under a service manager: what it tells, and the sockets that it gets.

use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::support::ports::Port;
use crate::support::raw::{self, Connection};
use crate::support::{DEADLINE, Door, Setup, Upstream, eventually};
use crate::upgrade::{CLIENTS, client};

/// Restarts under load.
const RESTARTS: usize = 20;

/// A service manager that is told things.
struct Manager {
    socket: UnixDatagram,
    _directory: tempfile::TempDir,
}

impl Manager {
    fn new() -> (Self, String) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_read_timeout(Some(DEADLINE)).expect("a limit");
        let path = path.to_str().expect("UTF-8").to_owned();
        let manager = Self {
            socket,
            _directory: directory,
        };
        (manager, path)
    }

    /// The next message that has this line; others are passed over.
    fn message(&self, line: &str) -> Vec<String> {
        let mut buffer = [0; 4096];
        loop {
            let length = self.socket.recv(&mut buffer).expect("a message");
            let text = String::from_utf8_lossy(&buffer[..length]);
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            if lines.iter().any(|one| one == line) {
                return lines;
            }
        }
    }
}

#[tokio::test]
async fn the_service_manager_is_told_what_the_process_does() {
    let (manager, path) = Manager::new();
    let mut door = Setup::new()
        .proxy("{listen: [\"@PROXY@\"], drain_seconds: 5}")
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "300000")
        .start()
        .await;
    let ready = manager.message("READY=1");
    assert!(ready.contains(&"STATUS=serving".to_owned()), "{ready:?}");
    manager.message("WATCHDOG=1");
    door.signal("HUP");
    let reloading = manager.message("RELOADING=1");
    let time = reloading
        .iter()
        .find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
    let time: u64 = time
        .expect("in the same message")
        .parse()
        .expect("a number");
    assert!(time > 0);
    manager.message("READY=1");
    // One that is refused ends the reload too, and says so.
    door.edit("routes.yaml", "services:", "servixes:");
    door.signal("HUP");
    manager.message("RELOADING=1");
    let told = manager.message("READY=1").join("\n");
    assert!(told.contains("the files have errors"), "{told}");
    door.signal("TERM");
    let stopping = manager.message("STOPPING=1");
    let extension = "EXTEND_TIMEOUT_USEC=20000000".to_owned();
    assert!(stopping.contains(&extension), "{stopping:?}");
    assert!(door.wait_exit().await.success());
}

#[tokio::test]
async fn a_service_manager_that_is_gone_changes_nothing() {
    for path in ["/nonexistent/notify", "", "@doorward-nobody"] {
        let setup = Setup::new().env("NOTIFY_SOCKET", path);
        let mut door = setup.env("WATCHDOG_USEC", "x").start().await;
        door.signal("HUP");
        door.signal("TERM");
        assert!(door.wait_exit().await.success(), "{path}");
    }
}

/// A door that has the socket of `listener`, on which `proxy` listens.
async fn with_socket(door: &mut Door, listener: &TcpListener) {
    door.spawn_with_socket(listener);
    door.until_ready().await;
}

#[tokio::test]
async fn a_restart_refuses_no_connection_while_the_manager_keeps_the_socket() {
    let upstream = Upstream::echo().await;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let service = format!(
        "- {{name: web, url: '{}', routes: [{{paths: [/]}}]}}\n",
        upstream.url("")
    );
    let proxy = format!("{{listen: [\"{address}\"], workers: 3}}");
    let mut door = Setup::new().proxy(&proxy).services(&service).lay_out();
    with_socket(&mut door, &listener).await;
    let request = b"GET /p HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";
    for _ in 0..5 {
        let answer = raw::exchange(&address, request).await.expect("an answer");
        assert_eq!(answer.status, 200);
        door.signal("TERM");
        assert!(door.wait_exit().await.success());
        // Nobody runs: who comes now waits for the next.
        let mut waiting = Connection::open(&address).await;
        waiting.send(request).await;
        with_socket(&mut door, &listener).await;
        assert_eq!(waiting.response().await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_restarts_under_load_lose_no_request() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let proxy = format!("{{listen: [\"{address}\"], workers: 2}}");
    let mirror = "- {name: mirror, protocol: internal, host: echo, routes: [{paths: [/]}]}\n";
    let mut door = Setup::new().proxy(&proxy).services(mirror).lay_out();
    with_socket(&mut door, &listener).await;
    let stops = Arc::new(AtomicBool::new(false));
    let served = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| tokio::spawn(client(address.clone(), stops.clone(), served.clone())))
        .collect();
    for _ in 0..RESTARTS {
        // Each process has served before it ends.
        let before = served.load(Ordering::Relaxed);
        eventually("requests", || async {
            (served.load(Ordering::Relaxed) > before + CLIENTS).then_some(())
        })
        .await;
        door.signal("TERM");
        assert!(door.wait_exit().await.success());
        with_socket(&mut door, &listener).await;
    }
    stops.store(true, Ordering::Relaxed);
    for client in clients {
        assert_eq!(client.await.expect("no panic"), None);
    }
}

#[tokio::test]
async fn a_socket_that_nobody_would_accept_from_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let mut door = Setup::new().lay_out();
    door.spawn_with_socket(&listener);
    assert!(!door.wait_exit().await.success());
    let told = format!("hands over a socket on {address}, which no `listen`");
    assert!(door.log_text().contains(&told), "{}", door.log_text());
    // One that is none.
    let (datagram, other) = (std::net::UdpSocket::bind("127.0.0.1:0"), Port::reserve());
    let proxy = format!("{{listen: [\"{}\"]}}", other.authority());
    let mut door = Setup::new().proxy(&proxy).lay_out();
    door.spawn_with_socket(&datagram.expect("a socket"));
    assert!(!door.wait_exit().await.success());
    let told = "the socket 1 that the service manager hands over is no TCP listener";
    assert!(door.log_text().contains(told), "{}", door.log_text());
}

#[test]
fn the_unit_is_as_locked_up_as_the_page_says() {
    let unit = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/deploy/systemd/doorward.service"
    );
    let analysis = std::process::Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--no-pager", unit])
        .output();
    // Where there is no systemd, others look at it.
    let Ok(analysis) = analysis else { return };
    let text = String::from_utf8_lossy(&analysis.stdout).into_owned();
    let level = text.rsplit("exposure level for doorward.service: ").next();
    let level = level.and_then(|rest| rest.split_whitespace().next()?.parse::<f32>().ok());
    assert!(level.expect("a level") <= 1.5, "{text}");
}
