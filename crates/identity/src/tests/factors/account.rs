//! The page on which users see to their account.

use serde_json::json;

use super::browser::{Browser, error, field};
use super::{id_token, next_code, provider, request, with};
use crate::factors::code_at;
use crate::testing::{Answer, Provider};

async fn act(browser: &Browser<'_>, fields: &[(&str, &str)]) -> Answer {
    let page = browser.get("/oauth2/account").await;
    browser
        .submit(&page, &[fields, &[("doorward_step", "")]].concat())
        .await
}

#[tokio::test]
async fn the_page_shows_nothing_to_who_is_not_signed_in() {
    let provider = provider().await;
    let browser = Browser::new(&provider);
    let page = browser.get("/oauth2/account").await;
    assert!(page.text.contains("name=\"password\""));
    let refused = act(&browser, &[("do", "end-others")]).await;
    assert!(refused.text.contains("name=\"password\""));
    let page = browser.sign_in().await;
    assert!(page.text.contains("demo"), "{}", page.text);
    assert!(page.text.contains("This browser"));
}

#[tokio::test]
async fn a_forged_form_does_nothing() {
    let provider = provider().await;
    let (mine, other) = (Browser::new(&provider), Browser::new(&provider));
    mine.sign_in().await;
    other.sign_in().await;
    let theirs = field(&other.get("/oauth2/account").await, "csrf").expect("a token");
    for csrf in ["", "x", &theirs] {
        let refused = act(&mine, &[("do", "end-others"), ("csrf", csrf)]).await;
        assert_eq!(error(&refused), "bad_request", "{csrf}");
    }
    assert!(
        other
            .get("/oauth2/account")
            .await
            .text
            .contains("This browser")
    );
}

#[tokio::test]
async fn sessions_elsewhere_are_ended_one_or_all() {
    let provider = provider().await;
    let browsers: Vec<_> = (0..3).map(|_| Browser::new(&provider)).collect();
    for browser in &browsers {
        browser.sign_in().await;
    }
    let shown = |page: &Answer| page.text.matches("value=\"end\"").count();
    let page = browsers[0].get("/oauth2/account").await;
    assert_eq!(shown(&page), 3);
    // The second of the list is somebody else's browser.
    let mut id = page
        .text
        .split("value=\"end\"><input type=\"hidden\" name=\"id\" value=\"");
    let id = id.nth(2).and_then(|rest| rest.split('"').next());
    act(
        &browsers[0],
        &[("do", "end"), ("id", id.expect("a session"))],
    )
    .await;
    assert_eq!(shown(&browsers[0].get("/oauth2/account").await), 2);
    act(&browsers[0], &[("do", "end"), ("id", "nobody's")]).await;
    act(&browsers[0], &[("do", "end-others")]).await;
    assert_eq!(shown(&browsers[0].get("/oauth2/account").await), 1);
    for other in &browsers[1..] {
        let page = other.get("/oauth2/account").await;
        assert!(page.text.contains("name=\"password\""), "still signed in");
    }
}

#[tokio::test]
async fn an_old_session_must_confirm_before_it_changes_factors() {
    let provider = provider().await;
    let browser = Browser::new(&provider);
    browser.sign_in().await;
    provider.clock.advance(10 * 60 * 1000);
    let asked = browser.offer().await;
    assert_eq!(error(&asked), "login_required");
    let page = browser.password(&asked).await;
    assert_eq!(page.status, 303);
    assert!(super::browser::offered(&browser.offer().await).len() == 20);
}

#[tokio::test]
async fn a_session_without_the_factor_must_show_it_before_it_changes_factors() {
    let provider = provider().await;
    let (weak, strong) = (Browser::new(&provider), Browser::new(&provider));
    weak.sign_in().await;
    strong.sign_in().await;
    let (secret, codes) = strong.enrol_totp().await;
    assert_eq!(codes.len(), 10);
    next_code(&provider);
    let page = weak.get("/oauth2/account").await;
    let id = page
        .text
        .split_once("value=\"remove\"><input type=\"hidden\" name=\"id\" value=\"");
    let id = id
        .and_then(|(_, rest)| rest.split('"').next())
        .expect("a factor")
        .to_owned();
    for action in ["remove", "rename", "codes", "add"] {
        let asked = act(&weak, &[("do", action), ("id", &id)]).await;
        assert!(
            asked.text.contains("name=\"doorward_code\""),
            "{action}: {}",
            asked.text
        );
        assert!(!asked.text.contains("totp-key"), "{action}");
    }
    let asked = act(&weak, &[("do", "remove"), ("id", &id)]).await;
    let code = code_at(&secret, provider.clock.now_ms());
    assert_eq!(
        weak.submit(&asked, &[("doorward_code", &code)])
            .await
            .status,
        303
    );
    let fields = [("do", "rename"), ("id", &*id), ("doorward_name", "Old one")];
    act(&weak, &fields).await;
    assert!(weak.get("/oauth2/account").await.text.contains("Old one"));
    let codes = act(&weak, &[("do", "codes")]).await;
    assert_eq!(super::browser::codes(&codes).len(), 10);
    act(&weak, &[("do", "remove"), ("id", &id)]).await;
    assert!(
        weak.get("/oauth2/account")
            .await
            .text
            .contains("only your password")
    );
}

#[tokio::test]
async fn consents_are_listed_and_withdrawn_with_their_tokens() {
    let mut config = with(json!({}));
    let clients = config["realms"]["/"]["clients"]
        .as_array_mut()
        .expect("clients");
    for client in clients {
        if client["client_id"] == "web" {
            client["client_name"] = json!("The <b>shop");
            client["require_consent"] = json!(true);
            client["scope"] = json!("openid offline_access");
            client["grant_types"] = json!(["authorization_code", "refresh_token"]);
        }
    }
    let provider = Provider::with(config).await;
    let browser = Browser::new(&provider);
    browser.sign_in().await;
    let page = browser.get(&request("+offline_access")).await;
    let page = match page.status.as_u16() {
        302 => panic!("no consent was asked for"),
        _ => page,
    };
    let fields = [
        ("approve", "true"),
        ("save_consent", "on"),
        ("doorward_step", ""),
    ];
    let back = browser.submit(&page, &fields).await;
    id_token(&provider, "web", back.header("location")).await;
    let page = browser.get("/oauth2/account").await;
    assert!(page.text.contains("The &#60;b&#62;shop") || page.text.contains("The &lt;b&gt;shop"));
    act(&browser, &[("do", "withdraw"), ("id", "web")]).await;
    let page = browser.get("/oauth2/account").await;
    assert!(page.text.contains("not allowed access"), "{}", page.text);
    let asked = browser.get(&request("")).await;
    assert!(asked.text.contains("name=\"approve\""), "not asked again");
}

#[tokio::test]
async fn there_is_a_bound_on_factors() {
    let provider = provider().await;
    let browser = Browser::new(&provider);
    browser.sign_in().await;
    for _ in 0..20 {
        browser.enrol_totp().await;
    }
    let page = browser.offer().await;
    let (_, refused) = browser.confirm(&page).await;
    assert_eq!(error(&refused), "too_many_factors");
}

#[tokio::test]
async fn a_scope_agreed_to_at_one_server_is_asked_for_at_another() {
    let mut config = with(json!({}));
    let clients = config["realms"]["/"]["clients"].as_array_mut();
    for client in clients.expect("clients") {
        if client["client_id"] == "web" {
            client["require_consent"] = json!(true);
            client["scope"] = json!("read write");
            client["resources"] = json!(["https://a.example/mcp", "https://b.example"]);
        }
    }
    let provider = Provider::with(config).await;
    let browser = Browser::new(&provider);
    browser.sign_in().await;
    let (a, b) = (
        "&resource=https://a.example/mcp",
        "&resource=https://b.example",
    );
    let ask = async |scope: &str, at: &str| {
        let address = request(at).replace("scope=openid", &format!("scope={scope}"));
        let page = browser.get(&address).await;
        let asked = page.status == 200 && page.text.contains("name=\"approve\"");
        assert!(asked || page.status == 302, "{}", page.text);
        asked.then_some(page)
    };
    let approve = async |page: Option<Answer>| {
        let page = page.expect("a question");
        let fields = [("approve", "true"), ("save_consent", "on")];
        let back = browser.submit(&page, &fields).await;
        let to = back.header("location");
        assert!(to.starts_with("https://app.example/cb?code="), "{to}");
    };
    approve(ask("read", a).await).await;
    approve(ask("write", b).await).await;
    assert!(ask("read", a).await.is_none(), "agreed to");
    assert!(ask("write", b).await.is_none(), "agreed to");
    for (scope, at) in [("read", b), ("read", ""), ("read+write", a)] {
        assert!(ask(scope, at).await.is_some(), "{scope} {at}");
    }
    let page = ask("write", a).await.expect("a question");
    assert!(page.text.contains("https://a.example/mcp"), "{}", page.text);
    approve(Some(page)).await;
    assert!(ask("read+write", a).await.is_none(), "agreed to one by one");
    assert!(ask("read", &format!("{a}{b}")).await.is_some());
    let shown = browser.get("/oauth2/account").await.text;
    assert!(shown.contains("<li>read</li>"), "{shown}");
    assert_eq!(shown.matches("<li>write</li>").count(), 1, "{shown}");
    assert!(!shown.contains("#write") && !shown.contains("#38;write"));
    let user = provider.store.user_by_name("/", "demo").await;
    let id = user.expect("read").expect("demo").id;
    let path = format!("/users/{id}/consents");
    let list = provider.manage("GET", &path, &json!(null)).await.json();
    assert_eq!(
        list["data"][0]["scopes"],
        json!([
            "read",
            "write",
            "https://a.example/mcp",
            "https://b.example"
        ])
    );
    act(&browser, &[("do", "withdraw"), ("id", "web")]).await;
    assert!(ask("read", a).await.is_some(), "not asked again");
}
