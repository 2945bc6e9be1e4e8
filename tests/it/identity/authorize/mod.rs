//! The authorization endpoint, its pages, codes and sign-out, as a browser and
//! a client meet them.

mod attacks;
pub(super) mod browser;
mod claims;
mod fapi;
mod foreign;
mod logouts;
mod mcp_federation;
mod native;
mod pairwise;
mod par;
mod request_objects;
mod requests;
mod sign_out;
mod strangers;

use std::collections::BTreeMap;

use crate::support::http::{client, send};
use crate::support::{Answer, Door, Setup};
use browser::Browser;

/// A pair of RFC 7636, appendix B.
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

const CALLBACK: &str = "https://app.example/cb?keep=1";

const IDENTITY: &str = r#"
  base_url: http://@PROXY@
  realms:
    /:
      users:
        - userName: demo
          password: Ch4ng31t-demo
          displayName: Demo User
          emails: [{value: demo@example.com, type: work, primary: true}]
        - {userName: alice, password: Ch4ng31t-alice}
        - {userName: gone, password: Ch4ng31t-gone, accountStatus: Deactivated}
      clients:
        - client_id: web
          client_secret: web-secret
          client_name: 'Web "><script>alert(1)</script>'
          grant_types: [authorization_code, refresh_token]
          redirect_uris: ["https://app.example/cb?keep=1"]
          post_logout_redirect_uris: ["https://app.example/bye"]
          scope: openid profile email offline_access
        - client_id: trusted
          client_secret: trusted-secret
          grant_types: [authorization_code]
          response_types: [code, id_token, "code id_token", "id_token token", "code id_token token"]
          redirect_uris: ["https://trusted.example/cb"]
          require_consent: false
          scope: openid email
        - client_id: native
          token_endpoint_auth_method: none
          grant_types: [authorization_code]
          redirect_uris: ["http://127.0.0.1/cb"]
          require_consent: false
          scope: openid email
        - client_id: machine
          client_secret: machine-secret
          grant_types: [client_credentials]
          redirect_uris: ["https://machine.example/cb"]
          scope: openid
    /alpha:
      users:
        - {userName: demo, password: Ch4ng31t-demo}
      clients:
        - client_id: web
          client_secret: web-secret
          grant_types: [authorization_code]
          redirect_uris: ["https://app.example/cb?keep=1"]
          require_consent: false
          scope: openid email
"#;

async fn door() -> Door {
    Setup::new().identity(IDENTITY).start().await
}

/// The request of client `web` that all others are variations of.
fn web() -> BTreeMap<&'static str, String> {
    [
        ("response_type", "code"),
        ("client_id", "web"),
        ("redirect_uri", CALLBACK),
        ("scope", "openid email"),
        ("state", "s t&ate\"<é>"),
        ("nonce", "n-1"),
        ("code_challenge", CHALLENGE),
        ("code_challenge_method", "S256"),
    ]
    .into_iter()
    .map(|(name, value)| (name, value.to_owned()))
    .collect()
}

/// The request of client `trusted`, who needs no consent.
fn trusted() -> BTreeMap<&'static str, String> {
    let mut request = web();
    request.insert("client_id", "trusted".to_owned());
    request.insert("redirect_uri", "https://trusted.example/cb".to_owned());
    request
}

fn with(
    mut request: BTreeMap<&'static str, String>,
    name: &'static str,
    value: &str,
) -> BTreeMap<&'static str, String> {
    match value {
        "" => request.remove(name),
        _ => request.insert(name, value.to_owned()),
    };
    request
}

/// The path of the authorization endpoint with this request.
fn path(request: &BTreeMap<&'static str, String>) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(request);
    format!("/oauth2/authorize?{}", query.finish())
}

/// What the redirect to the client carries, which must be one to `address`.
#[track_caller]
fn told(answer: &Answer, address: &str) -> BTreeMap<String, String> {
    assert!(matches!(answer.status, 302 | 303), "{answer:?}");
    let location = answer.header("location");
    let rest = location.strip_prefix(address);
    let rest = rest.unwrap_or_else(|| panic!("{location} is not at {address}"));
    let pairs = rest.trim_start_matches(['?', '&', '#']).as_bytes();
    url::form_urlencoded::parse(pairs).into_owned().collect()
}

/// A browser in which `user` is signed in.
async fn signed_in<'d>(door: &'d Door, user: &str) -> Browser<'d> {
    let browser = Browser::new(door);
    let page = browser.get(&path(&trusted())).await.expect(200);
    browser.sign_in(&page, user).await.expect(302);
    browser
}

/// Exchanges a code of client `web`.
async fn exchange(door: &Door, code: &str, verifier: &str) -> Answer {
    exchange_as(door, ("web", "web-secret"), code, CALLBACK, verifier).await
}

/// Exchanges a code of client `trusted`.
async fn exchange_trusted(door: &Door, code: &str) -> Answer {
    let client = ("trusted", "trusted-secret");
    exchange_as(door, client, code, "https://trusted.example/cb", VERIFIER).await
}

async fn exchange_as(
    door: &Door,
    (client_id, secret): (&str, &str),
    code: &str,
    redirect_uri: &str,
    verifier: &str,
) -> Answer {
    let fields: Vec<_> = [
        ("grant_type", "authorization_code"),
        ("client_id", client_id),
        ("client_secret", secret),
        ("code", code),
        ("redirect_uri", redirect_uri),
        ("code_verifier", verifier),
    ]
    .into_iter()
    .filter(|(_, value)| !value.is_empty())
    .collect();
    let url = door.proxy_url("/oauth2/access_token");
    send(client().post(url).form(&fields)).await
}

/// A code for client `web`, by way of every page.
async fn code(browser: &Browser<'_>) -> String {
    let page = browser.get(&path(&with(web(), "prompt", "consent"))).await;
    let page = if page.body.contains("name=\"password\"") {
        browser.sign_in(&page, "demo").await
    } else {
        page
    };
    let answer = browser.approve(&page.expect(200)).await.expect(303);
    told(&answer, CALLBACK)["code"].clone()
}
