//! Nodes on one store whose clocks differ.

use serde_json::json;

use crate::testing::{PASSWORD_GRANT, Provider, START_MS};
use doorward_core::jose::claims::CLOCK_SKEW;

const INTROSPECT: &str = "/oauth2/introspect";

fn about(token: &str) -> String {
    format!("client_id=app&client_secret=app-secret&token={token}")
}

#[tokio::test]
async fn a_token_of_a_node_that_is_ahead_is_good_everywhere() {
    let ahead = Provider::new().await;
    for (behind_s, active) in [(1, true), (CLOCK_SKEW, true), (CLOCK_SKEW + 1, false)] {
        // The keys that it signs with are in the store before the other starts.
        let tokens = ahead.user_tokens("openid+profile").await;
        let node = ahead.node(START_MS - behind_s * 1000).await;
        let token = tokens["access_token"].as_str().expect("a token");
        let told = node.form(INTROSPECT, &about(token)).await;
        assert_eq!(told.json()["active"], active, "{behind_s} s: {}", told.text);
        let status = if active { 200 } else { 401 };
        let info = format!("/oauth2/tokeninfo?access_token={token}");
        assert_eq!(node.get(&info).await.status, status);
        assert_eq!(
            node.get_with("/oauth2/userinfo", token).await.status,
            status
        );
        let id_token = tokens["id_token"].as_str().expect("a token");
        let form = format!("client_id=app&client_secret=app-secret&id_token={id_token}");
        let told = node.form("/oauth2/idtokeninfo", &form).await;
        assert_eq!(told.status == 200, active, "{behind_s} s: {}", told.text);
    }
}

#[tokio::test]
async fn a_node_before_the_time_of_the_first_key_starts_and_signs() {
    let first = Provider::new().await;
    for behind_ms in [1000, 86_400_000] {
        let node = first.node(START_MS - behind_ms).await;
        let answer = node.token(&format!("{PASSWORD_GRANT}&scope=openid")).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let tokens = answer.json();
        let own = node.get("/oauth2/connect/jwk_uri").await.json();
        // The first one may still be making a spare key.
        let keys = &first.identity.state.keys;
        keys.reload().await.expect("the keys of the store");
        for name in ["access_token", "id_token"] {
            let claims = first.claims(tokens[name].as_str().expect("a token"));
            assert_eq!(claims["sub"], "demo");
        }
        let shared = first.get("/oauth2/connect/jwk_uri").await.json();
        let shared = shared["keys"].as_array().expect("a list");
        let own = own["keys"].as_array().expect("a list");
        assert!(!own.is_empty());
        let of_all = own.iter().all(|key| shared.contains(key));
        assert!(of_all, "no node makes keys of its own");
    }
}

#[tokio::test]
async fn a_client_of_a_node_that_is_ahead_gets_tokens_that_are_good() {
    let ahead = Provider::new().await;
    let body = json!({"client_id": "new", "client_secret": "new-secret",
        "grant_types": ["client_credentials"], "scope": "a"});
    let made = ahead.manage("POST", "/clients", &body).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let node = ahead.node(START_MS - 2000).await;
    let form = "grant_type=client_credentials&client_id=new&client_secret=new-secret&scope=a";
    let token = node.token(form).await.json();
    let token = token["access_token"].as_str().expect("a token");
    for provider in [&node, &ahead] {
        let told = provider.form(INTROSPECT, &about(token)).await;
        // Of another client; its own asks.
        assert_eq!(told.json()["active"], false);
        let own = format!("client_id=new&client_secret=new-secret&token={token}");
        let told = provider.form(INTROSPECT, &own).await;
        assert_eq!(told.json()["active"], true, "{}", told.text);
    }
}
