//! Changes in the console are undone from the audit log.

use reqwest::Method;
use serde_json::{Value, json};

use crate::console::{Browser, attribute};
use crate::console_groups::group;
use crate::console_sign_in::Office;
use crate::console_users::newest;
use crate::support::http::send;

/// The address that undoes the newest change of this kind, if there is one.
pub(crate) async fn undo(browser: &mut Browser<'_>, kind: &str) -> Option<String> {
    let page = browser.get(&format!("/console/audit?kind={kind}")).await;
    let page = page.expect(200).body;
    let row = page.split("<tbody>").nth(1).unwrap_or_default();
    let row = row.split("</tr>").next().unwrap_or_default();
    let at = row.find("action=\"/console/undo/")?;
    Some(attribute(&row[at..], "", "action").to_owned())
}

/// Undoes the newest change of this kind.
async fn undone(browser: &mut Browser<'_>, kind: &str) -> String {
    let address = undo(browser, kind).await.expect("a way back");
    browser.agree(&address, &[]).await
}

#[tokio::test]
async fn a_change_of_a_user_is_undone_once_and_by_name() {
    let office = Office::open().await;
    office.hire("dan", "staff").await;
    let id = office.user("dan").await;
    let path = format!("/console/identity/users/{id}");
    let mut owner = office.signed_in("alice").await;
    let fields = [
        ("version", "1"),
        ("f.userName", "dan"),
        ("f.displayName", "Daniel"),
        ("f.emails", "dan@example.com"),
    ];
    owner.agree(&format!("{path}/edit"), &fields).await;
    let address = undo(&mut owner, "user.update").await.expect("a way back");
    let page = owner.post(&address, &[]).await.expect(200).body;
    assert!(
        page.contains("Daniel") && page.contains("dan@example.com"),
        "{page}"
    );
    let page = owner.get(&path).await.expect(200).body;
    assert!(page.contains("Daniel"), "nothing is undone yet: {page}");
    undone(&mut owner, "user.update").await;
    let page = owner.get(&path).await.expect(200).body;
    assert!(
        !page.contains("Daniel") && !page.contains("dan@example"),
        "{page}"
    );
    let record = newest(&office, "user.update").await;
    assert_eq!(record["actor"]["name"], "alice", "{record}");
    // It was undone; the undoing can be undone.
    owner.post(&address, &[]).await.expect(409);
    undone(&mut owner, "user.update").await;
    let page = owner.get(&path).await.expect(200).body;
    assert!(page.contains("Daniel"), "{page}");
}

#[tokio::test]
async fn a_change_is_undone_after_a_restart() {
    let mut office = Office::open().await;
    office.hire("dan", "staff").await;
    let id = office.user("dan").await;
    let path = format!("/console/identity/users/{id}");
    let fields = [
        ("version", "1"),
        ("f.userName", "dan"),
        ("f.displayName", "Daniel"),
    ];
    let mut owner = office.signed_in("alice").await;
    owner.agree(&format!("{path}/edit"), &fields).await;
    office.door.kill();
    office.door.start().await;
    let mut owner = office.signed_in("alice").await;
    undone(&mut owner, "user.update").await;
    let page = owner.get(&path).await.expect(200).body;
    assert!(!page.contains("Daniel"), "{page}");
}

#[tokio::test]
async fn changes_of_groups_and_members_are_undone() {
    let office = Office::open().await;
    let mut owner = office.signed_in("alice").await;
    let (staff, version) = group(&mut owner, "staff").await;
    // A member comes and goes again.
    let add = format!("{staff}/add");
    owner.agree(&add, &[("user", "nobody")]).await;
    let page = owner.get(&staff).await.expect(200).body;
    assert!(page.contains(">nobody</a>"), "{page}");
    undone(&mut owner, "group.update").await;
    let page = owner.get(&staff).await.expect(200).body;
    assert!(!page.contains(">nobody</a>"), "{page}");
    // A new group goes again.
    let new = "/console/identity/groups/new";
    let made = owner.agree(new, &[("f.displayName", "Nurses")]).await;
    undone(&mut owner, "group.create").await;
    owner.get(&made).await.expect(404);
    // A deleted one comes back with its members, and is a group of the console again.
    let (_, now) = group(&mut owner, "staff").await;
    assert_ne!(now, version, "members count");
    let fields = [("realm", "/"), ("version", now.as_str())];
    owner.agree(&format!("{staff}/delete"), &fields).await;
    let (mut vera, address) = office.departed("/console").await;
    let callback = crate::console_sign_in::agree(&mut vera, &address, "vera").await;
    vera.get(&callback).await.expect(403);
    let page = undone(&mut owner, "group.delete").await;
    let page = owner.get(&page).await.expect(200).body;
    assert!(
        page.contains("staff") && page.contains(">vera</a>"),
        "{page}"
    );
    office.signed_in("vera").await;
}

#[tokio::test]
async fn what_has_changed_since_is_not_undone() {
    let office = Office::open().await;
    let user = office.hire("dan", "staff").await;
    let id = office.user("dan").await;
    let path = format!("/console/identity/users/{id}/switch");
    let mut owner = office.signed_in("alice").await;
    let fields = [("realm", "/"), ("version", "1"), ("active", "false")];
    owner.agree(&path, &fields).await;
    let address = undo(&mut owner, "user.update").await.expect("a way back");
    let shown = owner.post(&address, &[]).await.expect(200).body;
    let schemas = json!(["urn:ietf:params:scim:api:messages:2.0:PatchOp"]);
    let title = json!({"schemas": schemas,
        "Operations": [{"op": "add", "path": "title", "value": "Dr"}]});
    office.scim(Method::PATCH, &user, &title).await.expect(200);
    owner.post(&address, &[]).await.expect(409);
    owner.confirm(&shown).await.expect(409);
    let page = owner.get(&format!("/console/identity/users/{id}")).await;
    assert!(page.expect(200).body.contains("Deactivated"));
}

/// Makes a service; its page, and its path below those of the gateway.
async fn service(operator: &mut Browser<'_>) -> (String, String) {
    let fields = [("view", "form"), ("f.name", "web"), ("f.host", "a.example")];
    let made = operator.change("services", &fields).await.expect(303);
    let page = made.header("location").to_owned();
    let own = page.trim_start_matches("/console/gateway/").to_owned();
    (page, own)
}

#[tokio::test]
async fn entities_are_undone_too() {
    let office = Office::open().await;
    let mut operator = office.signed_in("olga").await;
    let (page, own) = service(&mut operator).await;
    let patch = [("view", "patch"), ("patch", "{\"host\":\"b.example\"}")];
    operator.change(&own, &patch).await.expect(303);
    let text = operator.get(&page).await.expect(200).body;
    assert!(text.contains("b.example"), "{text}");
    let used = undo(&mut operator, "entity.update").await;
    let used = used.expect("a way back");
    undone(&mut operator, "entity.update").await;
    // It was undone: it is offered no more, and not done again.
    operator.post(&used, &[]).await.expect(409);
    let log = operator.get("/console/audit?kind=entity.update").await;
    assert!(!log.expect(200).body.contains(&used));
    let text = operator.get(&page).await.expect(200).body;
    assert!(
        text.contains("a.example") && !text.contains("b.example"),
        "{text}"
    );
    operator
        .change(&own, &[("view", "delete")])
        .await
        .expect(303);
    operator.get(&page).await.expect(404);
    let used = undo(&mut operator, "entity.delete").await;
    let used = used.expect("a way back");
    undone(&mut operator, "entity.delete").await;
    operator.post(&used, &[]).await.expect(409);
    let text = operator.get(&page).await.expect(200).body;
    assert!(text.contains("a.example"), "{text}");
    undone(&mut operator, "entity.create").await;
    operator.get(&page).await.expect(404);
}

#[tokio::test]
async fn a_deletion_that_takes_more_along_says_that_it_stays() {
    let office = Office::open().await;
    let mut operator = office.signed_in("olga").await;
    let (_, own) = service(&mut operator).await;
    let plugin = [
        ("view", "json"),
        ("record", "{\"name\":\"correlation-id\"}"),
        ("f.name", "correlation-id"),
    ];
    let below = format!("{own}/plugins");
    operator.change(&below, &plugin).await.expect(303);
    let preview = format!("/console/preview/{own}");
    let shown = operator.post(&preview, &[("view", "delete")]).await;
    let shown = shown.expect(200).body;
    assert!(shown.contains("can&#39;t be undone"), "{shown}");
    operator.confirm(&shown).await.expect(303);
    assert_eq!(undo(&mut operator, "entity.delete").await, None);
}

#[tokio::test]
async fn nobody_undoes_what_the_role_does_not_allow() {
    let office = Office::open().await;
    office.hire("dan", "staff").await;
    let id = office.user("dan").await;
    let mut owner = office.signed_in("alice").await;
    let path = format!("/console/identity/users/{id}/switch");
    let fields = [("realm", "/"), ("version", "1"), ("active", "false")];
    owner.agree(&path, &fields).await;
    let address = undo(&mut owner, "user.update").await.expect("a way back");
    let shown = owner.post(&address, &[]).await.expect(200).body;
    for name in ["vera", "olga"] {
        let mut other = office.signed_in(name).await;
        assert_eq!(undo(&mut other, "user.update").await, None);
        other.post(&address, &[]).await.expect(403);
        // What was sealed for an owner is good for nobody else.
        other.confirm(&shown).await.expect(403);
    }
    // Neither is it for another session of an owner, another site, or a link.
    let mut again = office.signed_in("alice").await;
    again.confirm(&shown).await.expect(403);
    again.submit(&address, &[]).await.expect(403);
    again.get(&address).await.expect(405);
    let token = owner.form_token().await;
    let request = owner.request(Method::POST, &address);
    let request = request.header("origin", "https://evil.example");
    let request = request.form(&[("form_token", token.as_str())]);
    send(request).await.expect(403);
    let unknown = "/console/undo/AAAAAAAAAAAAAAAAAAAAAA";
    owner.post(unknown, &[]).await.expect(409);
    let record = newest(&office, "user.update").await;
    assert_ne!(record["details"]["change"], Value::Null, "{record}");
}
