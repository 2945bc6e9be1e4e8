//! A foreign provider that knows neither registration nor resources: clients of an MCP
//! server register at this provider, and people sign in at that one. Groups there
//! decide on calls here.

use serde_json::{Value, json};

use super::browser::Browser;
use super::{CHALLENGE, VERIFIER, path, told, web, with};
use crate::mcp::service;
use crate::support::http::{client, send};
use crate::support::{Answer, Door, Setup, Upstream};

const BACK: &str = "http://127.0.0.1:33418/callback";

/// The foreign provider: users and one client, which is the door.
async fn foreign(here: &Door) -> Door {
    let back = here.proxy_url("/oauth2/federation/corp/callback");
    let identity = format!(
        r#"
  base_url: http://@PROXY@
  realms:
    /:
      users:
        - {{userName: anna, password: Ch4ng31t-anna}}
        - {{userName: ben, password: Ch4ng31t-ben}}
      clients:
        - client_id: doorward
          client_secret: corp-secret
          grant_types: [authorization_code]
          redirect_uris: ["{back}"]
          require_consent: false
          scope: openid profile email groups
"#
    );
    Setup::new().identity(&identity).start().await
}

/// The door before the server, once its foreign provider is known.
async fn set() -> (Door, Door, Upstream) {
    let upstream = Upstream::echo().await;
    let config = "      scopes_required: [groups]
      rules:
      - {tools: [pay], groups_required: [payers]}";
    let service = service(&upstream.url(""), config);
    let identity = r#"
  base_url: http://@PROXY@
  realms:
    /:
      settings:
        resources: ["http://@PROXY@/mcp"]
        registration: {mode: open, scope: openid groups}
        federation:
        - name: corp
          issuer: "FOREIGN/oauth2"
          client_id: doorward
          client_secret: corp-secret
          scope: openid profile email groups
          auto_redirect: true
          link: {create: true, groups: {Payments Team: payers}}
"#;
    let mut here = Setup::new().identity(identity).services(&service).lay_out();
    let there = foreign(&here).await;
    here.edit("doorward.yaml", "FOREIGN", &there.proxy_url(""));
    here.start().await;
    (here, there, upstream)
}

/// Makes a group at the foreign provider, with this user in it.
async fn group_of(there: &Door, user: &str) -> (String, String) {
    let found = there.admin_get(&format!("/identity/users?q={user}")).await;
    let id = found.expect(200).json()["data"][0]["id"].clone();
    let group = json!({"displayName": "Payments Team", "members": [id]});
    let made = there.admin_post("/identity/groups", &group).await;
    let group = made.expect(201).json()["id"].clone();
    let text = |value: Value| value.as_str().expect("an identifier").to_owned();
    (text(group), text(id))
}

/// A client that registers itself.
async fn registered(here: &Door) -> String {
    let url = here.proxy_url("/oauth2/connect/register");
    let metadata = json!({"redirect_uris": [BACK], "token_endpoint_auth_method": "none"});
    let answer = send(client().post(url).json(&metadata)).await.expect(201);
    let id = answer.json()["client_id"].as_str().map(str::to_owned);
    id.expect("an identifier")
}

/// The token that a client gets for a user of the foreign provider, who signs in there
/// and agrees here.
async fn token(here: &Door, there: &Door, id: &str, user: &str) -> String {
    let resource = here.proxy_url("/mcp");
    let request = with(with(web(), "client_id", id), "redirect_uri", BACK);
    let request = with(
        with(request, "scope", "openid groups"),
        "resource",
        &resource,
    );
    let request = with(request, "code_challenge", CHALLENGE);
    // A browser keeps the cookies of each of them apart.
    let (own, foreign) = (Browser::new(here), Browser::new(there));
    let mut address = path(&request);
    for _ in 0..10 {
        let answer = if address.starts_with(&there.proxy_url("/")) {
            let page = foreign.get(&address).await;
            if page.status == 200 {
                foreign.sign_in(&page, user).await
            } else {
                page
            }
        } else {
            let page = own.get(&address).await;
            if page.status == 200 {
                assert!(page.body.contains("id=\"approve\""), "{}", page.body);
                own.approve(&page).await
            } else {
                page
            }
        };
        assert!([302, 303].contains(&answer.status), "{answer:?}");
        address = answer.header("location").to_owned();
        if address.starts_with(BACK) {
            let code = told(&answer, BACK)["code"].clone();
            return exchanged(here, id, &code).await;
        }
    }
    panic!("the providers lead in circles: {address}");
}

async fn exchanged(here: &Door, id: &str, code: &str) -> String {
    let form = [
        ("grant_type", "authorization_code"),
        ("client_id", id),
        ("code", code),
        ("redirect_uri", BACK),
        ("code_verifier", VERIFIER),
    ];
    let url = here.proxy_url("/oauth2/access_token");
    let answer = send(client().post(url).form(&form)).await.expect(200);
    let token = answer.json()["access_token"].as_str().map(str::to_owned);
    token.expect("a token")
}

async fn pay(here: &Door, token: &str) -> Answer {
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "pay", "arguments": {}}});
    let request = client().post(here.proxy_url("/mcp")).json(&call);
    send(request.bearer_auth(token)).await.expect(200)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_removes_a_link_takes_the_groups_that_came_with_it() {
    let (here, there, _upstream) = set().await;
    group_of(&there, "anna").await;
    let id = registered(&here).await;
    token(&here, &there, &id, "anna").await;
    let groups = here.admin_get("/identity/groups").await.expect(200).json();
    let group = groups["data"][0]["id"].as_str().expect("an identifier");
    let members = format!("/identity/groups/{group}/members");
    let members = async || here.admin_get(&members).await.expect(200).json()["data"].clone();
    let anna = members().await[0]["id"].clone();
    let anna = anna.as_str().expect("a member");

    let links = format!("/identity/users/{anna}/identities");
    let links = here.admin_get(&links).await.expect(200).json();
    let link = links["data"][0]["id"].as_str().expect("an identifier");
    here.run_well(&["users", "identities", "anna", "--unlink", link]);
    assert_eq!(members().await, json!([]));
    let audit = here.admin_get("/audit?kind=link.delete").await;
    let audit = audit.expect(200).json();
    let details = &audit["data"][0]["details"];
    assert_eq!(details["groups"], json!(["payers"]), "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_of_a_foreign_provider_decide_on_calls() {
    let (here, there, upstream) = set().await;
    let (group, anna) = group_of(&there, "anna").await;
    let id = registered(&here).await;

    let of_anna = token(&here, &there, &id, "anna").await;
    assert_eq!(pay(&here, &of_anna).await.json()["error"], Value::Null);
    assert_eq!(upstream.seen().len(), 1);
    assert_eq!(upstream.last().header("authorization"), None);
    let of_ben = token(&here, &there, &id, "ben").await;
    assert_eq!(pay(&here, &of_ben).await.json()["error"]["code"], -32003);

    // She leaves the group there: her next sign-in takes her out of it here.
    let gone = format!("/identity/groups/{group}/members/{anna}");
    assert!(there.admin_delete(&gone).await.status < 300);
    let of_anna = token(&here, &there, &id, "anna").await;
    assert_eq!(pay(&here, &of_anna).await.json()["error"]["code"], -32003);
    assert_eq!(upstream.seen().len(), 1, "nothing else was forwarded");
    let groups = here.admin_get("/identity/groups").await.expect(200).json();
    assert_eq!(groups["data"][0]["displayName"], "payers");
}
