//! Groups and users in the console: made, renamed, deleted, and not by their own
//! last owner.

use reqwest::Method;
use serde_json::{Value, json};

use crate::console::{Browser, attribute};
use crate::console_sign_in::{Office, TOKEN};
use crate::console_users::newest;
use crate::support::Answer;
use crate::support::http::{client, send};

const GROUPS: &str = "/console/identity/groups";

async fn rest(office: &Office, method: Method, path: &str, body: &Value) -> Answer {
    let request = client().request(method, office.door.admin_url(path));
    let request = request.header("kong-admin-token", TOKEN);
    send(request.json(body)).await
}

/// The page of the group of this name, and its version.
pub(crate) async fn group(browser: &mut Browser<'_>, name: &str) -> (String, String) {
    let list = browser.get(&format!("{GROUPS}?q={name}")).await;
    let list = list.expect(200).body;
    let page = attribute(&list, "<tbody>", "href").to_owned();
    let path = page.split('?').next().expect("a path").to_owned();
    let edit = browser.get(&format!("{path}/edit")).await.expect(200).body;
    let version = attribute(&edit, "name=\"version\"", "value").to_owned();
    (path, version)
}

#[tokio::test]
async fn a_group_is_made_renamed_and_deleted_after_its_difference() {
    let office = Office::open().await;
    let mut owner = office.signed_in("alice").await;
    let new = format!("{GROUPS}/new");
    owner.get(&new).await.expect(200);
    let fields = [("f.displayName", "Nurses"), ("f.externalId", "n-1")];
    let page = owner.post(&new, &fields).await.expect(200).body;
    assert!(page.contains("Nothing is changed yet"), "{page}");
    let none = owner.get(&format!("{GROUPS}?q=nurses")).await;
    assert!(!none.expect(200).body.contains(">Nurses</a>"));
    let made = owner.confirm(&page).await.expect(303);
    let page = owner.get(made.header("location")).await.expect(200).body;
    assert!(
        page.contains("Nurses") && page.contains("This is done."),
        "{page}"
    );
    let record = newest(&office, "group.create").await;
    assert_eq!(record["actor"]["name"], "alice", "{record}");
    assert_eq!(record["details"]["via"], "console", "{record}");
    // The name is taken whatever its case, and the form tells it.
    let page = owner.post(&new, &[("f.displayName", "NURSES")]).await;
    let page = owner.confirm(&page.expect(200).body).await.expect(400).body;
    assert!(page.contains("This name is taken"), "{page}");
    owner
        .post(&new, &[("f.displayName", " ")])
        .await
        .expect(400);
    let long = "x".repeat(1025);
    let page = owner.post(&new, &[("f.displayName", &long)]).await;
    let page = owner.confirm(&page.body).await.expect(400).body;
    assert!(page.contains("must have from 1 to 1024 bytes"), "{page}");
    let (path, version) = group(&mut owner, "nurses").await;
    let fields = [
        ("version", version.as_str()),
        ("f.displayName", "Carers"),
        ("f.externalId", ""),
    ];
    let edit = format!("{path}/edit");
    let page = owner.post(&edit, &fields).await.expect(200).body;
    assert!(
        page.contains("Nurses") && page.contains("Carers") && page.contains("n-1"),
        "{page}"
    );
    owner.confirm(&page).await.expect(303);
    // The form is stale by now.
    owner.post(&edit, &fields).await.expect(409);
    owner.confirm(&page).await.expect(409);
    owner
        .agree(&format!("{path}/add"), &[("user", "vera")])
        .await;
    let (path, version) = group(&mut owner, "carers").await;
    let delete = format!("{path}/delete");
    let fields = [("realm", "/"), ("version", version.as_str())];
    let page = owner.post(&delete, &fields).await.expect(200).body;
    assert!(page.contains("vera") && page.contains("make the group anew"));
    owner.get(&path).await.expect(200);
    owner.confirm(&page).await.expect(303);
    owner.get(&path).await.expect(404);
    let record = newest(&office, "group.delete").await;
    assert_eq!(record["actor"]["name"], "alice", "{record}");
}

#[tokio::test]
async fn a_user_is_deleted_after_a_page_that_says_what_is_lost() {
    let office = Office::open().await;
    office.hire("dan", "staff").await;
    let mut dan = office.signed_in("dan").await;
    dan.get("/console").await.expect(200);
    let id = office.user("dan").await;
    let mut owner = office.signed_in("alice").await;
    let path = format!("/console/identity/users/{id}");
    let delete = format!("{path}/delete");
    let fields = [("realm", "/"), ("version", "1")];
    let page = owner.post(&delete, &fields).await.expect(200).body;
    assert!(
        page.contains("can&#39;t be undone") && page.contains("staff"),
        "{page}"
    );
    owner.get(&path).await.expect(200);
    owner.confirm(&page).await.expect(303);
    owner.get(&path).await.expect(404);
    // The sessions have ended with the user.
    dan.get("/console").await.expect(303);
    let record = newest(&office, "user.delete").await;
    assert_eq!(record["actor"]["name"], "alice", "{record}");
    assert_eq!(record["user"]["name"], "dan", "{record}");
    let log = owner.get("/console/audit?kind=user.delete").await;
    assert!(!log.expect(200).body.contains("/console/undo/"));
}

#[tokio::test]
async fn an_owner_deletes_no_own_account_and_gives_up_no_last_owner_group() {
    let roles = "roles: {owner: [admins, board], viewer: [staff]}";
    let office = Office::with(roles).await;
    office.hire("dan", "Admins").await;
    let id = office.user("dan").await;
    let mut dan = office.signed_in("dan").await;
    let fields = [("realm", "/"), ("version", "1"), ("active", "false")];
    for action in ["delete", "switch"] {
        let path = format!("/console/identity/users/{id}/{action}");
        let page = dan.post(&path, &fields).await.expect(409).body;
        assert!(page.contains("your own account"), "{page}");
    }
    let (path, version) = group(&mut dan, "admins").await;
    let own = [("realm", "/"), ("member", id.as_str())];
    let last = [
        ("realm", "/"),
        ("version", version.as_str()),
        ("f.displayName", "former"),
    ];
    for (action, fields) in [
        ("remove", &own[..]),
        ("edit", &last[..]),
        ("delete", &last[..]),
    ] {
        let page = dan.post(&format!("{path}/{action}"), fields).await;
        let page = page.expect(409).body;
        assert!(page.contains("by this group alone"), "{action}: {page}");
    }
    // Another owner may go, and a member of two groups of owners gives up one.
    let alice = office.user("alice").await;
    let other = [("realm", "/"), ("member", alice.as_str())];
    dan.agree(&format!("{path}/remove"), &other).await;
    let board = json!({"displayName": "Board", "members": [id]});
    let made = rest(&office, Method::POST, "/identity/groups", &board).await;
    made.expect(201);
    dan.agree(&format!("{path}/remove"), &own).await;
    dan.get(&format!("{GROUPS}/new")).await.expect(200);
}

#[tokio::test]
async fn the_last_owner_group_is_looked_up_again_when_a_change_is_made() {
    let office = Office::with("roles: {owner: [admins, board]}").await;
    let id = office.user("alice").await;
    let board = json!({"displayName": "Board", "members": [id]});
    let board = rest(&office, Method::POST, "/identity/groups", &board).await;
    let board = board.expect(201).json();
    let mut owner = office.signed_in("alice").await;
    let (path, _) = group(&mut owner, "admins").await;
    let own = [("realm", "/"), ("member", id.as_str())];
    let page = owner.post(&format!("{path}/remove"), &own).await;
    let page = page.expect(200).body;
    // Meanwhile the other group is gone.
    let board = format!("/identity/groups/{}", board["id"].as_str().expect("an id"));
    let gone = rest(&office, Method::DELETE, &board, &Value::Null).await;
    gone.expect(204);
    let page = owner.confirm(&page).await.expect(409).body;
    assert!(page.contains("by this group alone"), "{page}");
    owner.get(&format!("{GROUPS}/new")).await.expect(200);
}

#[tokio::test]
async fn groups_and_users_are_changed_over_rest_by_version() {
    let office = Office::open().await;
    let none = Value::Null;
    let nobody = "00000000-0000-4000-8000-000000000000";
    for (body, status) in [
        (json!({}), 400),
        (json!({"displayName": ""}), 400),
        (json!({"displayName": "x".repeat(1025)}), 400),
        (json!({"displayName": "a\u{200b}b"}), 400),
        (json!({"displayName": "a", "other": 1}), 400),
        (json!({"displayName": "a", "members": "x"}), 400),
        (json!({"displayName": "a", "members": [nobody]}), 400),
        (json!({"displayName": "STAFF"}), 409),
    ] {
        let answer = rest(&office, Method::POST, "/identity/groups", &body).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.body);
    }
    let body = json!({"displayName": "a", "externalId": "e"});
    let made = rest(&office, Method::POST, "/identity/groups", &body).await;
    let made = made.expect(201).json();
    assert_eq!(made["version"], 1, "{made}");
    let path = format!("/identity/groups/{}", made["id"].as_str().expect("an id"));
    let patch = json!({"displayName": "b", "externalId": null, "version": 1});
    let done = rest(&office, Method::PATCH, &path, &patch).await;
    let done = done.expect(200).json();
    assert_eq!(
        (&done["displayName"], &done["version"]),
        (&json!("b"), &json!(2))
    );
    assert_eq!(done["externalId"], none);
    rest(&office, Method::PATCH, &path, &patch)
        .await
        .expect(412);
    let elsewhere = format!("{path}?realm=/other");
    rest(&office, Method::DELETE, &elsewhere, &none)
        .await
        .expect(404);
    for (query, status) in [("version=1", 412), ("version=x", 400), ("version=2", 204)] {
        let path = format!("{path}?{query}");
        let answer = rest(&office, Method::DELETE, &path, &none).await;
        assert_eq!(answer.status, status, "{query}: {}", answer.body);
    }
    office.hire("dan", "staff").await;
    let path = format!("/identity/users/{}", office.user("dan").await);
    for (query, status) in [("?version=7", 412), ("?version=1", 204), ("", 404)] {
        let path = format!("{path}{query}");
        let answer = rest(&office, Method::DELETE, &path, &none).await;
        assert_eq!(answer.status, status, "{query}: {}", answer.body);
    }
    // The file's users are deleted there.
    let path = format!("/identity/users/{}", office.user("vera").await);
    rest(&office, Method::DELETE, &path, &none)
        .await
        .expect(409);
}

#[tokio::test]
async fn a_search_for_groups_is_no_longer_than_a_name() {
    let office = Office::open().await;
    for list in ["users", "groups"] {
        let path = format!("/identity/{list}?q={}", "x".repeat(321));
        let answer = rest(&office, Method::GET, &path, &Value::Null).await;
        let body = answer.expect(400).json();
        assert_eq!(body["options"]["q"], "is longer than 320 bytes", "{body}");
    }
}

#[tokio::test]
async fn a_group_of_another_realm_makes_no_owner_and_is_none_to_lose() {
    let office = Office::open().await;
    let mut owner = office.signed_in("alice").await;
    let olga = office.user("olga").await;
    let fields = [("realm", "/other"), ("f.displayName", "Admins")];
    let made = owner.agree(&format!("{GROUPS}/new"), &fields).await;
    assert!(made.contains("realm=%2Fother"), "{made}");
    let path = made.split('?').next().expect("a path").to_owned();
    // Users of the console's realm are none of the other's.
    let fields = [("realm", "/other"), ("user", "olga")];
    owner
        .post(&format!("{path}/add"), &fields)
        .await
        .expect(404);
    let foreign = [("realm", "/other"), ("member", olga.as_str())];
    owner
        .post(&format!("{path}/remove"), &foreign)
        .await
        .expect(404);
    let mut operator = office.signed_in("olga").await;
    operator.get(&format!("{GROUPS}/new")).await.expect(403);
    // The group has the name of the visitor's own, and is another one.
    let fields = [("realm", "/"), ("version", "1")];
    let delete = format!("{path}/delete");
    owner.post(&delete, &fields).await.expect(404);
    let fields = [("realm", "/other"), ("version", "1")];
    owner.agree(&delete, &fields).await;
    owner.get(&format!("{GROUPS}/new")).await.expect(200);
}
