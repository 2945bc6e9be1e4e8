//! People sign in at the console with the identity provider of the process.

use reqwest::Method;
use serde_json::{Value, json};
use url::Url;

use crate::console::{Browser, attribute};
use crate::support::http::{client, send};
use crate::support::{Answer, Door, Setup};

pub(crate) const TOKEN: &str = "0123456789abcdef";
pub(crate) const START: &str = "/console/sign-in/provider";

/// The realms, with a client that may change users and groups.
const IDENTITY: &str = "
  base_url: http://@PROXY@
  hashing: {memory_kib: 64, passes: 1}
  realms:
    /:
      users:
        - {userName: alice, password: Ch4ng31t-alice}
        - {userName: olga, password: Ch4ng31t-olga}
        - {userName: vera, password: Ch4ng31t-vera}
        - {userName: nobody, password: Ch4ng31t-nobody}
      clients:
        - client_id: hr
          client_secret: hr-secret
          grant_types: [client_credentials]
          scope: scim:write scim:groups
      settings: {users_write_scope: \"scim:write\", groups_write_scope: \"scim:groups\"}
    /other:
      users:
        - {userName: alice, password: Ch4ng31t-alice}
";

/// What `admin.console` says of roles.
pub(crate) const ROLES: &str = "roles: {owner: [admins], operator: [Operators], viewer: [staff]}";

/// A door whose console people sign in to.
pub(crate) struct Office {
    pub(crate) door: Door,
    token: String,
}

impl Office {
    pub(crate) async fn open() -> Self {
        Self::with(ROLES).await
    }

    pub(crate) async fn with(console: &str) -> Self {
        Self::furnished(console, "").await
    }

    /// An office whose provider has more settings.
    pub(crate) async fn with_provider(more: &str) -> Self {
        Self::furnished(ROLES, more).await
    }

    async fn furnished(console: &str, provider: &str) -> Self {
        let admin = format!("{{listen: \"@ADMIN@\", token: {TOKEN}, console: {{{console}}}}}");
        let identity = format!("{IDENTITY}{provider}");
        let door = Setup::new().admin(&admin).identity(&identity);
        let door = door.start().await;
        let asked = [
            ("client_id", "hr"),
            ("client_secret", "hr-secret"),
            ("grant_type", "client_credentials"),
            ("scope", "scim:write scim:groups"),
        ];
        let token = door.token_request(&asked).await.expect(200).json();
        let token = token["access_token"].as_str().expect("a token").to_owned();
        let office = Self { door, token };
        for (group, name) in [
            ("Admins", "alice"),
            ("operators", "olga"),
            ("staff", "vera"),
        ] {
            office.group(group, &[name]).await;
        }
        office
    }

    pub(crate) async fn scim(&self, method: Method, path: &str, body: &Value) -> Answer {
        let request = client().request(method, self.door.proxy_url(path));
        send(request.bearer_auth(&self.token).json(body)).await
    }

    pub(crate) async fn user(&self, name: &str) -> String {
        let path = format!("/v1/users?filter=userName%20eq%20%22{name}%22");
        let found = self.scim(Method::GET, &path, &Value::Null).await;
        let found = found.expect(200).json();
        let id = found["Resources"][0]["id"].as_str();
        id.unwrap_or_else(|| panic!("{found}")).to_owned()
    }

    /// Makes a group; gives its path.
    async fn group(&self, name: &str, members: &[&str]) -> String {
        let mut all = Vec::new();
        for member in members {
            all.push(json!({"value": self.user(member).await}));
        }
        let group = json!({"displayName": name, "members": all});
        let made = self.scim(Method::POST, "/v1/groups", &group).await;
        let made = made.expect(201).json();
        format!("/v1/groups/{}", made["id"].as_str().expect("an id"))
    }

    /// A user of the store, in this group.
    pub(crate) async fn hire(&self, name: &str, group: &str) -> String {
        let user = json!({"userName": name, "password": format!("Ch4ng31t-{name}")});
        let made = self.scim(Method::POST, "/v1/users", &user).await;
        let made = made.expect(201).json();
        let group = self.scim_group(group).await;
        let add = json!({"schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"],
            "Operations": [{"op": "add", "path": "members", "value": [{"value": made["id"]}]}]});
        self.scim(Method::PATCH, &group, &add).await.expect(200);
        format!("/v1/users/{}", made["id"].as_str().expect("an id"))
    }

    async fn scim_group(&self, name: &str) -> String {
        let path = format!("/v1/groups?filter=displayName%20eq%20%22{name}%22");
        let found = self.scim(Method::GET, &path, &Value::Null).await;
        let found = found.expect(200).json();
        let id = found["Resources"][0]["id"].as_str();
        format!("/v1/groups/{}", id.unwrap_or_else(|| panic!("{found}")))
    }

    /// A browser that was sent to the provider; with the address there.
    pub(crate) async fn departed(&self, to: &str) -> (Browser<'_>, String) {
        let mut browser = Browser::new(&self.door);
        let address = depart(&mut browser, to).await;
        (browser, address)
    }

    /// A browser that somebody has signed in with.
    pub(crate) async fn signed_in(&self, user: &str) -> Browser<'_> {
        let (mut browser, address) = self.departed("/console").await;
        let callback = agree(&mut browser, &address, user).await;
        let answer = browser.get(&callback).await.expect(303);
        assert_eq!(answer.header("location"), "/console");
        browser
    }
}

/// Sends a browser to the provider; gives the address there.
pub(crate) async fn depart(browser: &mut Browser<'_>, to: &str) -> String {
    let to: String = url::form_urlencoded::byte_serialize(to.as_bytes()).collect();
    let start = format!("{START}?to={to}");
    let answer = browser.get(&start).await.expect(303);
    answer.header("location").to_owned()
}

/// Signs in at the provider; gives the address that it leads back to.
pub(crate) async fn agree(browser: &mut Browser<'_>, address: &str, user: &str) -> String {
    let mut answer = browser.get(address).await;
    let base = Url::parse(address).expect("an address");
    let absolute = |to: &str| base.join(to).expect("an address").to_string();
    for _ in 0..6 {
        if answer.status == 303 || answer.status == 302 {
            let to = absolute(answer.header("location"));
            if to.contains("/console/sign-in/callback") {
                return to;
            }
            answer = browser.get(&to).await;
            continue;
        }
        assert_eq!(answer.status, 200, "{}", answer.body);
        let asks_password = answer.body.contains("name=\"password\"");
        let mut fields: Vec<(String, String)> = answer
            .body
            .split("<input type=\"hidden\" ")
            .skip(1)
            .map(|input| {
                let value = |name: &str| {
                    let input = format!("x {input}");
                    attribute(&input, "x ", name)
                        .replace("&#38;", "&")
                        .replace("&#34;", "\"")
                };
                (value("name"), value("value"))
            })
            .collect();
        if asks_password {
            fields.push(("username".to_owned(), user.to_owned()));
            fields.push(("password".to_owned(), format!("Ch4ng31t-{user}")));
        } else {
            // Over http on loopback nothing assures who the client is: the provider
            // asks who is signed in already.
            assert!(answer.body.contains("id=\"approve\""), "{}", answer.body);
            fields.push(("approve".to_owned(), "true".to_owned()));
        }
        let fields: Vec<_> = fields
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .collect();
        let action = attribute(&answer.body, "<form method=\"post\"", "action");
        let action = absolute(&action.replace("&#38;", "&"));
        answer = browser.submit(&action, &fields).await;
    }
    panic!("no way back: {}", answer.body)
}

/// A parameter of an address, or "".
pub(crate) fn parameter(address: &str, name: &str) -> String {
    let url = Url::parse(address).expect("an address");
    let found = url.query_pairs().find(|(key, _)| key == name);
    found.map_or_else(String::new, |(_, value)| value.into_owned())
}

#[tokio::test]
async fn people_sign_in_by_their_accounts_and_the_audit_log_names_them() {
    let office = Office::open().await;
    let mut browser = Browser::new(&office.door);
    let page = browser.get("/console/gateway/services").await.expect(303);
    let page = browser.get(page.header("location")).await.expect(200).body;
    // A link and no form: browsers hold the redirects behind a form to `form-action`.
    assert!(
        page.contains("href=\"/console/sign-in/provider?to="),
        "{page}"
    );
    let address = depart(&mut browser, "/console/gateway/services?q=a").await;
    for (name, value) in [
        ("response_type", "code"),
        ("client_id", "doorward-console"),
        ("code_challenge_method", "S256"),
        ("scope", "openid"),
    ] {
        assert_eq!(parameter(&address, name), value);
    }
    let own = office.door.admin_url("/console/sign-in/callback");
    assert_eq!(parameter(&address, "redirect_uri"), own);
    let callback = agree(&mut browser, &address, "alice").await;
    let answer = browser.get(&callback).await.expect(303);
    assert_eq!(answer.header("location"), "/console/gateway/services?q=a");
    let page = browser.get("/console").await.expect(200).body;
    assert!(page.contains("alice · owner"), "{page}");
    let fields = [("view", "form"), ("f.name", "web"), ("f.host", "a.example")];
    browser.change("services", &fields).await.expect(303);
    let request = || {
        let request = client().get(
            office
                .door
                .admin_url("/audit?kind=entity.create&user=alice"),
        );
        send(request.header("kong-admin-token", TOKEN))
    };
    let records = request().await.expect(200).json();
    let record = &records["data"][0];
    assert_eq!(record["actor"]["type"], "user", "{records}");
    assert_eq!(record["actor"]["name"], "alice");
    assert_eq!(record["actor"]["realm"], "/");
    assert_eq!(record["actor"]["id"], office.user("alice").await);
    assert_eq!(record["details"]["via"], "console");
    let page = browser.get("/console/audit?user=alice").await.expect(200);
    assert!(page.body.contains("entity.create"), "{}", page.body);
}

#[tokio::test]
async fn what_a_person_ends_at_the_provider_is_told_by_name() {
    let office = Office::open().await;
    let mut browser = office.signed_in("alice").await;
    office.signed_in("vera").await;
    let list = "/identity/sessions?user=vera";
    let request = client().get(office.door.admin_url(list));
    let sessions = send(request.header("kong-admin-token", TOKEN)).await;
    let sessions = sessions.expect(200).json();
    let id = sessions["data"][0]["id"].as_str().expect("a session");
    let end = format!("/console/end/sessions/{id}");
    browser.post(&end, &[("realm", "/")]).await.expect(303);
    let request = client().get(office.door.admin_url("/audit?kind=session.end"));
    let records = send(request.header("kong-admin-token", TOKEN)).await;
    let records = records.expect(200).json();
    let record = &records["data"][0];
    assert_eq!(record["actor"]["name"], "alice", "{records}");
    assert_eq!(record["details"]["via"], "console");
}

#[tokio::test]
async fn a_user_who_is_gone_or_may_no_more_loses_the_session() {
    let office = Office::open().await;
    let schemas = json!(["urn:ietf:params:scim:api:messages:2.0:PatchOp"]);
    let patch = |operation: Value| json!({"schemas": schemas, "Operations": [operation]});
    // Deleted.
    let user = office.hire("dan", "Admins").await;
    let mut browser = office.signed_in("dan").await;
    office
        .scim(Method::DELETE, &user, &Value::Null)
        .await
        .expect(204);
    browser.get("/console").await.expect(303);
    browser
        .submit("/console/preview/services", &[])
        .await
        .expect(401);
    // Deactivated.
    let user = office.hire("eve", "Admins").await;
    let mut browser = office.signed_in("eve").await;
    let off = patch(json!({"op": "replace", "path": "active", "value": false}));
    office.scim(Method::PATCH, &user, &off).await.expect(200);
    browser.get("/console").await.expect(303);
    // Out of the group: told why, and back in when it is so again.
    office.hire("fay", "Admins").await;
    let mut browser = office.signed_in("fay").await;
    let group = office.scim_group("Admins").await;
    let out = patch(json!({"op": "remove", "path": "members"}));
    office.scim(Method::PATCH, &group, &out).await.expect(200);
    let page = browser.get("/console").await.expect(403);
    assert!(page.body.contains("None of your groups has a role"));
    // Another group is another role.
    let fay = json!([{"value": office.user("fay").await}]);
    let add = patch(json!({"op": "add", "path": "members", "value": fay}));
    let staff = office.scim_group("staff").await;
    office.scim(Method::PATCH, &staff, &add).await.expect(200);
    let page = browser.get("/console").await.expect(200).body;
    assert!(page.contains("fay · viewer"), "{page}");
    browser.get("/console/new/services").await.expect(403);
}

#[tokio::test]
async fn a_session_that_ends_at_the_provider_ends_at_the_console() {
    let office = Office::open().await;
    let mut browser = office.signed_in("vera").await;
    let admin = |method: Method, path: &str| {
        let request = client().request(method, office.door.admin_url(path));
        send(request.header("kong-admin-token", TOKEN))
    };
    browser.get("/console").await.expect(200);
    let sessions = "/identity/sessions?user=vera";
    admin(Method::DELETE, sessions).await.expect(200);
    browser.get("/console").await.expect(303);
    // Nobody is led in a circle.
    browser.get("/console/sign-in").await.expect(200);
}

#[tokio::test]
async fn signing_out_ends_copies_and_leads_to_the_provider() {
    let office = Office::open().await;
    let mut browser = office.signed_in("alice").await;
    let copy = browser.clone();
    let answer = browser.post("/console/sign-out", &[]).await.expect(303);
    assert_eq!(answer.header("location"), "/console/signed-out");
    let page = browser.get("/console/signed-out").await.expect(200).body;
    let leave = attribute(&page, "may still be signed in", "href").replace("&#38;", "&");
    let back = parameter(&leave, "post_logout_redirect_uri");
    assert_eq!(back, office.door.admin_url("/console/sign-in"));
    browser.get("/console").await.expect(303);
    let mut copy = copy;
    copy.get("/console").await.expect(303);
    let page = browser.get(&leave).await.expect(200);
    assert!(page.body.contains("logout-yes"), "{}", page.body);
}

#[tokio::test]
async fn a_new_sign_in_is_a_new_session_and_ends_the_old_one() {
    let office = Office::open().await;
    let mut browser = office.signed_in("vera").await;
    let copy = browser.clone();
    let address = depart(&mut browser, "/console").await;
    let callback = agree(&mut browser, &address, "vera").await;
    browser.get(&callback).await.expect(303);
    browser.get("/console").await.expect(200);
    assert_ne!(browser.cookies, copy.cookies);
    let mut copy = copy;
    copy.get("/console").await.expect(303);
}

#[tokio::test]
async fn the_admin_token_signs_in_unless_the_file_says_no() {
    let office = Office::open().await;
    let mut browser = Browser::new(&office.door);
    let page = browser.get("/console/sign-in").await.expect(200).body;
    assert!(page.contains("name=\"token\""), "{page}");
    let fields = [("token", TOKEN)];
    browser
        .submit("/console/sign-in", &fields)
        .await
        .expect(303);
    browser.get("/console").await.expect(200);
    let strict = Office::with(&format!("{ROLES}, token: false")).await;
    let mut browser = Browser::new(&strict.door);
    let page = browser.get("/console/sign-in").await.expect(200).body;
    assert!(!page.contains("name=\"token\""), "{page}");
    browser
        .submit("/console/sign-in", &fields)
        .await
        .expect(404);
    browser.get("/console").await.expect(303);
    strict.signed_in("alice").await;
}

#[tokio::test]
async fn who_comes_under_another_address_is_led_to_the_consoles_own() {
    let console = format!("{ROLES}, address: \"http://@ADMIN@\"");
    let office = Office::with(&console).await;
    let browser = Browser::new(&office.door);
    let port = office.door.admin();
    let port = port.rsplit(':').next().expect("a port");
    let request = browser.request(Method::GET, &format!("{START}?to=/console/audit"));
    let answer = send(request.header("host", format!("10.0.0.1:{port}"))).await;
    let own = office
        .door
        .admin_url("/console/sign-in/provider?to=%2Fconsole%2Faudit");
    assert_eq!(answer.expect(303).header("location"), own);
    // Without an address nobody knows where to.
    let office = Office::open().await;
    let browser = Browser::new(&office.door);
    let request = browser.request(Method::GET, START);
    let answer = send(request.header("host", "10.0.0.1:1")).await.expect(400);
    assert!(answer.body.contains("admin.console.address"));
}
