//! Attacks on what the program writes down.

use serde_json::Value;

use super::{APP, CALLBACK, ask, code, door, post, text, userinfo};
use crate::support::http::{client, send};

#[tokio::test]
async fn reading_logs_and_metrics_for_secrets() {
    let door = door().await;
    let code = code(&door, "/").await;
    let fields = [
        ("grant_type", "authorization_code"),
        ("code", code.as_str()),
        ("redirect_uri", CALLBACK),
    ];
    let tokens: Value = ask(&door, &fields).await.expect(200).json();
    let access = text(&tokens, "access_token");
    let id_token = text(&tokens, "id_token");
    userinfo(&door, &access).await;
    let path = format!("/oauth2/tokeninfo?access_token={access}");
    door.get("127.0.0.1", &path).await.expect(200);
    let hint = format!("/oauth2/connect/endSession?id_token_hint={id_token}");
    door.get("127.0.0.1", &hint).await;
    for path in ["introspect", "token/revoke"] {
        let fields = [&APP[..], &[("token", access.as_str())]].concat();
        post(&door, path, &fields).await.expect(200);
    }
    // Used again, so that this is warned of.
    ask(&door, &fields).await.expect(400);
    let wrong = [
        ("grant_type", "password"),
        ("username", "demo"),
        ("password", "a-wrong-one"),
    ];
    ask(&door, &wrong).await.expect(400);
    let request = client().post(door.proxy_url("/json/authenticate"));
    let request = request
        .header("x-service-username", "demo")
        .header("x-service-password", "Ch4ng31t-demo");
    let session = text(&send(request).await.expect(200).json(), "tokenId");
    let address = format!(
        "/oauth2/access_token?client_secret={}&password=in-address",
        APP[1].1
    );
    send(client().post(door.proxy_url(&address)))
        .await
        .expect(400);

    door.wait_log("the last request", |line| {
        line.contains("\"POST\"") && line.contains("400")
    })
    .await;
    let metrics = door.admin_get("/metrics").await.expect(200).body;
    let written = format!("{}\n{metrics}", door.log_text());
    let signature = |token: &str| token.rsplit('.').next().expect("a part").to_owned();
    for (what, secret) in [
        ("a password", "Ch4ng31t-demo".to_owned()),
        ("a wrong password", "a-wrong-one".to_owned()),
        ("a password in an address", "in-address".to_owned()),
        ("a client's secret", APP[1].1.to_owned()),
        ("a code", code),
        ("an access token", signature(&access)),
        ("an ID token", signature(&id_token)),
        ("a session", session),
    ] {
        assert!(
            !written.contains(&secret),
            "{what} was written down:\n{written}"
        );
    }
}

#[tokio::test]
async fn reading_the_store_for_tokens() {
    let door = door().await;
    let tokens = super::tokens(&door).await;
    let refresh = text(&tokens, "refresh_token");
    let code = code(&door, "/").await;
    let request = client().post(door.proxy_url("/json/authenticate"));
    let request = request
        .header("x-service-username", "demo")
        .header("x-service-password", "Ch4ng31t-demo");
    let session = text(&send(request).await.expect(200).json(), "tokenId");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(door.path("data")).expect("a directory") {
        all.extend(std::fs::read(entry.expect("an entry").path()).expect("a file"));
    }
    assert!(all.len() > 4096);
    let holds = |what: &str| {
        all.windows(what.len())
            .any(|window| window == what.as_bytes())
    };
    assert!(holds("demo"), "the store was read");
    for secret in [refresh.as_str(), &code, &session, "Ch4ng31t-demo", APP[1].1] {
        assert!(!holds(secret), "{secret} lies open in the store");
    }
}
