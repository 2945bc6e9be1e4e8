//! Guesses of clients' secrets (RFC 6749 §2.3.1).

use crate::support::http::{client, send};
use crate::support::upstream::basic;
use crate::support::{Answer, Door, Setup, eventually};
use futures_util::future::join_all;

/// Wrong secrets that are answered as such, of the default configuration.
const FREE: usize = 20;

async fn ask(door: &Door, path: &str, client_id: &str, secret: &str) -> Answer {
    let form = [
        ("grant_type", "client_credentials"),
        ("scope", "read"),
        ("token", "x"),
    ];
    let request = client().post(door.proxy_url(path)).form(&form);
    send(request.header("authorization", basic(client_id, secret))).await
}

async fn token(door: &Door, client_id: &str, secret: &str) -> Answer {
    ask(door, "/oauth2/access_token", client_id, secret).await
}

/// Brings `count` wrong secrets at once; how many answers say only that.
async fn guess(door: &Door, path: &str, client_id: &str, count: usize) -> usize {
    let guesses = (0..count).map(async |n| ask(door, path, client_id, &format!("wrong {n}")).await);
    let answers = join_all(guesses).await;
    for answer in &answers {
        match answer.status {
            401 => {}
            429 => assert_eq!(answer.header("retry-after"), "1"),
            other => panic!("{other}: {}", answer.body),
        }
    }
    answers.iter().filter(|answer| answer.status == 401).count()
}

/// Waits until the turn is free that the last guess holds.
async fn passes(door: &Door, client_id: &str, secret: &str) {
    eventually("the right secret to pass", || async {
        let answer = token(door, client_id, secret).await;
        (answer.status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_thousand_wrong_secrets_are_braked_and_the_right_one_passes() {
    let door = Setup::new().start().await;
    let mut plain = 0;
    for _ in 0..20 {
        plain += guess(&door, "/oauth2/access_token", "orders", 50).await;
    }
    assert!(
        (FREE - 1..FREE + 50).contains(&plain),
        "{plain} of 1000 are 401"
    );
    passes(&door, "orders", "orders-secret").await;
    // The address has shown the secret now: not even a guess keeps it waiting.
    let more = guess(&door, "/oauth2/access_token", "orders", 20);
    let right = async { token(&door, "orders", "orders-secret").await.expect(200) };
    let (guesses, _) = futures_util::future::join(more, right).await;
    assert_eq!(guesses, 0, "each of them is 429");
    // Others are not concerned.
    token(&door, "other", "other-secret").await.expect(200);
    assert_eq!(token(&door, "other", "wrong").await.status, 401);
    let metrics = door.admin_get("/metrics").await.expect(200).body;
    let counted = "doorward_identity_locks_total{kind=\"client\"} 1";
    assert!(metrics.contains(counted), "{metrics}");
}

#[tokio::test]
async fn every_endpoint_counts_the_same_secret() {
    let door = Setup::new().start().await;
    for path in [
        "/oauth2/introspect",
        "/oauth2/token/revoke",
        "/oauth2/par",
        "/oauth2/device/code",
        "/oauth2/access_token",
    ] {
        for n in 0..4 {
            let answer = ask(&door, path, "orders", &format!("wrong {n}")).await;
            assert_eq!(answer.status, 401, "{path} {n}: {}", answer.body);
        }
    }
    for path in ["/oauth2/introspect", "/oauth2/access_token", "/oauth2/par"] {
        let answer = ask(&door, path, "orders", "wrong").await;
        assert_eq!(answer.status, 429, "{path}: {}", answer.body);
    }
    // An identifier that no client has is answered alike.
    let unknown = guess(&door, "/oauth2/access_token", "nobody", 40).await;
    assert!(unknown < 40);
}

#[tokio::test]
async fn a_brake_holds_after_a_restart_until_it_is_lifted() {
    let mut door = Setup::new().start().await;
    guess(&door, "/oauth2/access_token", "orders", 40).await;
    eventually("the record of the brake", || async {
        let log = door.admin_get("/audit?kind=lockout.begin").await;
        let log = log.expect(200).json();
        (log["data"][0]["details"]["cause"] == "client").then_some(())
    })
    .await;
    door.kill();
    door.start().await;
    let answer = token(&door, "orders", "wrong").await;
    assert_eq!(answer.status, 429, "{}", answer.body);
    let listed = door
        .admin_get("/identity/lockouts")
        .await
        .expect(200)
        .json();
    let brake = &listed["data"][0];
    assert_eq!(brake["kind"], "client");
    assert_eq!(brake["client_id"], "orders");
    assert_eq!(brake["address"], "127.0.0.1");
    let id = brake["id"].as_str().expect("an id");
    door.admin_delete(&format!("/identity/lockouts/{id}"))
        .await
        .expect(204);
    assert_eq!(token(&door, "orders", "wrong").await.status, 401);
}

#[tokio::test]
async fn the_brake_can_be_switched_off() {
    let identity = "
  base_url: http://@PROXY@
  lockout: {per_client: {failures: 0}}
  realms:
    /:
      clients:
        - {client_id: orders, client_secret: s, grant_types: [client_credentials], scope: read}
";
    let door = Setup::new().identity(identity).start().await;
    let plain = guess(&door, "/oauth2/access_token", "orders", 60).await;
    assert_eq!(plain, 60);
}
