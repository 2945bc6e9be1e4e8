//! Second factors and passkeys, as browsers and clients meet them.

mod account;
mod browser;
mod passkeys;
mod programs;
mod steps;

use serde_json::{Value, json};

use super::super::testing::{Provider, config};

const REDIRECT: &str = "https://app.example/cb";

/// The usual realm with a client for pages, and these settings.
fn with(settings: Value) -> Value {
    let mut config = config();
    let realm = &mut config["realms"]["/"];
    realm["settings"] = settings;
    let clients = realm["clients"].as_array_mut().expect("clients");
    for (id, strict) in [("web", false), ("vault", true)] {
        clients.push(json!({
            "client_id": id, "client_secret": "web-secret",
            "redirect_uris": [REDIRECT], "scope": "openid", "require_consent": false,
            "require_pkce": false, "require_second_factor": strict,
        }));
    }
    config
}

async fn provider() -> Provider {
    Provider::with(with(json!({}))).await
}

/// An authorization request of client `web`.
fn request(more: &str) -> String {
    request_of("web", more)
}

fn request_of(client: &str, more: &str) -> String {
    let redirect = "https%3A%2F%2Fapp.example%2Fcb";
    format!(
        "/oauth2/authorize?response_type=code&client_id={client}&redirect_uri={redirect}\
         &scope=openid&state=s{more}"
    )
}

/// The claims of the ID token that the code in this address gives.
async fn id_token(provider: &Provider, client: &str, address: &str) -> Value {
    let code = address
        .split(['?', '&'])
        .find_map(|part| part.strip_prefix("code="));
    let code = code.unwrap_or_else(|| panic!("no code in {address}"));
    let body = format!(
        "grant_type=authorization_code&client_id={client}&client_secret=web-secret&code={code}\
         &redirect_uri=https%3A%2F%2Fapp.example%2Fcb"
    );
    let answer = provider.token(&body).await;
    let answer = answer.json();
    provider.claims(answer["id_token"].as_str().expect("an ID token"))
}

/// Takes the clock to the next code.
fn next_code(provider: &Provider) {
    provider.clock.advance(30_000);
}
