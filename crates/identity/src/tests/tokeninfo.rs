use serde_json::{Value, json};

use crate::testing::{PASSWORD_GRANT, Provider, request};

const PATH: &str = "/oauth2/realms/root/tokeninfo";

fn text<'a>(body: &'a Value, name: &str) -> &'a str {
    body[name].as_str().expect("a text")
}

#[tokio::test]
async fn the_claims_come_back_with_token_and_scopes() {
    let provider = Provider::new().await;
    let tokens = provider.user_tokens("openid+profile").await;
    let token = text(&tokens, "access_token");
    provider.clock.advance(10_000);
    for path in [
        PATH,
        "/oauth2/tokeninfo",
        "/oauth2/realms/root/realms/alpha/tokeninfo",
    ] {
        let answer = provider.get(&format!("{path}?access_token={token}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(answer.header("cache-control"), "no-cache, no-store");
        let mut body = answer.json();
        let members = body.as_object_mut().expect("an object");
        assert_eq!(members.remove("access_token"), Some(json!(token)));
        assert_eq!(members.remove("openid"), Some(json!("")));
        assert_eq!(members.remove("profile"), Some(json!("")));
        assert_eq!(
            members.insert("expires_in".to_owned(), json!(3600)),
            Some(json!(3589))
        );
        assert_eq!(body, provider.claims(token));
    }
    let by_header = provider.get_with(PATH, token).await;
    assert_eq!(by_header.status, 200);
}

#[tokio::test]
async fn an_opaque_token_says_the_same() {
    let provider = Provider::new().await;
    let body = "grant_type=client_credentials&client_id=opaque&client_secret=app-secret&scope=a";
    let tokens = provider.token(body).await.json();
    let token = text(&tokens, "access_token");
    assert_eq!(token.len(), 27);
    let info = provider
        .get(&format!("{PATH}?access_token={token}"))
        .await
        .json();
    for (name, value) in [
        ("access_token", json!(token)),
        ("client_id", json!("opaque")),
        ("grant_type", json!("client_credentials")),
        ("realm", json!("/")),
        ("scope", json!(["a"])),
        ("a", json!("")),
        ("token_type", json!("Bearer")),
        ("expires_in", json!(3599)),
    ] {
        assert_eq!(info[name], value, "{name}");
    }
    provider.clock.advance(3_600_000);
    assert_eq!(provider.get_with(PATH, token).await.status, 401);
}

#[tokio::test]
async fn a_token_that_is_not_good_is_refused_without_a_reason() {
    let provider = Provider::new().await;
    let tokens = provider.user_tokens("openid").await;
    let good = text(&tokens, "access_token").to_owned();
    let (signed, _) = good.rsplit_once('.').expect("three parts");
    let refused = async |token: &str| {
        let answer = provider.get(&format!("{PATH}?access_token={token}")).await;
        let (status, error, description) = answer.oauth_error();
        assert_eq!((status, error.as_str()), (401, "invalid_token"), "{token}");
        assert_eq!(
            description,
            "The access token provided is expired, revoked, malformed, or invalid for other reasons."
        );
        assert!(answer.header("www-authenticate").starts_with("Bearer"));
    };
    for bad in [
        "",
        "junk",
        "a.b.c",
        &format!("{signed}."),
        &format!("{signed}.AAAA"),
    ] {
        refused(bad).await;
    }
    // An ID token and a refresh token are no access tokens.
    refused(text(&tokens, "id_token")).await;
    refused(text(&tokens, "refresh_token")).await;
    assert_eq!(provider.get(PATH).await.status, 401);
    provider.clock.advance(3_599_500);
    refused(&good).await;
}

#[tokio::test]
async fn two_tokens_at_once_are_refused() {
    let provider = Provider::new().await;
    let token = provider.client_token().await;
    let answer = provider
        .get_with(&format!("{PATH}?access_token={token}"), &token)
        .await;
    assert_eq!(
        answer.oauth_error(),
        (
            400,
            "invalid_request".to_owned(),
            "Access Token cannot be provided in both query and header".to_owned()
        )
    );
    let twice = provider
        .get(&format!("{PATH}?access_token={token}&access_token={token}"))
        .await;
    assert_eq!(twice.oauth_error().1, "invalid_request");
    let post = provider.send(request("POST", PATH, &[], "")).await;
    assert_eq!((post.status.as_u16(), post.header("allow")), (405, "GET"));
}

#[tokio::test]
async fn a_token_dies_with_its_grant_its_client_and_its_user() {
    let provider = Provider::new().await;
    let tokens = provider.user_tokens("openid").await;
    let token = text(&tokens, "access_token").to_owned();
    let claims = provider.claims(&token);
    let status = async |token: &str| provider.get_with(PATH, token).await.status.as_u16();
    assert_eq!(status(&token).await, 200);
    let revoked = provider.identity.state.revoke_grant(
        text(&claims, "authGrantId"),
        provider.clock.now_ms(),
        None,
    );
    revoked.await.expect("revoked");
    assert_eq!(status(&token).await, 401);

    let users = provider.user_tokens("openid").await;
    let clients = provider.client_token().await;
    let mut config = crate::testing::config();
    config["realms"]["/"]["users"][0]["accountStatus"] = json!("Deactivated");
    let reload = async |config: &Value| {
        let config = serde_json::from_value(config.clone()).expect("a configuration");
        provider.identity.reload(config).await.expect("reloaded");
    };
    reload(&config).await;
    assert_eq!(status(text(&users, "access_token")).await, 401);
    assert_eq!(status(&clients).await, 200);
    config["realms"]["/"]["clients"] = json!([]);
    reload(&config).await;
    assert_eq!(status(&clients).await, 401);
}

#[tokio::test]
async fn a_token_of_a_deleted_user_is_not_one_of_the_next_user_of_that_name() {
    let provider = Provider::new().await;
    let record = json!({"userName": "carol"});
    let mut carol = crate::new_user("/", record.as_object().expect("an object")).expect("a user");
    carol.password_hash = Some(
        crate::hash_blocking(
            &doorward_core::model::secret::Secret::new("correct horse"),
            &crate::config::HashingConfig::default(),
        )
        .expect("a hash"),
    );
    carol.created_ms = provider.clock.now_ms();
    provider
        .store
        .insert_user(&carol, None)
        .await
        .expect("inserted");
    for client in ["app", "opaque"] {
        let grant = PASSWORD_GRANT
            .replace("demo", "carol")
            .replace("client_id=app", &format!("client_id={client}"));
        let answer = provider.token(&format!("{grant}&scope=openid")).await;
        let tokens = answer.json();
        let token = text(&tokens, "access_token").to_owned();
        assert_eq!(provider.get_with(PATH, &token).await.status, 200);
        assert!(
            provider
                .store
                .delete_user(carol.id, None, provider.clock.now_ms(), None)
                .await
                .expect("deleted")
        );
        assert_eq!(provider.get_with(PATH, &token).await.status, 401);
        // Within the same millisecond even.
        carol.id = doorward_core::clock::random_uuid();
        provider
            .store
            .insert_user(&carol, None)
            .await
            .expect("inserted");
        assert_eq!(provider.get_with(PATH, &token).await.status, 401);
    }
}

#[tokio::test]
async fn a_token_of_a_deleted_client_is_not_one_of_the_next_client_of_that_name() {
    let provider = Provider::new().await;
    let token = provider.client_token().await;
    let reload = async |config: &Value| {
        let config = serde_json::from_value(config.clone()).expect("a configuration");
        provider.identity.reload(config).await.expect("reloaded");
    };
    let full = crate::testing::config();
    let mut none = full.clone();
    none["realms"]["/"]["clients"] = json!([]);
    reload(&none).await;
    assert_eq!(provider.get_with(PATH, &token).await.status, 401);
    provider.clock.advance(1);
    reload(&full).await;
    assert_eq!(provider.get_with(PATH, &token).await.status, 401);
    let new = provider.client_token().await;
    assert_eq!(provider.get_with(PATH, &new).await.status, 200);
}
