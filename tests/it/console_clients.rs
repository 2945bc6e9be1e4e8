//! The wizard of clients in the console.

use serde_json::{Value, json};

use crate::console::{Browser, attribute};
use crate::console_sign_in::{Office, TOKEN};
use crate::console_users::newest;
use crate::support::http::{client, send};

const NEW: &str = "/console/identity/clients/new";

async fn client_record(office: &Office, id: &str) -> Value {
    let path = format!("/identity/clients/{id}");
    let request = client().get(office.door.admin_url(&path));
    let answer = send(request.header("kong-admin-token", TOKEN)).await;
    answer.expect(200).json()
}

/// The values that the form of a kind is filled with.
async fn filled(browser: &mut Browser<'_>, kind: &str) -> Vec<(String, String)> {
    let page = browser.get(&format!("{NEW}?kind={kind}")).await;
    let page = page.expect(200).body;
    let mut fields = vec![("kind".to_owned(), kind.to_owned())];
    for name in ["scope", "client_id", "client_name"] {
        let value = attribute(&page, &format!("name=\"f.{name}\""), "value");
        fields.push((format!("f.{name}"), value.to_owned()));
    }
    let area = page.split("name=\"f.grant_types\"").nth(1);
    let area = area
        .and_then(|rest| rest.split_once(">\n"))
        .expect("grants")
        .1;
    let grants = area.split("</textarea>").next().unwrap_or_default();
    fields.push(("f.grant_types".to_owned(), grants.to_owned()));
    for name in ["token_endpoint_auth_method", "require_pkce"] {
        let Some(list) = page.split(&format!("name=\"f.{name}\"")).nth(1) else {
            continue;
        };
        let list = list.split("</select>").next().unwrap_or_default();
        let chosen = list.split("<option").find(|one| one.contains(" selected"));
        let chosen = chosen.expect("a choice");
        let text = chosen.split_once('>').expect("a text").1;
        let text = text.split('<').next().unwrap_or_default();
        let value = match attribute(chosen, "", "value") {
            "" => text,
            value => value,
        };
        fields.push((format!("f.{name}"), value.to_owned()));
    }
    fields
}

fn with<'a>(
    fields: &'a [(String, String)],
    more: &[(&'a str, &'a str)],
) -> Vec<(&'a str, &'a str)> {
    let named = |name: &str| more.iter().any(|(own, _)| *own == name);
    let kept = fields.iter().map(|(k, v)| (k.as_str(), v.as_str()));
    kept.filter(|(name, _)| !named(name))
        .chain(more.iter().copied())
        .collect()
}

#[tokio::test]
async fn the_wizard_makes_the_four_usual_kinds_of_clients() {
    let office = Office::open().await;
    let mut owner = office.signed_in("alice").await;
    let page = owner.get(NEW).await.expect(200).body;
    for kind in ["web", "spa", "native", "service"] {
        assert!(page.contains(&format!("kind={kind}\"")), "{page}");
    }
    let code = json!(["authorization_code", "refresh_token"]);
    let service = json!(["client_credentials"]);
    for (kind, redirect, grants, method) in [
        (
            "web",
            "https://app.example/cb",
            &code,
            "client_secret_basic",
        ),
        ("spa", "http://localhost:5173/", &code, "none"),
        ("native", "com.example.app:/cb", &code, "none"),
        ("service", "", &service, "client_secret_basic"),
    ] {
        let fields = filled(&mut owner, kind).await;
        let mut more = vec![("f.client_id", kind)];
        if !redirect.is_empty() {
            more.push(("f.redirect_uris", redirect));
        }
        if kind == "service" {
            // A token without a scope is none that a realm issues.
            more.push(("f.scope", "orders:read"));
        }
        let fields = with(&fields, &more);
        let shown = owner.post(NEW, &fields).await.expect(200).body;
        assert!(shown.contains("Nothing is changed yet"), "{kind}: {shown}");
        let made = owner.confirm(&shown).await;
        let record = client_record(&office, kind).await;
        assert_eq!(&record["grant_types"], grants, "{record}");
        assert_eq!(record["token_endpoint_auth_method"], method, "{record}");
        assert_eq!(record["owner"], "store", "{record}");
        if redirect.is_empty() {
            assert!(record.get("response_types").is_none(), "{record}");
            assert!(record.get("redirect_uris").is_none(), "{record}");
        } else {
            assert_eq!(record["redirect_uris"], json!([redirect]), "{record}");
            assert_eq!(record["require_pkce"], true, "{record}");
        }
        if method == "none" {
            made.expect(303);
            continue;
        }
        // The secret is shown once, and it is good.
        let page = made.expect(200).body;
        let secret = page.split("client_secret</td>").nth(1).expect("a secret");
        let secret = secret.split("class=\"code\">").nth(1).expect("a secret");
        let secret = secret.split('<').next().expect("a secret");
        let own = format!("/console/identity/clients/{kind}");
        let shown = owner.get(&own).await.expect(200).body;
        assert!(!shown.contains(secret), "{shown}");
        if kind == "service" {
            let request = client().post(office.door.proxy_url("/oauth2/access_token"));
            let request = request.basic_auth(kind, Some(secret));
            let form = [
                ("grant_type", "client_credentials"),
                ("scope", "orders:read"),
            ];
            let request = request.form(&form);
            send(request).await.expect(200);
        }
    }
    let record = newest(&office, "client.create").await;
    assert_eq!(record["actor"]["name"], "alice", "{record}");
    // The newest of them is undone from the audit log.
    let page = owner.get("/console/audit?kind=client.create").await;
    let page = page.expect(200).body;
    let at = page.find("action=\"/console/undo/").expect("a way back");
    let back = attribute(&page[at..], "", "action").to_owned();
    owner.agree(&back, &[]).await;
    let own = "/console/identity/clients/service";
    owner.get(own).await.expect(404);
}

#[tokio::test]
async fn the_wizard_refuses_what_would_be_no_safe_client() {
    let office = Office::open().await;
    let mut owner = office.signed_in("alice").await;
    for (kind, name, value) in [
        ("web", "f.redirect_uris", "http://app.example/cb"),
        ("web", "f.redirect_uris", "javascript:alert(1)"),
        ("web", "f.redirect_uris", "JavaScript:alert(1)"),
        ("web", "f.redirect_uris", "https://app.example/cb#x"),
        ("web", "f.redirect_uris", "https://*.app.example/cb"),
        ("web", "f.redirect_uris", "com.example.app:/cb"),
        ("web", "f.redirect_uris", ""),
        ("spa", "f.require_pkce", "false"),
        ("native", "f.redirect_uris", "myapp:/cb"),
        ("native", "f.redirect_uris", "file:///cb"),
        ("service", "f.token_endpoint_auth_method", "none"),
        ("service", "f.grant_types", "<script>alert(1)</script>"),
    ] {
        let fields = filled(&mut owner, kind).await;
        let all = [
            ("f.client_id", "bad"),
            ("f.redirect_uris", "https://app.example/cb"),
        ];
        let all = with(&fields, &all);
        let all: Vec<_> = all.iter().copied().filter(|(k, _)| *k != name).collect();
        let all = [&all[..], &[(name, value)]].concat();
        let page = owner.post(NEW, &all).await;
        assert_eq!(page.status, 400, "{kind} {name} {value}: {}", page.body);
        let told = page.body.contains(&name[2..]) && !page.body.contains("<script>");
        assert!(told, "{}", page.body);
    }
    owner.post(NEW, &[("kind", "x")]).await.expect(400);
    owner.get(&format!("{NEW}?kind=x")).await.expect(404);
    // A name that is taken is told in the form.
    let fields = filled(&mut owner, "service").await;
    let fields = with(&fields, &[("f.client_id", "hr")]);
    let shown = owner.post(NEW, &fields).await.expect(200).body;
    let page = owner.confirm(&shown).await.expect(400).body;
    assert!(page.contains("This name is taken"), "{page}");
}

#[tokio::test]
async fn nobody_but_an_owner_makes_clients() {
    let office = Office::open().await;
    let mut owner = office.signed_in("alice").await;
    let fields = filled(&mut owner, "service").await;
    let fields = with(&fields, &[("f.client_id", "spy")]);
    let shown = owner.post(NEW, &fields).await.expect(200).body;
    for name in ["vera", "olga"] {
        let mut other = office.signed_in(name).await;
        let list = other.get("/console/identity/clients").await;
        assert!(!list.expect(200).body.contains("/clients/new"));
        other.get(NEW).await.expect(403);
        other.post(NEW, &fields).await.expect(403);
        other.confirm(&shown).await.expect(403);
    }
    owner.submit(NEW, &fields).await.expect(403);
    let request = client().get(office.door.admin_url("/identity/clients/spy"));
    let answer = send(request.header("kong-admin-token", TOKEN)).await;
    answer.expect(404);
}
