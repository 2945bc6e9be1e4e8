use serde_json::{Value, json};

use crate::testing::{Answer, Provider, config};

const APP: &str = "client_id=app&client_secret=app-secret";

async fn ask(provider: &Provider, path: &str, body: &str) -> Answer {
    provider.form(&format!("{path}/idtokeninfo"), body).await
}

fn id_token(tokens: &Value) -> String {
    tokens["id_token"].as_str().expect("an ID token").to_owned()
}

#[tokio::test]
async fn a_client_is_told_what_its_id_token_says() {
    let provider = Provider::new().await;
    let token = id_token(&provider.user_tokens("openid").await);
    let body = format!("{APP}&id_token={token}");
    for path in ["/oauth2", "/oauth2/realms/root", "/oauth2/root"] {
        let answer = ask(&provider, path, &body).await;
        assert_eq!(answer.json(), provider.claims(&token), "{path}");
        assert_eq!(answer.header("cache-control"), "no-store");
    }
    let some = ask(
        &provider,
        "/oauth2",
        &format!("{body}&claims=sub,+aud,phone"),
    )
    .await;
    assert_eq!(some.json(), json!({"sub": "demo", "aud": "app"}));
    let get = provider.get("/oauth2/idtokeninfo").await;
    assert_eq!(get.status, 405);
    assert_eq!(get.oauth_error().1, "method_not_allowed");
}

#[tokio::test]
async fn id_tokens_that_are_not_good_are_refused_alike() {
    let mut config = config();
    config["realms"]["/alpha"]["settings"] = json!({"default_scope": "openid"});
    let provider = Provider::with(config).await;
    let tokens = provider.user_tokens("openid").await;
    let token = id_token(&tokens);
    let access = tokens["access_token"].as_str().expect("an access token");
    let other = "grant_type=password&client_id=opaque&client_secret=app-secret\
        &username=demo&password=correct+horse&scope=openid";
    let foreign = id_token(&provider.token(other).await.json());
    let alpha = "grant_type=password&client_id=app&client_secret=alpha-secret\
        &username=demo&password=alpha+pass";
    let alpha = provider.form("/oauth2/alpha/access_token", alpha).await;
    let alpha = id_token(&alpha.json());
    let broken = format!("{}A", &token[..token.len() - 2]);
    let refused = async |token: &str| {
        let body = format!("{APP}&id_token={token}");
        ask(&provider, "/oauth2", &body).await.oauth_error()
    };
    let text = "The id_token is expired, malformed, or was not issued to this client";
    let wrong = (400, "bad_request".to_owned(), text.to_owned());
    for token in [
        "junk",
        access,
        &foreign,
        &alpha,
        &broken,
        "eyJhbGciOiJub25lIn0.e30.",
    ] {
        assert_eq!(refused(token).await, wrong, "{token}");
    }
    provider.clock.advance(3_600_000);
    assert_eq!(refused(&token).await, wrong, "an expired one");
    let missing = ask(&provider, "/oauth2", APP).await.oauth_error();
    assert_eq!(missing.2, "Missing parameter: id_token");
    let nobody = ask(&provider, "/oauth2", &format!("id_token={token}")).await;
    assert_eq!(nobody.status, 401);
}

#[tokio::test]
async fn a_realm_may_have_id_tokens_without_the_imitated_claims() {
    let mut config = config();
    config["realms"]["/"]["settings"] = json!({"proprietary_claims": false});
    let provider = Provider::with(config).await;
    let body = provider.user_tokens("openid").await;
    let id = provider.claims(body["id_token"].as_str().expect("a token"));
    for claim in ["auditTrackingId", "tokenName", "tokenType", "realm"] {
        assert_eq!(id.get(claim), None, "{claim}");
    }
    assert_eq!((&id["sub"], &id["aud"]), (&json!("demo"), &json!("app")));
    // They are ID tokens all the same.
    let token = body["id_token"].as_str().expect("a token");
    let form = format!("id_token={token}&client_id=app&client_secret=app-secret");
    let told = provider.form("/oauth2/idtokeninfo", &form).await;
    assert_eq!(told.status, 200, "{}", told.text);
    // Access tokens are for the resource servers, which know them so.
    let access = provider.claims(body["access_token"].as_str().expect("a token"));
    assert_eq!(access["tokenName"], "access_token");
}
