use std::fs;

use futures_util::FutureExt as _;
use rustix::process::getpid;

use super::*;
use crate::systemd::InheritedSockets;

/// A listener on a free port, and its address.
fn socket() -> (std::net::TcpListener, String) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    (listener, address)
}

fn connect(file: &Path) -> Predecessor {
    let predecessor = Predecessor::connect(file).expect("no stranger");
    predecessor.expect("a process serves the file")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_gets_the_sockets_and_the_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("doorward.yaml");
    fs::write(&file, "").expect("written");
    assert!(Predecessor::connect(&file).expect("no stranger").is_none());
    let (tcp, address) = socket();
    let path = directory.path().join("proxy.sock");
    let unix = crate::server::unix::listen(&path, 0o600).expect("listening");
    let handed = Handed {
        sockets: vec![tcp.into(), unix.into()],
        lock: Some(fs::File::open(&file).expect("there")),
    };
    let listener = UpgradeListener::bind(&file, handed).expect("a free name");
    let mut succession = listener.start().expect("a thread");
    // Signals drop the wait and begin it anew.
    assert!(succession.successor().now_or_never().is_none());
    // One that ends before it is ready changes nothing.
    connect(&file).receive().expect("all of it");
    let predecessor = connect(&file);
    let handed = predecessor.receive().expect("all of it");
    assert!(handed.lock.is_some() && handed.sockets.len() == 2);
    let inherited = InheritedSockets::of_predecessor(handed.sockets);
    let mut inherited = inherited.expect("sockets");
    let shared = inherited.share(&address, 0).expect("there");
    assert_eq!(
        shared
            .and_then(|it| it.local_addr())
            .ok()
            .map(|own| own.to_string()),
        Some(address)
    );
    assert!(inherited.has_unix(&path) && inherited.take_unix(&path).is_some());
    inherited.all_claimed().expect("all are taken");
    predecessor.relieve().expect("it leaves");
    let pid = succession.successor().await;
    assert_eq!(pid, getpid().as_raw_nonzero().get());
    assert!(succession.successor().now_or_never().is_none());
    UpgradeListener::bind(&file, Handed::default()).expect("the name is free");
}

#[test]
fn a_process_that_stops_hands_over_nothing() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let (tcp, _) = socket();
    let handed = Handed {
        sockets: vec![tcp.into()],
        lock: None,
    };
    let listener = UpgradeListener::bind(file.path(), handed).expect("a free name");
    let succession = listener.start().expect("a thread");
    succession.end();
    let refused = connect(file.path()).receive().expect_err("nothing");
    assert!(matches!(refused, UpgradeError::Stopping), "{refused}");
}

#[test]
fn a_path_has_one_name_wherever_it_leads() {
    let directory = tempfile::tempdir().expect("a directory");
    let [one, other, current] = ["r1", "r2", "current"].map(|name| directory.path().join(name));
    let file = current.join("doorward.yaml");
    std::os::unix::fs::symlink(&one, &current).expect("a link");
    let before = name(&file);
    fs::remove_file(&current).expect("removed");
    std::os::unix::fs::symlink(&other, &current).expect("a link");
    assert_eq!(name(&file), before);
    let here = std::env::current_dir().expect("a directory");
    assert_eq!(name(Path::new("./a.yaml")), name(&here.join("a.yaml")));
    assert_ne!(name(Path::new("a.yaml")), name(Path::new("b.yaml")));
}

#[test]
fn what_is_no_number_of_sockets_is_refused() {
    let (one, mut other) = std::os::unix::net::UnixStream::pair().expect("a pair");
    io::Write::write_all(&mut other, b"HTTP/1.1 400").expect("written");
    let refused = transfer::receive(&one).expect_err("no sockets");
    assert!(matches!(refused, UpgradeError::Io(_)), "{refused}");
    let (one, mut other) = std::os::unix::net::UnixStream::pair().expect("a pair");
    io::Write::write_all(&mut other, &[0, 0, 0, 1, b'S']).expect("written");
    let refused = transfer::receive(&one).expect_err("no socket comes with it");
    assert!(matches!(refused, UpgradeError::Io(_)), "{refused}");
}
