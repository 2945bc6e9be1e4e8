//! The plugin `mcp` exchanges the client's token for one of the server's own audience
//! (RFC 8693): the server never sees the first, and nobody else's token counts.

use serde_json::json;

use crate::mcp::service;
use crate::support::http::{client, send};
use crate::support::issuer::claims_of;
use crate::support::{Answer, Door, Setup, Upstream};

const INNER: &str = "https://inner.example/api";
/// A further address of the server, which is an audience of the gateway's client.
const ALIAS: &str = "https://alias.example/mcp";
/// Another, which the gateway's client lacks.
const FORGOTTEN: &str = "https://forgotten.example/mcp";

async fn door(upstream: &Upstream) -> Door {
    let identity = format!(
        "
  base_url: http://@PROXY@
  realms:
    /:
      clients:
      - client_id: app
        client_secret: a-secret
        grant_types: [client_credentials]
        scope: tools pay refund
        resources: [\"http://@PROXY@/mcp\", \"{ALIAS}\", \"{FORGOTTEN}\", \"{INNER}\", \"https://other.example\"]
      - client_id: gateway
        client_secret: g-secret
        grant_types: [\"urn:ietf:params:oauth:grant-type:token-exchange\"]
        scope: tools pay
        audiences: [\"http://@PROXY@/mcp\", \"{ALIAS}\"]
        resources: [\"{INNER}\"]
"
    );
    let config = format!(
        "      client_id: gateway
      client_secret: g-secret
      upstream_audience: \"{INNER}\"
      resource_aliases: [\"{ALIAS}\", \"{FORGOTTEN}\"]
      scopes_required: [tools]
      rules:
      - {{tools: [pay], scopes_required: [pay]}}
      - {{tools: [refund], scopes_required: [refund]}}"
    );
    let service = service(&upstream.url(""), &config);
    let setup = Setup::new().identity(&identity).services(&service);
    setup.start().await
}

async fn token(door: &Door, scope: &str, resource: &str) -> String {
    let mut form = vec![
        ("grant_type", "client_credentials"),
        ("client_id", "app"),
        ("client_secret", "a-secret"),
        ("scope", scope),
    ];
    form.extend((!resource.is_empty()).then_some(("resource", resource)));
    door.token(&form).await
}

/// A token that is for the resource and for the server besides.
async fn token_for_both(door: &Door) -> String {
    let resource = door.proxy_url("/mcp");
    let form = [
        ("grant_type", "client_credentials"),
        ("client_id", "app"),
        ("client_secret", "a-secret"),
        ("scope", "tools"),
        ("resource", resource.as_str()),
        ("resource", INNER),
    ];
    door.token(&form).await
}

async fn call(door: &Door, tool: &str, name: &str, value: &str) -> Answer {
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": tool, "arguments": {}}});
    let request = client().post(door.proxy_url("/mcp")).json(&call);
    send(request.header(name, value)).await
}

async fn call_with(door: &Door, tool: &str, token: &str) -> Answer {
    call(door, tool, "authorization", &format!("Bearer {token}")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_gets_a_token_of_its_own_for_the_clients() {
    let upstream = Upstream::echo().await;
    let door = door(&upstream).await;
    let shown = token(&door, "tools", &door.proxy_url("/mcp")).await;
    let mut given = Vec::new();
    for _ in 0..2 {
        let answer = call_with(&door, "add", &shown).await.expect(200);
        assert!(
            !answer.body.contains(&shown),
            "the server sees the client's"
        );
        let seen = upstream.last();
        let bearer = seen.header("authorization").expect("a token");
        given.push(bearer.strip_prefix("Bearer ").expect("Bearer").to_owned());
    }
    assert_eq!(given[0], given[1], "it is asked for once");
    let (of_client, of_server) = (claims_of(&shown), claims_of(&given[0]));
    assert_eq!(of_server["aud"], INNER);
    assert_eq!(of_server["sub"], of_client["sub"]);
    assert_eq!(of_server["scope"], json!(["tools"]));

    // The rules hold as without an exchange.
    let refused = call_with(&door, "pay", &shown).await.expect(403);
    let challenge = refused.header("www-authenticate");
    assert!(challenge.contains("scope=\"tools pay\""), "{challenge}");
    let rich = token(&door, "tools pay", &door.proxy_url("/mcp")).await;
    call_with(&door, "pay", &rich).await.expect(200);
    // The gateway's own client can't have a scope, so no step-up leads there.
    for scope in ["tools", "tools refund"] {
        let shown = token(&door, scope, &door.proxy_url("/mcp")).await;
        let refused = call_with(&door, "refund", &shown).await.expect(200);
        assert_eq!(refused.json()["error"]["code"], -32003, "{scope}");
        assert_eq!(refused.header("www-authenticate"), "", "{scope}");
    }
    let form = [
        ("token", rich.as_str()),
        ("client_id", "app"),
        ("client_secret", "a-secret"),
    ];
    let url = door.proxy_url("/oauth2/token/revoke");
    send(client().post(url).form(&form)).await.expect(200);
    call_with(&door, "pay", &rich).await.expect(401);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_for_an_alias_is_exchanged_if_the_gateways_client_is_its_audience() {
    let upstream = Upstream::echo().await;
    let door = door(&upstream).await;
    let shown = token(&door, "tools", ALIAS).await;
    call_with(&door, "add", &shown).await.expect(200);
    let bearer = upstream.last();
    let bearer = bearer.header("authorization").expect("a token");
    let given = bearer.strip_prefix("Bearer ").expect("Bearer");
    assert_eq!(claims_of(given)["aud"], INNER);

    let shown = token(&door, "tools", FORGOTTEN).await;
    call_with(&door, "add", &shown).await.expect(401);
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_for_the_resource_and_the_server_is_exchanged_like_others() {
    let upstream = Upstream::echo().await;
    let door = door(&upstream).await;
    let both = token_for_both(&door).await;
    let resource = door.proxy_url("/mcp");
    assert_eq!(claims_of(&both)["aud"], json!([resource, INNER]));
    call_with(&door, "add", &both).await.expect(200);
    let seen = upstream.last();
    let given = seen.header("authorization").expect("a token");
    let given = given.strip_prefix("Bearer ").expect("Bearer");
    assert_ne!(given, both, "the server sees the client's");
    let claims = claims_of(given);
    assert_eq!(claims["aud"], INNER, "it is good for the server alone");
    assert_eq!(claims["client_id"], "gateway");

    // A forged one with the right audiences is worth nothing.
    let (head, _) = both.rsplit_once('.').expect("a signature");
    let reached = upstream.seen().len();
    call_with(&door, "add", &format!("{head}.AAAA"))
        .await
        .expect(401);
    assert_eq!(upstream.seen().len(), reached, "nothing was forwarded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_the_servers_own_audience_is_not_the_clients_to_show() {
    let upstream = Upstream::echo().await;
    let door = door(&upstream).await;
    let mut others = Vec::new();
    for resource in [INNER, "https://other.example", ""] {
        others.push(token(&door, "tools", resource).await);
    }
    let good = token(&door, "tools", &door.proxy_url("/mcp")).await;
    let (head, _) = good.rsplit_once('.').expect("a signature");
    others.push(format!("{head}.AAAA"));
    others.push("an-opaque-token".to_owned());
    for other in &others {
        let refused = call_with(&door, "add", other).await;
        assert_eq!(refused.status, 401, "{other}: {}", refused.body);
        let challenge = refused.header("www-authenticate");
        assert!(challenge.contains("error=\"invalid_token\""), "{challenge}");
    }
    let of_server = &others[0];
    for (name, value) in [
        ("access-token", of_server.clone()),
        ("x-access-token", of_server.clone()),
        ("authorization", format!("bearer  {of_server}")),
        ("authorization", format!("DPoP {of_server}")),
        ("authorization", format!("Bearer {of_server} {good}")),
        ("authorization", "Basic YXBwOmEtc2VjcmV0".to_owned()),
    ] {
        let refused = call(&door, "add", name, &value).await;
        assert!([400, 401].contains(&refused.status), "{name}: {value}");
    }
    let both = client().post(door.proxy_url("/mcp")).bearer_auth(&good);
    let both = send(both.header("access-token", of_server)).await;
    assert!([400, 401].contains(&both.status), "{}", both.body);
    // One with the right audience that nobody signed, where no token is looked for.
    let (head, _) = good.rsplit_once('.').expect("a signature");
    let beside = client().post(door.proxy_url("/mcp"));
    let beside = beside.header("x-access-token", &good);
    let beside = beside.header("authorization", format!("Other {head}.AAAA"));
    send(beside).await.expect(401);
    let refused = send(client().post(door.proxy_url("/mcp")))
        .await
        .expect(401);
    assert!(!refused.header("www-authenticate").contains("error"));
    assert_eq!(upstream.seen().len(), 0, "nothing was forwarded");
}
