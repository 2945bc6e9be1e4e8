//! Plugins that count in a Redis of their own: a real server, which stops and comes
//! back meanwhile.

use std::process::Command;

use crate::support::ports::Port;
use crate::support::redis::RedisServer;
use crate::support::tls::Authority;
use crate::support::{Answer, Door, Reply, Setup, Upstream, eventually, http};

/// A Redis with a user whose keys are those of counters.
struct Redis(RedisServer);

impl Redis {
    fn start() -> Self {
        Self::on(Port::reserve())
    }

    fn on(port: Port) -> Self {
        let number = port.number().to_string();
        let directory = tempfile::tempdir().expect("a directory");
        Self::with(port, directory, &["--port", &number])
    }

    fn with(port: Port, directory: tempfile::TempDir, arguments: &[&str]) -> Self {
        let door = "--user door on >open-sesame ~ratelimit:* ~response-ratelimit:* +@all";
        let watcher = "--user watcher on >open-eyes ~* +@all --user default off";
        let users = door.split(' ').chain(watcher.split(' '));
        let arguments: Vec<_> = users.chain(arguments.iter().copied()).collect();
        Self(RedisServer::start(port, directory, &arguments))
    }

    /// What a command of somebody who sees all keys answers on a database.
    fn ask(&self, database: u8, command: &[&str]) -> String {
        let output = Command::new("redis-cli")
            .args(["-p", &self.0.port.number().to_string(), "--user", "watcher"])
            .args(["--pass", "open-eyes", "--no-auth-warning", "-n"])
            .arg(database.to_string())
            .args(command)
            .output()
            .expect("redis-cli is installed (make deps)");
        String::from_utf8(output.stdout).expect("text")
    }

    async fn until_up(&self) {
        eventually("the Redis answers", || async {
            (self.ask(0, &["PING"]).trim() == "PONG").then_some(())
        })
        .await;
    }
}

const SERVICES: &str = r"
- name: api
  url: @UPSTREAM@
  routes:
  - name: counted
    paths: [/counted]
    plugins:
    - name: rate-limiting
      config:
        hour: 4
        limit_by: ip
        policy: redis
        fault_tolerant: @TOLERANT@
        redis: @REDIS@
  - name: priced
    paths: [/priced]
    plugins:
    - name: response-ratelimiting
      config:
        limits: {video: {hour: 3}}
        limit_by: ip
        policy: redis
        fault_tolerant: @TOLERANT@
        redis: @REDIS@
";

fn services(upstream: &Upstream, record: &str, tolerant: bool) -> String {
    SERVICES
        .replace("@UPSTREAM@", &upstream.url(""))
        .replace("@TOLERANT@", &tolerant.to_string())
        .replace("@REDIS@", record)
}

fn record(redis: &Redis, password: &str) -> String {
    format!(
        "{{host: 127.0.0.1, port: {}, username: door, password: {password}, database: 3, \
         timeout: 10000}}",
        redis.0.port.number()
    )
}

async fn node(redis: &Redis, upstream: &Upstream, tolerant: bool) -> Door {
    let services = services(upstream, &record(redis, "open-sesame"), tolerant);
    Setup::new().services(&services).start().await
}

/// An upstream whose answers cost two.
async fn upstream() -> Upstream {
    let answer = "HTTP/1.1 200 OK\r\nX-Kong-Limit: video=2\r\nContent-Length: 2\r\n\r\n{}";
    Upstream::start(move |_| Reply::Raw(answer.into())).await
}

async fn get(door: &Door, path: &str) -> Answer {
    http::send(http::client().get(door.proxy_url(path))).await
}

fn left(answer: &Answer, name: &str) -> Option<String> {
    let value = answer.headers.get(name)?;
    value.to_str().ok().map(str::to_owned)
}

#[tokio::test]
async fn nodes_count_in_the_database_and_as_the_user_that_the_plugin_names() {
    let (redis, upstream) = (Redis::start(), upstream().await);
    redis.until_up().await;
    let doors = [
        node(&redis, &upstream, false).await,
        node(&redis, &upstream, false).await,
    ];
    for n in 0..4 {
        let answer = get(&doors[n % 2], "/counted").await.expect(200);
        assert_eq!(answer.header("x-ratelimit-limit-hour"), "4");
        let remaining = answer.header("x-ratelimit-remaining-hour");
        assert_eq!(remaining, (3 - n).to_string());
    }
    for door in &doors {
        let refused = get(door, "/counted").await.expect(429);
        assert_eq!(refused.json()["message"], "API rate limit exceeded");
        assert_eq!(
            refused.header("retry-after"),
            refused.header("ratelimit-reset")
        );
    }
    // What an answer costs is counted when it comes: the first two are within the limit.
    let first = get(&doors[0], "/priced").await.expect(200);
    assert_eq!(
        left(&first, "x-ratelimit-remaining-video-hour").as_deref(),
        Some("1")
    );
    assert!(!first.headers.contains_key("x-kong-limit"));
    let second = get(&doors[1], "/priced").await.expect(200);
    assert_eq!(
        left(&second, "x-ratelimit-remaining-video-hour").as_deref(),
        Some("0")
    );
    let third = get(&doors[0], "/priced").await.expect(429);
    assert_eq!(third.body, "");
    // Both are in database 3 and end with their hour, and no caller is named.
    let keys = redis.ask(3, &["KEYS", "*"]);
    let keys: Vec<&str> = keys
        .lines()
        .filter(|key| *key != "ratelimit:probe")
        .collect();
    assert_eq!(keys.len(), 2, "{keys:?}");
    for key in keys {
        assert!(!key.contains("127.0.0.1"), "{key}");
        let life: i64 = redis.ask(3, &["TTL", key]).trim().parse().expect("seconds");
        assert!((1..=3600).contains(&life), "{life}");
    }
    assert_eq!(redis.ask(0, &["DBSIZE"]).trim(), "0");
}

#[tokio::test]
async fn a_redis_that_stops_lets_requests_pass_or_ends_them_as_the_plugin_says() {
    let (redis, upstream) = (Redis::start(), upstream().await);
    redis.until_up().await;
    let tolerant = node(&redis, &upstream, true).await;
    let strict = node(&redis, &upstream, false).await;
    for door in [&tolerant, &strict] {
        let answer = get(door, "/counted").await.expect(200);
        assert!(answer.headers.contains_key("ratelimit-remaining"));
    }
    let port = redis.0.stop();
    for path in ["/counted", "/priced"] {
        for _ in 0..5 {
            let answer = get(&tolerant, path).await.expect(200);
            let told = answer.headers.keys();
            let mut told = told.filter(|name| name.as_str().contains("ratelimit"));
            assert_eq!(told.next(), None);
            let refused = get(&strict, path).await.expect(500);
            assert_eq!(refused.json()["message"], "An unexpected error occurred");
        }
    }
    let redis = Redis::on(port);
    redis.until_up().await;
    for door in [&tolerant, &strict] {
        eventually("requests are counted again", || async {
            let answer = get(door, "/counted").await;
            answer
                .headers
                .contains_key("ratelimit-remaining")
                .then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_wrong_password_is_a_redis_that_does_not_count() {
    let (redis, upstream) = (Redis::start(), upstream().await);
    redis.until_up().await;
    let wrong = |tolerant| services(&upstream, &record(&redis, "guess"), tolerant);
    let door = Setup::new().services(&wrong(false)).start().await;
    get(&door, "/counted").await.expect(500);
    let door = Setup::new().services(&wrong(true)).start().await;
    let answer = get(&door, "/counted").await.expect(200);
    assert!(!answer.headers.contains_key("ratelimit-remaining"));
    assert!(!door.log_text().contains("guess"), "{}", door.log_text());
}

#[tokio::test]
async fn a_redis_behind_tls_counts_where_its_certificate_is_good() {
    let directory = tempfile::tempdir().expect("a directory");
    let authority = Authority::new();
    let server = authority.client("127.0.0.1");
    for (name, text) in [
        ("ca.pem", authority.pem()),
        ("redis.pem", server.cert),
        ("redis.key", server.key),
    ] {
        std::fs::write(directory.path().join(name), text).expect("a file");
    }
    let at = |name: &str| directory.path().join(name).display().to_string();
    let files = ["redis.pem", "redis.key", "ca.pem"].map(at);
    let [cert, key, ca] = files.each_ref().map(String::as_str);
    let port = Port::reserve();
    let number = port.number().to_string();
    let arguments = [
        "--port",
        "0",
        "--tls-port",
        &number,
        "--tls-cert-file",
        cert,
        "--tls-key-file",
        key,
        "--tls-ca-cert-file",
        ca,
        "--tls-auth-clients",
        "no",
    ];
    let redis = Redis::with(port, directory, &arguments);
    let upstream = upstream().await;
    let record =
        record(&redis, "open-sesame").replace("timeout", "ssl: true, ssl_verify: true, timeout");
    let text = services(&upstream, &record, false);
    let mut door = Setup::new()
        .services(&text)
        .env("SSL_CERT_FILE", "ca.pem")
        .lay_out();
    door.write("ca.pem", &authority.pem());
    door.start().await;
    eventually("requests are counted", || async {
        let answer = get(&door, "/counted").await;
        answer
            .headers
            .contains_key("ratelimit-remaining")
            .then_some(())
    })
    .await;
    // Whom nobody has vouched for does not count.
    let mut door = Setup::new()
        .services(&text)
        .env("SSL_CERT_FILE", "ca.pem")
        .lay_out();
    door.write("ca.pem", &Authority::new().pem());
    door.start().await;
    get(&door, "/counted").await.expect(500);
}
