use http::HeaderMap;
use http::header::COOKIE;
use serde_json::{Value, json};

use crate::login::*;

const NOW: i64 = 1_700_000_000_000;

fn logins(mut config: Value) -> Logins {
    config["issuer"] = json!("https://id");
    Logins::new(&Fields::of(&config).expect("valid"), b"secret").expect("valid")
}

fn request(target: &str) -> RequestHeader {
    let mut request = RequestHeader::build("GET", target.as_bytes(), None).expect("a request");
    request
        .insert_header("host", "api.test:8000")
        .expect("a field");
    request
}

/// The query that the provider gets, and the browser afterwards.
fn begun(logins: &Logins, target: &str) -> (Vec<(String, String)>, HeaderMap) {
    let config = json!({"client_id": ["app"]});
    let clients = crate::provider::client_auth::Clients::new(&Fields::of(&config).expect("valid"))
        .expect("valid");
    let arguments = Arguments::default();
    let client = clients
        .chosen(&HeaderMap::new(), &arguments)
        .expect("a client");
    let mut fields = Vec::new();
    let request = request(target);
    let login_request = LoginRequest {
        request: &request,
        arguments: &arguments,
        secure: false,
        origin: Some("http://api.test:8000"),
        path: request.uri.path(),
        now_ms: NOW,
    };
    let (_, query) = logins
        .begin((client, 0), login_request, &mut fields)
        .expect("begun");
    let cookie = fields[0].1.to_str().expect("text");
    let mut headers = HeaderMap::new();
    let pair = cookie.split(';').next().expect("a pair").to_owned();
    headers.insert(COOKIE, HeaderValue::try_from(pair).expect("a value"));
    (query, headers)
}

fn member<'a>(query: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = query.iter().find(|(key, _)| key == name);
    found.map(|(_, value)| value.as_str())
}

#[test]
fn a_login_says_what_it_wants_and_is_found_again() {
    let logins = logins(json!({"audience": ["api"], "max_age": 60,
        "authorization_query_args_names": ["prompt"],
        "authorization_query_args_values": ["login"]}));
    let (query, browser) = begun(&logins, "/a%2Fb?c=d");
    for (name, value) in [
        ("response_type", "code"),
        ("client_id", "app"),
        ("redirect_uri", "http://api.test:8000/a%2Fb"),
        ("scope", "openid"),
        ("code_challenge_method", "S256"),
        ("audience", "api"),
        ("max_age", "60"),
        ("prompt", "login"),
    ] {
        assert_eq!(member(&query, name), Some(value), "{name}");
    }
    let state = member(&query, "state").expect("a state");
    let login = logins.find(state).expect("found");
    assert_eq!(login.target, "/a%2Fb?c=d");
    assert_eq!(Some(login.nonce.as_str()), member(&query, "nonce"));
    let from = |headers: &HeaderMap, host: &str| {
        let mut request = request("/");
        request.insert_header("host", host).expect("a field");
        for (name, value) in headers {
            request.append_header(name, value).expect("a field");
        }
        logins.check_browser(&login, &request, &Exchange::default())
    };
    for host in ["api.test:8000", "api.test", "API.test:9"] {
        assert_eq!(from(&browser, host), Ok(()), "{host}");
    }
    assert_eq!(from(&browser, "evil.test"), Err(Refusal::ForeignLogin));
    assert_eq!(logins.check(&login, state, NOW), Ok(()));
    let late = logins.check(&login, state, NOW + 600_000);
    assert_eq!(late, Err(Refusal::LoginExpired));
    let (_, other) = begun(&logins, "/");
    for foreign in [HeaderMap::new(), other] {
        let outcome = from(&foreign, "api.test:8000");
        assert_eq!(outcome, Err(Refusal::ForeignLogin));
    }
    logins.end(state);
    let again = logins.check(&login, state, NOW);
    assert_eq!(again, Err(Refusal::LoginRepeated));
}

#[test]
fn a_login_asks_for_the_scope_that_extras_give_and_for_nothing_twice() {
    let logins = logins(json!({"max_age": 60, "response_mode": "form_post",
        "authorization_query_args_names": ["scope", "max_age", "response_mode", "state"],
        "authorization_query_args_values": ["email", "5", "query", "x"]}));
    let (query, _) = begun(&logins, "/");
    for (name, value) in [
        ("scope", "email"),
        ("max_age", "5"),
        ("response_mode", "query"),
    ] {
        assert_eq!(member(&query, name), Some(value), "{name}");
    }
    let state = member(&query, "state").expect("a state");
    assert!(logins.find(state).is_ok(), "{state}");
    let mut names: Vec<_> = query.iter().map(|(name, _)| name).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "{query:?}");
    assert!(!logins.wants_id_token());
}

#[test]
fn a_state_that_was_changed_cut_or_made_elsewhere_is_forged() {
    let mine = logins(json!({}));
    let (query, _) = begun(&mine, "/");
    let state = member(&query, "state").expect("a state");
    assert!(mine.find(state).is_ok());
    for forged in [
        &state[..state.len() - 1],
        &state[4..],
        "dw1.",
        "x",
        &format!("{state}A"),
    ] {
        assert_eq!(mine.find(forged), Err(Refusal::ForgedState), "{forged}");
    }
    let other = logins(json!({"session_secret": "another"}));
    assert_eq!(other.find(state), Err(Refusal::ForgedState));
}

#[test]
fn an_origin_is_scheme_and_host_alone() {
    for (host, origin_wanted) in [
        ("api.test", Some("http://api.test")),
        ("api.test:80", Some("http://api.test")),
        ("[::1]:8000", Some("http://[::1]:8000")),
        ("user@evil.test", None),
        ("evil.test/x", None),
        ("evil.test?x", None),
    ] {
        let mut request = request("//evil.test/");
        request.insert_header("host", host).expect("a field");
        assert_eq!(
            origin(&request, &Exchange::default()).as_deref(),
            origin_wanted,
            "{host}"
        );
    }
}

#[test]
fn only_what_looks_like_an_answer_is_taken_for_one() {
    let any = logins(json!({}));
    let named = logins(json!({"redirect_uri": ["https://api.test/callback"]}));
    for (target, any_wanted, named_wanted) in [
        ("/x?code=a&state=dw1.abc", true, true),
        ("/x?code=a&state=abc", false, false),
        ("/callback?code=a&state=abc", false, true),
        ("/callback?code=a", false, false),
        ("/callback", false, false),
    ] {
        let request = request(target);
        assert_eq!(any.may_be_callback(&request), any_wanted, "{target}");
        assert_eq!(named.may_be_callback(&request), named_wanted, "{target}");
    }
}
