//! What must not come of the pages of users and groups.

use reqwest::Method;
use serde_json::json;

use crate::console::attribute;
use crate::console_sign_in::Office;
use crate::support::http::send;

/// What only owners do to a user or a group.
const OF_OWNERS: [&str; 11] = [
    "users/ID/switch",
    "users/ID/reset-factors",
    "users/ID/edit",
    "users/ID/delete",
    "users/new",
    "groups/ID/add",
    "groups/ID/remove",
    "groups/ID/edit",
    "groups/ID/delete",
    "groups/new",
    "apply",
];

/// What operators do as well.
const OF_OPERATORS: [&str; 5] = [
    "users/ID/session",
    "users/ID/end-sessions",
    "users/ID/consent",
    "users/ID/unlock",
    "users/ID/reset",
];

#[tokio::test]
async fn a_viewer_who_writes_changes_no_user_and_no_group() {
    let office = Office::open().await;
    let id = office.user("alice").await;
    let mut viewer = office.signed_in("vera").await;
    let page = viewer.get(&format!("/console/identity/users/{id}")).await;
    let page = page.expect(200).body;
    assert_eq!(page.matches("<form").count(), 1, "only to sign out: {page}");
    assert!(!page.contains("/edit"), "{page}");
    for path in OF_OWNERS.iter().chain(&OF_OPERATORS) {
        let path = format!("/console/identity/{}", path.replace("ID", &id));
        let fields = [("realm", "/"), ("version", "1"), ("active", "false")];
        let answer = viewer.post(&path, &fields).await;
        assert_eq!(answer.status, 403, "{path}: {}", answer.body);
    }
    viewer.get("/console/identity/users/new").await.expect(403);
}

#[tokio::test]
async fn an_operator_makes_no_owner_and_shuts_none_out() {
    let office = Office::open().await;
    let id = office.user("alice").await;
    let mut operator = office.signed_in("olga").await;
    for path in OF_OWNERS {
        let path = format!("/console/identity/{}", path.replace("ID", &id));
        let fields = [("realm", "/"), ("version", "1"), ("user", "olga")];
        operator.post(&path, &fields).await.expect(403);
    }
    office.signed_in("alice").await;
}

#[tokio::test]
async fn a_form_of_another_site_or_session_changes_no_user() {
    let office = Office::open().await;
    office.hire("dan", "staff").await;
    let id = office.user("dan").await;
    let mut owner = office.signed_in("alice").await;
    let mut other = office.signed_in("vera").await;
    let path = format!("/console/identity/users/{id}/switch");
    let fields = [("realm", "/"), ("version", "1"), ("active", "false")];
    // No token, that of another session, and a link.
    owner.submit(&path, &fields).await.expect(403);
    let foreign = other.form_token().await;
    let with = [&[("form_token", foreign.as_str())], &fields[..]].concat();
    owner.submit(&path, &with).await.expect(403);
    let link = format!("{path}?active=false&version=1");
    owner.get(&link).await.expect(405);
    let own = owner.form_token().await;
    let with = [&[("form_token", own.as_str())], &fields[..]].concat();
    let request = owner.request(Method::POST, &path);
    let request = request.header("origin", "https://evil.example");
    send(request.form(&with)).await.expect(403);
    office.signed_in("dan").await;
}

#[tokio::test]
async fn a_stale_form_changes_no_user() {
    let office = Office::open().await;
    let user = office.hire("dan", "staff").await;
    let id = office.user("dan").await;
    let mut owner = office.signed_in("alice").await;
    let rename = json!({"schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"],
        "Operations": [{"op": "replace", "path": "userName", "value": "daniel"}]});
    let renamed = office.scim(Method::PATCH, &user, &rename).await;
    renamed.expect(200);
    let fields = [
        ("realm", "/"),
        ("version", "1"),
        ("active", "false"),
        ("name", "dan"),
        ("f.userName", "dan"),
    ];
    for action in ["switch", "edit", "delete", "end-sessions", "unlock"] {
        let path = format!("/console/identity/users/{id}/{action}");
        let answer = owner.post(&path, &fields).await;
        assert_eq!(answer.status, 409, "{action}: {}", answer.body);
    }
    let page = owner.get(&format!("/console/identity/users/{id}")).await;
    let page = page.expect(200).body;
    assert!(
        page.contains("daniel") && page.contains(">Active<"),
        "{page}"
    );
}

#[tokio::test]
async fn a_user_of_another_realm_is_not_reached_by_its_identifier() {
    let office = Office::open().await;
    let mut owner = office.signed_in("alice").await;
    let page = owner.get("/console/identity/users?realm=/other").await;
    let page = page.expect(200).body;
    let path = attribute(&page, "<tbody>", "href");
    let path = path.split('?').next().expect("a path").to_owned();
    owner.get(&format!("{path}?realm=/other")).await.expect(200);
    owner.get(&path).await.expect(404);
    let fields = [("realm", "/"), ("version", "1"), ("active", "false")];
    owner
        .post(&format!("{path}/switch"), &fields)
        .await
        .expect(404);
}

#[tokio::test]
async fn what_the_file_declares_is_not_changed_by_a_form() {
    let office = Office::open().await;
    let id = office.user("vera").await;
    let mut owner = office.signed_in("alice").await;
    let page = owner.get(&format!("/console/identity/users/{id}")).await;
    let page = page.expect(200).body;
    assert!(
        page.contains("The configuration file declares this user"),
        "{page}"
    );
    assert!(!page.contains("/switch\""), "{page}");
    let file = office.door.path("doorward.yaml");
    let file = std::fs::read_to_string(file).expect("the file");
    let line = file
        .lines()
        .position(|line| line.contains("userName: vera"));
    let place = format!("doorward.yaml:{}", line.expect("a line") + 1);
    let list = owner.get("/console/identity/users").await.expect(200).body;
    for shown in [&page, &list] {
        assert!(shown.contains(&place), "{place}: {shown}");
    }
    let path = format!("/console/identity/users/{id}/switch");
    let fields = [("realm", "/"), ("version", "1"), ("active", "false")];
    owner.post(&path, &fields).await.expect(409);
    office.signed_in("vera").await;
}

#[tokio::test]
async fn hostile_names_of_users_and_groups_are_shown_as_text() {
    let office = Office::open().await;
    let evil = "\"><img src=x onerror=alert(1)><script>alert(2)</script>";
    let user = json!({"userName": "<b>mallory</b>", "displayName": evil,
        "profileUrl": "javascript:alert(3)", "emails": [{"value": "a@x.example", "display": evil}]});
    let made = office.scim(Method::POST, "/v1/users", &user).await;
    let id = made.expect(201).json()["id"].clone();
    let group = json!({"displayName": evil, "members": [{"value": id}]});
    let group = office.scim(Method::POST, "/v1/groups", &group).await;
    let group = group.expect(201).json()["id"].clone();
    let (id, group) = (id.as_str().expect("an id"), group.as_str().expect("an id"));
    let mut owner = office.signed_in("alice").await;
    for path in [
        "/console/identity/users".to_owned(),
        "/console/identity/users?q=%22%3E%3Cscript%3Ealert(4)%3C/script%3E".to_owned(),
        format!("/console/identity/users/{id}"),
        format!("/console/identity/users/{id}?realm=%22%3E%3Cscript%3E&done=%3Cimg"),
        format!("/console/identity/users/{id}/edit"),
        "/console/identity/groups".to_owned(),
        format!("/console/identity/groups/{group}"),
        format!("/console/identity/groups/{group}/edit"),
    ] {
        let page = owner.get(&path).await.body;
        for markup in ["<img", "<script>", "<b>mallory", "href=\"javascript"] {
            assert!(!page.contains(markup), "{path}: {page}");
        }
    }
    let fields = [("realm", "/"), ("version", "1"), ("active", "false")];
    for path in [
        format!("users/{id}/delete"),
        format!("users/{id}/switch"),
        format!("groups/{group}/delete"),
    ] {
        let path = format!("/console/identity/{path}");
        let page = owner.post(&path, &fields).await.expect(200).body;
        for markup in ["<img", "<script>", "<b>mallory"] {
            assert!(!page.contains(markup), "{path}: {page}");
        }
    }
}
