//! The console, driven by HTTP as a browser does, and as nobody should.

use reqwest::{Method, RequestBuilder};
use serde_json::json;

use crate::support::http::{client, send};
use crate::support::{Answer, Door, Setup, Upstream, eventually};

const TOKEN: &str = "0123456789abcdef";

/// A browser with its cookies, which know no ports.
#[derive(Clone)]
pub(crate) struct Browser<'a> {
    door: &'a Door,
    pub(crate) cookies: Vec<(String, String)>,
}

/// The value of the first attribute after `before` in a page.
pub(crate) fn attribute<'a>(page: &'a str, before: &str, name: &str) -> &'a str {
    let rest = page.split_once(before).map_or("", |(_, rest)| rest);
    let wanted = format!("{name}=\"");
    let rest = rest.split_once(&wanted).map_or("", |(_, rest)| rest);
    rest.split_once('"').map_or("", |(value, _)| value)
}

impl<'a> Browser<'a> {
    pub(crate) fn new(door: &'a Door) -> Self {
        let cookies = Vec::new();
        Self { door, cookies }
    }

    /// Signed in by the admin token.
    async fn signed_in(door: &'a Door) -> Self {
        let mut browser = Self::new(door);
        let answer = browser
            .submit("/console/sign-in", &[("token", TOKEN)])
            .await;
        assert_eq!(answer.status, 303, "{}", answer.body);
        browser
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = if path.starts_with('/') {
            self.door.admin_url(path)
        } else {
            path.to_owned()
        };
        let request = client().request(method, url);
        let pairs: Vec<_> = self
            .cookies
            .iter()
            .map(|(k, v)| format!("{k}={v}"))
            .collect();
        if pairs.is_empty() {
            request
        } else {
            request.header("cookie", pairs.join("; "))
        }
    }

    fn keep(&mut self, answer: &Answer) {
        for field in answer.headers.get_all("set-cookie") {
            let field = field.to_str().expect("text");
            let pair = field.split(';').next().expect("a pair");
            let (name, value) = pair.split_once('=').expect("a pair");
            self.cookies.retain(|(kept, _)| kept != name);
            if !value.is_empty() {
                self.cookies.push((name.to_owned(), value.to_owned()));
            }
        }
    }

    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        let answer = send(self.request(Method::GET, path)).await;
        self.keep(&answer);
        answer
    }

    /// Posts a form as a page of the same origin does.
    pub(crate) async fn submit(&mut self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let origin = match path.strip_prefix("http://") {
            Some(rest) => rest.split('/').next().unwrap_or_default().to_owned(),
            None => self.door.admin(),
        };
        let origin = format!("http://{origin}");
        let request = self.request(Method::POST, path).header("origin", origin);
        let answer = send(request.form(fields)).await;
        self.keep(&answer);
        answer
    }

    /// The token of the forms of this session.
    pub(crate) async fn form_token(&mut self) -> String {
        let page = self.get("/console/explain").await.expect(200).body;
        attribute(&page, "name=\"form_token\"", "value").to_owned()
    }

    /// Posts a form with its token.
    pub(crate) async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let token = self.form_token().await;
        let fields = [&[("form_token", token.as_str())], fields].concat();
        self.submit(path, &fields).await
    }

    /// Says yes to the difference that a page shows.
    pub(crate) async fn confirm(&mut self, page: &str) -> Answer {
        let at = page.find("name=\"change\"").unwrap_or_default();
        let begin = page[..at].rfind("<form").unwrap_or_default();
        let address = attribute(&page[begin..], "", "action").to_owned();
        let change = attribute(page, "name=\"change\"", "value").to_owned();
        assert!(!change.is_empty(), "{page}");
        self.post(&address, &[("change", &change)]).await
    }

    /// Posts a form, and says yes to the difference; gives the page behind it.
    pub(crate) async fn agree(&mut self, path: &str, fields: &[(&str, &str)]) -> String {
        let page = self.post(path, fields).await.expect(200).body;
        let answer = self.confirm(&page).await.expect(303);
        answer.header("location").to_owned()
    }

    /// Goes through the difference, and applies it.
    pub(crate) async fn change(&mut self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let preview = format!("/console/preview/{path}");
        let page = self.post(&preview, fields).await.expect(200).body;
        let change = attribute(&page, "name=\"change\"", "value").to_owned();
        assert!(!change.is_empty(), "{page}");
        let apply = format!("/console/apply/{path}");
        self.post(&apply, &[("change", &change)]).await
    }
}

/// A door whose console wants the admin token.
pub(crate) async fn guarded() -> Door {
    let admin = format!("{{listen: \"@ADMIN@\", token: {TOKEN}}}");
    let mut door = Setup::new().admin(&admin).lay_out();
    door.spawn();
    door.wait_log("the start", |line| line.contains("ready"))
        .await;
    door
}

#[tokio::test]
async fn without_a_session_there_is_only_the_sign_in() {
    let door = guarded().await;
    let mut browser = Browser::new(&door);
    for path in [
        "/console",
        "/console/gateway/services",
        "/console/events",
        "/console/audit",
    ] {
        let answer = browser.get(path).await.expect(303);
        let to = answer.header("location");
        assert!(to.starts_with("/console/sign-in?to=%2Fconsole"), "{to}");
        assert!(!answer.body.contains("services"));
    }
    let answer = browser
        .submit("/console/apply/services/a", &[("change", "x")])
        .await;
    assert_eq!(answer.status, 401);
    // The cookie opens pages, and the Admin API as little as before.
    let mut browser = Browser::signed_in(&door).await;
    browser.get("/console").await.expect(200);
    browser.get("/services").await.expect(401);
}

#[tokio::test]
async fn the_token_is_in_no_cookie_and_no_page_and_guesses_are_slowed_down() {
    let door = guarded().await;
    let mut browser = Browser::signed_in(&door).await;
    for (_, value) in &browser.cookies {
        assert!(!value.contains(TOKEN));
    }
    for path in ["/console", "/console/gateway/services", "/console/audit"] {
        let page = browser.get(path).await.expect(200);
        assert!(!page.body.contains(TOKEN), "{path}");
        assert_eq!(page.header("cache-control"), "no-store");
    }
    let mut stranger = Browser::new(&door);
    for _ in 0..5 {
        let answer = stranger
            .submit("/console/sign-in", &[("token", "wrong")])
            .await;
        let answer = answer.expect(401);
        assert!(answer.headers.get("set-cookie").is_none());
    }
    // What was refused is told a moment later.
    eventually("the refusals in the log", || {
        let request = browser.request(Method::GET, "/console/audit?kind=admin.refuse");
        async {
            send(request)
                .await
                .body
                .contains("unauthorized")
                .then_some(())
        }
    })
    .await;
    // Signing out ends copies of the cookie as well.
    let copy = browser.cookies.clone();
    browser.post("/console/sign-out", &[]).await.expect(303);
    assert!(browser.cookies.is_empty());
    browser.cookies = copy;
    browser.get("/console").await.expect(303);
}

#[tokio::test]
async fn a_form_of_another_origin_changes_nothing() {
    let door = guarded().await;
    let mut browser = Browser::signed_in(&door).await;
    let token = browser.form_token().await;
    let post = |headers: &[(&str, &str)], token: &str| {
        let mut request = browser.request(Method::POST, "/console/preview/services");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let fields = [("form_token", token), ("f.host", "evil.example")];
        send(request.form(&fields))
    };
    let own = format!("http://{}", door.admin());
    let foreign: [&[(&str, &str)]; 5] = [
        &[],
        &[("origin", "http://evil.example")],
        &[("origin", "null")],
        &[("origin", "http://localhost:1")],
        &[("sec-fetch-site", "cross-site")],
    ];
    for headers in foreign {
        assert_eq!(post(headers, &token).await.status, 403, "{headers:?}");
    }
    let origin = [("origin", own.as_str())];
    for wrong in ["", "x", &token[1..]] {
        assert_eq!(post(&origin, wrong).await.status, 403, "{wrong}");
    }
    assert_eq!(post(&origin, &token).await.status, 200);
}

#[tokio::test]
async fn a_rebound_name_finds_nothing() {
    let door = guarded().await;
    let browser = Browser::signed_in(&door).await;
    for path in [
        "/console",
        "/console/sign-in",
        "/console/events",
        "/console/assets/x",
    ] {
        let request = browser
            .request(Method::GET, path)
            .header("host", "evil.example:8001");
        let answer = send(request).await.expect(403);
        assert_eq!(answer.body, "Host not allowed");
    }
}

#[tokio::test]
async fn no_page_stands_in_a_frame_or_runs_what_is_written_into_it() {
    let door = guarded().await;
    let mut browser = Browser::signed_in(&door).await;
    let style = {
        let page = browser.get("/console").await.expect(200).body;
        assert!(
            !page.contains("style=\"") && !page.contains(" onclick"),
            "{page}"
        );
        attribute(&page, "<link rel=\"stylesheet\"", "href").to_owned()
    };
    for path in ["/console", "/console/sign-in", "/console/nowhere", &style] {
        let answer = browser.get(path).await;
        let policy = answer.header("content-security-policy");
        for directive in [
            "default-src 'none'",
            "script-src 'self'",
            "frame-ancestors 'none'",
            "form-action 'self'",
            "base-uri 'none'",
        ] {
            assert!(policy.contains(directive), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.header("x-frame-options"), "DENY");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
    }
    assert!(
        browser
            .get(&style)
            .await
            .expect(200)
            .header("cache-control")
            .contains("immutable")
    );
}

#[tokio::test]
async fn hostile_names_are_shown_as_text() {
    let door = Setup::new().start().await;
    let evil = "<img src=x onerror=alert(1)>";
    let service =
        json!({"name": "web", "host": "a.example", "tags": [evil, "javascript:alert(1)"]});
    door.admin_post("/services", &service).await.expect(201);
    let consumer = json!({"username": "\"><script>alert(2)</script>"});
    let made = door
        .admin_post("/consumers", &consumer)
        .await
        .expect(201)
        .json();
    let id = made["id"].as_str().expect("an id");
    let mut browser = Browser::new(&door);
    let one = format!("/console/gateway/consumers/{id}");
    let edit = format!("/console/edit/consumers/{id}");
    let search = "/console/gateway/services?q=%22%3E%3Cscript%3Ealert(3)%3C/script%3E";
    for path in [
        "/console/gateway/services",
        "/console/gateway/services/web",
        "/console/edit/services/web",
        "/console/gateway/consumers",
        &one,
        &edit,
        search,
    ] {
        let page = browser.get(path).await.expect(200).body;
        for markup in ["<img", "<script>", "href=\"javascript"] {
            assert!(!page.contains(markup), "{path}: {page}");
        }
    }
}

#[tokio::test]
async fn a_service_is_made_changed_switched_and_deleted_with_its_difference_first() {
    let door = guarded().await;
    let mut browser = Browser::signed_in(&door).await;
    let form = browser.get("/console/new/services").await.expect(200).body;
    assert!(
        form.contains("f.read_timeout") && form.contains("60000"),
        "defaults are shown"
    );
    let fields = [
        ("view", "form"),
        ("f.name", "orders"),
        ("f.host", "a.example"),
        ("f.port", "81"),
    ];
    let preview = browser
        .post("/console/preview/services", &fields)
        .await
        .expect(200);
    assert!(preview.body.contains("a.example"));
    let gone = browser.get("/console/gateway/services/orders").await;
    assert_eq!(gone.status, 404, "nothing is made before the yes");
    let made = browser.change("services", &fields).await.expect(303);
    let page = browser.get(made.header("location")).await.expect(200).body;
    assert!(
        page.contains("orders") && page.contains("curl -X PUT"),
        "{page}"
    );
    let edit = browser
        .get("/console/edit/services/orders")
        .await
        .expect(200)
        .body;
    let version = attribute(&edit, "name=\"version\"", "value").to_owned();
    let fields = [
        ("view", "form"),
        ("version", &version),
        ("f.port", "82"),
        ("f.host", "a.example"),
    ];
    browser.change("services/orders", &fields).await.expect(303);
    // The same form once more is too old, and the other one's change stays.
    let fields = [("view", "form"), ("version", &version), ("f.port", "83")];
    let stale = browser
        .post("/console/preview/services/orders", &fields)
        .await;
    assert_eq!(stale.status, 409, "{}", stale.body);
    let patch = [("view", "patch"), ("patch", "{\"enabled\": false}")];
    browser.change("services/orders", &patch).await.expect(303);
    let list = browser
        .get("/console/gateway/services?q=ORD")
        .await
        .expect(200)
        .body;
    assert!(
        list.contains("Switch on") && list.contains(">82<"),
        "{list}"
    );
    let none = browser
        .get("/console/gateway/services?q=zzz")
        .await
        .expect(200)
        .body;
    assert!(!none.contains("orders"), "{none}");
    let wrong = [
        ("view", "form"),
        ("f.name", "x"),
        ("f.host", "h"),
        ("f.port", "99999"),
    ];
    let refused = browser
        .post("/console/preview/services", &wrong)
        .await
        .expect(400)
        .body;
    assert!(
        refused.contains("href=\"#f.port\"") && refused.contains("99999"),
        "{refused}"
    );
    browser
        .change("services/orders", &[("view", "delete")])
        .await
        .expect(303);
    browser
        .get("/console/gateway/services/orders")
        .await
        .expect(404);
    let log = browser
        .get("/console/audit?kind=entity.delete")
        .await
        .expect(200)
        .body;
    assert!(
        log.contains("admin console") && log.contains("services/"),
        "{log}"
    );
}

#[tokio::test]
async fn a_change_that_was_sealed_for_one_record_or_session_serves_no_other() {
    let door = guarded().await;
    let mut browser = Browser::signed_in(&door).await;
    for name in ["a", "b"] {
        let fields = [("view", "form"), ("f.name", name), ("f.host", "x.example")];
        browser.change("services", &fields).await.expect(303);
    }
    let fields = [("view", "delete")];
    let page = browser
        .post("/console/preview/services/a", &fields)
        .await
        .expect(200)
        .body;
    let change = attribute(&page, "name=\"change\"", "value").to_owned();
    let other = browser
        .post("/console/apply/services/b", &[("change", &change)])
        .await;
    assert_eq!(other.status, 403);
    let mut second = Browser::signed_in(&door).await;
    let other = second
        .post("/console/apply/services/a", &[("change", &change)])
        .await;
    assert_eq!(other.status, 403);
    browser.get("/console/gateway/services/a").await.expect(200);
}

#[tokio::test]
async fn what_a_file_declares_is_shown_as_such_and_not_changed() {
    let upstream = Upstream::echo().await;
    let [first, url] = ["/first", "/"].map(|path| upstream.url(path));
    let services =
        format!("- {{name: first, url: '{first}'}}\n- {{name: declared, url: '{url}'}}\n");
    let door = Setup::new().services(&services).start().await;
    let mut browser = Browser::new(&door);
    let page = browser
        .get("/console/gateway/services/declared")
        .await
        .expect(200)
        .body;
    let file = std::fs::read_to_string(door.path("routes.yaml")).expect("the file");
    let line = file.lines().position(|line| line.contains("declared"));
    let place = format!("routes.yaml:{}", line.expect("a line") + 1);
    assert!(
        page.contains(&place) && !page.contains("/console/edit/"),
        "{place}: {page}"
    );
    let list = browser.get("/console/gateway/services").await.expect(200);
    assert!(list.body.contains(&place), "{place}: {}", list.body);
    // A line that comes before it moves it, though nothing else changes.
    door.edit("routes.yaml", "services:", "# a comment\nservices:");
    let moved = format!("routes.yaml:{}", line.expect("a line") + 2);
    eventually("the line to move", || {
        let mut browser = browser.clone();
        let moved = moved.clone();
        async move {
            let list = browser.get("/console/gateway/services").await.expect(200);
            list.body.contains(&moved).then_some(())
        }
    })
    .await;
    let place = moved;
    let edit = browser.get("/console/edit/services/declared").await;
    assert_eq!(edit.status, 409);
    assert!(edit.body.contains(&place), "{place}: {}", edit.body);
}

#[tokio::test]
async fn a_request_is_explained_and_counted_live() {
    let upstream = Upstream::echo().await;
    let door = Setup::new().start().await;
    door.expose("web", &upstream.url("/"), "web.example").await;
    let mut browser = Browser::new(&door);
    let asked = [("method", "GET"), ("url", "http://web.example/x")];
    let page = browser
        .post("/console/explain", &asked)
        .await
        .expect(200)
        .body;
    assert!(page.contains("The request passes."), "{page}");
    let asked = [("method", "GET"), ("url", "http://other.example/x")];
    let page = browser
        .post("/console/explain", &asked)
        .await
        .expect(200)
        .body;
    assert!(page.contains("no route matches"), "{page}");
    let mut stream = browser
        .request(Method::GET, "/console/events")
        .send()
        .await
        .expect("a stream");
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let mut text = String::new();
    while !text.contains("\"web\"") {
        door.get("web.example", "/").await.expect(200);
        let piece = stream.chunk().await.expect("a piece").expect("no end");
        text.push_str(&String::from_utf8_lossy(&piece));
    }
    assert!(text.starts_with("event: history\n"), "{text}");
}

#[tokio::test]
async fn the_language_is_the_browsers_until_somebody_chooses() {
    let door = Setup::new().start().await;
    let mut browser = Browser::new(&door);
    browser.get("/console").await.expect(200);
    let request = browser
        .request(Method::GET, "/console")
        .header("accept-language", "de-AT");
    let page = send(request).await.expect(200).body;
    assert!(
        page.contains("<html lang=\"de\">") && page.contains("Überblick"),
        "{page}"
    );
    let path = "/console/language?to=de&back=%2Fconsole%2Faudit";
    let answer = browser.get(path).await.expect(303);
    assert_eq!(answer.header("location"), "/console/audit");
    assert!(
        browser
            .get("/console")
            .await
            .expect(200)
            .body
            .contains("Überblick")
    );
    let away = browser
        .get("/console/language?to=de&back=%2F%2Fevil.example")
        .await;
    assert_eq!(away.header("location"), "/console");
}

#[tokio::test]
async fn a_file_can_switch_the_console_off() {
    let admin = "{listen: \"@ADMIN@\", console: false}";
    let door = Setup::new().admin(admin).start().await;
    assert_eq!(door.admin_get("/console").await.status, 404);
}

#[tokio::test]
async fn records_of_the_provider_are_listed_and_no_session_is_ended_by_a_link() {
    let door = Setup::new().start().await;
    let mut browser = Browser::new(&door);
    for list in [
        "realms", "users", "groups", "clients", "sessions", "keys", "lockouts",
    ] {
        let path = format!("/console/identity/{list}");
        browser.get(&path).await.expect(200);
    }
    let realm = browser.get("/console/identity/realms/root").await;
    assert!(realm.expect(200).body.contains("Settings in force"));
    let ended = browser.get("/console/end/sessions/x").await;
    assert_eq!(ended.status, 405);
    let none = browser.post("/console/end/sessions/x", &[]).await;
    assert_eq!(none.status, 404);
}
