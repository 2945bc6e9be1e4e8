//! What `authenticate` can be asked for besides signing in.

use serde_json::{Value, json};

use crate::testing::{Answer, Provider, config, request};

const PATH: &str = "/json/realms/root/authenticate";
const VERSION: (&str, &str) = ("accept-api-version", "resource=2.1");
const JSON: (&str, &str) = ("content-type", "application/json");
const DEMO: [(&str, &str); 3] = [
    VERSION,
    ("x-service-username", "demo"),
    ("x-service-password", "correct horse"),
];

async fn ask(provider: &Provider, query: &str, headers: &[(&str, &str)]) -> Answer {
    let path = format!("{PATH}?{query}");
    provider.send(request("POST", &path, headers, "")).await
}

fn text<'a>(body: &'a Value, name: &str) -> &'a str {
    body[name].as_str().unwrap_or_default()
}

async fn sign_in(provider: &Provider, query: &str, more: &[(&str, &str)]) -> String {
    let headers = [&DEMO[..], more].concat();
    let answer = ask(provider, query, &headers).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    text(&answer.json(), "tokenId").to_owned()
}

async fn validity(provider: &Provider, token: &str) -> Value {
    let path = "/json/sessions?_action=validate";
    let headers = [VERSION, ("iplanetdirectorypro", token)];
    provider
        .send(request("POST", path, &headers, ""))
        .await
        .json()
}

#[tokio::test]
async fn who_is_signed_in_gets_the_same_session_again() {
    let provider = Provider::new().await;
    let token = sign_in(&provider, "", &[]).await;
    let cookie = format!("iPlanetDirectoryPro={token}");
    for header in [("iplanetdirectorypro", &*token), ("cookie", &*cookie)] {
        let answer = ask(&provider, "goto=/home", &[VERSION, header]).await;
        assert_eq!(
            answer.json(),
            json!({"tokenId": token, "successUrl": "/home", "realm": "/"})
        );
    }
    // Unless it is asked to sign in anew, or the session is nobody's or of
    // another realm.
    for (query, token) in [
        ("ForceAuth=true", token.as_str()),
        ("", "junk"),
        ("realm=/alpha", token.as_str()),
    ] {
        let headers = [VERSION, ("iplanetdirectorypro", token)];
        let answer = ask(&provider, query, &headers).await.json();
        assert!(answer["authId"].is_string(), "{query}: {answer}");
    }
    let quiet = ask(&provider, "noSession=true", &[VERSION, ("cookie", &cookie)]).await;
    assert_eq!(quiet.json().get("tokenId"), None);
}

#[tokio::test]
async fn a_script_does_not_learn_the_token_that_its_browser_keeps() {
    let provider = Provider::new().await;
    let token = sign_in(&provider, "", &[]).await;
    let cookie = format!("iPlanetDirectoryPro={token}");
    let mut headers = vec![
        VERSION,
        ("cookie", &*cookie),
        ("sec-fetch-site", "same-origin"),
    ];
    let answer = ask(&provider, "", &headers).await;
    assert_eq!(answer.json(), json!({"successUrl": "/", "realm": "/"}));
    assert!(!answer.text.contains(&token));
    headers[2].1 = "cross-site";
    headers.remove(0);
    let foreign = ask(&provider, "", &headers).await.json();
    assert!(foreign["authId"].is_string(), "{foreign}");
}

#[tokio::test]
async fn a_session_is_upgraded_under_its_name() {
    let provider = Provider::new().await;
    let first = sign_in(&provider, "", &[]).await;
    let name = validity(&provider, &first).await["sessionUid"].clone();
    let query = format!("sessionUpgradeSSOTokenId={first}");
    let again = ask(&provider, &query, &[VERSION]).await;
    assert_eq!(again.json()["tokenId"], first);
    let second = sign_in(&provider, &query, &[]).await;
    assert_ne!(first, second, "session fixation");
    assert_eq!(validity(&provider, &first).await, json!({"valid": false}));
    assert_eq!(validity(&provider, &second).await["sessionUid"], name);
    let header = ("iplanetdirectorypro", second.as_str());
    let third = sign_in(&provider, "ForceAuth=true", &[header]).await;
    assert_eq!(validity(&provider, &second).await, json!({"valid": false}));
    assert_eq!(validity(&provider, &third).await["sessionUid"], name);
    // Nobody takes over the session of another user.
    let other = [
        VERSION,
        ("x-service-username", "other"),
        ("x-service-password", "correct horse"),
    ];
    let query = format!("sessionUpgradeSSOTokenId={third}");
    assert_eq!(ask(&provider, &query, &other).await.status, 401);
    assert_eq!(validity(&provider, &third).await["valid"], true);
    // A token that is good for nothing is no obstacle.
    let fresh = sign_in(&provider, "sessionUpgradeSSOTokenId=junk", &[]).await;
    assert_eq!(validity(&provider, &fresh).await["valid"], true);
}

#[tokio::test]
async fn the_ways_to_sign_in_have_names() {
    let mut config = config();
    config["realms"]["/alpha"]["settings"] = json!({"login_services": ["Staff"]});
    let provider = Provider::with(config).await;
    for query in [
        "authIndexType=service&authIndexValue=ldapService",
        "authIndexType=service&authIndexValue=Login",
        "authIndexType=module&authIndexValue=DataStore",
        "authIndexType=level&authIndexValue=0",
        "authIndexType=user&authIndexValue=Demo",
    ] {
        assert_eq!(ask(&provider, query, &DEMO).await.status, 200, "{query}");
    }
    for (query, status, message) in [
        (
            "authIndexType=service&authIndexValue=Staff",
            400,
            "No Configuration found",
        ),
        ("authIndexType=service", 400, "No Configuration found"),
        (
            "authIndexType=level&authIndexValue=1",
            400,
            "No Configuration found",
        ),
        (
            "authIndexType=role&authIndexValue=x",
            400,
            "No Configuration found",
        ),
        (
            "authIndexType=module&authIndexValue=LDAP",
            404,
            "Authentication Module Not Found.",
        ),
        (
            "authIndexType=magic&authIndexValue=x",
            400,
            "Unknown Authentication Index Type",
        ),
        (
            "authIndexType=user&authIndexValue=other",
            401,
            "Authentication Failed",
        ),
        ("authIndexType=user&authIndexType=level", 400, ""),
    ] {
        let answer = ask(&provider, query, &DEMO).await;
        assert_eq!(answer.status.as_u16(), status, "{query}");
        let body = answer.json();
        assert!(
            body["message"] == message || message.is_empty(),
            "{query}: {body}"
        );
    }
    let alpha = "authIndexType=service&authIndexValue=Staff&realm=/alpha";
    let asked = ask(&provider, alpha, &[VERSION]).await.json();
    assert_eq!(asked["callbacks"].as_array().map(Vec::len), Some(2));
    // Who is named need not say the name.
    let named = ask(
        &provider,
        "authIndexType=user&authIndexValue=demo",
        &[VERSION],
    );
    let named = named.await.json();
    assert_eq!(named["callbacks"].as_array().map(Vec::len), Some(2));
    assert_eq!(named["callbacks"][0]["input"][0]["value"], "demo");
    assert_eq!(named["infoText"], json!(["", ""]));
    // Nobody else signs in by the callbacks, whatever name comes back.
    for (name, status) in [("other", 401), ("demo", 200)] {
        let mut form = named.clone();
        form["callbacks"][0]["input"][0]["value"] = json!(name);
        form["callbacks"][1]["input"][0]["value"] = json!("correct horse");
        let request = request("POST", PATH, &[VERSION, JSON], &form.to_string());
        assert_eq!(
            provider.send(request).await.status.as_u16(),
            status,
            "{name}"
        );
    }
}

#[tokio::test]
async fn what_was_asked_first_holds_to_the_end() {
    let provider = Provider::new().await;
    let query = "noSession=true&goto=/home&gotoOnFail=/sorry";
    let mut form = ask(&provider, query, &[VERSION]).await.json();
    for name in ["authId", "template", "stage", "header"] {
        assert!(form[name].is_string(), "{name}");
    }
    assert_eq!(form["callbacks"][0]["output"][0]["value"], "User Name:");
    assert_eq!(form["callbacks"][1]["output"][0]["value"], "Password:");
    let send = async |form: &Value| {
        let body = form.to_string();
        let headers = [VERSION, JSON];
        provider.send(request("POST", PATH, &headers, &body)).await
    };
    form["callbacks"][0]["input"][0]["value"] = json!("demo");
    form["callbacks"][1]["input"][0]["value"] = json!("wrong");
    assert_eq!(
        send(&form).await.json(),
        json!({"code": 401, "reason": "Unauthorized", "message": "Authentication Failed",
            "detail": {"failureUrl": "/sorry"}})
    );
    form["callbacks"][1]["input"][0]["value"] = json!("correct horse");
    assert_eq!(
        send(&form).await.json(),
        json!({"message": "Authentication Successful", "successUrl": "/home", "realm": "/"})
    );
    for broken in [
        json!({"authId": form["authId"]}),
        json!({"authId": form["authId"], "callbacks": []}),
        json!({"authId": form["authId"], "callbacks": [form["callbacks"][0]]}),
        json!({"callbacks": form["callbacks"]}),
        json!({"authId": 5, "callbacks": form["callbacks"]}),
    ] {
        assert_eq!(send(&broken).await.status, 400, "{broken}");
    }
    let twice = r#"{"authId": "a", "authId": "b"}"#;
    let twice = provider.send(request("POST", PATH, &[JSON], twice)).await;
    assert_eq!(twice.status, 400);
}

#[tokio::test]
async fn failures_lead_where_the_realm_allows() {
    let mut config = config();
    config["realms"]["/"]["settings"] =
        json!({"goto_urls": ["https://app.example/*"], "success_url": "/console"});
    let provider = Provider::with(config).await;
    let wrong = [VERSION, DEMO[1], ("x-service-password", "wrong")];
    let failed = async |to: &str, headers: &[(&str, &str)]| {
        let query = format!("gotoOnFail={to}");
        ask(&provider, &query, headers).await.json()
    };
    let body = failed("https://app.example/sorry", &wrong).await;
    assert_eq!(body["detail"]["failureUrl"], "https://app.example/sorry");
    let body = failed("https://evil.example/", &wrong).await;
    assert_eq!(body.get("detail"), None);
    let first = [("accept-api-version", "resource=1.1"), wrong[1], wrong[2]];
    assert_eq!(
        failed("/sorry", &first).await,
        json!({"errorMessage": "Authentication Failed", "failureUrl": "/sorry"})
    );
    for (asked, given) in [
        ("https://app.example/in", "https://app.example/in"),
        ("https://evil.example/", "/console"),
        ("%2F%2Fevil.example", "/console"),
    ] {
        let answer = ask(&provider, &format!("goto={asked}"), &DEMO).await;
        assert_eq!(answer.json()["successUrl"], given, "{asked}");
    }
}

#[tokio::test]
async fn goto_is_validated_for_who_is_signed_in() {
    let mut config = config();
    config["realms"]["/"]["settings"] = json!({"goto_urls": ["https://app.example/*?*"]});
    let provider = Provider::with(config).await;
    let path = "/json/realms/root/users?_action=validateGoto";
    let ask = async |token: &str, body: &str| {
        let headers = [JSON, ("iplanetdirectorypro", token)];
        provider.send(request("POST", path, &headers, body)).await
    };
    let token = sign_in(&provider, "", &[]).await;
    for (asked, given) in [
        ("https://app.example/a?b=c", "https://app.example/a?b=c"),
        ("/home", "/home"),
        ("//evil.example", "/"),
        ("https://evil.example/a?b", "/"),
        ("https://app.example.evil.example/?", "/"),
    ] {
        let answer = ask(&token, &json!({"goto": asked}).to_string()).await;
        assert_eq!(answer.json(), json!({"successURL": given}), "{asked}");
    }
    assert_eq!(ask(&token, "{}").await.json()["successURL"], "/");
    assert_eq!(
        ask(&token, r#"{"goto": 5}"#).await.json()["successURL"],
        "/"
    );
    assert_eq!(
        ask("junk", r#"{"goto": "/home"}"#).await.json(),
        json!({"code": 401, "reason": "Unauthorized", "message": "Access Denied"})
    );
    assert_eq!(ask(&token, "[").await.status, 400);
    let whose = "/json/users?_action=idFromSession";
    let headers = [("iplanetdirectorypro", &*token)];
    let body = provider
        .send(request("POST", whose, &headers, ""))
        .await
        .json();
    assert_eq!((text(&body, "id"), text(&body, "realm")), ("demo", "/"));
    for (path, status) in [
        ("/json/users", 400),
        ("/json/users?_action=create", 400),
        ("/json/realms/root/realms/x/users?_action=validateGoto", 404),
    ] {
        let answer = provider.send(request("POST", path, &headers, "")).await;
        assert_eq!(answer.status.as_u16(), status, "{path}");
    }
}

#[tokio::test]
async fn an_operator_chooses_the_version_for_who_names_none() {
    let mut config = config();
    config["api"] = json!({"default_version": "none"});
    let provider = Provider::with(config.clone()).await;
    let refused = ask(&provider, "", &DEMO[1..]).await;
    assert_eq!(
        refused.json(),
        json!({"code": 400, "reason": "Bad Request",
            "message": "No requested version specified and behavior set to NONE."})
    );
    assert_eq!(ask(&provider, "", &DEMO).await.status, 200);
    config["api"] = json!({"default_version": "oldest", "warnings": false});
    provider.reload(config).await;
    let wrong = [("x-service-username", "demo"), ("x-service-password", "no")];
    let oldest = ask(&provider, "", &wrong).await;
    assert_eq!(
        oldest.json(),
        json!({"errorMessage": "Authentication Failed"})
    );
    let version = oldest.header("content-api-version");
    assert_eq!(version, "resource=1.2");
    assert!(!oldest.headers.contains_key("warning"));
}
