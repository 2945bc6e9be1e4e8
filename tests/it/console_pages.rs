//! Every page of the console, as its own table names them: a new one is in here, or this
//! fails.

use reqwest::Method;
use serde_json::{Value, json};

use crate::console::Browser;
use crate::console_registry::rest;
use crate::console_sign_in::Office;
use crate::support::eventually;
use crate::support::tls::{Authority, Pair};

/// What answers to `GET` with something else than a page.
const NO_PAGES: [&str; 5] = [
    // Redirects.
    "/language",
    "/sign-in/provider",
    "/sign-in/callback",
    // The stream of the overview.
    "/events",
    // A file.
    "/audit/export",
];
/// A name that no page may take for markup.
const NAME: &str = "<b title=\"x\" onclick=alert(1)>'&";

/// An office with a record of each kind, and the addresses of all pages.
pub(crate) struct Tour {
    pub(crate) office: Office,
    /// Below `/console`.
    pub(crate) addresses: Vec<String>,
}

impl Tour {
    pub(crate) async fn open() -> Self {
        let office = Office::open().await;
        let mut tour = Self {
            office,
            addresses: Vec::new(),
        };
        tour.add_fixed();
        tour.add_gateway().await;
        tour.add_identity().await;
        tour.add_broker().await;
        tour.add_files().await;
        tour
    }

    fn add(&mut self, addresses: &[&str]) {
        let addresses = addresses.iter().map(|one| (*one).to_owned());
        self.addresses.extend(addresses);
    }

    /// Makes a record; gives its identifier, or what names it.
    async fn make(&self, list: &str, body: Value) -> String {
        let made = rest(&self.office, Method::POST, list, &body).await;
        let made = made.expect(201).json();
        let name = ["id", "client_id", "path", "name", "email"]
            .into_iter()
            .find_map(|name| made[name].as_str());
        name.expect("a name").to_owned()
    }

    /// Pages without a record, with those that nobody finds.
    fn add_fixed(&mut self) {
        self.add(&[
            "/sign-in",
            "/signed-out",
            "/",
            "/refusals",
            "/explain",
            "/throttling",
            "/route-files",
            "/audit",
            "/nowhere",
            "/identity/probes",
            "/identity/keys",
            "/identity/sessions",
            "/identity/lockouts",
            "/new/plugins?plugin=openid-connect",
            "/new/plugins?plugin=rate-limiting",
        ]);
    }

    async fn add_gateway(&mut self) {
        let pair = Pair::new("a.example");
        let tags = json!(["blue"]);
        let service = json!({"name": "web", "host": "h.example", "tags": tags});
        let service = self.make("/services", service).await;
        let route = json!({"name": "web", "paths": ["/web"], "service": {"id": service}});
        let limits = json!({"rate": {"numberOfRequests": 1, "duration": "1 minute"}});
        let filter = json!({"name": "throttling", "config": limits, "service": {"id": service}});
        let consumer = json!({"username": NAME, "custom_id": "c"});
        let certificate = json!({"cert": pair.cert, "key": pair.key});
        let certificate = self.make("/certificates", certificate).await;
        self.add_entity("/services", &service);
        let sni = json!({"name": "b.example", "certificate": {"id": certificate}});
        self.add_entity("/certificates", &certificate);
        let upstream = json!({"name": "up.internal"});
        let authority = json!({"cert": Authority::new().pem()});
        let mut made = Vec::new();
        for (list, body) in [
            ("/routes", route),
            ("/plugins", filter),
            ("/consumers", consumer),
            ("/snis", sni),
            ("/upstreams", upstream),
            ("/ca_certificates", authority),
        ] {
            let id = self.make(list, body).await;
            self.add_entity(list, &id);
            made.push(id);
        }
        self.addresses.push(format!("/throttling/{}", made[1]));
        let (consumer, upstream) = (&made[2], &made[4]);
        for (list, body) in [
            ("key-auth", json!({"key": "k"})),
            ("basic-auth", json!({"username": NAME, "password": "p"})),
            ("jwt", json!({"key": NAME})),
            ("hmac-auth", json!({"username": NAME})),
            (
                "oauth2",
                json!({"name": NAME, "redirect_uris": ["https://a.example/"]}),
            ),
            ("acls", json!({"group": "g"})),
        ] {
            let list = format!("/consumers/{consumer}/{list}");
            let id = self.make(&list, body).await;
            self.add_entity(&list, &id);
        }
        let list = format!("/upstreams/{upstream}/targets");
        let target = self.make(&list, json!({"target": "127.0.0.1:1"})).await;
        self.add_entity(&list, &target);
    }

    /// The pages of a list and of a record in it.
    fn add_entity(&mut self, list: &str, id: &str) {
        self.addresses.extend([
            format!("/gateway{list}"),
            format!("/gateway{list}/{id}"),
            format!("/new{list}"),
            format!("/edit{list}/{id}"),
        ]);
    }

    async fn add_identity(&mut self) {
        let shop = json!({"client_id": "shop", "client_name": NAME,
            "grant_types": ["client_credentials"]});
        self.make("/identity/clients", shop).await;
        self.make("/identity/realms", json!({"path": "/staff"}))
            .await;
        let user = json!({"userName": NAME, "displayName": NAME});
        let user = self.make("/identity/users", user).await;
        let group = json!({"displayName": NAME, "members": [user]});
        let group = self.make("/identity/groups", group).await;
        self.add(&[
            "/identity/realms",
            "/identity/realms/root",
            "/identity/realms/staff",
            "/identity/settings?realm=%2Fstaff",
            "/identity/new-realm",
            "/identity/clients",
            "/identity/clients/new",
            "/identity/clients/new?kind=web",
            "/identity/clients/new?kind=service",
            "/identity/clients/shop",
            "/identity/clients/shop/edit",
            "/identity/clients/hr",
        ]);
        for (list, id) in [("users", user), ("groups", group)] {
            self.addresses.extend([
                format!("/identity/{list}"),
                format!("/identity/{list}/new"),
                format!("/identity/{list}/{id}"),
                format!("/identity/{list}/{id}/edit"),
            ]);
        }
    }

    async fn add_broker(&mut self) {
        for (list, body) in [
            ("products", json!({"name": "weather", "display_name": NAME})),
            (
                "developers",
                json!({"email": "d@example.com", "first_name": NAME}),
            ),
            (
                "applications",
                json!({"name": "app", "developer": "d@example.com", "products": ["weather"]}),
            ),
        ] {
            let id = self.make(&format!("/broker/{list}"), body).await;
            let id: String = url::form_urlencoded::byte_serialize(id.as_bytes()).collect();
            self.addresses.extend([
                format!("/broker/{list}"),
                format!("/broker/{list}/{id}"),
                format!("/broker-form/{list}"),
                format!("/broker-form/{list}/{id}"),
            ]);
        }
    }

    async fn add_files(&mut self) {
        let door = &self.office.door;
        std::fs::create_dir(door.path("routes")).expect("a directory");
        door.write(
            "routes/a.json",
            "{\"name\": \"a\", \"handler\": {\"type\": \"None\"}}",
        );
        let both = "routes.yaml\", \"@DIR@/routes\"";
        door.edit("doorward.yaml", "routes.yaml\"", both);
        let id = eventually("the route file", || async {
            let files = rest(&self.office, Method::GET, "/route-files", &Value::Null).await;
            let files = files.expect(200).json();
            files["data"][0]["id"].as_str().map(str::to_owned)
        });
        let id = id.await;
        self.addresses.push(format!("/route-files/{id}"));
    }
}

/// Whether an address is one of a path with open parts.
fn fits(path: &str, address: &str) -> bool {
    let address = address.split('?').next().unwrap_or_default();
    let parts = |text: &str| -> Vec<String> {
        let parts = text.split('/').filter(|part| !part.is_empty());
        parts.map(str::to_owned).collect()
    };
    let (path, address) = (parts(path), parts(address));
    let mut both = path.iter().zip(&address);
    path.len() == address.len() && both.all(|(own, part)| own == "{}" || own == part)
}

async fn each_is_shown(browser: &mut Browser<'_>, tour: &Tour, language: &str) {
    let chosen = format!("/console/language?to={language}");
    browser.get(&chosen).await.expect(303);
    let lang = format!("<html lang=\"{language}\"");
    for address in &tour.addresses {
        let page = browser.get(&format!("/console{address}")).await;
        let status = match &**address {
            "/nowhere" => 404,
            // Who has signed in is led on.
            "/sign-in" => {
                assert_eq!(page.status, 303);
                continue;
            }
            _ => 200,
        };
        assert_eq!(page.status, status, "{address}: {}", page.body);
        assert!(page.body.contains("<h1"), "{address}");
        assert!(page.body.contains(&lang), "{address}: {}", page.body);
        assert!(!page.body.contains(NAME), "{address}: a name is markup");
        assert!(!page.body.contains("<b title"), "{address}");
        let policy = page.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'"), "{address}");
        assert!(policy.contains("frame-ancestors 'none'"), "{address}");
    }
}

#[tokio::test]
async fn every_page_of_the_table_is_shown_in_both_languages_and_no_name_is_markup() {
    let tour = Tour::open().await;
    let pages = doorward_console::page_paths();
    assert!(pages.len() > 80, "{pages:?}");
    for path in pages {
        let is_met = tour.addresses.iter().any(|one| fits(&path, one));
        let is_none = NO_PAGES.contains(&&*path);
        assert!(is_met != is_none, "{path} is looked at: {is_met}");
    }
    let mut owner = tour.office.signed_in("alice").await;
    for language in ["en", "de"] {
        each_is_shown(&mut owner, &tour, language).await;
    }
}
