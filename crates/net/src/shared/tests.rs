//! Against a real server: gone, slow, back.

use super::testing::{Server, config, free_port, wait_until};
use super::*;
use doorward_core::model::secret::Secret;

const ECHO: &str = "return {tonumber(ARGV[1]), #KEYS}";

async fn echo(redis: &Redis, n: u64) -> Result<Vec<i64>, Unavailable> {
    let script = redis.script(ECHO);
    redis.run(&script, &["k".to_owned()], &[n]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_run_and_survive_a_server_that_forgets_them() {
    let server = Server::start();
    let redis = server.connect(&Metrics::default());
    assert_eq!(echo(&redis, 7).await, Ok(vec![7, 1]));
    let mut flush = redis::cmd("SCRIPT");
    flush.arg("FLUSH");
    assert!(redis.ask(&flush).await.is_ok_and(|answer| answer.is_ok()));
    assert_eq!(echo(&redis, 8).await, Ok(vec![8, 1]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_goes_is_noticed_and_one_that_comes_back_is_used() {
    let metrics = Metrics::default();
    let server = Server::start();
    let port = server.port;
    let redis = server.connect(&metrics);
    assert_eq!(metrics.redis_up().get(), 1);
    assert_eq!(echo(&redis, 6).await, Ok(vec![6, 1]));
    drop(server);
    assert_eq!(echo(&redis, 7).await, Err(Unavailable));
    assert!(!redis.is_up());
    assert_eq!(metrics.redis_up().get(), 0);
    assert_eq!(metrics.redis_failures().get(), 1);
    // It answers at once while there is none.
    assert_eq!(echo(&redis, 7).await, Err(Unavailable));
    let _again = Server::start_on(port);
    wait_until(|| redis.is_up());
    assert_eq!(echo(&redis, 9).await, Ok(vec![9, 1]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_is_noticed_without_a_request_too() {
    let server = Server::start();
    let metrics = Metrics::default();
    let redis = Redis::open(&server.config("500 ms"), &metrics).expect("a Redis");
    wait_until(|| redis.is_up());
    server.freeze(true);
    wait_until(|| !redis.is_up());
    server.freeze(false);
    wait_until(|| redis.is_up());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_yet_holds_nobody_up() {
    let port = free_port();
    let config = config(&format!("redis://127.0.0.1:{port}"), "10 s");
    let redis = Redis::open(&config, &Metrics::default()).expect("a Redis");
    assert_eq!(echo(&redis, 7).await, Err(Unavailable));
    let _server = Server::start_on(port);
    wait_until(|| redis.is_up());
    assert_eq!(echo(&redis, 7).await, Ok(vec![7, 1]));
}

/// The server's answer to a command, as text.
async fn told(redis: &Redis, words: &[&str]) -> String {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    let answer = redis.ask(&command).await.expect("an answer");
    redis::from_redis_value(answer.expect("no error")).expect("a text")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_a_password_and_a_database_of_the_address_are_used() {
    let port = free_port();
    let user = [
        "--user",
        "doorward",
        "on",
        ">open+sesame",
        "~doorward:*",
        "+@all",
    ];
    let listen = ["--port", &port.to_string(), "--user", "default", "off"];
    let server = Server::start_with(port, &[&listen[..], &user[..]].concat());
    let metrics = Metrics::default();
    let by_url = config(
        &format!("redis://doorward:open%2Bsesame@127.0.0.1:{port}/3"),
        "10 s",
    );
    let mut by_keys = config(&format!("redis://127.0.0.1:{port}/3"), "10 s");
    by_keys.username = Some("doorward".to_owned());
    by_keys.password = Some(Secret::new("open+sesame"));
    for config in [by_url, by_keys] {
        let redis = Redis::open(&config, &metrics).expect("a Redis");
        wait_until(|| redis.is_up());
        let client = told(&redis, &["CLIENT", "INFO"]).await;
        assert!(
            client.contains(" db=3 ") && client.contains(" user=doorward "),
            "{client}"
        );
    }
    // Who it is not for does not get in, and is told why.
    let without = Redis::open(&server.config("10 s"), &metrics).expect("a Redis");
    let refused = without.0.connect().await.map(drop);
    assert!(refused.is_err_and(|why| why.contains("NOAUTH")));
}

/// An authority and a certificate of it for 127.0.0.1, as files.
fn certificates(directory: &std::path::Path) -> [std::path::PathBuf; 3] {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new([]).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).expect("an authority");
    let issuer = Issuer::new(params, key);
    let own_key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).expect("a name");
    let own = params.signed_by(&own_key, &issuer).expect("a certificate");
    let write = |name: &str, text: String| {
        let file = directory.join(name);
        std::fs::write(&file, text).expect("a file");
        file
    };
    [
        write("ca.pem", authority.pem()),
        write("own.pem", own.pem()),
        write("key.pem", own_key.serialize_pem()),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_spoken_with_a_server_that_the_authority_vouches_for_and_no_other() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let (ours, foreign) = (tempfile::tempdir(), tempfile::tempdir());
    let (ours, foreign) = (ours.expect("a directory"), foreign.expect("a directory"));
    let [ca, own, key] = certificates(ours.path());
    let [other_ca, ..] = certificates(foreign.path());
    let port = free_port();
    let path = |file: &std::path::Path| file.display().to_string();
    let _server = Server::start_with(
        port,
        &[
            "--port",
            "0",
            "--tls-port",
            &port.to_string(),
            "--tls-cert-file",
            &path(&own),
            "--tls-key-file",
            &path(&key),
            "--tls-ca-cert-file",
            &path(&ca),
            "--tls-auth-clients",
            "no",
        ],
    );
    let mut config = config(&format!("rediss://127.0.0.1:{port}"), "10 s");
    config.ca = Some(ca);
    let metrics = Metrics::default();
    let redis = Redis::open(&config, &metrics).expect("a Redis");
    wait_until(|| redis.is_up());
    assert_eq!(echo(&redis, 7).await, Ok(vec![7, 1]));
    for ca in [Some(other_ca), None] {
        config.ca = ca;
        let redis = Redis::open(&config, &metrics).expect("a Redis");
        let refused = redis.0.connect().await.map(drop);
        assert!(refused.is_err_and(|why| why.to_lowercase().contains("certificate")));
        assert_eq!(echo(&redis, 7).await, Err(Unavailable));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_node_of_a_cluster_is_used_if_it_holds_all_keys() {
    let port = free_port();
    let listen = ["--port", &port.to_string(), "--cluster-enabled", "yes"];
    let _server = Server::start_with(port, &listen);
    let redis = Redis::open(
        &config(&format!("redis://127.0.0.1:{port}"), "10 s"),
        &Metrics::default(),
    );
    let redis = redis.expect("a Redis");
    // Without slots it takes no writes.
    wait_until(|| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    let refused = redis.0.connect().await.map(drop);
    assert!(refused.is_err_and(|why| why.to_lowercase().contains("cluster")));
    assign(port, "0", "16383").await;
    wait_until(|| redis.is_up());
    assert_eq!(echo(&redis, 7).await, Ok(vec![7, 1]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_several_nodes_is_refused_and_the_reason_named() {
    let ports = [free_port(), free_port()];
    let _servers = ports.map(|port| {
        let bus = free_port().to_string();
        let port_ = port.to_string();
        let listen = [
            "--port",
            &port_,
            "--cluster-enabled",
            "yes",
            "--cluster-port",
            &bus,
        ];
        let server = Server::start_with(port, &listen);
        wait_until(|| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        (server, bus)
    });
    assign(ports[0], "0", "8000").await;
    assign(ports[1], "8001", "16383").await;
    let other = ports[1].to_string();
    let meet = ["CLUSTER", "MEET", "127.0.0.1", &other, &_servers[1].1];
    command(ports[0], &meet).await;
    let redis = Redis::open(
        &config(&format!("redis://127.0.0.1:{}", ports[0]), "10 s"),
        &Metrics::default(),
    );
    let redis = redis.expect("a Redis");
    let told = async || redis.0.connect().await.map(drop).err().unwrap_or_default();
    // The nodes need a moment to agree.
    while !told().await.contains("one of 2 nodes of a Redis Cluster") {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!redis.is_up());
    assert_eq!(echo(&redis, 7).await, Err(Unavailable));
}

/// Gives a node of a cluster these slots.
async fn assign(port: u16, from: &str, to: &str) {
    command(port, &["CLUSTER", "ADDSLOTSRANGE", from, to]).await;
}

/// A command on a connection of the test's own.
async fn command(port: u16, words: &[&str]) {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).expect("an address");
    let mut connection = client
        .get_multiplexed_async_connection()
        .await
        .expect("a server");
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    let answer = connection.send_packed_command(&command).await;
    answer.and_then(Value::extract_error).expect("no error");
}

/// Killed without a word while everybody asks it: everybody goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_under_load_leaves_nobody_waiting() {
    let metrics = Metrics::default();
    let server = Server::start();
    let port = server.port;
    let redis = server.connect(&metrics);
    let asking: Vec<_> = (0..32)
        .map(|n| {
            let redis = redis.clone();
            tokio::spawn(async move {
                // Until the first that gets no answer.
                while let Ok(answer) = echo(&redis, n).await {
                    assert_eq!(answer, [i64::try_from(n).expect("small"), 1]);
                }
            })
        })
        .collect();
    drop(server);
    for task in asking {
        task.await
            .expect("it ends without an answer, and without a panic");
    }
    assert!(!redis.is_up());
    let _again = Server::start_on(port);
    wait_until(|| redis.is_up());
    assert_eq!(echo(&redis, 9).await, Ok(vec![9, 1]));
}
