//! Sessions behind the openid-connect plugin with real storages: shared by nodes,
//! killed and restarted, listed and ended.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::net::{TcpStream, UnixStream};

use crate::openid_connect_login::{Browser, CLIENTS};
use crate::support::http::{client, send};
use crate::support::ports::Port;
use crate::support::tls::Authority;
use crate::support::{Door, Setup, Upstream, eventually};

// How long a storage may take is of no interest here: one that is gone refuses.
const PLUGIN: &str = ", client_id: gateway, client_secret: g-secret, \
    session_secret: shared, redirect_uri: ['http://api.test/callback'], \
    logout_uri_suffix: /logout, logout_methods: [GET], display_errors: true, \
    auth_methods: [session, bearer, authorization_code], \
    session_redis_connect_timeout: 10000, session_redis_read_timeout: 10000";

/// A server that keeps sessions, ended when dropped.
pub(crate) struct Server {
    pub(crate) port: Port,
    process: Child,
}

impl Server {
    pub(crate) async fn redis(port: Port) -> Self {
        let number = port.number().to_string();
        let arguments = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
        let mut command = Command::new("redis-server");
        command.args(arguments).args(["--port", &number]);
        Self::run(command.args(["--requirepass", "open-sesame"]), port).await
    }

    pub(crate) async fn memcached(port: Port) -> Self {
        let number = port.number().to_string();
        let mut command = Command::new("memcached");
        command.args(["-l", "127.0.0.1", "-U", "0", "-u", "nobody", "-p", &number]);
        Self::run(&mut command, port).await
    }

    async fn run(command: &mut Command, port: Port) -> Self {
        let server = Self::spawn(command, port);
        let address = server.port.authority();
        eventually("the server to listen", || async {
            TcpStream::connect(&address).await.ok()
        })
        .await;
        server
    }

    /// One that listens at a socket of the file system alone.
    async fn run_at(socket: &str, command: &mut Command) -> Self {
        let server = Self::spawn(command, Port::reserve());
        eventually("the server to listen", || async {
            UnixStream::connect(socket).await.ok()
        })
        .await;
        server
    }

    fn spawn(command: &mut Command, port: Port) -> Self {
        let process = command
            .current_dir(std::env::temp_dir())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server is installed (make deps)");
        Self { port, process }
    }

    /// Ends it; another one may take its place.
    fn stop(mut self) -> Port {
        self.end();
        std::mem::replace(&mut self.port, Port::reserve())
    }

    fn end(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// A door with a service behind the plugin and one beside it on the same host.
pub(crate) async fn door(upstream: &Upstream, issuer: &str, more: &str) -> Door {
    door_that_trusts(None, upstream, issuer, more).await
}

async fn door_that_trusts(
    authority: Option<&Authority>,
    upstream: &Upstream,
    issuer: &str,
    more: &str,
) -> Door {
    let url = upstream.url("");
    let service = format!(
        "- name: api\n  url: {url}\n  routes: [{{hosts: [api.test]}}, \
         {{paths: [/backchannel], strip_path: false}}]\n  plugins:\n  \
         - {{name: openid-connect, config: {{issuer: '{issuer}'{PLUGIN}{more}}}}}\n\
         - name: beside\n  url: {url}\n  routes: [{{hosts: [api.test], paths: [/beside]}}]\n"
    );
    let identity = CLIENTS.replace(
        "          require_consent: false",
        "          backchannel_logout_uri: \"http://@PROXY@/backchannel\"\n          \
         require_consent: false",
    );
    let setup = Setup::new().identity(&identity).services(&service);
    let Some(authority) = authority else {
        return setup.start().await;
    };
    let mut door = setup.env("SSL_CERT_FILE", "ca.pem").lay_out();
    door.write("ca.pem", &authority.pem());
    door.start().await;
    door
}

pub(crate) async fn signed_in(door: &Door) -> Browser<'_> {
    let mut browser = Browser::at(door);
    let answer = browser.sign_in("http://api.test/orders").await.expect(302);
    assert_eq!(answer.header("location"), "http://api.test/orders");
    browser.get("http://api.test/orders").await.expect(200);
    browser
}

pub(crate) fn session(browser: &Browser<'_>) -> String {
    browser.cookies[&("api".to_owned(), "session".to_owned())].clone()
}

async fn is_out(browser: &mut Browser<'_>) -> bool {
    let answer = browser.get("http://api.test/orders").await;
    match answer.status {
        200 => false,
        302 => true,
        other => panic!("{other}: {}", answer.body),
    }
}

/// Sessions live, move between nodes, end, and survive neither the loss of their
/// storage nor let anybody in without it.
async fn lives_and_ends_with(storage: &str, start: impl AsyncFn(Port) -> Server) {
    let (server, upstream) = (start(Port::reserve()).await, Upstream::echo().await);
    let more = |port: u16| {
        format!(
            ", session_storage: {storage}, session_redis_port: {port}, \
             session_redis_password: open-sesame, session_memcached_port: {port}"
        )
    };
    let more = more(server.port.number());
    let one = door(&upstream, "http://@PROXY@/oauth2", &more).await;
    let other = door(&upstream, &one.proxy_url("/oauth2"), &more).await;
    let mut browser = signed_in(&one).await;
    assert_eq!(session(&browser).len(), 41, "a handle");
    assert_eq!(upstream.last().header("cookie").unwrap_or_default(), "");
    browser.get("http://api.test/beside").await.expect(200);
    assert_eq!(upstream.last().header("cookie").unwrap_or_default(), "");
    let mut elsewhere = Browser::at(&other);
    let key = ("api".to_owned(), "session".to_owned());
    elsewhere.cookies.insert(key.clone(), session(&browser));
    assert!(!is_out(&mut elsewhere).await, "nodes share it");
    let mut copy = Browser::at(&one);
    copy.cookies.insert(key.clone(), session(&browser));
    assert!(!is_out(&mut copy).await);
    browser.get("http://api.test/logout").await;
    assert!(is_out(&mut copy).await);
    eventually("the other node to hear of it", || {
        let mut copy = Browser::at(&other);
        copy.cookies.insert(key.clone(), session(&elsewhere));
        async move { is_out(&mut copy).await.then_some(()) }
    })
    .await;

    // Killed under load: refused by name, and never sent to sign in.
    let mut browser = signed_in(&one).await;
    let handle = session(&browser);
    let port = server.stop();
    eventually("requests to be refused", || async {
        let mut browser = Browser::at(&one);
        browser.cookies.insert(key.clone(), handle.clone());
        let answer = browser.get("http://api.test/orders").await;
        assert_ne!(answer.status, 302);
        (answer.status == 500).then_some(())
    })
    .await;
    let answer = browser.get("http://api.test/orders").await.expect(500);
    assert!(
        answer
            .body
            .contains("the storage of sessions does not answer"),
        "{}",
        answer.body
    );
    let _server = start(port).await;
    eventually("it to heal", || async {
        let mut browser = Browser::at(&one);
        browser.cookies.insert(key.clone(), handle.clone());
        let answer = browser.get("http://api.test/orders").await;
        // It is empty: whoever was in signs in again.
        (answer.status == 302).then_some(())
    })
    .await;
    signed_in(&one).await;
    assert!(!one.log_text().contains("open-sesame"));
}

#[tokio::test]
async fn sessions_in_a_redis_live_end_and_are_refused_without_it() {
    lives_and_ends_with("redis", Server::redis).await;
}

#[tokio::test]
async fn sessions_in_a_memcached_live_end_and_are_refused_without_it() {
    lives_and_ends_with("memcached", Server::memcached).await;
}

/// A directory that a server of another user may write to.
fn shared_directory() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().expect("a directory");
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(directory.path(), all).expect("its mode");
    directory
}

/// Whether somebody who shows a handle that was made up is told to sign in, so
/// whether the storage answers.
async fn answers(door: &Door) -> bool {
    let mut browser = Browser::at(door);
    let key = ("api".to_owned(), "session".to_owned());
    let handle = "1AmRvb3J3YXJkLWRvb3J3YXJkLWRvb3J3YXJkLWQx";
    browser.cookies.insert(key, handle.to_owned());
    match browser.get("http://api.test/orders").await.status {
        302 => true,
        500 => false,
        other => panic!("{other}"),
    }
}

/// A browser that was closed has a session again, and no upstream learns how.
async fn closed_and_opened(browser: &mut Browser<'_>, upstream: &Upstream) {
    let key = ("api".to_owned(), "session".to_owned());
    let before = browser.cookies.remove(&key);
    for path in ["/orders", "/beside"] {
        let answer = browser.get(&format!("http://api.test{path}")).await;
        answer.expect(200);
        assert_eq!(upstream.last().header("cookie").unwrap_or_default(), "");
    }
    assert!(browser.cookies.contains_key(&key));
    assert_ne!(browser.cookies.get(&key), before.as_ref());
}

#[tokio::test]
async fn sessions_live_in_a_redis_behind_a_socket_for_its_user_with_a_prefix_in_a_database() {
    let (directory, upstream) = (shared_directory(), Upstream::echo().await);
    let socket = directory.path().join("redis.sock");
    let socket = socket.to_str().expect("UTF-8");
    let mut command = Command::new("redis-server");
    command.args(["--port", "0", "--save", "", "--unixsocket", socket]);
    // This user may touch nothing else.
    let user = "--user gate on >open-sesame ~mine:* +@all --user default off";
    let _server = Server::run_at(socket, command.args(user.split(' '))).await;
    let record = format!(
        ", session_storage: redis, session_remember: true, redis: {{socket: '{socket}', \
         username: gate, password: open-sesame, prefix: mine, database: 3}}"
    );
    let flat = format!(
        ", session_storage: redis, session_remember: true, session_redis_socket: 'unix:{socket}', \
         session_redis_username: gate, session_redis_password: open-sesame, \
         session_redis_prefix: mine"
    );
    for (more, database) in [(record, "3"), (flat, "0")] {
        let door = door(&upstream, "http://@PROXY@/oauth2", &more).await;
        let mut browser = signed_in(&door).await;
        closed_and_opened(&mut browser, &upstream).await;
        let keys = Command::new("redis-cli")
            .args(["-s", socket, "--user", "gate", "--pass", "open-sesame"])
            .args(["-n", database, "keys", "mine:*"])
            .output()
            .expect("the client is installed (make deps)");
        let keys = String::from_utf8_lossy(&keys.stdout).into_owned();
        assert!(keys.contains("mine:"), "{database}: {keys}");
        browser.get("http://api.test/logout").await;
        assert!(is_out(&mut browser).await);
    }
}

#[tokio::test]
async fn sessions_live_in_a_memcached_behind_a_socket_with_a_prefix() {
    let (directory, upstream) = (shared_directory(), Upstream::echo().await);
    let socket = directory.path().join("memcached.sock");
    let socket = socket.to_str().expect("UTF-8");
    let mut command = Command::new("memcached");
    command.args(["-u", "nobody", "-a", "0777", "-s", socket]);
    let _server = Server::run_at(socket, &mut command).await;
    let newer = format!(
        ", session_storage: memcached, session_remember: true, \
         session_memcached_socket: '{socket}', session_memcached_prefix: mine"
    );
    let older = format!(
        ", session_storage: memcache, session_remember: true, \
         session_memcache_socket: 'unix:{socket}', session_memcache_prefix: "
    );
    let issuer = "http://@PROXY@/oauth2";
    let one = door(&upstream, issuer, &newer).await;
    let mut browser = signed_in(&one).await;
    closed_and_opened(&mut browser, &upstream).await;
    let issuer = one.proxy_url("/oauth2");
    for (prefix, shared) in [("mine", true), ("other", false)] {
        let other = door(&upstream, &issuer, &format!("{older}{prefix}")).await;
        let mut elsewhere = Browser::at(&other);
        let key = ("api".to_owned(), "session".to_owned());
        elsewhere.cookies.insert(key, session(&browser));
        assert_eq!(is_out(&mut elsewhere).await, !shared, "{prefix}");
    }
}

#[tokio::test]
async fn sessions_live_in_a_redis_over_tls_that_somebody_vouches_for() {
    let (directory, upstream) = (shared_directory(), Upstream::echo().await);
    let (authority, port) = (Authority::new(), Port::reserve());
    let server = authority.client("localhost");
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("UTF-8").to_owned()
    };
    let (cert, key) = (
        write("cert.pem", &server.cert),
        write("key.pem", &server.key),
    );
    let number = port.number().to_string();
    let mut command = Command::new("redis-server");
    command.args(["--port", "0", "--save", "", "--tls-port", &number]);
    command.args(["--tls-auth-clients", "no", "--tls-cert-file", &cert]);
    command.args(["--tls-key-file", &key]);
    let _server = Server::run(&mut command, port).await;
    let more = |verify: bool| {
        format!(
            ", session_storage: redis, session_redis_host: localhost, session_redis_port: {number}, \
             session_redis_ssl: true, session_redis_ssl_verify: {verify}"
        )
    };
    let issuer = "http://@PROXY@/oauth2";
    let trusting = door_that_trusts(Some(&authority), &upstream, issuer, &more(true)).await;
    signed_in(&trusting).await;
    assert!(answers(&trusting).await);
    // Who vouches is asked in any case, and the operator is told so.
    let stranger = Authority::new();
    let careful = door_that_trusts(Some(&stranger), &upstream, issuer, &more(false)).await;
    assert!(!answers(&careful).await);
    careful
        .wait_log("the warning", |line| {
            line.contains("redis.ssl_verify is false")
        })
        .await;
}

#[tokio::test]
async fn an_operator_lists_and_ends_sessions() {
    let upstream = Upstream::echo().await;
    let door = door(
        &upstream,
        "http://@PROXY@/oauth2",
        ", session_storage: store",
    )
    .await;
    let mut browser = signed_in(&door).await;
    let mut other = signed_in(&door).await;
    let listed = door
        .admin_get("/openid-connect/sessions?size=1")
        .await
        .expect(200);
    let listed: Value = serde_json::from_str(&listed.body).expect("JSON");
    assert_eq!(listed["data"][0]["client_id"], "gateway");
    assert_eq!(listed["data"][0]["user"], "demo");
    let next = listed["next"].as_str().expect("another page");
    let second = door.admin_get(next).await.expect(200);
    let second: Value = serde_json::from_str(&second.body).expect("JSON");
    assert_eq!(second["next"], Value::Null);
    let id = listed["data"][0]["id"].as_str().expect("an id");
    door.admin_get(&format!("/openid-connect/sessions/{id}"))
        .await
        .expect(200);
    door.admin_delete(&format!("/openid-connect/sessions/{id}"))
        .await
        .expect(204);
    door.admin_get(&format!("/openid-connect/sessions/{id}"))
        .await
        .expect(404);
    assert_ne!(is_out(&mut browser).await, is_out(&mut other).await);
    door.admin_delete("/openid-connect/sessions")
        .await
        .expect(400);
    let ended = door
        .admin_delete("/openid-connect/sessions?user=demo")
        .await
        .expect(200);
    assert_eq!(ended.body, "{\"ended\":1}");
    let log = door.admin_get("/audit").await.expect(200);
    assert!(log.body.contains("login.end"), "{}", log.body);
    assert!(is_out(&mut browser).await && is_out(&mut other).await);
}

#[tokio::test]
async fn the_embedded_provider_ends_sessions_by_the_back_channel() {
    for storage in ["cookie", "store"] {
        let upstream = Upstream::echo().await;
        let more =
            format!(", session_storage: {storage}, backchannel_logout_uri_suffix: /backchannel");
        let door = door(&upstream, "http://@PROXY@/oauth2", &more).await;
        let mut browser = signed_in(&door).await;
        door.admin_delete("/identity/sessions?user=demo")
            .await
            .expect(200);
        eventually("the provider to be heard", || async {
            let metrics = door.admin_get("/metrics").await.body;
            metrics.contains("\"provider_logout\"").then_some(())
        })
        .await;
        assert!(is_out(&mut browser).await);
    }
}

#[tokio::test]
async fn a_hundred_requests_at_expiry_make_one_token_call_and_none_fails() {
    for storage in ["cookie", "store"] {
        let upstream = Upstream::echo().await;
        let service = format!(
            "- name: api\n  url: {}\n  routes: [{{hosts: [api.test]}}]\n  plugins:\n  \
             - {{name: openid-connect, config: {{issuer: 'http://@PROXY@/oauth2'{PLUGIN}, \
             session_storage: {storage}}}}}\n",
            upstream.url("")
        );
        let short = "settings: {access_token_lifetime: 12}\n      users:";
        let door = Setup::new()
            .identity(&CLIENTS.replace("users:", short))
            .services(&service)
            .start()
            .await;
        let browser = signed_in(&door).await;
        let mine = browser.cookies.iter();
        let mine = mine.filter(|((host, _), _)| host == "api");
        let mine: Vec<_> = mine
            .map(|((_, name), value)| format!("{name}={value}"))
            .collect();
        let mine = mine.join("; ");
        tokio::time::sleep(Duration::from_secs(13)).await;
        let ask = || {
            let request = client().get(door.proxy_url("/orders"));
            send(request.header("host", "api.test").header("cookie", &mine))
        };
        let answers = futures_util::future::join_all((0..100).map(|_| ask())).await;
        for answer in answers {
            answer.expect(200);
        }
        let log = door.admin_get("/audit?kind=token.issue&size=500").await;
        let issued = log.expect(200).body;
        // The code's, and those of the next tokens.
        let calls = issued.matches("\"event\":\"token.issue\"").count();
        assert_eq!(calls, 2, "{storage}: {issued}");
        // They are of the browser, though the gateway asks.
        let of_browser = issued.matches("\"address\":\"127.0.0.1\"").count();
        assert_eq!(of_browser, 2, "{storage}: {issued}");
    }
}
