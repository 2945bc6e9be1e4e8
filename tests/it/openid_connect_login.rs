//! Signing in at a service behind the openid-connect plugin, as a browser does
//! it, with the embedded provider: in the same process and in another.

use std::collections::BTreeMap;

use crate::support::http::{client, send};
use crate::support::{Answer, Door, Setup, Upstream};

pub(crate) const CLIENTS: &str = "
  base_url: http://@PROXY@
  realms:
    /:
      users: [{userName: demo, password: Ch4ng31t-demo}]
      clients:
        - client_id: gateway
          client_secret: g-secret
          grant_types: [authorization_code, refresh_token]
          redirect_uris: [\"http://api.test/callback\"]
          post_logout_redirect_uris: [\"http://api.test/bye\"]
          require_consent: false
          scope: openid profile
";

const PLUGIN: &str = ", client_id: gateway, client_secret: g-secret, \
    session_secret: shared, redirect_uri: ['http://api.test/callback'], \
    logout_uri_suffix: /logout, logout_methods: [GET], logout_revoke: true, \
    logout_redirect_uri: ['http://api.test/bye']";

/// A door with the service `api` behind the plugin.
async fn door(upstream: &Upstream, issuer: &str) -> Door {
    door_with(CLIENTS, upstream, issuer).await
}

/// The same, with this provider.
pub(crate) async fn door_with(identity: &str, upstream: &Upstream, issuer: &str) -> Door {
    let service = format!(
        "- name: api\n  url: {}\n  routes: [{{hosts: [api.test]}}]\n  plugins:\n  \
         - {{name: openid-connect, config: {{issuer: '{issuer}'{PLUGIN}}}}}\n",
        upstream.url("")
    );
    Setup::new()
        .identity(identity)
        .services(&service)
        .start()
        .await
}

/// Where the service is, for browsers.
const SERVICE: &str = "http://api.test";

/// Whose cookies an address gets.
fn host(address: &url::Url) -> &'static str {
    if address.as_str().starts_with(SERVICE) {
        "api"
    } else {
        "provider"
    }
}

/// A browser that keeps cookies by host, and knows where `api.test` is.
pub(crate) struct Browser<'d> {
    api: &'d Door,
    /// The page that it shows: links may be relative to it.
    page: url::Url,
    /// The path of sub-requests about what it asks the service for, if a proxy stands
    /// before it.
    pub(crate) through: Option<&'static str>,
    /// Where a proxy of another maker stands before the service, if one does.
    pub(crate) proxy: Option<String>,
    pub(crate) cookies: BTreeMap<(String, String), String>,
}

impl<'d> Browser<'d> {
    pub(crate) fn at(api: &'d Door) -> Self {
        Self {
            api,
            page: "http://api.test/".parse().expect("an address"),
            through: None,
            proxy: None,
            cookies: BTreeMap::new(),
        }
    }

    pub(crate) async fn get(&mut self, address: &str) -> Answer {
        self.send(address, &[]).await
    }

    async fn send(&mut self, address: &str, form: &[(String, String)]) -> Answer {
        let address = self.page.join(address).expect("an address");
        let answer = self.ask(&address, form).await;
        self.keep(&address, &answer);
        self.page = address;
        answer
    }

    /// Sends a request with the cookies of now.
    pub(crate) async fn ask(&self, address: &url::Url, form: &[(String, String)]) -> Answer {
        let path = address.as_str().strip_prefix(SERVICE);
        let asked = path.map(|path| self.through.unwrap_or(path));
        let url = match (asked, &self.proxy) {
            (Some(path), Some(proxy)) => format!("http://{proxy}{path}"),
            (Some(path), None) => self.api.proxy_url(path),
            (None, _) => address.to_string(),
        };
        let mut request = match form {
            [] => client().get(url),
            form => client().post(url).form(form),
        };
        if path.is_some() {
            request = request.header("host", "api.test");
        }
        if self.proxy.is_some() {
            request = request.header("accept", "text/html");
        }
        if let (Some(path), Some(_)) = (path, self.through) {
            request = request.header("x-forwarded-host", "api.test");
            request = request.header("x-forwarded-uri", path);
            request = request.header("accept", "text/html");
        }
        let host = host(address);
        let mine = self.cookies.iter().filter(|((owner, _), _)| owner == host);
        let mine: Vec<_> = mine
            .map(|((_, name), value)| format!("{name}={value}"))
            .collect();
        send(request.header("cookie", mine.join("; "))).await
    }

    /// Takes the cookies of an answer.
    pub(crate) fn keep(&mut self, address: &url::Url, answer: &Answer) {
        for cookie in answer.headers.get_all("set-cookie") {
            let (pair, attributes) = cookie
                .to_str()
                .expect("text")
                .split_once(';')
                .expect("more");
            let (name, value) = pair.split_once('=').expect("a pair");
            let key = (host(address).to_owned(), name.to_owned());
            if attributes.contains("Max-Age=0") {
                self.cookies.remove(&key)
            } else {
                self.cookies.insert(key, value.to_owned())
            };
        }
    }

    fn has(&self, name: &str) -> bool {
        self.cookies
            .contains_key(&("api".to_owned(), name.to_owned()))
    }

    /// Goes from an address of the service over the provider's pages back.
    pub(crate) async fn sign_in(&mut self, address: &str) -> Answer {
        let answer = self.get(address).await.expect(302);
        assert_eq!(answer.header("cache-control"), "no-store");
        let mut answer = self.get(answer.header("location")).await;
        if answer.status == 200 {
            let form = form_of(&answer);
            let next = self.send(&form.0, &form.1).await.expect(303);
            answer = self.get(next.header("location")).await;
        }
        self.get(answer.header("location")).await
    }
}

/// Where the form of a page goes, filled in for the user `demo`.
pub(crate) fn form_of(page: &Answer) -> (String, Vec<(String, String)>) {
    let between = |text: &str, before: &str| {
        let start = text.find(before).expect("it is there") + before.len();
        let end = start + text[start..].find('"').expect("an end");
        text[start..end].replace("&#38;", "&").replace("&#61;", "=")
    };
    let mut fields: Vec<_> = page
        .body
        .split("<input type=\"hidden\" ")
        .skip(1)
        .map(|input| (between(input, "name=\""), between(input, "value=\"")))
        .collect();
    fields.retain(|(name, _)| name != "username" && name != "password");
    fields.push(("username".into(), "demo".into()));
    fields.push(("password".into(), "Ch4ng31t-demo".into()));
    (
        between(&page.body, "<form method=\"post\" action=\""),
        fields,
    )
}

async fn signs_in_and_out(api: &Door, upstream: &Upstream) {
    let mut browser = Browser::at(api);
    let answer = browser
        .sign_in("http://api.test/orders?a=%201")
        .await
        .expect(302);
    assert_eq!(answer.header("location"), "http://api.test/orders?a=%201");
    assert!(browser.has("session"));
    browser
        .get("http://api.test/orders?a=%201")
        .await
        .expect(200);
    let seen = upstream.last();
    assert_eq!(seen.target, "/orders?a=%201");
    assert_eq!(seen.header("x-credential-identifier"), Some("demo"));
    assert!(
        seen.header("authorization")
            .expect("a token")
            .starts_with("Bearer ey")
    );
    assert_eq!(seen.header("cookie").unwrap_or_default(), "");
    // Another tab: the provider asks nobody again.
    browser.cookies.retain(|(_, name), _| name != "session");
    let answer = browser
        .sign_in("http://api.test/callback")
        .await
        .expect(200);
    assert_eq!(answer.header("cache-control"), "no-store");
    assert_eq!(upstream.last().target, "/callback");
    let answer = browser.get("http://api.test/logout").await.expect(302);
    assert!(!browser.has("session"));
    let end = answer.header("location").to_owned();
    let answer = browser.get(&end).await;
    let gone = answer.header("location").starts_with("http://api.test/bye");
    assert!(gone, "{} {}", answer.status, answer.header("location"));
    browser.get("http://api.test/orders").await.expect(302);
    let log = api.log_text();
    assert!(!log.contains("code="), "{log}");
    assert!(!log.contains("g-secret"));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_session_secret_a_session_outlives_a_restart_and_other_nodes_know_it() {
    let upstream = Upstream::echo().await;
    let plugin = PLUGIN.replace("session_secret: shared, ", "");
    let service = format!(
        "- name: api\n  url: {}\n  routes: [{{hosts: [api.test]}}]\n  plugins:\n  \
         - {{name: openid-connect, config: {{issuer: 'http://@PROXY@/oauth2'{plugin}}}}}\n",
        upstream.url("")
    );
    let setup = Setup::new().identity(CLIENTS).services(&service);
    let mut door = setup.start().await;
    let mut browser = Browser::at(&door);
    browser.sign_in("http://api.test/a").await;
    browser.get("http://api.test/a").await.expect(200);
    let cookies = browser.cookies.clone();
    assert!(
        !door.log_text().contains("session_secret"),
        "{}",
        door.log_text()
    );
    door.kill();
    door.start().await;
    let mut browser = Browser::at(&door);
    browser.cookies = cookies;
    browser.get("http://api.test/a").await.expect(200);
}

#[tokio::test]
async fn a_browser_signs_in_at_the_provider_of_the_process_and_out() {
    let upstream = Upstream::echo().await;
    let door = door(&upstream, "http://@PROXY@/oauth2").await;
    signs_in_and_out(&door, &upstream).await;
    // The gateway revokes in the name of the browser.
    let log = door.admin_get("/audit?kind=token.revoke").await;
    let revoked = log.expect(200).body;
    let calls = revoked.matches("\"event\":\"token.revoke\"").count();
    let of_browser = revoked.matches("\"address\":\"127.0.0.1\"").count();
    assert!(calls > 0 && calls == of_browser, "{revoked}");
}

#[tokio::test]
async fn a_browser_signs_in_at_the_provider_of_another_process_and_out() {
    let upstream = Upstream::echo().await;
    let provider = Setup::new().identity(CLIENTS).start().await;
    let door = door(&upstream, &provider.proxy_url("/oauth2")).await;
    signs_in_and_out(&door, &upstream).await;
}
