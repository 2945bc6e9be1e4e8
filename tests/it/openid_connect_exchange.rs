//! The openid-connect plugin exchanges tokens at the embedded provider.

use serde_json::json;

use crate::support::http::{client, send};
use crate::support::issuer::claims_of;
use crate::support::{Answer, Door, Setup, Upstream};

const GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";

/// A door with `api.test` behind the plugin, which takes what it shows down to
/// the scope `read` and one audience.
async fn narrowing(upstream: &Upstream) -> Door {
    let identity = format!(
        "
  base_url: http://@PROXY@
  realms:
    /:
      clients:
        - client_id: app
          client_secret: a-secret
          grant_types: [client_credentials]
          scope: read write
          resources: [\"https://stock.example/\", \"https://orders.example/\"]
        - client_id: gateway
          client_secret: g-secret
          grant_types: [client_credentials, {GRANT}]
          scope: read write
          audiences: [\"https://stock.example/\"]
          resources: [\"https://deep.example/\"]
"
    );
    let service = format!(
        "- name: api
  url: {}
  routes: [{{hosts: [api.test]}}]
  plugins:
  - name: openid-connect
    config:
      issuer: http://@PROXY@/oauth2
      client_id: gateway
      client_secret: g-secret
      auth_methods: [bearer]
      display_errors: true
      token_exchange:
        subject_token_issuers:
        - {{issuer: http://@PROXY@/oauth2, conditions: {{has_scopes: [write]}}}}
        request: {{scopes: [read], audience: [\"https://deep.example/\"]}}
",
        upstream.url("")
    );
    let setup = Setup::new().identity(&identity);
    setup.services(&service).start().await
}

async fn token(door: &Door, scope: &str, resource: &str) -> String {
    let form = [
        ("grant_type", "client_credentials"),
        ("client_id", "app"),
        ("client_secret", "a-secret"),
        ("scope", scope),
        ("resource", resource),
    ];
    door.token(&form).await
}

async fn ask(door: &Door, token: &str) -> Answer {
    door.get_as(token, "api.test", "/").await
}

#[tokio::test]
async fn the_upstream_gets_a_token_of_its_own() {
    let upstream = Upstream::echo().await;
    let door = narrowing(&upstream).await;
    let wide = token(&door, "read write", "https://stock.example/").await;
    let mut sent = Vec::new();
    for _ in 0..2 {
        ask(&door, &wide).await.expect(200);
        let seen = upstream.last();
        let bearer = seen.header("authorization").expect("a token");
        sent.push(bearer.strip_prefix("Bearer ").expect("Bearer").to_owned());
    }
    assert_eq!(sent[0], sent[1], "it is asked for once");
    let claims = claims_of(&sent[0]);
    assert_eq!(claims["scope"], json!(["read"]));
    assert_eq!(claims["aud"], "https://deep.example/");
    // What is narrow enough goes on as it is.
    let narrow = token(&door, "read", "https://stock.example/").await;
    ask(&door, &narrow).await.expect(200);
    let sent = format!("Bearer {narrow}");
    assert_eq!(upstream.last().header("authorization"), Some(&*sent));
    // What is meant for another it may not pass on.
    let other = token(&door, "read write", "https://orders.example/").await;
    let refused = ask(&door, &other).await.expect(401);
    let message = refused.json()["message"].to_string();
    assert!(message.contains("does not exchange"), "{message}");
}

#[tokio::test]
async fn a_revoked_token_does_not_pass_by_what_was_given_for_it() {
    let upstream = Upstream::echo().await;
    let door = narrowing(&upstream).await;
    let wide = token(&door, "read write", "https://stock.example/").await;
    ask(&door, &wide).await.expect(200);
    let form = [
        ("token", wide.as_str()),
        ("client_id", "app"),
        ("client_secret", "a-secret"),
    ];
    let url = door.proxy_url("/oauth2/token/revoke");
    send(client().post(url).form(&form)).await.expect(200);
    ask(&door, &wide).await.expect(401);
}
