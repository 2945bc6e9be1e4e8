//! Claims that are told elsewhere.

use super::request_recorder::{Recorder, world};
use super::*;

/// A configuration that asks for groups, and needs one.
fn asking(more: Value) -> Value {
    let mut config = json!({"auth_methods": ["bearer"], "resolve_distributed_claims": true,
        "groups_required": ["staff"], "upstream_headers_claims": ["groups", "sub"],
        "upstream_headers_names": ["x-groups", "x-sub"]});
    for (name, value) in more.as_object().unwrap() {
        config[name] = value.clone();
    }
    config
}

fn sources(endpoint: &str) -> Value {
    json!({"_claim_names": {"groups": "s1", "sub": "s1"},
        "_claim_sources": {"s1": {"endpoint": endpoint, "access_token": "ga"}}})
}

const GROUPS: &str = "http://id.test/oauth2/groups";

async fn ask(world: &World, more: Value) -> Outcome {
    world.ask_bearer(&world.token(more)).await
}

fn told(recorder: &Recorder, groups: Value) {
    recorder.answer(
        "/groups",
        json!({"groups": groups, "sub": "mallory", "admin": true}),
    );
}

#[tokio::test]
async fn a_claim_that_is_told_elsewhere_is_asked_for_once_and_counts() {
    let (world, recorder) = world(asking(json!({})));
    told(&recorder, json!("staff"));
    let token = world.token(sources(GROUPS));
    for _ in 0..3 {
        let outcome = world.ask_bearer(&token).await;
        assert_eq!(outcome.code(), (200, "pass"));
        assert_eq!(outcome.upstream("x-groups"), Some("staff"));
        assert_eq!(outcome.upstream("x-sub"), Some("anna"));
    }
    let asked = recorder.at("/groups");
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].header("authorization"), Some("Bearer ga"));
    told(&recorder, json!(["guests"]));
    let mut more = sources(GROUPS);
    more["jti"] = json!("another");
    assert_eq!(ask(&world, more).await.code(), (403, "missing_group"));
    // What the token says itself is not asked for, nor overruled.
    let mut own = sources(GROUPS);
    own["groups"] = json!(["staff"]);
    assert_eq!(ask(&world, own).await.code(), (200, "pass"));
}

#[tokio::test]
async fn nobody_is_asked_where_that_is_off() {
    let (world, recorder) = world(asking(json!({"resolve_distributed_claims": false})));
    told(&recorder, json!(["staff"]));
    let outcome = ask(&world, sources(GROUPS)).await;
    assert_eq!(outcome.code(), (403, "missing_group"));
    assert!(recorder.at("/groups").is_empty());
}

#[tokio::test]
async fn a_signed_answer_is_of_somebody_who_is_trusted() {
    let (world, recorder) = world(asking(json!({})));
    let answer = json!({"groups": ["staff"]});
    recorder.answer("/groups", json!(world.key.token(&answer)));
    assert_eq!(ask(&world, sources(GROUPS)).await.code(), (200, "pass"));
    let forged = TestKey::es256("key-1").token(&answer);
    recorder.answer("/groups", json!(forged));
    let mut more = sources(GROUPS);
    more["jti"] = json!("another");
    assert_eq!(ask(&world, more).await.code(), (500, "provider_malformed"));
}

#[tokio::test]
async fn a_source_that_does_not_tell_lets_nobody_pass() {
    let (world, recorder) = world(asking(json!({})));
    let many: Map<String, Value> = (0..9)
        .map(|n| (format!("c{n}"), json!(format!("s{n}"))))
        .collect();
    let all: Map<String, Value> = (0..9)
        .map(|n| (format!("s{n}"), json!({"endpoint": GROUPS})))
        .collect();
    for more in [
        sources("http://id.test/oauth2/nowhere"),
        sources("ftp://id.test/groups"),
        sources("file:///etc/passwd"),
        sources("http://me@id.test/oauth2/groups"),
        sources("groups"),
        json!({"_claim_names": many, "_claim_sources": all}),
    ] {
        let outcome = ask(&world, more.clone()).await;
        assert_eq!(outcome.code(), (500, "claims_elsewhere"), "{more}");
    }
    assert!(recorder.at("/groups").is_empty());
    assert_eq!(recorder.at("/nowhere").len(), 1);
}

#[tokio::test]
async fn sources_that_userinfo_names_are_asked_too() {
    let config = json!({"groups_required": [], "search_user_info": true});
    let (world, recorder) = world(asking(config));
    told(&recorder, json!("staff"));
    let mut said = sources(GROUPS);
    said["sub"] = json!("anna");
    recorder.answer("/userinfo", said);
    let token = world.token(json!({}));
    for _ in 0..2 {
        let outcome = world.ask_bearer(&token).await;
        assert_eq!(outcome.code(), (200, "pass"));
        assert_eq!(outcome.upstream("x-groups"), Some("staff"));
    }
    assert_eq!(recorder.at("/groups").len(), 1);
}

#[test]
fn nobody_sends_the_gateway_anywhere_with_a_token_of_his_own() {
    let parts = World::new(json!({})).parts;
    for more in [
        json!({"verify_signature": false}),
        json!({"ignore_signature": ["password"], "client_id": ["a"]}),
    ] {
        let error = filter(&parts, asking(more)).err().expect("refused");
        assert_eq!(error.field, "resolve_distributed_claims");
    }
}
