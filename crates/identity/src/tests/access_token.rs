mod guesses;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::testing::{FORM, PASSWORD_GRANT, Provider, START_MS, request};
use doorward_core::jose::sign::half_hash;
use doorward_core::jose::verify::Unverified;
use doorward_core::model::client::SignAlg;

const CC: &str = "grant_type=client_credentials&client_id=app&client_secret=app-secret";

fn names(value: &Value) -> Vec<&str> {
    let object = value.as_object().expect("an object");
    let mut names: Vec<_> = object.keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn client_credentials_gives_an_access_token_with_every_claim() {
    let provider = Provider::new().await;
    let answer = provider.token(&format!("{CC}&scope=profile+email")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.header("cache-control"), "no-store");
    assert_eq!(answer.header("pragma"), "no-cache");
    assert!(
        answer
            .header("content-type")
            .starts_with("application/json")
    );
    let body = answer.json();
    assert_eq!(
        names(&body),
        ["access_token", "expires_in", "scope", "token_type"]
    );
    assert_eq!(body["scope"], "profile email");
    assert_eq!(body["token_type"], "Bearer");
    assert_eq!(body["expires_in"], 3599);

    let claims = provider.claims(body["access_token"].as_str().expect("a token"));
    let now = START_MS / 1000;
    for (name, value) in [
        ("sub", json!("app")),
        ("aud", json!("app")),
        ("iss", json!("http://localhost:8000/oauth2")),
        ("cts", json!("OAUTH2_STATELESS_GRANT")),
        ("tokenName", json!("access_token")),
        ("token_type", json!("Bearer")),
        ("grant_type", json!("client_credentials")),
        ("scope", json!(["profile", "email"])),
        ("realm", json!("/")),
        ("expires_in", json!(3600)),
        ("nbf", json!(now)),
        ("iat", json!(now)),
        ("auth_time", json!(now)),
        ("exp", json!(now + 3600)),
    ] {
        assert_eq!(claims[name], value, "{name}");
    }
    assert!(claims.get("auth_level").is_none());
    for name in ["authGrantId", "jti"] {
        assert_eq!(claims[name].as_str().map(str::len), Some(27), "{name}");
    }
    assert!(
        claims["auditTrackingId"]
            .as_str()
            .is_some_and(|id| id.contains('-'))
    );
}

#[tokio::test]
async fn password_gives_all_three_tokens() {
    let provider = Provider::new().await;
    let body = provider.user_tokens("openid+profile").await;
    assert_eq!(
        names(&body),
        [
            "access_token",
            "expires_in",
            "id_token",
            "refresh_token",
            "scope",
            "token_type"
        ]
    );
    let access_token = body["access_token"].as_str().expect("a token");
    let access = provider.claims(access_token);
    assert_eq!(access["sub"], "demo");
    assert_eq!(access["auth_level"], 0);
    assert_eq!(access["grant_type"], "password");
    let id_token = body["id_token"].as_str().expect("a token");
    let parsed = Unverified::parse(id_token).expect("a JWT");
    assert_eq!(
        parsed.algorithm(),
        doorward_core::jose::algorithm::Algorithm::Rs256
    );
    let id = provider.claims(id_token);
    assert_eq!(
        (&id["sub"], &id["aud"], &id["azp"]),
        (&json!("demo"), &json!("app"), &json!("app"))
    );
    assert_eq!(id["iss"], access["iss"]);
    assert_eq!(id["tokenName"], "id_token");
    assert_eq!(id["tokenType"], "JWTToken");
    assert_eq!(id["at_hash"], half_hash(SignAlg::RS256, access_token));
    assert!(id.get("nonce").is_none());
}

#[tokio::test]
async fn every_path_form_of_a_realm_gives_the_same_issuer() {
    let provider = Provider::new().await;
    let alpha =
        "grant_type=client_credentials&client_id=app&client_secret=alpha-secret&scope=openid";
    for (path, body, issuer) in [
        (
            "/oauth2/realms/root/access_token",
            CC,
            "http://localhost:8000/oauth2",
        ),
        (
            "/oauth2/root/access_token",
            CC,
            "http://localhost:8000/oauth2",
        ),
        (
            "/oauth2/realms/root/realms/alpha/access_token",
            alpha,
            "http://localhost:8000/oauth2/realms/root/realms/alpha",
        ),
        (
            "/oauth2/realms/alpha/access_token",
            alpha,
            "http://localhost:8000/oauth2/realms/root/realms/alpha",
        ),
        (
            "/oauth2/alpha/access_token",
            alpha,
            "http://localhost:8000/oauth2/realms/root/realms/alpha",
        ),
    ] {
        let answer = provider
            .form(
                path,
                &format!("{body}&x=1").replace("app-secret", "app-secret&scope=openid"),
            )
            .await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        let claims = provider.claims(answer.json()["access_token"].as_str().expect("a token"));
        assert_eq!(claims["iss"], issuer, "{path}");
    }
    // A realm's clients are its own.
    let answer = provider.form("/oauth2/realms/alpha/access_token", CC).await;
    assert_eq!(answer.oauth_error().1, "invalid_client");
    assert_eq!(answer.header("www-authenticate"), "Basic realm=\"/alpha\"");
}

#[tokio::test]
async fn every_failure_has_its_documented_answer() {
    let provider = Provider::new().await;
    let cases = [
        (
            "client_id=app&client_secret=app-secret",
            400,
            "invalid_request",
            "Grant type is not set",
        ),
        (
            "grant_type=&client_id=app",
            400,
            "invalid_request",
            "Grant type is not set",
        ),
        (
            "grant_type=magic&client_id=app&client_secret=app-secret",
            400,
            "unsupported_grant_type",
            "Grant type is not supported",
        ),
        (
            "grant_type=client_credentials",
            401,
            "invalid_client",
            "Client authentication failed",
        ),
        (
            "grant_type=client_credentials&client_id=nobody&client_secret=x",
            401,
            "invalid_client",
            "Client authentication failed",
        ),
        (
            "grant_type=client_credentials&client_id=app&client_secret=wrong",
            401,
            "invalid_client",
            "Client authentication failed",
        ),
        (
            "grant_type=client_credentials&client_id=app",
            401,
            "invalid_client",
            "Client authentication failed",
        ),
        (
            "grant_type=client_credentials&client_id=basic&client_secret=app-secret",
            401,
            "invalid_client",
            "Invalid authentication method for accessing this endpoint.",
        ),
        (
            "grant_type=client_credentials&client_id=public&scope=a",
            400,
            "unauthorized_client",
            "Public clients can't use client credentials grant.",
        ),
        (
            "grant_type=password&client_id=machine&client_secret=se:cr+et%25%2B",
            400,
            "unauthorized_client",
            "The authenticated client is not authorized to use this authorization grant type.",
        ),
        (
            "grant_type=refresh_token&client_id=machine&client_secret=se:cr+et%25%2B",
            400,
            "unauthorized_client",
            "The authenticated client is not authorized to use this authorization grant type.",
        ),
        (
            "grant_type=password&client_id=app&client_secret=app-secret&password=x",
            400,
            "invalid_request",
            "Missing parameter, 'username'",
        ),
        (
            "grant_type=password&client_id=app&client_secret=app-secret&username=x",
            400,
            "invalid_request",
            "Missing parameter, 'password'",
        ),
        (
            "grant_type=refresh_token&client_id=app&client_secret=app-secret",
            400,
            "invalid_request",
            "Missing parameter, 'refresh_token'",
        ),
        (
            "grant_type=refresh_token&client_id=app&client_secret=app-secret&refresh_token=junk",
            400,
            "invalid_grant",
            "grant is invalid",
        ),
        (
            "grant_type=client_credentials&client_id=app&client_secret=app-secret&scope=openid+x+y",
            400,
            "invalid_scope",
            "Unknown/invalid scope(s): [x, y]",
        ),
        (
            CC,
            400,
            "invalid_scope",
            "No scope requested and no default scope configured",
        ),
        (
            "grant_type=client_credentials&client_id=%zz",
            400,
            "invalid_request",
            "Malformed percent-encoding",
        ),
    ];
    for (body, status, error, text) in cases {
        let answer = provider.token(body).await;
        assert_eq!(
            answer.oauth_error(),
            (status, error.to_owned(), text.to_owned()),
            "{body}"
        );
        assert_eq!(answer.header("cache-control"), "no-store");
        assert_eq!(
            answer.headers.contains_key("www-authenticate"),
            status == 401
        );
    }
}

#[tokio::test]
async fn the_default_scope_is_granted_when_none_is_asked_for() {
    let provider = Provider::new().await;
    let body = "grant_type=client_credentials&client_id=machine&client_secret=se:cr+et%25%2B";
    assert_eq!(provider.token(body).await.json()["scope"], "b");
}

#[tokio::test]
async fn only_form_posts_are_accepted() {
    let provider = Provider::new().await;
    let path = "/oauth2/access_token";
    let answer = provider.get(path).await;
    assert_eq!(
        answer.oauth_error(),
        (
            405,
            "method_not_allowed".to_owned(),
            "Required Method: POST found: GET".to_owned()
        )
    );
    assert_eq!(answer.header("allow"), "POST");
    let json = ("content-type", "application/json");
    for headers in [&[json][..], &[]] {
        let answer = provider.send(request("POST", path, headers, "{}")).await;
        assert_eq!(
            answer.oauth_error(),
            (
                400,
                "invalid_request".to_owned(),
                "Invalid Content Type".to_owned()
            )
        );
    }
    let charset = (
        "content-type",
        "Application/X-WWW-Form-Urlencoded; charset=utf-8",
    );
    let answer = provider
        .send(request(
            "POST",
            path,
            &[charset],
            &format!("{CC}&scope=email"),
        ))
        .await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn credentials_in_the_query_are_refused() {
    let provider = Provider::new().await;
    let path = "/oauth2/access_token?client_id=app&client_secret=app-secret";
    let answer = provider
        .form(path, "grant_type=client_credentials&scope=email")
        .await;
    assert_eq!(answer.oauth_error().1, "invalid_request");
}

#[tokio::test]
async fn a_repeated_parameter_is_refused() {
    let provider = Provider::new().await;
    for twice in [
        "scope=email&scope=openid",
        "client_id=app",
        "x=1&x=2",
        "scope=email&sc%6fpe=x",
    ] {
        let answer = provider.token(&format!("{CC}&{twice}")).await;
        assert_eq!(answer.oauth_error().1, "invalid_request", "{twice}");
    }
}

#[tokio::test]
async fn basic_credentials_are_form_decoded_and_split_at_the_first_colon() {
    let provider = Provider::new().await;
    let ask = async |credentials: &str, body: &str| {
        let basic = format!("bAsIc {}", STANDARD.encode(credentials));
        let headers = [FORM, ("authorization", basic.as_str())];
        provider
            .send(request("POST", "/oauth2/access_token", &headers, body))
            .await
    };
    let body = "grant_type=client_credentials";
    assert_eq!(ask("machine:se:cr+et%25%2B", body).await.status, 200);
    assert_eq!(ask("machine:se%3Acr%20et%25%2b", body).await.status, 200);
    assert_eq!(
        ask(
            "machine:se:cr+et%25%2B",
            &format!("{body}&client_id=machine")
        )
        .await
        .status,
        200
    );
    let wrong = ask("machine:nope", body).await;
    assert_eq!(wrong.oauth_error().0, 401);
    assert_eq!(wrong.header("www-authenticate"), "Basic realm=\"/\"");
    let broken = ask("machine:se%zz", body).await;
    assert_eq!(broken.oauth_error().0, 400);
    assert!(
        broken
            .oauth_error()
            .2
            .starts_with("URLDecoder: Illegal hex characters")
    );
    let two_ways = ask("machine:se:cr+et%25%2B", &format!("{body}&client_secret=x")).await;
    assert_eq!(two_ways.oauth_error().1, "invalid_request");
    let mixed = ask("machine:se:cr+et%25%2B", &format!("{body}&client_id=app")).await;
    assert_eq!(mixed.oauth_error().1, "invalid_request");
    assert_eq!(
        ask("no colon", body).await.oauth_error().1,
        "invalid_client"
    );
}

#[tokio::test]
async fn header_injection_through_a_scope_is_defused() {
    let provider = Provider::new().await;
    let answer = provider
        .token(&format!("{CC}&scope=a%0d%0aSet-Cookie:+x%22%5c"))
        .await;
    let (status, error, text) = answer.oauth_error();
    assert_eq!((status, error.as_str()), (400, "invalid_scope"));
    assert!(
        text.bytes()
            .all(|b| matches!(b, 0x20..=0x7e) && b != b'"' && b != b'\\'),
        "{text}"
    );
}

#[tokio::test]
async fn a_body_of_a_megabyte_is_refused() {
    let provider = Provider::new().await;
    let answer = provider
        .token(&format!("{CC}&x={}", "y".repeat(1 << 20)))
        .await;
    assert_eq!(answer.status, 413);
}

#[tokio::test]
async fn unknown_realms_and_paths_have_their_documented_answer() {
    let provider = Provider::new().await;
    for path in [
        "/oauth2/realms/root/realms/nope/access_token",
        "/oauth2/nope/access_token",
    ] {
        let answer = provider.form(path, CC).await;
        assert_eq!(
            answer.oauth_error(),
            (
                404,
                "not_found".to_owned(),
                "Invalid realm, nope".to_owned()
            )
        );
    }
    assert_eq!(provider.form("/oauth2/nonsense", CC).await.status, 404);
    assert_eq!(provider.get("/elsewhere").await.status, 404);
    assert_eq!(provider.form("/oauth2//access_token", CC).await.status, 404);
}

#[tokio::test]
async fn a_client_may_have_its_id_tokens_signed_with_its_secret() {
    let provider = Provider::new().await;
    let body = "grant_type=client_credentials&client_id=hmac\
                &client_secret=0123456789abcdef0123456789abcdef&scope=openid";
    let answer = provider.token(body).await.json();
    let id_token = answer["id_token"].as_str().expect("a token");
    let parsed = Unverified::parse(id_token).expect("a JWT");
    let claims = parsed
        .verify_hmac(b"0123456789abcdef0123456789abcdef")
        .expect("its signature");
    assert_eq!(claims["sub"], "hmac");
}

#[tokio::test]
async fn a_client_made_by_another_process_is_known_at_once() {
    let provider = Provider::new().await;
    let body = "grant_type=client_credentials&client_id=new&client_secret=new-secret&scope=a";
    assert_eq!(provider.token(body).await.status, 401);
    let metadata: doorward_core::model::client::ClientMetadata = serde_json::from_value(
        json!({"client_id": "new", "grant_types": ["client_credentials"], "scope": "a"}),
    )
    .expect("metadata");
    let secret = doorward_core::model::secret::Secret::new("new-secret");
    let client = doorward_core::model::client::Client {
        realm: "/".to_owned(),
        secret: crate::stored_secret(&metadata, Some(&secret)),
        metadata,
        owner: doorward_core::model::user::Owner::Store,
        registration: None,
        created_ms: 1,
        updated_ms: 1,
    };
    let other = provider.other_process().await;
    other.insert_client(&client, None).await.expect("inserted");
    assert_eq!(provider.token(body).await.status, 200);
    assert_eq!(
        provider
            .token(&body.replace("new-secret", "no"))
            .await
            .status,
        401
    );
}

#[tokio::test]
async fn a_reload_is_all_or_nothing() {
    let provider = Provider::new().await;
    let reload = async |config: Value| {
        let config = serde_json::from_value(config).expect("a configuration");
        provider.identity.reload(config).await
    };
    let mut config = crate::testing::config();
    config["realms"]["/"]["clients"][0]["client_secret"] = json!("changed");
    let mut broken = config.clone();
    broken["realms"]["/"]["users"][0]["shoeSize"] = json!(43);
    let error = reload(broken).await.expect_err("a wrong attribute");
    assert_eq!(
        error.to_string(),
        "identity.realms./.users[0].shoeSize: no such attribute"
    );
    assert_eq!(
        provider.token(&format!("{CC}&scope=email")).await.status,
        200
    );

    reload(config).await.expect("reloaded");
    assert_eq!(
        provider.token(&format!("{CC}&scope=email")).await.status,
        401
    );
    let body = format!("{}&scope=email", CC.replace("app-secret", "changed"));
    assert_eq!(provider.token(&body).await.status, 200);
}

#[tokio::test]
async fn client_credentials_writes_nothing() {
    let provider = Provider::new().await;
    provider.get("/oauth2/connect/jwk_uri").await;
    let other = provider.other_process().await;
    let version = async || other.data_version().await.expect("a version");
    let tokens_write = async || {
        let before = version().await;
        for _ in 0..20 {
            assert_eq!(
                provider.token(&format!("{CC}&scope=openid")).await.status,
                200
            );
        }
        version().await != before
    };
    // Tasks of the process write now and then. Tokens that are written are so each time.
    let mut write_each_time = true;
    for _ in 0..5 {
        write_each_time &= tokens_write().await;
    }
    assert!(!write_each_time);
    let before = version().await;
    provider.user_tokens("openid").await;
    assert_ne!(version().await, before, "the measure measures nothing");
}

#[tokio::test]
async fn a_declared_name_that_exists_otherwise_is_refused_by_name() {
    let provider = Provider::new().await;
    let record = json!({"userName": "Late"});
    let user = crate::new_user("/", record.as_object().expect("an object"));
    provider
        .store
        .insert_user(&user.expect("a user"), None)
        .await
        .expect("inserted");
    let mut config = crate::testing::config();
    config["realms"]["/"]["users"][1] = json!({"userName": "late"});
    let config = serde_json::from_value(config).expect("a configuration");
    let error = provider.identity.reload(config).await.expect_err("taken");
    assert!(
        error
            .to_string()
            .starts_with("late is declared, but exists in the store")
    );
}

#[tokio::test]
async fn a_wrong_auth_chain_gives_no_token() {
    let provider = Provider::new().await;
    let right = format!("{PASSWORD_GRANT}&scope=openid&auth_chain=ldapService");
    assert_eq!(provider.token(&right).await.status, 200);
    let none = format!("{PASSWORD_GRANT}&scope=openid&auth_chain=");
    assert_eq!(provider.token(&none).await.status, 200);
    let unknown = (
        400,
        "invalid_request".to_owned(),
        "Unknown auth_chain".to_owned(),
    );
    for chain in ["twoFactors", "LDAPSERVICE", "ldapService%20"] {
        let wrong = format!("{PASSWORD_GRANT}&scope=openid&auth_chain={chain}");
        assert_eq!(
            provider.token(&wrong).await.oauth_error(),
            unknown,
            "{chain}"
        );
        let path = format!("/oauth2/access_token?auth_chain={chain}");
        let body = format!("{PASSWORD_GRANT}&scope=openid");
        let answer = provider.form(&path, &body).await;
        assert_eq!(answer.oauth_error(), unknown, "{chain} in the address");
    }
}
