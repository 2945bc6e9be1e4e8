//! What is confirmed is what was shown; and a mask is no secret.

use reqwest::Method;
use serde_json::{Value, json};

use crate::console::Browser;
use crate::console_groups::group;
use crate::console_registry::rest;
use crate::console_sign_in::Office;
use doorward_core::model::factor::{Kind, StoredFactor};
use doorward_core::model::secret::Secret;

/// Gives a user a second factor, as an enrolment does.
async fn enrol(office: &Office, user: &str, name: &str) {
    let file = std::fs::read_to_string(office.door.path("doorward.yaml")).expect("the file");
    let url = file
        .lines()
        .find_map(|line| line.strip_prefix("store: "))
        .expect("a store")
        .trim_matches('"');
    let url = match url.strip_prefix("sqlite:") {
        Some(path) => format!("sqlite:{}", office.door.path(path).display()),
        None => url.to_owned(),
    };
    let store = doorward_store::open(&url).await.expect("the store opens");
    let factor = StoredFactor {
        id: uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, name.as_bytes()),
        realm: "/".to_owned(),
        user_id: user.parse().expect("an identifier"),
        kind: Kind::Totp,
        name: name.to_owned(),
        credential: None,
        secret: Secret::new("secret"),
        counter: 0,
        created_ms: 5,
        used_ms: None,
    };
    let put = store.insert_factor(&factor, 10, &[], None).await;
    put.expect("inserted");
}

async fn factors(office: &Office, user: &str) -> usize {
    let path = format!("/identity/users/{user}/factors");
    let listed = rest(office, Method::GET, &path, &Value::Null).await;
    let listed = listed.expect(200).json();
    listed["data"].as_array().map_or(0, Vec::len)
}

#[tokio::test]
async fn factors_that_were_not_shown_are_not_removed() {
    let office = Office::open().await;
    office.hire("dan", "staff").await;
    let id = office.user("dan").await;
    enrol(&office, &id, "first").await;
    let mut owner = office.signed_in("alice").await;
    let reset = format!("/console/identity/users/{id}/reset-factors");
    let shown = owner.post(&reset, &[("realm", "/")]).await.expect(200).body;
    assert!(shown.contains("first"), "{shown}");
    enrol(&office, &id, "second").await;
    let refused = owner.confirm(&shown).await;
    assert_eq!(refused.status, 409, "{}", refused.body);
    assert_eq!(factors(&office, &id).await, 2, "nothing is removed");
    let shown = owner.post(&reset, &[("realm", "/")]).await.expect(200).body;
    assert!(shown.contains("second"), "{shown}");
    owner.confirm(&shown).await.expect(303);
    assert_eq!(factors(&office, &id).await, 0);
}

#[tokio::test]
async fn a_group_whose_members_are_others_by_then_is_not_deleted() {
    let office = Office::open().await;
    let eve = office.hire("eve", "staff").await;
    let mut owner = office.signed_in("alice").await;
    let (staff, version) = group(&mut owner, "staff").await;
    let fields = [("realm", "/"), ("version", version.as_str())];
    let delete = format!("{staff}/delete");
    let shown = owner.post(&delete, &fields).await.expect(200).body;
    assert!(shown.contains("eve"), "{shown}");
    let gone = office.scim(Method::DELETE, &eve, &Value::Null).await;
    gone.expect(204);
    let refused = owner.confirm(&shown).await;
    assert_eq!(refused.status, 409, "{}", refused.body);
    owner.get(&staff).await.expect(200);
}

/// Members are compared in the step that deletes: whoever comes or leaves makes another
/// version of the group.
#[tokio::test]
async fn whatever_changes_the_members_of_a_group_keeps_an_older_sight_from_deleting_it() {
    let office = Office::open().await;
    let user = |name: &str| json!({"userName": name});
    let mut ids = Vec::new();
    for name in ["ann", "ben"] {
        let made = rest(&office, Method::POST, "/identity/users", &user(name)).await;
        let id = made.expect(201).json()["id"].clone();
        ids.push(id.as_str().expect("an id").to_owned());
    }
    let crew = json!({"displayName": "crew", "members": [ids[0]]});
    let made = rest(&office, Method::POST, "/identity/groups", &crew).await;
    let id = made.expect(201).json()["id"].clone();
    let group = format!("/identity/groups/{}", id.as_str().expect("an id"));
    let comes = format!("{group}/members/{}", ids[1]);
    let leaves = format!("{group}/members/{}", ids[0]);
    let is_gone = format!("/identity/users/{}", ids[1]);
    for (method, path) in [
        (Method::PUT, comes),
        (Method::DELETE, leaves),
        (Method::DELETE, is_gone),
    ] {
        let seen = rest(&office, Method::GET, &group, &Value::Null).await;
        let seen = seen.expect(200).json()["version"].clone();
        rest(&office, method, &path, &Value::Null).await.expect(204);
        let stale = format!("{group}?version={seen}");
        let refused = rest(&office, Method::DELETE, &stale, &Value::Null).await;
        assert_eq!(refused.status, 412, "{path}: {}", refused.body);
    }
    let members = format!("{group}/members");
    let left = rest(&office, Method::GET, &members, &Value::Null).await;
    assert_eq!(left.expect(200).json()["data"], json!([]));
}

/// Posts a form and gives the page that refuses it.
async fn refused(browser: &mut Browser<'_>, path: &str, fields: &[(&str, &str)]) {
    let answer = browser.post(path, fields).await;
    assert_eq!(answer.status, 400, "{path}: {}", answer.body);
    let page = answer.body;
    assert!(page.contains("shown as **"), "{path}: {page}");
    assert!(!page.contains("name=\"change\""), "{path}: {page}");
}

#[tokio::test]
async fn a_mask_is_taken_for_a_secret_by_no_form() {
    let office = Office::open().await;
    let consumer = json!({"username": "bob"});
    let made = rest(&office, Method::POST, "/consumers", &consumer).await;
    made.expect(201);
    let secret = json!({"key": "bob", "secret": "a long secret of bob"});
    let jwt = rest(&office, Method::POST, "/consumers/bob/jwt", &secret).await;
    let jwt = jwt.expect(201).json();
    let mut owner = office.signed_in("alice").await;
    let new = "/console/preview/consumers/bob/jwt";
    let typed = [("view", "form"), ("f.key", "x"), ("f.secret", "**")];
    refused(&mut owner, new, &typed).await;
    let text = [("view", "json"), ("record", r#"{"key":"x","secret":"**"}"#)];
    refused(&mut owner, new, &text).await;
    let patch = [("view", "patch"), ("patch", r#"{"key":"x","secret":"**"}"#)];
    refused(&mut owner, new, &patch).await;
    let realm = r#"{"path":"/x","settings":{"ldap":{"bind_password":"**"}}}"#;
    let text = [("view", "json"), ("record", realm)];
    refused(&mut owner, "/console/identity/new-realm", &text).await;
    let user = [("realm", ""), ("f.userName", "mask"), ("f.password", "**")];
    refused(&mut owner, "/console/identity/users/new", &user).await;
    // In the place of a secret that is there it means that the secret stays.
    let id = jwt["id"].as_str().expect("an id");
    let own = format!("consumers/bob/jwt/{id}");
    let text = [("view", "json"), ("record", r#"{"key":"y","secret":"**"}"#)];
    let text = [&text[..], &[("version", "")]].concat();
    let page = owner.post(&format!("/console/preview/{own}"), &text).await;
    let page = page.expect(200).body;
    assert!(!page.contains("secret</"), "{page}");
}
