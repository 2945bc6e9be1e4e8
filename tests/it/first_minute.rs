//! The first minute: a door without a file, one from flags alone, the files to
//! begin with, and what a browser sees.

use serde_json::{Value, json};

use crate::support::{Door, Setup, Upstream, eventually, http};

/// What follows `name` on its line of the hints.
fn hint(text: &str, name: &str) -> String {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(name));
    let line = line.unwrap_or_else(|| panic!("no {name} in {text}"));
    line.trim().to_owned()
}

/// What the program says when it runs with `arguments`, and its exit status.
fn said(door: &Door, arguments: &[&str]) -> (i32, String) {
    let output = door.run(arguments);
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (
        output.status.code().expect("it ended by itself"),
        text.concat(),
    )
}

/// The port of `address`.
fn port(address: &str) -> String {
    let (_, port) = address.rsplit_once(':').expect("a port");
    port.to_owned()
}

async fn hints_are_printed(door: &Door) {
    door.wait_log("the hints", |line| line.contains("Ctrl-C stops"))
        .await;
}

async fn get(url: &str) -> (u16, String) {
    let answer = http::client().get(url).send().await.expect("an answer");
    (
        answer.status().as_u16(),
        answer.text().await.expect("a body"),
    )
}

async fn get_as(url: &str, user: &str, password: &str) -> (u16, String) {
    let request = http::client().get(url).basic_auth(user, Some(password));
    let answer = request.send().await.expect("an answer");
    (
        answer.status().as_u16(),
        answer.text().await.expect("a body"),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_door_for_development_needs_no_file_and_its_hints_are_true() {
    let mut door = Setup::new().lay_out();
    let (port, admin_port) = (port(&door.proxy()), port(&door.admin()));
    door.spawn_as(&[
        "start-dev",
        "--dir",
        "dev",
        "--port",
        &port,
        "--admin-port",
        &admin_port,
    ]);
    door.until_ready().await;
    hints_are_printed(&door).await;
    let log = door.take_log();
    let (ready, hints) = log.split_once("Doorward for development").expect("hints");
    assert!(ready.contains("ready"), "{log}");
    let password = hint(hints, "user     dev");
    let admin = hint(hints, "admin    amadmin");
    assert_eq!(get(&door.proxy_url("/open")).await.0, 200);
    assert_eq!(get(&door.proxy_url("/private")).await.0, 302);
    assert_eq!(
        get_as(&door.proxy_url("/private"), "dev", &password)
            .await
            .0,
        200
    );
    assert_eq!(
        get_as(&door.proxy_url("/private"), "dev", &admin).await.0,
        401
    );
    // Tokens come back meanwhile, so a slow machine may get more than six.
    let mut passed = 0;
    while get(&door.proxy_url("/limited")).await.0 == 200 {
        passed += 1;
        assert!(passed < 1000, "nothing is limited");
    }
    assert!(passed >= 6, "{passed}");
    // The terminal stays readable: what was asked is in a file.
    let shown = door.take_log();
    assert!(!shown.contains("/limited"), "{shown}");
    eventually("the access log", || {
        let logged = std::fs::read_to_string(door.path("dev/access.log"));
        async move { logged.ok()?.contains("/limited").then_some(()) }
    })
    .await;
    door.kill();

    let (status, text) = said(&door, &["start-dev", "--dir", "dev", "--port", "1"]);
    assert_eq!(status, 2, "{text}");
    assert!(text.contains("names the ports"), "{text}");
    door.spawn_as(&["start-dev", "--dir", "dev"]);
    door.until_ready().await;
    hints_are_printed(&door).await;
    assert_eq!(hint(&door.take_log(), "user     dev"), password);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_door_from_flags_proxies_and_limits() {
    let upstream = Upstream::echo().await;
    let mut door = Setup::new().lay_out();
    let to = upstream.address().to_string();
    let (from, admin) = (door.proxy(), door.admin());
    let flags = [
        "--from", &from, "--to", &to, "--admin", &admin, "--rate", "2/1h", "--state", "s",
    ];
    door.spawn_as(&[&["proxy"][..], &flags].concat());
    door.until_ready().await;
    let (status, body) = get(&door.proxy_url("/a?b=c")).await;
    assert_eq!(status, 200);
    let seen: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(seen["target"], "/a?b=c");
    assert_eq!(get(&door.proxy_url("/")).await.0, 200);
    assert_eq!(get(&door.proxy_url("/")).await.0, 429);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_door_from_flags_takes_requests_for_its_hosts_alone() {
    let upstream = Upstream::echo().await;
    let mut door = Setup::new().lay_out();
    let to = upstream.address().to_string();
    let (from, admin) = (door.proxy(), door.admin());
    door.spawn_as(&[
        "proxy", "--from", &from, "--to", &to, "--admin", &admin, "--host", "a.test", "--host",
        "b.test", "--state", "s",
    ]);
    door.until_ready().await;
    for (host, status) in [("a.test", 200), ("b.test", 200), ("c.test", 404)] {
        door.get(host, "/").await.expect(status);
    }
    assert_eq!(upstream.seen().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_door_from_flags_has_users_sign_in() {
    let upstream = Upstream::echo().await;
    let mut door = Setup::new().lay_out();
    let to = upstream.address().to_string();
    let (from, admin) = (door.proxy(), door.admin());
    let flags = [
        "--from", &from, "--to", &to, "--admin", &admin, "--login", "--state", "s",
    ];
    door.spawn_as(&[&["proxy"][..], &flags].concat());
    door.until_ready().await;
    hints_are_printed(&door).await;
    let log = door.take_log();
    let line = hint(&log, "Sign in as");
    let password = line.split_whitespace().last().expect("a password");
    let answer = http::client()
        .get(door.proxy_url("/page"))
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.status(), 302);
    let location = answer.headers()["location"]
        .to_str()
        .expect("text")
        .to_owned();
    let base = format!("http://localhost:{}", port(&door.proxy()));
    assert!(
        location.starts_with(&format!("{base}/oauth2/authorize?")),
        "{location}"
    );
    assert_eq!(upstream.seen().len(), 0);
    let (status, _) = get_as(&door.proxy_url("/page"), "user", password).await;
    assert_eq!(status, 200);
    assert_eq!(
        get_as(&door.proxy_url("/page"), "user", "wrong").await.0,
        401
    );
    // What was written is the operator's alone.
    use std::os::unix::fs::PermissionsExt;
    for file in ["s", "s/secrets.txt", "s/doorward.yaml", "s/routes.yaml"] {
        let mode = door.path(file).metadata().expect(file).permissions().mode();
        assert_eq!(mode & 0o077, 0, "{file}");
    }
}

#[test]
fn flags_that_can_not_be_served_are_said_at_once() {
    let door = Setup::new().lay_out();
    let (status, text) = said(
        &door,
        &["proxy", "--to", "a.test:1", "--to", "https://b.test"],
    );
    assert_eq!(status, 2, "{text}");
    assert!(text.contains("schemes or paths differ"), "{text}");
    let (status, text) = said(&door, &["proxy", "--to", ":1", "--rate", "6 per minute"]);
    assert_eq!(status, 2, "{text}");
    assert!(text.contains("such as 6/10s"), "{text}");
}

#[test]
fn the_files_to_begin_with_are_sound_and_never_overwritten() {
    let door = Setup::new().lay_out();
    for (directory, more) in [("plain", None), ("big", Some("--production"))] {
        let arguments: Vec<&str> = ["init", directory].into_iter().chain(more).collect();
        let (status, text) = said(&door, &arguments);
        assert_eq!(status, 0, "{text}");
        let file = format!("{directory}/doorward.yaml");
        assert!(text.contains(&format!("doorward run -c {file}")), "{text}");
        let (status, text) = said(&door, &["check", "-c", &file]);
        assert_eq!((status, text), (0, format!("{file}: ok\n")));
        let before = std::fs::read_to_string(door.path(&file)).expect("a file");
        let (status, text) = said(&door, &arguments);
        assert_eq!(status, 1, "{text}");
        assert!(text.contains("is there already"), "{text}");
        assert_eq!(
            std::fs::read_to_string(door.path(&file)).expect("a file"),
            before
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_gets_pages_and_a_program_what_it_always_got() {
    let door = Setup::new().start().await;
    let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    let page = async |url: String| {
        let request = http::client().get(url).header("accept", browser);
        request.send().await.expect("an answer")
    };
    let answer = page(door.proxy_url("/")).await;
    assert_eq!(answer.status(), 404);
    assert_eq!(answer.headers()["content-type"], "text/html; charset=utf-8");
    let body = answer.text().await.expect("a page");
    assert!(body.contains("Doorward is running"), "{body}");
    let other = page(door.proxy_url("/other"))
        .await
        .text()
        .await
        .expect("a page");
    assert!(!other.contains("Doorward is running"), "{other}");
    let (status, body) = get(&door.proxy_url("/")).await;
    assert_eq!(status, 404);
    assert!(
        body.starts_with("{\"message\":\"no Route matched"),
        "{body}"
    );

    let name = json!({"name": "mine", "url": "http://127.0.0.1:9"});
    http::client()
        .post(door.admin_url("/services"))
        .json(&name)
        .send()
        .await
        .expect("made");
    let answer = page(door.admin_url("/")).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["content-type"], "text/html; charset=utf-8");
    let body = answer.text().await.expect("a page");
    assert!(body.contains("<b>2</b> services"), "{body}");
    let admin = format!("http://localhost:{}/services", port(&door.admin()));
    assert!(body.contains(&admin), "{body}");
    assert!(
        !body.contains("_URL@") && !body.contains("@VERSION@"),
        "{body}"
    );
    let (_, body) = get(&door.admin_url("/")).await;
    assert!(
        body.contains("\"tagline\":\"Welcome to Doorward\""),
        "{body}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_is_not_told_what_runs_here() {
    // Seen through a proxy on this machine, the client is elsewhere.
    let setup = Setup::new().proxy("{listen: [\"@PROXY@\"], trusted_ips: [\"127.0.0.1\"]}");
    let door = setup.start().await;
    let request = http::client()
        .get(door.proxy_url("/"))
        .header("accept", "text/html");
    let answer = request
        .header("x-real-ip", "192.0.2.7")
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.status(), 404);
    let body = answer.text().await.expect("a body");
    assert!(!body.contains("Doorward is running"), "{body}");
}

/// What a client finds that is given this address of an MCP server: the metadata of
/// that very resource.
async fn mcp_metadata(resource: &str) -> Value {
    let refused = http::send(http::client().post(resource)).await.expect(401);
    let challenge = refused.header("www-authenticate");
    let metadata = challenge.split('"').nth(1).expect("an address");
    let metadata = http::send(http::client().get(metadata)).await.expect(200);
    let metadata = metadata.json();
    assert_eq!(metadata["resource"], *resource);
    metadata
}

#[tokio::test(flavor = "multi_thread")]
async fn a_door_from_flags_lets_clients_of_an_mcp_server_find_the_rest() {
    let upstream = Upstream::echo().await;
    let mut door = Setup::new().lay_out();
    let to = format!("{}/mcp/", upstream.address());
    let (from, admin) = (door.proxy(), door.admin());
    let flags = [
        "--from", &from, "--to", &to, "--admin", &admin, "--login", "--mcp", "--state", "s",
    ];
    door.spawn_as(&[&["proxy"][..], &flags].concat());
    door.until_ready().await;
    hints_are_printed(&door).await;
    let log = door.take_log();
    let base = format!("http://localhost:{}", port(&door.proxy()));
    let resource = hint(&log, "MCP server");
    assert_eq!(resource, format!("{base}/mcp"));
    assert!(
        log.contains(&format!("{resource}  ->  http://{to}")),
        "{log}"
    );

    // The other name of this machine leads to the same provider.
    let by_number = resource.replace("localhost", "127.0.0.1");
    mcp_metadata(&by_number).await;
    let metadata = mcp_metadata(&resource).await;
    // Clients that name no scope of their own ask for all that they find.
    assert_eq!(metadata["scopes_supported"], json!(["openid"]));
    let issuer = metadata["authorization_servers"][0].as_str().expect("one");
    let provider = format!("{issuer}/.well-known/openid-configuration");
    let provider = http::send(http::client().get(provider)).await.expect(200);
    let provider = provider.json();
    assert_eq!(provider["client_id_metadata_document_supported"], true);
    let register = provider["registration_endpoint"].as_str().expect("one");
    let client = json!({"redirect_uris": ["http://127.0.0.1:1/callback"]});
    let register = http::client().post(register).json(&client);
    http::send(register).await.expect(201);

    let secrets = std::fs::read_to_string(door.path("s/secrets.txt")).expect("secrets");
    let secrets: Vec<&str> = secrets.lines().collect();
    let form = [
        ("grant_type", "password"),
        ("client_id", "proxy"),
        ("client_secret", secrets[1]),
        ("username", "user"),
        ("password", secrets[0]),
        ("scope", "openid"),
        ("resource", &by_number),
    ];
    let token = provider["token_endpoint"].as_str().expect("one");
    let token = http::send(http::client().post(token).form(&form)).await;
    let token = token.expect(200).json()["access_token"].clone();
    let call = http::client().post(&resource);
    let call = call.bearer_auth(token.as_str().expect("a token"));
    http::send(call).await.expect(200);
    let last = upstream.last();
    assert_eq!(last.target, "/mcp");
    assert_eq!(last.header("authorization"), None);
}
