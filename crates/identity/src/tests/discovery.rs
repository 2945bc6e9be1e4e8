use serde_json::json;

use crate::testing::{Provider, config, request};

#[tokio::test]
async fn metadata_is_found_in_every_form_and_names_one_issuer() {
    let provider = Provider::new().await;
    let alpha = "http://localhost:8000/oauth2/realms/root/realms/alpha";
    for (path, issuer) in [
        (
            "/oauth2/.well-known/openid-configuration",
            "http://localhost:8000/oauth2",
        ),
        (
            "/oauth2/realms/root/.well-known/openid-configuration",
            "http://localhost:8000/oauth2",
        ),
        (
            "/.well-known/oauth-authorization-server/oauth2",
            "http://localhost:8000/oauth2",
        ),
        (
            "/.well-known/openid-configuration/oauth2",
            "http://localhost:8000/oauth2",
        ),
        (
            "/oauth2/realms/root/realms/alpha/.well-known/openid-configuration",
            alpha,
        ),
        (
            "/oauth2/realms/alpha/.well-known/openid-configuration",
            alpha,
        ),
        ("/oauth2/alpha/.well-known/openid-configuration", alpha),
        (
            "/.well-known/oauth-authorization-server/oauth2/realms/root/realms/alpha",
            alpha,
        ),
        (
            "/oauth2/realms/root/realms/alpha/.well-known/oauth-authorization-server",
            alpha,
        ),
    ] {
        // A Host of the client's choice shapes nothing.
        let answer = provider
            .send(request("GET", path, &[("host", "evil.example")], ""))
            .await;
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.header("content-type"), "application/json");
        let body = answer.json();
        assert_eq!(body["issuer"], issuer, "{path}");
        assert_eq!(body["token_endpoint"], format!("{issuer}/access_token"));
        assert_eq!(body["jwks_uri"], format!("{issuer}/connect/jwk_uri"));
        assert!(!answer.text.contains("evil"));
    }
    let unknown = provider
        .get("/oauth2/realms/nope/.well-known/openid-configuration")
        .await;
    assert_eq!(unknown.oauth_error().2, "Invalid realm, nope");
    assert_eq!(
        provider
            .get("/.well-known/openid-configuration")
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn a_base_url_with_a_path_prefixes_everything() {
    let mut config = config();
    config["base_url"] = json!("https://id.example/am/");
    let provider = Provider::with(config).await;
    for path in [
        "/am/oauth2/.well-known/openid-configuration",
        "/.well-known/oauth-authorization-server/am/oauth2",
        "/am/oauth2/.well-known/oauth-authorization-server",
        "/oauth2/.well-known/openid-configuration",
    ] {
        let body = provider.get(path).await.json();
        assert_eq!(body["issuer"], "https://id.example/am/oauth2", "{path}");
    }
}

#[tokio::test]
async fn what_is_advertised_answers() {
    let provider = Provider::new().await;
    let metadata = provider
        .get("/oauth2/.well-known/openid-configuration")
        .await
        .json();
    for (name, value) in metadata.as_object().expect("an object") {
        if name.ends_with("_endpoint") || name.ends_with("_uri") {
            let url = value.as_str().expect("a URL");
            let path = url.strip_prefix("http://localhost:8000").expect("our own");
            assert_ne!(provider.get(path).await.status, 404, "{name}");
        }
    }
}

#[tokio::test]
async fn the_key_set_has_the_keys_of_both_tokens() {
    let provider = Provider::new().await;
    let answer = provider.get("/oauth2/realms/root/connect/jwk_uri").await;
    assert_eq!(answer.header("cache-control"), "public, max-age=900");
    let body = answer.json();
    let keys = body["keys"].as_array().expect("keys");
    let mut algs: Vec<_> = keys.iter().filter_map(|key| key["alg"].as_str()).collect();
    algs.sort_unstable();
    assert_eq!(algs, ["ES256", "RS256"]);
}

#[tokio::test]
async fn head_makes_no_code_and_signs_nobody_in_or_out() {
    let provider = Provider::new().await;
    for path in [
        "/oauth2/authorize?client_id=app&response_type=code",
        "/oauth2/realms/root/realms/alpha/authorize",
        "/oauth2/authorize/login",
        "/oauth2/account",
        "/oauth2/connect/endSession",
        "/oauth2/device/user",
        "/oauth2/federation/corp",
        "/oauth2/federation/corp/callback?code=a&state=b",
    ] {
        for accept in ["*/*", "text/html"] {
            let head = request("HEAD", path, &[("accept", accept)], "");
            let head = provider.send(head).await;
            assert_eq!(
                (head.status.as_u16(), head.text.as_str()),
                (405, ""),
                "{path}"
            );
            let allow = head.header("allow");
            assert!(
                allow.contains("GET") && !allow.contains("HEAD"),
                "{path}: {allow}"
            );
        }
    }
}

#[tokio::test]
async fn head_is_get_without_a_body() {
    let provider = Provider::new().await;
    let path = "/oauth2/.well-known/openid-configuration";
    let length = provider.get(path).await.text.len();
    let head = provider.send(request("HEAD", path, &[], "")).await;
    assert_eq!((head.status.as_u16(), head.text.as_str()), (200, ""));
    assert_eq!(head.header("content-length"), length.to_string());
}
