//! Realms: many of them, below each other, and by host name.

use std::fmt::Write;

use serde_json::Value;

use crate::support::http::{client, send};
use crate::support::issuer::claims_of;
use crate::support::{Door, Setup, eventually};

const FAMILY: &str = "
  base_url: http://@PROXY@
  realms:
    /:
      settings: {access_token_lifetime: 100, default_scope: top}
      clients:
        - {client_id: app, client_secret: top, grant_types: [client_credentials], scope: top low}
    /staff:
      hosts: [Login.Staff.example]
      settings: {access_token_lifetime: 200}
      users: [{userName: anna, password: Ch4ng31t-anna}]
      clients:
        - {client_id: app, client_secret: mid, grant_types: [client_credentials], scope: top low}
    /staff/desk:
      settings: {default_scope: low}
      clients:
        - {client_id: app, client_secret: low, grant_types: [client_credentials], scope: top low}
";

fn form(secret: &str) -> [(&'static str, &str); 3] {
    [
        ("grant_type", "client_credentials"),
        ("client_id", "app"),
        ("client_secret", secret),
    ]
}

/// The claims of a token that is asked for on `host` at `path`.
async fn token(door: &Door, host: &str, path: &str, secret: &str) -> Result<Value, u16> {
    let request = client().post(door.proxy_url(path)).header("host", host);
    let answer = send(request.form(&form(secret))).await;
    if answer.status != 200 {
        return Err(answer.status);
    }
    let body = answer.json();
    Ok(claims_of(body["access_token"].as_str().expect("a token")))
}

#[tokio::test]
async fn a_realm_has_the_settings_of_those_above_it() {
    let door = Setup::new().identity(FAMILY).start().await;
    for (path, secret, life, scope) in [
        ("/oauth2/access_token", "top", 100, "top"),
        (
            "/oauth2/realms/root/realms/staff/access_token",
            "mid",
            200,
            "top",
        ),
        ("/oauth2/staff/desk/access_token", "low", 200, "low"),
    ] {
        let claims = token(&door, "any.example", path, secret).await.expect(path);
        assert_eq!(claims["expires_in"], life, "{path}");
        assert_eq!(claims["scope"][0], scope, "{path}");
    }
    // A reload brings new settings to all who inherit them.
    door.edit(
        "doorward.yaml",
        "access_token_lifetime: 200",
        "code_lifetime: 30",
    );
    crate::support::eventually("the inherited setting", || async {
        let path = "/oauth2/staff/desk/access_token";
        let claims = token(&door, "any.example", path, "low").await.ok()?;
        (claims["expires_in"] == 100).then_some(())
    })
    .await;
}

#[tokio::test]
async fn on_its_host_a_path_without_realm_means_the_realm() {
    let door = Setup::new().identity(FAMILY).start().await;
    let path = "/oauth2/access_token";
    let host = "login.staff.example:8000";
    let claims = token(&door, host, path, "mid").await.expect("a token");
    assert_eq!(claims["realm"], "/staff");
    // One issuer, whatever the host.
    let issuer = door.proxy_url("/oauth2/realms/root/realms/staff");
    assert_eq!(claims["iss"], issuer);
    let metadata = door
        .get(
            "login.staff.example",
            "/oauth2/.well-known/openid-configuration",
        )
        .await
        .expect(200)
        .json();
    assert_eq!(metadata["issuer"], issuer);
    assert!(!metadata.to_string().contains("login.staff.example"));
    // Paths that name a realm mean the same everywhere.
    let named = "/oauth2/realms/root/access_token";
    let claims = token(&door, host, named, "top").await.expect("a token");
    assert_eq!(claims["realm"], "/");
    // Other hosts mean the top-level realm, and clients can't choose theirs.
    assert_eq!(token(&door, "evil.example", path, "mid").await, Err(401));
    let forged = client()
        .post(door.proxy_url(path))
        .header("host", "evil.example")
        .header("x-forwarded-host", "login.staff.example");
    send(forged.form(&form("mid"))).await.expect(401);
    // People sign in there, too.
    let anna = client()
        .post(door.proxy_url("/json/authenticate"))
        .header("host", "login.staff.example")
        .header("x-openam-username", "anna")
        .header("x-openam-password", "Ch4ng31t-anna");
    let answer = send(anna).await.expect(200).json();
    assert_eq!(answer["realm"], "/staff");
}

#[tokio::test]
async fn a_host_of_two_realms_is_refused_with_its_line() {
    let door = Setup::new().identity(FAMILY).lay_out();
    door.edit(
        "doorward.yaml",
        "settings: {default_scope: low}",
        "hosts: [login.staff.example.]",
    );
    let check = door.run(&["check", "-c", "doorward.yaml"]);
    let text = String::from_utf8_lossy(&check.stderr).into_owned();
    assert!(!check.status.success());
    let wanted = "identity.realms./staff/desk.hosts[0]: belongs to the realm /staff already";
    assert!(text.contains(wanted), "{text}");
    assert!(text.contains("doorward.yaml:"), "{text}");
}

#[tokio::test]
async fn a_thousand_realms_are_served() {
    let mut section = "\n  base_url: http://@PROXY@\n  realms:\n".to_owned();
    for number in 0..1000 {
        let _ = writeln!(
            section,
            "    /r{number}: {{clients: [{{client_id: app, client_secret: s{number}, \
             grant_types: [client_credentials], scope: a, default_scope: a}}]}}"
        );
    }
    let mut door = Setup::new().identity(&section).start().await;
    for _ in 0..2 {
        for number in [0, 500, 999] {
            let path = format!("/oauth2/r{number}/access_token");
            let secret = format!("s{number}");
            let claims = token(&door, "a.test", &path, &secret)
                .await
                .expect("a token");
            assert_eq!(claims["realm"], format!("/r{number}"));
            assert_eq!(token(&door, "a.test", &path, "s1").await, Err(401));
        }
        door.kill();
        door.start().await;
    }
}

#[tokio::test]
async fn settings_of_the_top_realm_by_rest_and_command_line_are_in_force() {
    let mut door = Setup::new()
        .identity("{base_url: \"http://@PROXY@\"}")
        .start()
        .await;
    let add = [
        "clients",
        "add",
        "app",
        "--grant",
        "client_credentials",
        "--scope",
        "a",
        "--json",
    ];
    let run = |door: &Door, arguments: &[&str]| {
        let output = door.run(&[arguments, &["-c", "doorward.yaml"]].concat());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{error}");
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON")
    };
    let client = run(&door, &add);
    let secret = client["client_secret"]
        .as_str()
        .expect("a secret")
        .to_owned();
    let life = async |door: &Door| {
        let answer = send(client_of(door, &secret)).await.expect(200).json();
        answer["expires_in"].as_u64().expect("a time")
    };
    assert!(life(&door).await > 3000);
    let path = "/identity/realms/root";
    let set = serde_json::json!({"settings": {"access_token_lifetime": 60}});
    let patched = door.admin_json(reqwest::Method::PATCH, path, &set).await;
    let patched = patched.expect(200).json();
    assert_eq!(patched["effective_settings"]["access_token_lifetime"], 60);
    assert!(life(&door).await <= 60);
    door.kill();
    door.start().await;
    assert!(life(&door).await <= 60, "after a restart");
    // What another process writes is in force here soon.
    let update = [
        "realms",
        "update",
        "/",
        "--set",
        "access_token_lifetime=30",
        "--json",
    ];
    let shown = run(&door, &update);
    assert_eq!(shown["effective_settings"]["access_token_lifetime"], 30);
    let (life, door) = (&life, &door);
    eventually("the other setting", || async move {
        (life(door).await <= 30).then_some(())
    })
    .await;
}

fn client_of(door: &Door, secret: &str) -> reqwest::RequestBuilder {
    let form = [
        ("grant_type", "client_credentials"),
        ("client_id", "app"),
        ("client_secret", secret),
        ("scope", "a"),
    ];
    client()
        .post(door.proxy_url("/oauth2/access_token"))
        .form(&form)
}
