//! A PostgreSQL server that takes what it is told and says nothing.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::watch;

use super::{about_store, add_service, refused_for_now, sign_in};
use crate::stores::postgres::Cluster;
use crate::support::{Door, Setup, Upstream, eventually};

const HEALTH: [&str; 3] = ["health", "-c", "doorward.yaml"];

/// Sends all processes of a server a signal: `STOP` halts them where they are,
/// `CONT` lets them go on.
fn signal(cluster: &Cluster, name: &str) {
    let pid = fs::read_to_string(cluster.directory().join("data/postmaster.pid"));
    let pid = pid.expect("it runs");
    let parent = pid.lines().next().expect("a process");
    // The one first that makes the others.
    kill(name, parent);
    for child in children(parent) {
        kill(name, &child);
    }
}

fn kill(name: &str, pid: &str) {
    let mut kill = Command::new("sh");
    kill.args(["-c", "kill -s \"$0\" \"$1\"", name, pid]);
    // One that has just ended needs none.
    let _ = kill.stderr(Stdio::null()).status().expect("a shell");
}

fn children(parent: &str) -> Vec<String> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let names = all.filter_map(|entry| entry.file_name().into_string().ok());
    let is_child = |pid: &String| {
        let about = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // After the name, which may hold anything: the state, the parent.
        let rest = about.rsplit_once(") ").map(|(_, rest)| rest);
        rest.and_then(|rest| rest.split(' ').nth(1)) == Some(parent)
    };
    names.filter(is_child).collect()
}

/// A way to the server that can go silent: connections stay, new ones are taken,
/// and nothing passes. Those that went through the silence stay dead.
struct Relay {
    silence: watch::Sender<u32>,
    port: u16,
}

impl Relay {
    async fn start(socket: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        // Even: it passes on.
        let silence = watch::Sender::new(0_u32);
        let heard = silence.subscribe();
        let socket = Arc::new(socket);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (mut heard, socket) = (heard.clone(), socket.clone());
                tokio::spawn(async move {
                    let began = *heard.borrow_and_update();
                    if began % 2 == 0 {
                        let Ok(mut server) = UnixStream::connect(&*socket).await else {
                            return;
                        };
                        tokio::select! {
                            _ = copy_bidirectional(&mut client, &mut server) => return,
                            _ = heard.changed() => {}
                        }
                    }
                    // As a black hole does: it neither answers nor ends.
                    std::future::pending::<()>().await;
                    drop(client);
                });
            }
        });
        Self { silence, port }
    }

    fn turn(&self) {
        self.silence.send_modify(|turns| *turns += 1);
    }
}

/// While the server is silent everything is answered, many requests at once.
async fn is_silent(door: &Door) {
    let (status, service, grant, proxied) = tokio::join!(
        about_store(door),
        add_service(door, "refused"),
        sign_in(door),
        door.get("api.test", "/"),
    );
    assert_eq!(status["reachable"], false, "{status}");
    refused_for_now(&service);
    refused_for_now(&grant);
    proxied.expect(200);
    for _ in 0..3 {
        let grants = (0..8).map(|_| sign_in(door));
        let services = (0..8).map(|_| add_service(door, "refused"));
        let all = futures_util::future::join(
            futures_util::future::join_all(grants),
            futures_util::future::join_all(services),
        );
        let (grants, services) = all.await;
        grants.iter().chain(&services).for_each(refused_for_now);
    }
    refused_for_now(&door.admin_get("/status/ready").await);
    assert_eq!(door.run(&HEALTH).status.code(), Some(1));
    let alive = door.run(&[&HEALTH[..], &["--live"]].concat());
    assert_eq!(alive.status.code(), Some(0));
    door.get("api.test", "/").await.expect(200);
}

async fn answers_again(door: &Door, name: &str) {
    eventually("the store to answer again", || async {
        (sign_in(door).await.status == 200).then_some(())
    })
    .await;
    add_service(door, name).await.expect(201);
    assert_eq!(about_store(door).await["reachable"], true);
    door.admin_get("/status/ready").await.expect(200);
}

/// What other nodes change is heard again.
async fn follows(door: &Door, database: &str, name: &str) {
    let other = Setup::new().store(database).start().await;
    add_service(&other, name).await.expect(201);
    eventually("the entity of the other node", || async {
        let answer = door.admin_get(&format!("/services/{name}")).await;
        (answer.status == 200).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL"]
async fn a_server_that_is_halted_hangs_neither_requests_nor_status() {
    let cluster = Cluster::start("");
    let upstream = Upstream::echo().await;
    let door = Setup::new()
        .store(&cluster.database("halted"))
        .start()
        .await;
    door.expose("api", &upstream.url(""), "api.test").await;
    for round in ["one", "two"] {
        signal(&cluster, "STOP");
        is_silent(&door).await;
        signal(&cluster, "CONT");
        answers_again(&door, round).await;
    }
    follows(&door, &cluster.url("halted"), "followed").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL"]
async fn connections_into_a_black_hole_are_given_up_and_new_ones_made() {
    let cluster = Cluster::start("");
    cluster.database("hole");
    let relay = Relay::start(cluster.directory().join(".s.PGSQL.5432")).await;
    let url = format!(
        "postgres://doorward@127.0.0.1:{}/hole?sslmode=disable",
        relay.port
    );
    let upstream = Upstream::echo().await;
    let door = Setup::new().store(&url).start().await;
    door.expose("api", &upstream.url(""), "api.test").await;
    for round in ["one", "two"] {
        relay.turn();
        is_silent(&door).await;
        relay.turn();
        answers_again(&door, round).await;
    }
    follows(&door, &cluster.url("hole"), "followed").await;
}
