//! Attacks on the provider, one test each, named after it; each against the
//! real program.
//!
//! Where the others are, by what is attacked:
//!
//! | attack | tests |
//! |---|---|
//! | endpoints: parameters, bodies, methods, caches, hosts | [`endpoints`], `tokens.rs`, `token_endpoints.rs` |
//! | client authentication: schemes mixed, assertions forged, replayed, of others; names scanned | `client_auth.rs` |
//! | authorization: redirect URIs, codes, PKCE, CSRF, frames, injections, fixation | `authorize/attacks.rs`, [`races`] |
//! | tokens: forged, confused, of other realms, raced, scanned | [`tokens`], [`races`], `token_endpoints.rs` |
//! | DPoP: proofs replayed, forged, left out | `dpop.rs` |
//! | exchange, assertions as grants, resources: more than was given | `exchanges.rs` |
//! | people: guessed, listed, locked out | [`people`], `people.rs`, `request_guard.rs` |
//! | sign-out: forced, hints forged, redirects | `authorize/sign_out.rs` |
//! | devices: codes guessed, forms forged | `device.rs` |
//! | secrets in logs, metrics and errors | [`secrets`] |
//! | addresses that strangers chose | `crates/net/src/http/outbound` |

mod endpoints;
mod people;
mod races;
mod secrets;
mod tokens;

use std::collections::BTreeMap;

use serde_json::Value;

use super::authorize::browser::Browser;
use crate::support::http::{client, send};
use crate::support::{Answer, Door, Setup};

/// Every endpoint that takes a form, below the root realm.
const FORMS: [&str; 3] = ["access_token", "introspect", "token/revoke"];

const CALLBACK: &str = "https://app.example/cb";

const IDENTITY: &str = r#"
  base_url: http://@PROXY@
  lockout: {failures: 5, window: 300, duration: 60}
  hashing: {memory_kib: 8192, passes: 1}
  realms:
    /:
      users:
        - {userName: demo, password: Ch4ng31t-demo}
        - {userName: alice, password: Ch4ng31t-alice}
        - {userName: gone, password: Ch4ng31t-gone, accountStatus: Deactivated}
      clients:
        - client_id: app
          client_secret: app-secret-of-the-app
          grant_types: [authorization_code, refresh_token, client_credentials, password]
          redirect_uris: ["https://app.example/cb"]
          require_consent: false
          require_pkce: false
          scope: openid profile offline_access read
        - client_id: other
          client_secret: other-secret-of-the-other
          grant_types: [authorization_code, refresh_token, client_credentials, password]
          redirect_uris: ["https://app.example/cb"]
          require_consent: false
          scope: openid read
    /alpha:
      users:
        - {userName: demo, password: Ch4ng31t-demo}
      clients:
        - client_id: app
          client_secret: app-secret-of-the-app
          grant_types: [authorization_code, refresh_token, client_credentials, password]
          redirect_uris: ["https://app.example/cb"]
          require_consent: false
          scope: openid read
"#;

async fn door() -> Door {
    Setup::new().identity(IDENTITY).start().await
}

const APP: [(&str, &str); 2] = [
    ("client_id", "app"),
    ("client_secret", "app-secret-of-the-app"),
];

const OTHER: [(&str, &str); 2] = [
    ("client_id", "other"),
    ("client_secret", "other-secret-of-the-other"),
];

/// POST of a form below `/oauth2`.
async fn post(door: &Door, path: &str, fields: &[(&str, &str)]) -> Answer {
    let url = door.proxy_url(&format!("/oauth2/{path}"));
    send(client().post(url).form(fields)).await
}

/// POST of a form to the token endpoint by client `app`.
async fn ask(door: &Door, fields: &[(&str, &str)]) -> Answer {
    post(door, "access_token", &[&APP[..], fields].concat()).await
}

fn text(answer: &Value, name: &str) -> String {
    answer[name]
        .as_str()
        .unwrap_or_else(|| panic!("{name}: {answer}"))
        .to_owned()
}

/// The tokens of a user for client `app`, by password.
async fn tokens(door: &Door) -> Value {
    let fields = [
        ("grant_type", "password"),
        ("username", "demo"),
        ("password", "Ch4ng31t-demo"),
        ("scope", "openid offline_access"),
    ];
    ask(door, &fields).await.expect(200).json()
}

/// What introspection tells client `app` of a token.
async fn told(door: &Door, token: &str) -> Value {
    let fields = [&APP[..], &[("token", token)]].concat();
    post(door, "introspect", &fields).await.expect(200).json()
}

/// The status that userinfo answers this bearer token with.
async fn userinfo(door: &Door, token: &str) -> u16 {
    let request = client().get(door.proxy_url("/oauth2/userinfo"));
    send(request.bearer_auth(token)).await.status
}

/// A code for client `app`.
async fn code(door: &Door, realm: &str) -> String {
    let browser = Browser::new(door);
    let query = "authorize?client_id=app&response_type=code&scope=openid&state=s\
                 &redirect_uri=https%3A%2F%2Fapp.example%2Fcb";
    let path = match realm {
        "/" => format!("/oauth2/{query}"),
        realm => format!("/oauth2/realms/root/realms{realm}/{query}"),
    };
    let page = browser.get(&path).await.expect(200);
    let answer = browser.sign_in(&page, "demo").await;
    let location = answer.header("location");
    let query = location.split_once('?').expect("an answer").1;
    let told: BTreeMap<_, _> = url::form_urlencoded::parse(query.as_bytes()).collect();
    told["code"].clone().into_owned()
}
