use serde_json::json;

use crate::authorize::rules::*;

const ISSUER: &str = "https://id.example.com/oauth2";

fn check(config: Value, claims: Value) -> Result<Option<i64>, Refusal> {
    check_typed(config, None, claims)
}

fn check_typed(
    config: Value,
    typ: Option<&str>,
    mut claims: Value,
) -> Result<Option<i64>, Refusal> {
    for (name, value) in [("iss", json!(ISSUER)), ("exp", json!(1000))] {
        if claims.get(name).is_none() {
            claims[name] = value;
        }
    }
    let rules = Rules::new(&Fields::of(&config).expect("valid"));
    rules.check(typ, claims.as_object().expect("an object"), ISSUER, 500)
}

#[test]
fn items_are_alternatives_and_words_of_an_item_all_needed() {
    let config = json!({"scopes_required": ["a b", "c"]});
    for (scope, good) in [
        (json!("a b"), true),
        (json!(["b", "x", "a"]), true),
        (json!("c"), true),
        (json!("a"), false),
        (json!("b x"), false),
        (json!(["a b"]), false),
        (json!(""), false),
        (json!(null), false),
        (json!({"a": 1, "b": 1}), false),
    ] {
        let outcome = check(config.clone(), json!({ "scope": scope }));
        assert_eq!(outcome.is_ok(), good, "{scope}");
    }
    assert_eq!(check(config, json!({})), Err(Refusal::MissingScope));
}

#[test]
fn an_empty_required_item_is_never_met() {
    for empty in ["", " "] {
        let outcome = check(json!({"scopes_required": [empty]}), json!({"scope": "a"}));
        assert_eq!(outcome, Err(Refusal::MissingScope));
    }
}

#[test]
fn audience_is_a_text_or_an_array_at_a_path() {
    let config = json!({"audience_required": ["api"]});
    assert!(check(config.clone(), json!({"aud": "api"})).is_ok());
    assert!(check(config.clone(), json!({"aud": ["x", "api"]})).is_ok());
    for bad in [json!({"aud": "apis"}), json!({"aud": []}), json!({})] {
        assert_eq!(check(config.clone(), bad), Err(Refusal::WrongAudience));
    }
    let deep = json!({"audience_required": ["api"], "audience_claim": ["x", "aud"]});
    assert!(check(deep.clone(), json!({"x": {"aud": "api"}})).is_ok());
    assert_eq!(
        check(deep, json!({"aud": "api"})),
        Err(Refusal::WrongAudience)
    );
}

#[test]
fn an_id_token_is_no_access_token_unless_configured() {
    for id_token in [
        json!({"at_hash": "x"}),
        json!({"c_hash": "x"}),
        json!({"s_hash": "x"}),
        json!({"typ": "ID"}),
        json!({"tokenName": "id_token"}),
    ] {
        let outcome = check(json!({}), id_token.clone());
        assert_eq!(outcome, Err(Refusal::WrongType), "{id_token}");
        assert!(check(json!({"bearer_id_tokens": true}), id_token).is_ok());
    }
    let named = check_typed(json!({}), Some("at+jwt"), json!({"at_hash": "x"}));
    assert!(named.is_ok(), "its header says what it is");
    for other in [
        json!({"typ": "Refresh"}),
        json!({"tokenName": "refresh_token"}),
    ] {
        let outcome = check(json!({"bearer_id_tokens": true}), other);
        assert_eq!(outcome, Err(Refusal::WrongType));
    }
}

#[test]
fn a_token_for_another_audience_than_the_plugins_is_refused() {
    let config = json!({"audience": ["https://api", "orders"]});
    for good in [json!("orders"), json!(["x", "https://api"])] {
        assert!(check(config.clone(), json!({ "aud": good })).is_ok());
    }
    for bad in [json!({"aud": "x"}), json!({"aud": []}), json!({})] {
        assert_eq!(check(config.clone(), bad), Err(Refusal::WrongAudience));
    }
    let both = json!({"audience": ["orders"], "audience_required": ["api"]});
    assert!(check(both.clone(), json!({"aud": ["orders", "api"]})).is_ok());
    let outcome = check(both, json!({"aud": "orders"}));
    assert_eq!(outcome, Err(Refusal::WrongAudience));
}

#[test]
fn an_audience_that_the_provider_does_not_tell_is_not_held_against_a_token() {
    let config = json!({"audience": ["api"]});
    let rules = Rules::new(&Fields::of(&config).expect("valid"));
    for (claims, outcome) in [
        (json!({"sub": "a"}), Ok(None)),
        (json!({"sub": "a", "aud": ["x", "api"]}), Ok(None)),
        (json!({"sub": "a", "aud": "x"}), Err(Refusal::WrongAudience)),
        (json!({"sub": "a", "aud": []}), Err(Refusal::WrongAudience)),
    ] {
        let claims = claims.as_object().expect("an object");
        let told = rules.check_introspected(claims, claims, ISSUER, 500);
        assert_eq!(told, outcome, "{claims:?}");
    }
}

#[test]
fn groups_roles_domains_and_forbidden_claims_are_checked() {
    let outcome = check(json!({"groups_required": ["a"]}), json!({"groups": ["b"]}));
    assert_eq!(outcome, Err(Refusal::MissingGroup));
    let config = json!({"roles_required": ["a"], "roles_claim": ["realm_access", "roles"]});
    let roles = json!({"realm_access": {"roles": ["a"]}});
    assert!(check(config.clone(), roles).is_ok());
    assert_eq!(
        check(config, json!({"roles": ["a"]})),
        Err(Refusal::MissingRole)
    );
    let config = json!({"domains": ["example.com"]});
    assert!(check(config.clone(), json!({"hd": "Example.com"})).is_ok());
    for other in [json!("evil.example"), json!(null), json!(["example.com"])] {
        let outcome = check(config.clone(), json!({ "hd": other }));
        assert_eq!(outcome, Err(Refusal::WrongDomain), "{other}");
    }
    assert!(check(config, json!({})).is_ok(), "an ID token tells it");
    let config = json!({"claims_forbidden": ["act"]});
    assert_eq!(
        check(config, json!({"act": null})),
        Err(Refusal::ForbiddenClaim)
    );
}

#[test]
fn the_issuer_is_the_discovered_one_or_an_allowed_one() {
    assert!(check(json!({}), json!({"iss": format!("{ISSUER}/")})).is_ok());
    for bad in [json!("https://evil.example"), json!(null), json!([ISSUER])] {
        let outcome = check(json!({}), json!({ "iss": bad }));
        assert_eq!(outcome, Err(Refusal::WrongIssuer));
    }
    let config = json!({"issuers_allowed": ["https://a", "https://b"]});
    assert!(check(config.clone(), json!({"iss": "https://b"})).is_ok());
    assert_eq!(check(config, json!({})), Err(Refusal::WrongIssuer));
}

#[test]
fn an_id_token_is_no_access_token() {
    for other in [
        json!({"tokenName": "id_token"}),
        json!({"tokenName": "refresh_token"}),
        json!({"tokenName": 1}),
        json!({"typ": "ID"}),
        json!({"typ": "Refresh"}),
        json!({"events": {LOGOUT_EVENT: {}}}),
    ] {
        assert_eq!(check(json!({}), other), Err(Refusal::WrongType));
    }
    let fine = json!({"tokenName": "access_token", "typ": "Bearer"});
    assert!(check(json!({}), fine).is_ok());
    for (typ, good) in [
        ("jwt", true),
        ("at+jwt", true),
        ("dpop+jwt", false),
        ("logout+jwt", false),
        ("", false),
    ] {
        let outcome = check_typed(json!({}), Some(typ), json!({}));
        assert_eq!(outcome.is_ok(), good, "{typ}");
    }
}

#[test]
fn a_login_older_than_max_age_is_refused() {
    let config = json!({"max_age": 100});
    let at = |time| check(config.clone(), json!({ "auth_time": time }));
    assert_eq!(at(450), Ok(Some(551)));
    assert_eq!(at(400), Ok(Some(501)));
    assert_eq!(at(399), Err(Refusal::LoginTooOld));
    let unsaid = check(config, json!({}));
    assert_eq!(unsaid, Ok(Some(1000)), "an ID token tells it");
}

#[test]
fn a_login_says_when_and_of_which_domain_it_was_where_that_counts() {
    let check = |config: Value, claims: Value| {
        let rules = Rules::new(&Fields::of(&config).expect("valid"));
        rules.check_login(claims.as_object().expect("an object"), 500)
    };
    assert_eq!(check(json!({}), json!({})), Ok(()));
    let recent = json!({"max_age": 100});
    assert_eq!(check(recent.clone(), json!({"auth_time": 400})), Ok(()));
    for bad in [json!({"auth_time": 399}), json!({})] {
        let outcome = check(recent.clone(), bad.clone());
        assert_eq!(outcome, Err(Refusal::LoginTooOld), "{bad}");
    }
    let ours = json!({"domains": ["example.com"]});
    assert_eq!(check(ours.clone(), json!({"hd": "example.com"})), Ok(()));
    for bad in [json!({"hd": "evil.example"}), json!({"hd": 1}), json!({})] {
        let outcome = check(ours.clone(), bad.clone());
        assert_eq!(outcome, Err(Refusal::WrongDomain), "{bad}");
    }
}

#[test]
fn without_claim_checks_permissions_still_count() {
    let config = json!({"verify_claims": false, "scopes_required": ["a"]});
    let token = json!({"iss": "x", "exp": 1, "scope": "a"});
    assert_eq!(check(config.clone(), token), Ok(None));
    let outcome = check(config, json!({"exp": 1}));
    assert_eq!(outcome, Err(Refusal::MissingScope));
}

#[test]
fn a_rule_that_cannot_be_met_refuses() {
    let config = json!({"consumer_groups_claim": ["groups"]});
    assert_eq!(check(config, json!({})), Err(Refusal::NoConsumer));
    let config = json!({"consumer_groups_claim": ["groups"], "consumer_groups_optional": true});
    assert!(check(config, json!({})).is_ok());
}

#[test]
fn an_id_token_of_another_client_is_no_key_to_the_api() {
    for (typ, claims) in [
        (
            None,
            json!({"aud": "other-app", "nonce": "x", "sub": "anna"}),
        ),
        (
            Some("jwt"),
            json!({"aud": "other-app", "nonce": "x", "typ": "JWT"}),
        ),
        (
            None,
            json!({"aud": "other-app", "token_use": "id", "cognito:username": "anna"}),
        ),
    ] {
        let outcome = check_typed(json!({}), typ, claims.clone());
        assert_eq!(outcome, Err(Refusal::WrongType), "{claims}");
        let allowed = json!({"bearer_id_tokens": true});
        assert!(check_typed(allowed, typ, claims).is_ok());
    }
}

#[test]
fn access_tokens_that_repeat_the_nonce_of_their_login_pass() {
    for (typ, more) in [
        (Some("at+jwt"), json!({})),
        // As older providers make them.
        (
            Some("jwt"),
            json!({"typ": "Bearer", "azp": "app", "session_state": "s"}),
        ),
        (
            None,
            json!({"tokenName": "access_token", "token_type": "Bearer"}),
        ),
        (None, json!({"scope": "openid"})),
        (None, json!({"scp": ["a"], "cid": "app"})),
        (
            None,
            json!({"scp": "user.read", "appid": "1", "ver": "1.0"}),
        ),
        (None, json!({"token_use": "access", "client_id": "app"})),
    ] {
        let mut claims = more.clone();
        claims["nonce"] = json!("x");
        assert!(check_typed(json!({}), typ, claims).is_ok(), "{more}");
    }
}
