//! Users and groups of the provider in the console.

use reqwest::Method;
use serde_json::{Value, json};

use crate::console::{Browser, attribute};
use crate::console_sign_in::{Office, TOKEN};
use crate::support::http::{client, send};
use crate::support::{Reply, Upstream, eventually};

/// The first page of a user in the list of a search.
pub(crate) async fn found(browser: &mut Browser<'_>, search: &str) -> String {
    let list = format!("/console/identity/users?q={search}");
    let page = browser.get(&list).await.expect(200).body;
    attribute(&page, "<tbody>", "href").replace("&#38;", "&")
}

/// The newest record of this kind in the audit log.
pub(crate) async fn newest(office: &Office, kind: &str) -> Value {
    let path = format!("/audit?kind={kind}");
    let request = client().get(office.door.admin_url(&path));
    let records = send(request.header("kong-admin-token", TOKEN)).await;
    records.expect(200).json()["data"][0].clone()
}

/// A form of a user's page, by the name of its action.
fn form(page: &str, action: &str) -> (String, Vec<(&'static str, String)>) {
    let at = page.find(&format!("/{action}\">")).unwrap_or_default();
    let begin = page[..at].rfind("<form").unwrap_or_default();
    let form = &page[begin..];
    let form = form.split("</form>").next().unwrap_or_default();
    let field = |name: &'static str| {
        let value = attribute(form, &format!("name=\"{name}\""), "value");
        (name, value.to_owned())
    };
    let fields = [
        "realm", "name", "version", "active", "session", "client", "member",
    ];
    let present = |name: &&str| form.contains(&format!("name=\"{name}\""));
    let fields = fields.into_iter().filter(present).map(field);
    (attribute(form, "", "action").to_owned(), fields.collect())
}

pub(crate) async fn press(browser: &mut Browser<'_>, page: &str, action: &str) -> String {
    let (address, fields) = form(page, action);
    assert!(address.ends_with(action), "{action}: {page}");
    let fields: Vec<_> = fields.iter().map(|(k, v)| (*k, v.as_str())).collect();
    let answer = browser.post(&address, &fields).await;
    // What changes a record shows the difference first.
    let answer = match answer.status {
        200 => browser.confirm(&answer.body).await,
        _ => answer,
    };
    answer.expect(303).header("location").to_owned()
}

#[tokio::test]
async fn users_are_found_by_the_beginning_of_name_or_address_a_page_at_a_time() {
    let office = Office::open().await;
    for index in 0..60 {
        let user = json!({"userName": format!("worker{index:02}"),
            "emails": [{"value": format!("post{index:02}@example.com")}]});
        let made = office.scim(Method::POST, "/v1/users", &user).await;
        made.expect(201);
    }
    let mut viewer = office.signed_in("vera").await;
    let list = "/console/identity/users?q=WORKER";
    let page = viewer.get(list).await.expect(200).body;
    assert!(
        page.contains("worker00") && page.contains("worker49"),
        "{page}"
    );
    assert!(
        !page.contains("worker50") && !page.contains("alice"),
        "{page}"
    );
    let before = page.find("rel=\"next\"").expect("a next page");
    let at = page[..before].rfind("href=").expect("a link");
    let next = attribute(&page[at..], "", "href").replace("&#38;", "&");
    let page = viewer.get(&next).await.expect(200).body;
    assert!(
        page.contains("worker50") && page.contains("worker59"),
        "{page}"
    );
    assert!(!page.contains("worker49") && !page.contains("rel=\"next\""));
    let page = viewer.get("/console/identity/users?q=post07").await;
    let page = page.expect(200).body;
    assert!(
        page.contains("worker07") && !page.contains("worker08"),
        "{page}"
    );
    // What both the name and an address begin with is one user.
    let both = json!({"userName": "twice", "emails": [{"value": "twice@example.com"}]});
    let made = office.scim(Method::POST, "/v1/users", &both).await;
    made.expect(201);
    let page = viewer.get("/console/identity/users?q=twice").await;
    assert_eq!(page.expect(200).body.matches(">twice</a>").count(), 1);
    viewer
        .get("/console/identity/users?realm=/none")
        .await
        .expect(404);
    let address = found(&mut viewer, "worker07").await;
    let page = viewer.get(&address).await.expect(200).body;
    assert!(page.contains("post07@example.com"), "{page}");
}

#[tokio::test]
async fn sessions_end_and_accounts_are_switched_with_the_persons_name_in_the_audit_log() {
    let office = Office::open().await;
    office.hire("dan", "staff").await;
    let mut dan = office.signed_in("dan").await;
    let mut owner = office.signed_in("alice").await;
    let address = found(&mut owner, "dan").await;
    let page = owner.get(&address).await.expect(200).body;
    assert!(page.contains("doorward-console"), "{page}");
    assert!(page.contains(">staff</a>"), "{page}");
    let done = press(&mut owner, &page, "session").await;
    let page = owner.get(&done).await.expect(200).body;
    assert!(page.contains("This is done."), "{page}");
    dan.get("/console").await.expect(303);
    assert_eq!(
        newest(&office, "session.end").await["actor"]["name"],
        "alice"
    );
    let done = press(&mut owner, &page, "switch").await;
    let page = owner.get(&done).await.expect(200).body;
    assert!(page.contains("Deactivated"), "{page}");
    let record = newest(&office, "user.update").await;
    assert_eq!(record["actor"]["name"], "alice", "{record}");
    assert_eq!(record["user"]["name"], "dan", "{record}");
    assert_eq!(record["details"]["via"], "console", "{record}");
    assert_eq!(record["details"]["changed"], json!(["accountStatus"]));
    press(&mut owner, &page, "switch").await;
    office.signed_in("dan").await;
    let page = owner.get(&address).await.expect(200).body;
    let done = press(&mut owner, &page, "end-sessions").await;
    let page = owner.get(&done).await.expect(200).body;
    assert!(!page.contains("doorward-console"), "{page}");
}

#[tokio::test]
async fn a_locked_name_is_shown_as_such_and_unlocked() {
    let office = Office::with_provider("  lockout: {failures: 2}\n").await;
    let sign_in = || async {
        let request = client().post(office.door.proxy_url("/json/authenticate"));
        let request = request.header("x-service-username", "vera");
        send(request.header("x-service-password", "wrong")).await
    };
    let mut operator = office.signed_in("olga").await;
    let address = found(&mut operator, "vera").await;
    let page = operator.get(&address).await.expect(200).body;
    assert!(!page.contains("/unlock\""), "{page}");
    for _ in 0..2 {
        sign_in().await.expect(401);
    }
    let page = operator.get(&address).await.expect(200).body;
    assert!(page.contains("locked after wrong passwords"), "{page}");
    press(&mut operator, &page, "unlock").await;
    let page = operator.get(&address).await.expect(200).body;
    assert!(!page.contains("locked after wrong passwords"), "{page}");
    office.signed_in("vera").await;
    assert_eq!(
        newest(&office, "lockout.end").await["actor"]["name"],
        "olga"
    );
}

#[tokio::test]
async fn an_operator_sends_a_link_for_a_new_password_and_does_not_see_it() {
    let hook = Upstream::start(|_| Reply::Json(200, json!({}))).await;
    let url = hook.url("/mail");
    let mail = format!("  mail: {{webhook: {{url: \"{url}\", secret: sixteen-bytes-or-more}}}}\n");
    let office = Office::with_provider(&mail).await;
    let user = json!({"userName": "eve", "password": "Ch4ng31t-eve",
        "emails": [{"value": "eve@example.com"}]});
    let made = office.scim(Method::POST, "/v1/users", &user).await;
    made.expect(201);
    let mut operator = office.signed_in("olga").await;
    let address = found(&mut operator, "eve").await;
    let page = operator.get(&address).await.expect(200).body;
    let done = press(&mut operator, &page, "reset").await;
    let page = operator.get(&done).await.expect(200).body;
    assert!(page.contains("A message with a link"), "{page}");
    let told = eventually("the webhook", || async { hook.seen().pop() }).await;
    let body: Value = serde_json::from_slice(&told.body).expect("JSON");
    assert_eq!(body["user"]["email"], "eve@example.com");
    let link = body["link"].as_str().expect("a link");
    assert!(!page.contains(link), "{page}");
    send(client().get(link)).await.expect(200);
    let record = newest(&office, "password.reset").await;
    assert_eq!(record["actor"]["name"], "olga", "{record}");
    assert_eq!(record["user"]["name"], "eve", "{record}");
    // Those of the file have their passwords there.
    let address = found(&mut operator, "vera").await;
    let page = operator.get(&address).await.expect(200).body;
    assert!(!page.contains("/reset\""), "{page}");
    let id = office.user("vera").await;
    let path = format!("/console/identity/users/{id}/reset");
    operator.post(&path, &[("realm", "/")]).await.expect(409);
}

#[tokio::test]
async fn a_user_is_made_changed_and_put_into_a_group() {
    let office = Office::open().await;
    let mut owner = office.signed_in("alice").await;
    let fields = [
        ("f.userName", "fay"),
        ("f.displayName", "Fay"),
        ("f.givenName", "Fay"),
        ("f.familyName", "Day"),
        ("f.emails", "fay@example.com\r\nf.day@example.com"),
        ("f.password", "Ch4ng31t-fay"),
    ];
    let new = "/console/identity/users/new";
    owner.get(new).await.expect(200);
    let page = owner.post(new, &fields).await.expect(200).body;
    assert!(
        page.contains("f.day@example.com") && !page.contains("Ch4ng31t-fay"),
        "{page}"
    );
    let nobody = owner.get("/console/identity/users?q=fay").await;
    assert!(!nobody.expect(200).body.contains(">fay</a>"));
    let answer = owner.confirm(&page).await.expect(303);
    let address = answer.header("location").to_owned();
    let page = owner.post(new, &fields).await.expect(200).body;
    let again = owner.confirm(&page).await.expect(400);
    assert!(again.body.contains("This name is taken"), "{}", again.body);
    assert!(again.body.contains("value=\"Day\""), "{}", again.body);
    assert!(!again.body.contains("Ch4ng31t-fay"), "{}", again.body);
    let page = owner.get(&address).await.expect(200).body;
    assert!(page.contains("f.day@example.com"), "{page}");
    let groups = owner.get("/console/identity/groups?q=STA").await;
    let groups = groups.expect(200).body;
    let group = attribute(&groups, "<tbody>", "href").to_owned();
    let group = group.split('?').next().expect("a path").to_owned();
    let add = format!("{group}/add");
    owner
        .post(&add, &[("user", "nobody-at-all")])
        .await
        .expect(404);
    owner.agree(&add, &[("user", "FAY")]).await;
    // Who is a member already stays one.
    let page = owner.post(&add, &[("user", "fay")]).await.expect(200).body;
    assert!(page.contains("Nothing differs"), "{page}");
    let record = newest(&office, "group.update").await;
    assert_eq!(record["actor"]["name"], "alice", "{record}");
    let mut fay = office.signed_in("fay").await;
    fay.get("/console").await.expect(200);
    let edit = format!("{}/edit", address.split('?').next().expect("a path"));
    let page = owner.get(&edit).await.expect(200).body;
    assert!(
        page.contains("fay@example.com\nf.day@example.com"),
        "{page}"
    );
    let version = attribute(&page, "name=\"version\"", "value").to_owned();
    let fields = [
        ("version", version.as_str()),
        ("f.userName", "fay"),
        ("f.displayName", ""),
        ("f.givenName", "Fay"),
        ("f.familyName", "Night"),
        ("f.emails", "f.day@example.com"),
        ("f.password", ""),
    ];
    owner.agree(&edit, &fields).await;
    let page = owner.get(&address).await.expect(200).body;
    assert!(
        page.contains("Night") && !page.contains("fay@example"),
        "{page}"
    );
    assert!(!page.contains("displayName"), "{page}");
    // Stale by now.
    owner.post(&edit, &fields).await.expect(409);
    let page = owner.get(&group).await.expect(200).body;
    press(&mut owner, &page, "remove").await;
}
