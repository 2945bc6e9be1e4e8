//! Two people change one record at the same time.

use reqwest::Method;
use serde_json::{Value, json};

use crate::console::{Browser, attribute};
use crate::console_registry::rest;
use crate::console_sign_in::Office;
use crate::console_undo::undo;

/// The fields that a form carries about the record that it was made of.
struct Carried {
    version: String,
    base: String,
}

impl Carried {
    async fn of(browser: &mut Browser<'_>, page: &str) -> Self {
        let page = browser.get(page).await.expect(200).body;
        let base = attribute(&page, "name=\"base\"", "value");
        let base = base.replace("&#34;", "\"").replace("&#39;", "'");
        let base = base.replace("&#60;", "<").replace("&#62;", ">");
        Self {
            version: attribute(&page, "name=\"version\"", "value").to_owned(),
            base: base.replace("&#38;", "&"),
        }
    }

    fn with<'a>(&'a self, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let own = [("version", &*self.version), ("base", &*self.base)];
        [&own, more].concat()
    }
}

#[tokio::test]
async fn a_stale_form_of_a_service_is_made_on_the_new_one_and_reverts_nothing() {
    let office = Office::open().await;
    let service = json!({"name": "web", "host": "a.example", "port": 8080});
    rest(&office, Method::POST, "/services", &service)
        .await
        .expect(201);
    let mut owner = office.signed_in("alice").await;
    let form = Carried::of(&mut owner, "/console/edit/services/web").await;
    let other = json!({"port": 9090, "retries": 2});
    rest(&office, Method::PATCH, "/services/web", &other)
        .await
        .expect(200);
    // The form has the port of before: that is no change of its own.
    let fields = form.with(&[
        ("view", "form"),
        ("f.host", "b.example"),
        ("f.port", "8080"),
    ]);
    let page = owner.post("/console/preview/services/web", &fields).await;
    let page = page.expect(409).body;
    assert!(page.contains("Nothing of yours is lost"), "{page}");
    assert!(page.contains("entity.update"), "who did it: {page}");
    assert!(
        page.contains("<del>8080</del></td><td><ins>9090</ins>"),
        "{page}"
    );
    assert!(
        page.contains("<del>a.example</del></td><td><ins>b.example</ins>"),
        "{page}"
    );
    owner.confirm(&page).await.expect(303);
    let now = rest(&office, Method::GET, "/services/web", &Value::Null).await;
    let now = now.expect(200).json();
    assert_eq!(now["host"], "b.example");
    assert_eq!((&now["port"], &now["retries"]), (&json!(9090), &json!(2)));
}

#[tokio::test]
async fn a_field_that_both_have_changed_is_marked_as_such() {
    let office = Office::open().await;
    let service = json!({"name": "web", "host": "a.example"});
    rest(&office, Method::POST, "/services", &service)
        .await
        .expect(201);
    let mut owner = office.signed_in("alice").await;
    let form = Carried::of(&mut owner, "/console/edit/services/web").await;
    let other = json!({"host": "c.example"});
    rest(&office, Method::PATCH, "/services/web", &other)
        .await
        .expect(200);
    let fields = form.with(&[("view", "form"), ("f.host", "b.example")]);
    let page = owner.post("/console/preview/services/web", &fields).await;
    let page = page.expect(409).body;
    assert!(page.contains("changed by both"), "{page}");
    assert!(
        page.contains("<del>c.example</del></td><td><ins>b.example</ins>"),
        "{page}"
    );
    // A third change comes before the yes.
    let third = json!({"host": "d.example"});
    rest(&office, Method::PATCH, "/services/web", &third)
        .await
        .expect(200);
    let again = owner.confirm(&page).await.expect(409).body;
    assert!(again.contains("<del>d.example</del>"), "{again}");
    owner.confirm(&again).await.expect(303);
    let now = rest(&office, Method::GET, "/services/web", &Value::Null).await;
    assert_eq!(now.expect(200).json()["host"], "b.example");
}

#[tokio::test]
async fn stale_forms_of_clients_realms_users_and_groups_are_made_on_the_new_ones() {
    let office = Office::open().await;
    let shop = json!({"client_id": "shop", "grant_types": ["client_credentials"], "scope": "a"});
    rest(&office, Method::POST, "/identity/clients", &shop)
        .await
        .expect(201);
    let staff = json!({"path": "/staff"});
    rest(&office, Method::POST, "/identity/realms", &staff)
        .await
        .expect(201);
    office.hire("dan", "staff").await;
    let user = office.user("dan").await;
    let group = json!({"displayName": "night"});
    let group = rest(&office, Method::POST, "/identity/groups", &group).await;
    let group = group.expect(201).json();
    let group = group["id"].as_str().expect("an id");
    let (user, group) = (format!("users/{user}"), format!("groups/{group}"));
    let settings = "/console/identity/settings";
    let edit = |of: &str| format!("/console/identity/{of}/edit");
    let mut owner = office.signed_in("alice").await;
    for (target, page, other, field, told, kept) in [
        (
            "/identity/clients/shop".to_owned(),
            edit("clients/shop"),
            json!({"scope": "b"}),
            ("f.client_name", "Shop"),
            ("client_name", json!("Shop")),
            ("scope", json!("b")),
        ),
        (
            "/identity/realms/staff".to_owned(),
            settings.to_owned(),
            json!({"settings": {"id_token_lifetime": 60}}),
            ("f.access_token_lifetime", "90"),
            ("access_token_lifetime", json!(90)),
            ("id_token_lifetime", json!(60)),
        ),
        (
            format!("/identity/{user}"),
            edit(&user),
            json!({"title": "Dr."}),
            ("f.displayName", "Dan D."),
            ("displayName", json!("Dan D.")),
            ("title", json!("Dr.")),
        ),
        (
            format!("/identity/{group}"),
            edit(&group),
            json!({"externalId": "e-1"}),
            ("f.displayName", "day"),
            ("displayName", json!("day")),
            ("externalId", json!("e-1")),
        ),
    ] {
        let is_realm = page == settings;
        let shown = if is_realm {
            format!("{page}?realm=%2Fstaff")
        } else {
            page.clone()
        };
        let form = Carried::of(&mut owner, &shown).await;
        rest(&office, Method::PATCH, &target, &other)
            .await
            .expect(200);
        let realm = if is_realm { "/staff" } else { "/" };
        let mut fields = form.with(&[("view", "form"), ("realm", realm), field]);
        if target.contains("/users/") {
            fields.push(("f.userName", "dan"));
        }
        let answer = owner.post(&page, &fields).await.expect(409).body;
        assert!(
            answer.contains("Nothing of yours is lost"),
            "{target}: {answer}"
        );
        assert!(answer.contains(told.0), "{target}: {answer}");
        assert!(
            answer.contains(kept.0),
            "what the other did: {target}: {answer}"
        );
        owner.confirm(&answer).await.expect(303);
        let now = rest(&office, Method::GET, &target, &Value::Null).await;
        let mut now = now.expect(200).json();
        if is_realm {
            now = now["settings"].take();
        }
        assert_eq!(
            (&now[told.0], &now[kept.0]),
            (&told.1, &kept.1),
            "{target}: {now}"
        );
    }
}

#[tokio::test]
async fn a_stale_form_opens_nothing_that_somebody_else_has_closed_beside_it() {
    let office = Office::open().await;
    let registration =
        |mode: &str, scope: &str| json!({"registration": {"mode": mode, "scope": scope}});
    let staff = json!({"path": "/staff", "settings": registration("open", "openid")});
    rest(&office, Method::POST, "/identity/realms", &staff)
        .await
        .expect(201);
    let mut owner = office.signed_in("alice").await;
    let settings = "/console/identity/settings";
    let form = Carried::of(&mut owner, &format!("{settings}?realm=%2Fstaff")).await;
    let closed = json!({"settings": registration("disabled", "openid")});
    let target = "/identity/realms/staff";
    rest(&office, Method::PATCH, target, &closed)
        .await
        .expect(200);
    let fields = form.with(&[
        ("view", "form"),
        ("realm", "/staff"),
        ("f.registration.scope", "openid profile"),
    ]);
    let page = owner.post(settings, &fields).await.expect(409).body;
    owner.confirm(&page).await.expect(303);
    let now = rest(&office, Method::GET, target, &Value::Null).await;
    let now = now.expect(200).json()["settings"]["registration"].take();
    assert_eq!(
        (&now["mode"], &now["scope"]),
        (&json!("disabled"), &json!("openid profile"))
    );
    // What comes between the page and the yes is not overwritten either.
    let form = Carried::of(&mut owner, &format!("{settings}?realm=%2Fstaff")).await;
    let fields = form.with(&[
        ("view", "form"),
        ("realm", "/staff"),
        ("f.registration.scope", "openid"),
    ]);
    let page = owner.post(settings, &fields).await.expect(200).body;
    let opened = json!({"settings": registration("open", "openid profile")});
    rest(&office, Method::PATCH, target, &opened)
        .await
        .expect(200);
    owner.confirm(&page).await.expect(409);
    let now = rest(&office, Method::GET, target, &Value::Null).await;
    assert_eq!(
        now.expect(200).json()["settings"]["registration"]["mode"],
        "open"
    );
}

#[tokio::test]
async fn a_secret_that_is_replaced_after_a_409_is_shown_as_such() {
    let office = Office::open().await;
    let plugin = json!({"name": "session", "config": {"secret": "a".repeat(32)}});
    let made = rest(&office, Method::POST, "/plugins", &plugin).await;
    let id = made.expect(201).json()["id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let mut owner = office.signed_in("alice").await;
    let form = Carried::of(&mut owner, &format!("/console/edit/plugins/{id}")).await;
    let other = json!({"tags": ["x"]});
    rest(&office, Method::PATCH, &format!("/plugins/{id}"), &other)
        .await
        .expect(200);
    let secret = "b".repeat(32);
    let fields = form.with(&[("view", "form"), ("f.config.secret", &secret)]);
    let preview = format!("/console/preview/plugins/{id}");
    let page = owner.post(&preview, &fields).await.expect(409).body;
    assert!(
        page.contains("config.secret") && !page.contains(&secret),
        "{page}"
    );
    owner.confirm(&page).await.expect(303);
}

#[tokio::test]
async fn a_base_that_somebody_made_up_shows_no_markup_and_changes_nothing_else() {
    let office = Office::open().await;
    let service = json!({"name": "web", "host": "a.example"});
    rest(&office, Method::POST, "/services", &service)
        .await
        .expect(201);
    let mut owner = office.signed_in("alice").await;
    let evil = json!({"host": "<img src=x onerror=alert(1)>", "<b>x</b>": 1}).to_string();
    let fields = [
        ("view", "form"),
        ("version", "made-up"),
        ("base", &evil),
        ("f.host", "b.example"),
    ];
    let page = owner.post("/console/preview/services/web", &fields).await;
    let page = page.expect(409).body;
    assert!(!page.contains("<img") && !page.contains("<b>"), "{page}");
    for base in ["[]", "null", "no json", "\"x\""] {
        let fields = [("view", "form"), ("version", "made-up"), ("base", base)];
        let page = owner.post("/console/preview/services/web", &fields).await;
        let page = page.expect(409).body;
        assert!(!page.contains("name=\"change\""), "{base}: {page}");
    }
}

#[tokio::test]
async fn clients_and_realms_are_changed_over_rest_by_version() {
    let office = Office::open().await;
    let none = Value::Null;
    let shop = json!({"client_id": "shop", "grant_types": ["client_credentials"], "scope": "a"});
    let made = rest(&office, Method::POST, "/identity/clients", &shop).await;
    let client = made.expect(201).json();
    let staff = json!({"path": "/staff"});
    let made = rest(&office, Method::POST, "/identity/realms", &staff).await;
    let realm = made.expect(201).json();
    for (path, seen, patch) in [
        (
            "/identity/clients/shop",
            &client["version"],
            json!({"scope": "b"}),
        ),
        (
            "/identity/realms/staff",
            &realm["version"],
            json!({"settings": {"access_token_lifetime": 90}}),
        ),
    ] {
        assert!(seen.is_i64(), "{path}: {seen}");
        let with = |version: &Value| {
            let mut body = patch.clone();
            body["version"] = version.clone();
            body
        };
        let done = rest(&office, Method::PATCH, path, &with(seen)).await;
        let now = done.expect(200).json()["version"].clone();
        assert_ne!(now, *seen, "{path}");
        for method in [Method::PATCH, Method::PUT] {
            let stale = rest(&office, method, path, &with(seen)).await;
            assert_eq!(stale.status, 412, "{path}: {}", stale.body);
        }
        let wrong = rest(&office, Method::PATCH, path, &with(&json!("x"))).await;
        assert_eq!(wrong.status, 400, "{path}: {}", wrong.body);
        // Who names none means whichever there is.
        rest(&office, Method::PATCH, path, &patch).await.expect(200);
        let now = rest(&office, Method::GET, path, &none).await;
        let now = now.expect(200).json()["version"].clone();
        for (query, status) in [
            (format!("version={seen}"), 412),
            ("version=x".to_owned(), 400),
            (format!("version={now}"), 204),
        ] {
            let target = format!("{path}?{query}");
            let answer = rest(&office, Method::DELETE, &target, &none).await;
            assert_eq!(answer.status, status, "{target}: {}", answer.body);
        }
    }
}

#[tokio::test]
async fn a_secret_of_a_client_is_changed_by_version() {
    let office = Office::open().await;
    let shop = json!({"client_id": "shop", "grant_types": ["client_credentials"], "scope": "a"});
    let made = rest(&office, Method::POST, "/identity/clients", &shop).await;
    let seen = made.expect(201).json()["version"].clone();
    let path = "/identity/clients/shop/secret";
    let body = json!({"version": seen});
    rest(&office, Method::POST, path, &body).await.expect(200);
    rest(&office, Method::POST, path, &body).await.expect(412);
}

#[tokio::test]
async fn of_people_who_say_yes_to_changes_of_one_record_at_once_one_is_first() {
    let office = Office::open().await;
    let service = json!({"name": "web", "host": "a.example"});
    let made = rest(&office, Method::POST, "/services", &service).await;
    made.expect(201);
    let mut yes = Vec::new();
    for port in ["8001", "8002", "8003", "8004", "8005", "8006"] {
        let mut owner = office.signed_in("alice").await;
        let form = Carried::of(&mut owner, "/console/edit/services/web").await;
        let fields = form.with(&[("view", "form"), ("f.port", port)]);
        let page = owner.post("/console/preview/services/web", &fields).await;
        yes.push((owner, page.expect(200).body));
    }
    let mut deleting = office.signed_in("olga").await;
    let preview = "/console/preview/services/web";
    let page = deleting.post(preview, &[("view", "delete")]).await;
    yes.push((deleting, page.expect(200).body));
    let answers = yes.iter_mut().map(|(person, page)| person.confirm(page));
    let answers = futures_util::future::join_all(answers).await;
    let statuses: Vec<_> = answers.iter().map(|one| one.status).collect();
    let first = statuses.iter().filter(|status| **status == 303).count();
    assert_eq!(first, 1, "{statuses:?}");
    let others = statuses.iter().filter(|status| **status != 303);
    assert!(
        others.clone().all(|status| matches!(status, 404 | 409)),
        "{statuses:?}"
    );
}

#[tokio::test]
async fn of_people_who_undo_one_change_at_once_one_does() {
    let office = Office::open().await;
    let service = json!({"name": "web", "host": "a.example"});
    let made = rest(&office, Method::POST, "/services", &service).await;
    made.expect(201);
    let mut owner = office.signed_in("alice").await;
    let fields = [("view", "patch"), ("patch", r#"{"port":8080}"#)];
    owner.change("services/web", &fields).await.expect(303);
    let mut yes = Vec::new();
    for _ in 0..4 {
        let mut owner = office.signed_in("alice").await;
        let address = undo(&mut owner, "entity.update").await;
        let address = address.expect("a way back");
        let page = owner.post(&address, &[]).await.expect(200).body;
        yes.push((owner, page));
    }
    let answers = yes.iter_mut().map(|(person, page)| person.confirm(page));
    let answers = futures_util::future::join_all(answers).await;
    let mut statuses: Vec<_> = answers.iter().map(|one| one.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [303, 409, 409, 409]);
}
