//! Providers of other makers, with the openid-connect plugin as their client.

use super::{Stage, node};
use crate::support::Setup;
use crate::support::tls::{Authority, Pair};

#[tokio::test]
#[ignore = "needs node and its packages, which `make test` installs"]
async fn the_plugin_is_a_client_of_a_certified_provider() {
    relying("relying.mjs").await;
}

#[tokio::test]
#[ignore = "needs node and its packages, which `make test` installs"]
async fn signed_tokens_outlive_the_keys_of_a_certified_provider() {
    relying("relying-keys.mjs").await;
}

#[tokio::test]
#[ignore = "needs node and its packages, which `make test` installs"]
async fn tokens_of_a_certified_provider_are_proven() {
    relying("relying-proofs.mjs").await;
}

#[tokio::test]
#[ignore = "needs node and its packages, which `make test` installs"]
async fn tokens_are_exchanged_at_a_certified_provider() {
    relying("relying-exchange.mjs").await;
}

#[tokio::test]
#[ignore = "needs node and its packages, which `make test` installs"]
async fn the_plugin_shows_its_certificate_to_a_certified_provider() {
    let mut door = Setup::new().env("SSL_CERT_FILE", "ca.pem").lay_out();
    let authority = Authority::new();
    door.write("ca.pem", &authority.pem());
    let own = Pair::new("gateway.test");
    for (name, key, pair) in [
        ("cert.pem", "key.pem", authority.client("127.0.0.1")),
        ("known.pem", "known.key", authority.client("gateway.test")),
        ("other.pem", "other.key", authority.client("other.test")),
        ("own.pem", "own.key", own),
    ] {
        door.write(name, &pair.cert);
        door.write(key, &pair.key);
    }
    door.start().await;
    Stage::plain(door).run(node("relying-tls.mjs")).await;
}

/// A door without routes; the script makes its own.
async fn relying(script: &str) {
    let stage = Stage::plain(Setup::new().start().await);
    stage.run(node(script)).await;
}

#[tokio::test]
#[ignore = "needs node, its packages and chromium, which `make test` installs"]
async fn people_sign_in_at_a_certified_provider_in_chromium() {
    relying("relying-people.mjs").await;
}

#[tokio::test]
#[ignore = "needs node, its packages and chromium, which `make test` installs"]
async fn people_sign_in_to_services_in_chromium() {
    let identity = "
  base_url: http://@PROXY@
  # Eight tabs sign in at once.
  hashing: {memory_kib: 64, passes: 1}
  realms:
    /:
      users:
        - {userName: demo, password: Ch4ng31t-demo}
        - {userName: alice, password: Ch4ng31t-alice}
        - {userName: carol, password: Ch4ng31t-carol}
      clients:
        - client_id: shop
          client_secret: s-secret
          grant_types: [authorization_code, refresh_token]
          redirect_uris: [\"http://@PROXY@/shop/callback\"]
          post_logout_redirect_uris: [\"http://@PROXY@/bye\"]
          scope: openid profile
        - client_id: quiet
          client_secret: q-secret
          grant_types: [authorization_code, refresh_token]
          redirect_uris:
            - \"http://@PROXY@/quiet/callback\"
            - \"http://@PROXY@/form/callback\"
            - \"http://@PROXY@/kept/callback\"
            - \"http://@PROXY@/scripted/callback\"
            - \"http://@PROXY@/fragment/callback\"
            - \"http://@PROXY@/short/callback\"
          require_consent: false
          scope: openid profile
";
    let shop = "client_id: shop, client_secret: s-secret, leeway: 80000, logout_query_arg: bye, \
        logout_methods: [GET], logout_redirect_uri: ['http://@PROXY@/bye']";
    let quiet = |more: &str| format!("client_id: quiet, client_secret: q-secret{more}");
    let own = "http://@PROXY@/oauth2";
    let services = [
        ("shop", own, shop.to_owned()),
        ("quiet", own, quiet("")),
        ("form", own, quiet(", response_mode: form_post")),
        ("fragment", own, quiet(", response_mode: fragment")),
        ("kept", own, quiet(", preserve_request_body: 4096")),
        ("scripted", own, quiet(", scripts_unauthorized: true")),
        ("short", own, quiet(", session_absolute_timeout: 3")),
        // Nobody listens there.
        ("broken", "http://127.0.0.1:1", quiet(", timeout: 1000")),
    ];
    let services = services.map(|(name, issuer, config)| guarded(name, issuer, &config));
    let open = "- name: open\n  protocol: internal\n  host: echo\n  routes:\n  \
        - {name: open, paths: [/open, /bye], strip_path: false}\n";
    let services = format!("{}{open}", services.concat());
    let mut door = Setup::new()
        .identity(identity)
        .services(&services)
        .lay_out();
    door.start().await;
    Stage::plain(door).run(node("relying-browser.mjs")).await;
}

/// A service behind the plugin, to which the provider leads back below its path.
fn guarded(name: &str, issuer: &str, config: &str) -> String {
    let cookie = if name == "shop" { "session" } else { name };
    format!(
        "- name: {name}\n  protocol: internal\n  host: echo\n  routes:\n  \
         - {{name: {name}, paths: [/{name}], strip_path: false}}\n  plugins:\n  \
         - {{name: openid-connect, config: {{issuer: '{issuer}', session_secret: s, \
         session_cookie_name: {cookie}, authorization_cookie_name: at-{name}, \
         redirect_uri: ['http://@PROXY@/{name}/callback'], {config}}}}}\n"
    )
}
