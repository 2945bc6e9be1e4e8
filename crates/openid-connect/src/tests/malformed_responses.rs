//! Answers with 200 that say nothing of what was asked, at every endpoint of the
//! provider whose answer decides something.

use super::browser::{self, Browser};
use super::request_recorder::{Recorder, world};
use super::*;

/// Answers that are no answer of any of the endpoints: objects without what each
/// requires, other JSON, and the page of whatever stands before the provider. A
/// text is sent as it is, as `application/jwt`.
fn nothing() -> Vec<Value> {
    vec![
        json!({}),
        json!({"error": "invalid_token"}),
        json!({"message": "hello"}),
        json!({"active": false, "sub": "anna"}),
        json!({"active": "true", "sub": "anna"}),
        json!({"active": 1, "sub": "anna"}),
        json!([]),
        json!([{"active": true, "sub": "anna", "access_token": "t"}]),
        json!(null),
        json!(true),
        json!("<html>Welcome</html>"),
    ]
}

/// Asks with an opaque token where `path` answers with each of these.
async fn passes_none(config: Value, path: &'static str, answers: Vec<Value>) {
    for said in answers {
        let (world, recorder) = world(config.clone());
        recorder.answer(path, said.clone());
        let outcome = world.ask_bearer("opaque").await;
        let (status, code) = outcome.code();
        assert!(
            matches!(status, 401 | 500),
            "{path} {said}: {status} {code}"
        );
        assert_eq!(recorder.at(path).len(), 1, "{path} {said}");
    }
}

#[tokio::test]
async fn an_introspection_answer_that_says_nothing_lets_nobody_pass() {
    let introspection = json!({"auth_methods": ["introspection"]});
    passes_none(introspection, "/introspect", nothing()).await;
    // Where `active` is not asked for, the answer has to be one all the same.
    let lax = json!({"auth_methods": ["introspection"], "introspection_check_active": false});
    let said = nothing();
    let said = said.into_iter();
    let said = said.filter(|one| one.get("active") != Some(&json!(false)));
    passes_none(lax, "/introspect", said.collect()).await;
}

#[tokio::test]
async fn a_userinfo_answer_that_says_nothing_lets_nobody_pass() {
    let mut answers = nothing();
    answers.extend([
        json!({"sub": ""}),
        json!({"sub": 7}),
        json!({"sub": ["anna"]}),
        json!({"sub": "anna", "error": "invalid_token"}),
    ]);
    let config = json!({"auth_methods": ["userinfo"]});
    passes_none(config, "/userinfo", answers.clone()).await;
    // Nor where it is asked for more of a user whose token is good.
    for said in &answers {
        let config = json!({"auth_methods": ["bearer"], "search_user_info": true});
        let (world, recorder) = world(config);
        recorder.answer("/userinfo", said.clone());
        let status = world.ask_bearer(&world.token(json!({}))).await.code().0;
        assert!(matches!(status, 401 | 500), "{said}: {status}");
    }
}

/// Token responses of which each lacks something, or has it in a wrong type.
fn malformed_tokens(good: &str) -> Vec<Value> {
    let with = |name: &str, value: Value| {
        let mut answer = json!({"access_token": good, "token_type": "Bearer", "expires_in": 600});
        answer[name] = value;
        answer
    };
    let mut all = nothing();
    all.extend([
        with("access_token", json!("")),
        with("access_token", json!([good])),
        with("access_token", json!(null)),
        with("error", json!("invalid_grant")),
        with("token_type", json!("mac")),
        with("token_type", json!(["Bearer"])),
        with("expires_in", json!("soon")),
        with("expires_in", json!({})),
        with("expires_in", json!(true)),
        with("scope", json!({"read": true})),
        with("scope", json!([1])),
        with("refresh_token", json!(5)),
        with("id_token", json!(["x"])),
    ]);
    all
}

/// Asks where the token endpoint at `path` answers with each of these, made of a token
/// that is good; that alone lets the request pass.
async fn gives_no_token(config: Value, path: &'static str, header: impl Fn(&World) -> String) {
    for index in 0..malformed_tokens("").len() {
        let (world, recorder) = world(config.clone());
        let good = world.token(json!({"jti": "given"}));
        let said = malformed_tokens(&good).remove(index);
        recorder.answer(path, said.clone());
        let status = world.ask(&get_with(&header(&world))).await.code().0;
        assert!(matches!(status, 401 | 500), "{said}: {status}");
        assert_eq!(recorder.at(path).len(), 1, "{said}");
    }
    // Lists of scopes and numbers in texts are as good as what is specified.
    let (world, recorder) = world(config);
    let good = world.token(json!({"jti": "given"}));
    let said = json!({"access_token": good, "scope": ["a", "b"], "expires_in": "60"});
    recorder.answer(path, said);
    let outcome = world.ask(&get_with(&header(&world))).await;
    assert_eq!(outcome.code(), (200, "pass"));
}

#[tokio::test]
async fn a_token_response_that_is_none_gives_nobody_a_token() {
    let config = json!({"auth_methods": ["password"]});
    let basic = |_: &World| "Authorization: Basic YW5uYTpz".to_owned();
    gives_no_token(config, "/token", basic).await;
}

#[tokio::test]
async fn an_exchanged_token_that_is_none_gives_nobody_a_token() {
    let config = json!({"auth_methods": ["bearer"],
        "token_exchange_endpoint": "http://id.test/oauth2/exchange"});
    let bearer = |world: &World| format!("Authorization: Bearer {}", world.token(json!({})));
    gives_no_token(config, "/exchange", bearer).await;
}

#[tokio::test]
async fn a_pushed_request_that_gets_no_name_leads_nobody_to_the_provider() {
    let mut answers = nothing();
    answers.extend([json!({"request_uri": ""}), json!({"request_uri": 5})]);
    for said in answers {
        let (world, recorder): (World, Recorder) = world(json!({
            "auth_methods": ["authorization_code", "session"], "session_secret": "s",
            "require_pushed_authorization_requests": true,
            "pushed_authorization_request_endpoint": "http://id.test/oauth2/par",
        }));
        recorder.answer("/par", said.clone());
        let outcome = world.ask(&get_with("X: y")).await;
        assert_eq!(outcome.code(), (500, "provider_malformed"), "{said}");
    }
}

#[tokio::test]
async fn a_source_of_claims_that_does_not_tell_them_lets_nobody_pass() {
    // A claim that must not be there is not shown to be absent by silence.
    let config = json!({"auth_methods": ["bearer"], "resolve_distributed_claims": true,
        "claims_forbidden": ["blocked"]});
    let elsewhere = json!({"_claim_names": {"blocked": "s1"},
        "_claim_sources": {"s1": {"endpoint": "http://id.test/oauth2/claims"}}});
    for said in nothing() {
        let (world, recorder) = world(config.clone());
        recorder.answer("/claims", said.clone());
        let outcome = world.ask_bearer(&world.token(elsewhere.clone())).await;
        assert_eq!(outcome.code().0, 500, "{said}");
    }
}

#[tokio::test]
async fn a_key_set_that_is_none_verifies_nothing() {
    let config = json!({"auth_methods": ["bearer"], "using_pseudo_issuer": true,
        "jwks_endpoint": "http://id.test/oauth2/set"});
    let mut answers = nothing();
    answers.extend([
        json!({"keys": {}}),
        json!({"keys": [{}, 1, null]}),
        json!({"keys": "k"}),
    ]);
    for said in answers {
        let (world, recorder) = world(config.clone());
        recorder.answer("/set", said.clone());
        let status = world.ask_bearer(&world.token(json!({}))).await.code().0;
        assert!(matches!(status, 401 | 500), "{said}: {status}");
    }
}

/// A filter whose provider's metadata are `document`.
fn world_of_metadata(config: Value, document: Value) -> World {
    let world = World::new(config);
    let told = move || {
        let document = document.clone();
        async move { Json(document) }
    };
    let keys = world.issuer.clone();
    let router = Router::new()
        .route("/oauth2/.well-known/openid-configuration", get(told))
        .route("/oauth2/keys", get(key_set).with_state(keys));
    let base = Url::parse("http://id.test").unwrap();
    world.parts.outbound.register_local(&base, router);
    world
}

#[tokio::test]
async fn metadata_that_are_none_are_not_used() {
    let keys = format!("{ISSUER}/keys");
    let mut documents = nothing();
    documents.extend([
        json!({"jwks_uri": keys}),
        json!({"issuer": null, "jwks_uri": keys}),
        json!({"issuer": [ISSUER], "jwks_uri": keys}),
        json!({"issuer": ISSUER, "jwks_uri": [keys]}),
        json!({"issuer": ISSUER, "jwks_uri": {"url": keys}}),
        json!({"issuer": ISSUER}),
    ]);
    for document in documents {
        let world = world_of_metadata(json!({}), document.clone());
        let status = world.ask_bearer(&world.token(json!({}))).await.code().0;
        assert!(matches!(status, 401 | 500), "{document}: {status}");
    }
}

#[tokio::test]
async fn metadata_of_another_issuer_are_refused_by_name() {
    let other = "http://id.test/other";
    let document = json!({"issuer": other, "jwks_uri": format!("{ISSUER}/keys")});
    for issuer in [
        ISSUER.to_owned(),
        format!("{ISSUER}/"),
        format!("{ISSUER}/.well-known/openid-configuration"),
    ] {
        for more in [
            json!({}),
            json!({"jwks_endpoint": format!("{ISSUER}/keys")}),
            json!({"token_endpoint": "http://id.test/oauth2/token"}),
        ] {
            let mut config = json!({"auth_methods": ["bearer"], "issuer": issuer});
            for (name, value) in more.as_object().unwrap() {
                config[name] = value.clone();
            }
            let world = world_of_metadata(config.clone(), document.clone());
            for iss in [ISSUER, other] {
                let outcome = world.ask_bearer(&world.token(json!({ "iss": iss }))).await;
                assert_eq!(
                    outcome.code(),
                    (500, "provider_malformed"),
                    "{config} {iss}"
                );
            }
        }
    }
    // Nor does a login go there, also where its endpoints are configured.
    let world = world_of_metadata(browser::complete(json!({})), document.clone());
    let outcome = Browser::default().get(&world, "/orders").await;
    assert_eq!(outcome.code(), (500, "provider_malformed"));
    let reports = |world: &World| Providers::of(&world.parts).reports()[0].error.clone();
    let world = world_of_metadata(json!({}), document.clone());
    world.ask_bearer(&world.token(json!({}))).await;
    let error = reports(&world).expect("an error");
    assert!(
        error.contains(other) && error.contains("issuers_allowed"),
        "{error}"
    );
}

#[tokio::test]
async fn metadata_of_another_issuer_are_taken_where_it_is_allowed() {
    let tenant = "http://id.test/t1/v2";
    for named in [tenant, "http://id.test/{tenantid}/v2"] {
        let document = json!({"issuer": named, "jwks_uri": format!("{ISSUER}/keys")});
        let world = world_of_metadata(json!({"issuers_allowed": [tenant]}), document);
        for (iss, code) in [
            (tenant, (200, "pass")),
            ("http://id.test/t2/v2", (401, "wrong_issuer")),
            (
                named,
                if named == tenant {
                    (200, "pass")
                } else {
                    (401, "wrong_issuer")
                },
            ),
        ] {
            let outcome = world.ask_bearer(&world.token(json!({ "iss": iss }))).await;
            assert_eq!(outcome.code(), code, "{named} {iss}");
        }
    }
}

#[tokio::test]
async fn metadata_that_turn_to_another_issuer_do_not_take_the_place_of_good_ones() {
    let world = World::new(json!({}));
    let token = world.token(json!({}));
    assert_eq!(world.ask_bearer(&token).await.code(), (200, "pass"));
    *world.issuer.0.name.lock().unwrap() = "http://id.test/other".to_owned();
    world.clock.advance(400_000);
    assert_eq!(world.ask_bearer(&token).await.code(), (200, "pass"));
    super::keys::until(|| world.issuer.discoveries() >= 2).await;
    for _ in 0..20 {
        tokio::task::yield_now().await;
        assert_eq!(world.ask_bearer(&token).await.code(), (200, "pass"));
    }
}
