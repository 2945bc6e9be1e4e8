//! What its operator does to the provider, and what that is safe from.

use serde_json::{Value, json};

use crate::revocations::TokenDigests;
use crate::testing::Provider;

#[tokio::test]
async fn of_two_patches_of_a_realm_at_once_both_count() {
    let provider = Provider::new().await;
    let made = provider
        .manage("POST", "/realms", &json!({"path": "/a"}))
        .await;
    assert_eq!(made.status, 201, "{}", made.text);
    let patch = async |settings: Value| {
        let body = json!({"settings": settings});
        let answer = provider.manage("PATCH", "/realms/a", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    };
    tokio::join!(
        patch(json!({"code_lifetime": 30})),
        patch(json!({"default_scope": "b"})),
    );
    let realm = provider.manage("GET", "/realms/a", &Value::Null).await;
    let own = &realm.json()["settings"];
    assert_eq!(own, &json!({"code_lifetime": 30, "default_scope": "b"}));
}

#[tokio::test]
async fn keys_are_rotated_in_an_emergency_whatever_was_planned() {
    let provider = Provider::new().await;
    let rotate = async |wish: Value| provider.manage("POST", "/keys/rotate", &wish).await;
    assert_eq!(rotate(json!({"alg": "ES256"})).await.status, 201);
    let refused = rotate(json!({"alg": "ES256"})).await;
    assert_eq!(
        refused.status, 409,
        "one as late is there: {}",
        refused.text
    );
    // The others are not kept from theirs.
    let others = rotate(Value::Null).await;
    assert!(
        matches!(others.status.as_u16(), 201 | 409),
        "{}",
        others.text
    );
    provider.clock.advance(10);
    let emergency = json!({"alg": "ES256", "now": true, "drop_old": true});
    let made = rotate(emergency).await;
    assert_eq!(made.status, 201, "{}", made.text);
    assert_eq!(made.json()["data"][0]["state"], "active");
    let keys = provider.manage("GET", "/keys", &Value::Null).await.json();
    let keys = keys["data"].as_array().expect("keys").iter();
    let active = keys.filter(|key| key["alg"] == "ES256" && key["state"] != "old");
    assert_eq!(active.count(), 1);
}

#[tokio::test]
async fn grants_die_with_their_client_where_others_exchanged_them() {
    let provider = Provider::new().await;
    let client = json!({"client_id": "shop", "client_secret": "shop-secret", "scope": "openid",
        "grant_types": ["password", "refresh_token"]});
    let made = provider.manage("POST", "/clients", &client).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let body = "grant_type=password&client_id=shop&client_secret=shop-secret&username=demo\
        &password=correct+horse&scope=openid";
    let tokens = provider.token(body).await.json();
    let token = tokens["access_token"].as_str().expect("a token");
    let grant = provider.claims(token)["authGrantId"].clone();
    let digests = TokenDigests::of(grant.as_str().expect("a grant"), "");
    let state = &provider.identity.state;
    assert!(!state.revocations.has(&digests));
    let gone = provider
        .manage("DELETE", "/clients/shop", &Value::Null)
        .await;
    assert_eq!(gone.status, 204, "{}", gone.text);
    assert!(state.revocations.has(&digests));
}

#[tokio::test]
async fn keys_are_published_while_the_store_is_ill() {
    let provider = Provider::new().await;
    let state = &provider.identity.state;
    provider.damage("DROP TABLE signing_keys").await;
    state
        .keys
        .want([doorward_core::model::client::SignAlg::ES512]);
    let answer = provider.get("/oauth2/connect/jwk_uri").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_ne!(answer.json()["keys"], json!([]));
    assert!(answer.header("cache-control").contains("no-store"));
}

#[tokio::test]
async fn settings_of_the_top_realm_are_in_force_without_a_declaration() {
    let bare =
        json!({"base_url": "http://localhost:8000", "hashing": {"memory_kib": 8, "passes": 1}});
    let provider = Provider::with(bare.clone()).await;
    let set = json!({"settings": {
        "access_token_lifetime": 60, "users_scope": "scim:read", "admin_addresses": ["10.0.0.0/8"],
    }});
    let answer = provider.manage("PATCH", "/realms/root", &set).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let in_force = |provider: &Provider| {
        let live = provider.identity.state.live();
        let realm = live.realm("/").expect("the top realm");
        let settings = &realm.settings;
        let networks = realm.admin_networks().map(<[_]>::len);
        (
            settings.access_token_lifetime,
            settings.users_scope.clone(),
            networks,
        )
    };
    let wanted = (60, Some("scim:read".to_owned()), Some(1));
    assert_eq!(in_force(&provider), wanted);
    // Another node reads them; so does this one after a restart or a reload.
    provider.reload(bare.clone()).await;
    assert_eq!(in_force(&provider), wanted, "after a reload");
    let provider = provider.restarted(bare.clone()).await;
    assert_eq!(in_force(&provider), wanted, "after a restart");
    let made = provider
        .manage("POST", "/realms", &json!({"path": "/a"}))
        .await;
    assert_eq!(
        made.json()["effective_settings"]["access_token_lifetime"],
        60
    );
}

#[tokio::test]
async fn stored_settings_of_a_realm_that_the_file_declares_are_shown_as_not_in_force() {
    let bare =
        json!({"base_url": "http://localhost:8000", "hashing": {"memory_kib": 8, "passes": 1}});
    let provider = Provider::with(bare.clone()).await;
    for path in ["/realms/root", "/realms/a"] {
        let set = json!({"settings": {"access_token_lifetime": 60}});
        let answer = provider.manage("PUT", path, &set).await;
        assert!(answer.status.is_success(), "{}", answer.text);
    }
    let mut declared = bare.clone();
    declared["realms"] = json!({"/": {}, "/a": {"settings": {"code_lifetime": 30}}});
    let provider = provider.restarted(declared).await;
    for path in ["/realms/root", "/realms/a"] {
        let shown = provider.manage("GET", path, &Value::Null).await.json();
        assert_eq!(shown["effective_settings"]["access_token_lifetime"], 3600);
        assert_eq!(
            shown["settings_not_in_force"],
            json!({"access_token_lifetime": 60})
        );
        assert!(shown["settings"].get("access_token_lifetime").is_none());
        let set = json!({"settings": {"access_token_lifetime": 70}});
        let refused = provider.manage("PATCH", path, &set).await;
        assert_eq!(refused.status, 409, "{}", refused.text);
    }
    let provider = provider.restarted(bare).await;
    let shown = provider
        .manage("GET", "/realms/root", &Value::Null)
        .await
        .json();
    assert_eq!(shown["effective_settings"]["access_token_lifetime"], 60);
    assert!(shown.get("settings_not_in_force").is_none());
}

#[tokio::test]
async fn a_withdrawn_consent_ends_what_the_client_was_given() {
    let provider = Provider::new().await;
    provider.user_tokens("openid").await;
    let found = provider
        .manage("GET", "/users?name=demo", &Value::Null)
        .await;
    let id = found.json()["data"][0]["id"].clone();
    let id = id.as_str().expect("an id");
    let user = id.parse().expect("a UUID");
    let store = &provider.identity.state.store;
    let scopes = ["openid".to_owned()];
    let client = "https://app.example/id";
    let given = store
        .add_consent("/", user, client, &scopes, 5_000, None)
        .await;
    given.expect("a consent");
    let consents = format!("/users/{id}/consents");
    let list = async || provider.manage("GET", &consents, &Value::Null).await.json();
    let expected = json!([{"client_id": client, "scopes": ["openid"], "given_at": 5}]);
    assert_eq!(list().await["data"], expected);
    let one = format!("{consents}/https:%2F%2Fapp.example%2Fid");
    for status in [204, 404] {
        let answer = provider.manage("DELETE", &one, &Value::Null).await;
        assert_eq!(answer.status, status, "{}", answer.text);
    }
    assert_eq!(list().await["data"], json!([]));
}

#[tokio::test]
async fn a_change_of_an_older_version_of_a_user_is_refused() {
    let provider = Provider::new().await;
    let body = json!({"userName": "eve", "password": "Ch4ng31t-eve", "title": "Dr."});
    let made = provider.manage("POST", "/users", &body).await;
    assert_eq!(made.status, 201, "{}", made.text);
    assert!(!made.text.contains("Ch4ng31t"), "{}", made.text);
    let one = format!("/users/{}", made.json()["id"].as_str().expect("an id"));
    for (body, status) in [
        (json!({"TITLE": "Prof.", "version": 1}), 200),
        (json!({"title": null, "version": 1}), 412),
        (json!({"title": null, "version": "2"}), 400),
        (json!({"userName": null}), 400),
        (json!({"password": ["a"]}), 400),
        (json!({"active": false, "accountStatus": "Active"}), 400),
        // What is only shown is no change.
        (json!({"id": "x", "owner": "file", "groups": []}), 200),
        (json!({"title": null, "active": false, "version": 2}), 200),
    ] {
        let answer = provider.manage("PATCH", &one, &body).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.text);
    }
    let shown = provider.manage("GET", &one, &Value::Null).await.json();
    assert_eq!(shown["version"], 3);
    assert_eq!(shown["accountStatus"], "Deactivated");
    assert_eq!(shown["title"], Value::Null);
}

#[tokio::test]
async fn a_put_that_names_a_version_makes_nothing_anew() {
    let provider = Provider::new().await;
    for (list, one, body) in [
        (
            "/clients",
            "/clients/shop",
            json!({"client_id": "shop", "grant_types": ["client_credentials"], "scope": "a"}),
        ),
        ("/realms", "/realms/a", json!({"path": "/a"})),
    ] {
        let made = provider.manage("POST", list, &body).await;
        assert_eq!(made.status, 201, "{}", made.text);
        let gone = provider.manage("DELETE", one, &Value::Null).await;
        assert_eq!(gone.status, 204, "{}", gone.text);
        let mut late = body.clone();
        for (version, status) in [
            (made.json()["version"].clone(), 412),
            (json!("x"), 400),
            (Value::Null, 201),
        ] {
            late["version"] = version;
            let answer = provider.manage("PUT", one, &late).await;
            assert_eq!(answer.status, status, "{late}: {}", answer.text);
        }
    }
}

#[tokio::test]
async fn a_stale_change_of_a_realm_does_not_bring_an_older_secret_back() {
    let provider = Provider::new().await;
    let settings = |secret: &str| {
        json!({"settings": {"federation": [{
            "name": "other", "issuer": "https://other.test", "client_id": "door",
            "client_secret": secret,
        }]}})
    };
    let mut body = settings("one");
    body["path"] = json!("/a");
    let made = provider.manage("POST", "/realms", &body).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let seen = made.json()["version"].clone();
    let changed = settings("two");
    let other = provider.manage("PATCH", "/realms/a", &changed).await;
    assert_eq!(other.status, 200, "{}", other.text);
    assert_ne!(other.json()["version"], seen);
    for method in ["PATCH", "PUT"] {
        let mut stale = settings("one");
        stale["version"] = seen.clone();
        let refused = provider.manage(method, "/realms/a", &stale).await;
        assert_eq!(refused.status, 412, "{method}: {}", refused.text);
    }
    // The same secret is the same version: it is no random number.
    let again = provider
        .manage("PATCH", "/realms/a", &settings("one"))
        .await;
    assert_eq!(again.json()["version"], seen);
}
