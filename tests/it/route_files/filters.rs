//! The filters of chains: headers, other requests in place of the client's,
//! and tokens.

use serde_json::json;

use super::{door, get, get_with, put, upstream};
use crate::support::{Door, Issuer, Reply, Setup, Upstream, http, raw};

/// A route to `upstream` through `filters`.
fn through(upstream: &Upstream, filters: &serde_json::Value) -> String {
    json!({
        "name": "filtered", "baseURI": upstream.url(""),
        "condition": "${find(request.uri.path, '^/a')}",
        "handler": {"type": "Chain", "config": {"filters": filters, "handler": "ReverseProxyHandler"}},
    })
    .to_string()
}

async fn filtered(upstream: &Upstream, filters: serde_json::Value) -> Door {
    door(&[("filtered.json", &through(upstream, &filters))]).await
}

#[tokio::test]
async fn headers_change_on_the_way_there_and_back() {
    let upstream = upstream().await;
    let filters = json!([
        {"type": "HeaderFilter", "config": {"messageType": "REQUEST",
            "remove": ["Host", "X-User"],
            "add": {"Host": ["www.example.com"], "X-User": ["${contexts.client.remoteAddress}"],
                    "X-Forwarded-Proto": ["https"]}}},
        {"type": "HeaderFilter", "config": {"messageType": "RESPONSE", "remove": ["Content-Type"],
            "add": {"X-Seen": ["${request.headers['X-User'][0]} ${response.status.code}"]}}},
    ]);
    let door = filtered(&upstream, filters).await;
    let request = b"GET /a HTTP/1.1\r\nHost: files.test\r\nX-User: eve\r\nX_User: eve\r\n\
        X-Forwarded-Proto: gopher\r\nConnection: x-user, close\r\n\r\n";
    let answer = raw::exchange(&door.proxy(), request)
        .await
        .expect("an answer");
    assert_eq!(answer.header("x-seen"), Some("127.0.0.1 200"));
    assert_eq!(answer.header("content-type"), None);
    let seen = upstream.last();
    assert_eq!(seen.all("host"), ["www.example.com"]);
    assert_eq!(
        seen.all("x-user"),
        ["127.0.0.1"],
        "neither nominated away nor forged"
    );
    assert!(seen.all("x_user").is_empty());
    assert_eq!(seen.all("x-forwarded-proto"), ["https"]);
}

#[tokio::test]
async fn an_expression_cannot_inject_a_header() {
    let upstream = upstream().await;
    let filters = json!([
        {"type": "HeaderFilter", "config": {"messageType": "REQUEST",
            "add": {"X-Name": ["${urlDecode(request.queryParams['name'][0])}"]}}},
        {"type": "HeaderFilter", "config": {"messageType": "RESPONSE",
            "add": {"X-Name": ["${urlDecode(request.queryParams['name'][0])}"]}}},
    ]);
    let door = filtered(&upstream, filters).await;
    for (name, wanted) in [("anna", Some("anna")), ("a%250d%250aX-Admin:%25201", None)] {
        let answer = get(&door, &format!("/a?name={name}")).await.expect(200);
        let told = answer
            .headers
            .get("x-name")
            .map(|value| value.to_str().expect("text"));
        assert_eq!(told, wanted);
        assert!(!answer.headers.contains_key("x-admin"));
        let seen = upstream.last();
        assert_eq!(seen.header("x-name"), wanted);
        assert_eq!(seen.header("x-admin"), None);
    }
}

#[tokio::test]
async fn another_request_takes_the_place_of_the_clients() {
    let (upstream, other) = (upstream().await, Upstream::echo().await);
    let filters = json!([{"type": "StaticRequestFilter", "config": {
        "method": "POST", "uri": format!("{}?x=1", other.url("/login")),
        "headers": {"X-From": ["${request.uri.path}"]},
        "form": {"user": ["demo"], "said": ["${request.entity.string}"]}}}]);
    let door = filtered(&upstream, filters).await;
    // Two requests on one connection: the second begins where the body of the
    // first ends, whatever was sent in its place.
    let mut client = raw::Connection::open(&door.proxy()).await;
    for body in [
        "hello&=",
        "GET /a/smuggled HTTP/1.1\r\nHost: files.test\r\n\r\n",
    ] {
        let head = format!(
            "PUT /a/b HTTP/1.1\r\nHost: files.test\r\nCookie: a=b\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        client.send(format!("{head}{body}").as_bytes()).await;
        let answer = client.response().await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let seen = other.last();
        assert_eq!(
            (seen.method.as_str(), seen.target.as_str()),
            ("POST", "/login?x=1")
        );
        assert_eq!(seen.header("x-from"), Some("/a/b"));
        assert_eq!(seen.header("cookie"), None);
        assert_eq!(
            seen.header("content-type"),
            Some("application/x-www-form-urlencoded")
        );
        let fields: Vec<_> = url::form_urlencoded::parse(&seen.body)
            .into_owned()
            .collect();
        assert!(
            fields.contains(&("said".to_owned(), body.to_owned())),
            "{fields:?}"
        );
        assert!(fields.contains(&("user".to_owned(), "demo".to_owned())));
    }
    assert_eq!((other.seen().len(), upstream.seen().len()), (2, 0));
    let head = b"HEAD /a HTTP/1.1\r\nHost: files.test\r\nConnection: close\r\n\r\n";
    let mut client = raw::Connection::open(&door.proxy()).await;
    client.send(head).await;
    assert_eq!(client.head().await.status, 200);
    assert!(
        client.rest().await.is_empty(),
        "an answer to HEAD has no body"
    );
    assert_eq!(other.last().method, "POST");
}

#[tokio::test]
async fn what_an_upstream_of_another_path_name_and_password_needs_is_written() {
    let upstream = Upstream::start(|seen| match seen.target.as_str() {
        "/internal/api/closed" => Reply::Json(401, serde_json::json!({})),
        "/internal/api/moved" => {
            let host = seen.header("host").unwrap_or_default();
            let head = format!(
                "HTTP/1.1 302 Found\r\nLocation: http://{host}/internal/api/new?x=1\r\n\
                 Set-Cookie: kept=1\r\nSet-Cookie: own=2\r\nContent-Length: 0\r\n\r\n"
            );
            Reply::Raw(head.into_bytes())
        }
        _ => Reply::Json(200, seen.json()),
    })
    .await;
    let filters = json!([
        {"type": "LocationHeaderFilter"},
        {"type": "UriPathRewriteFilter", "config": {"mappings": {"/a": "/internal/api"}}},
        {"type": "CookieFilter", "config": {"defaultAction": "RELAY", "suppressed": ["own"]}},
        {"type": "AssignmentFilter", "config": {
            "onRequest": [{"target": "${attributes.who}", "value": "${request.headers['X-Who'][0]}"}],
            "onResponse": [{"target": "${response.headers['X-Who']}", "value": "${attributes.who}"}]}},
        {"type": "HttpBasicAuthFilter", "config": {"username": "${attributes.who}",
            "password": "secret", "failureHandler": {"type": "StaticResponseHandler",
                "config": {"status": 403, "entity": "not let in"}}}},
    ]);
    let door = filtered(&upstream, filters).await;
    let headers = [
        ("x-who", "anna"),
        ("cookie", "kept=1; own=2"),
        ("authorization", "Bearer x"),
    ];
    let answer = get_with(&door, "/a/b?q=1", &headers).await.expect(200);
    assert_eq!(answer.header("x-who"), "anna");
    let seen = upstream.last();
    assert_eq!(seen.target, "/internal/api/b?q=1");
    assert_eq!(seen.all("authorization"), ["Basic YW5uYTpzZWNyZXQ="]);
    assert_eq!(seen.all("cookie"), ["kept=1"]);
    let answer = get_with(&door, "/a/moved", &headers).await;
    assert_eq!(answer.status, 302);
    assert_eq!(answer.header("location"), "http://files.test/a/new?x=1");
    let cookies: Vec<_> = answer.headers.get_all("set-cookie").iter().collect();
    assert_eq!(cookies, ["kept=1"]);
    let answer = get_with(&door, "/a/closed", &headers).await;
    assert_eq!((answer.status, answer.body.as_str()), (403, "not let in"));
    assert!(!answer.headers.contains_key("content-type"));
    assert_eq!(answer.header("x-content-type-options"), "nosniff");
}

/// The filter with a resolver, in front of a throttle by subject.
fn guarded(resolver: serde_json::Value) -> serde_json::Value {
    json!([
        {"type": "OAuth2ResourceServerFilter", "config": {"requireHttps": false,
            "scopes": ["read"], "accessTokenResolver": resolver}},
        {"type": "ThrottlingFilter", "config": {
            "requestGroupingPolicy": "${contexts.oauth2.accessToken.info.sub}",
            "rate": {"numberOfRequests": 2, "duration": "6 hours"}}},
        {"type": "HeaderFilter", "config": {"messageType": "REQUEST", "remove": ["X-Sub"],
            "add": {"X-Sub": ["${contexts.oauth2.accessToken.info.sub}"]}}},
    ])
}

async fn status_of(door: &Door, token: &str) -> u16 {
    let bearer = format!("Bearer {token}");
    get_with(door, "/a", &[("authorization", &bearer), ("x-sub", "eve")])
        .await
        .status
}

#[tokio::test]
async fn an_invented_token_opens_no_door_whatever_the_endpoint_answers() {
    let upstream = upstream().await;
    let page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 9\r\n\r\n\
                 <p>hi</p>";
    let endpoint = Upstream::start(|seen| {
        let query = seen.target.split_once("access_token=");
        let good = json!({"access_token": "t", "scope": ["read"], "expires_in": 60, "sub": "ada"});
        match query.map(|(_, token)| token).unwrap_or_default() {
            "empty" => Reply::Json(200, json!({})),
            "error" => Reply::Json(200, json!({"error": "invalid_token"})),
            "hello" => Reply::Json(200, json!({"message": "hello"})),
            "list" => Reply::Json(200, json!([good])),
            "page" => Reply::Raw(page.to_vec()),
            "inactive" => {
                let mut said = good;
                said["active"] = json!(false);
                Reply::Json(200, said)
            }
            "endless" => Reply::Json(200, json!({"access_token": "t", "scope": ["read"]})),
            _ => Reply::Json(200, good),
        }
    })
    .await;
    let filter = json!([{"type": "OAuth2ResourceServerFilter", "config": {
        "requireHttps": false, "scopes": [], "tokenInfoEndpoint": endpoint.url("/tokeninfo")}}]);
    let door = filtered(&upstream, filter).await;
    for token in ["empty", "error", "hello", "inactive", "endless"] {
        let bearer = format!("Bearer {token}");
        let answer = get_with(&door, "/a", &[("authorization", &bearer)]).await;
        assert_eq!(answer.status, 401, "{token}");
        let challenge = answer.header("www-authenticate");
        assert_eq!(
            challenge,
            "Bearer realm=\"OpenIG\", error=\"invalid_token\""
        );
    }
    for token in ["list", "page"] {
        assert_eq!(status_of(&door, token).await, 503, "{token}");
    }
    assert!(upstream.seen().is_empty());
    assert_eq!(status_of(&door, "good").await, 200);
}

#[tokio::test]
async fn signed_tokens_open_the_door_and_name_the_partition() {
    let (upstream, issuer) = (upstream().await, Issuer::start().await);
    let resolver =
        json!({"type": "StatelessAccessTokenResolver", "config": {"issuer": issuer.url()}});
    let door = filtered(&upstream, guarded(resolver)).await;
    let nobody = get(&door, "/a").await;
    assert_eq!(nobody.status, 401);
    assert_eq!(nobody.header("www-authenticate"), "Bearer realm=\"OpenIG\"");
    assert_eq!(nobody.body, "");
    let ada = issuer.token();
    let bob = issuer.sign(&issuer.claims_with(json!({"sub": "bob"})));
    for (token, status) in [
        (&ada, 200),
        (&bob, 200),
        (&ada, 200),
        (&ada, 429),
        (&bob, 200),
    ] {
        assert_eq!(status_of(&door, token).await, status);
    }
    assert_eq!(upstream.last().all("x-sub"), ["bob"]);
    let poor = issuer.sign(&issuer.claims_with(json!({"scope": "write"})));
    let bearer = format!("Bearer {poor}");
    let answer = get_with(&door, "/a", &[("authorization", &bearer)]).await;
    assert_eq!(answer.status, 403);
    let challenge = "Bearer realm=\"OpenIG\", error=\"insufficient_scope\", scope=\"read\"";
    assert_eq!(answer.header("www-authenticate"), challenge);
    let in_query = get(&door, &format!("/a?access_token={ada}")).await;
    assert_eq!(in_query.status, 401);
}

#[tokio::test]
async fn the_identity_provider_of_the_process_is_asked_without_a_socket() {
    let upstream = upstream().await;
    let resolver = json!({"type": "TokenIntrospectionAccessTokenResolver", "config": {
        "endpoint": "http://@PROXY@/oauth2/introspect",
        "providerHandler": {"type": "Chain", "config": {"handler": "ForgeRockClientHandler",
            "filters": [{"type": "HttpBasicAuthenticationClientFilter", "config": {
                "username": "orders", "passwordSecretId": "client.secret",
                "secretsProvider": "SystemAndEnvSecretStore"}}]}}}});
    let route = through(&upstream, &guarded(resolver));
    let setup = Setup::new().env("CLIENT_SECRET", "b3JkZXJzLXNlY3JldA==");
    let door = super::door_with(setup, &[("filtered.json", &route)]).await;
    let token = door.client_token("read").await;
    assert_eq!(status_of(&door, &token).await, 200);
    assert_eq!(upstream.last().all("x-sub"), ["orders"]);
    let poor = door.client_token("write").await;
    assert_eq!(status_of(&door, &poor).await, 403);
    assert_eq!(status_of(&door, "made-up").await, 401);
    // RFC 7662 §2.2: a token of another client is none of the caller's.
    let form = [
        ("grant_type", "client_credentials"),
        ("scope", "read"),
        ("client_id", "other"),
        ("client_secret", "other-secret"),
    ];
    let request = http::client().post(door.proxy_url("/oauth2/access_token"));
    let answer = http::send(request.form(&form)).await.expect(200);
    let others = answer.json()["access_token"]
        .as_str()
        .expect("a token")
        .to_owned();
    assert_eq!(status_of(&door, &others).await, 401);
}

#[tokio::test]
async fn a_type_that_is_not_served_is_refused_by_name() {
    let upstream = upstream().await;
    let door = filtered(&upstream, json!([])).await;
    put(
        &door,
        "sso.json",
        &through(
            &upstream,
            &json!([{"type": "CrossDomainSingleSignOnFilter"}]),
        ),
    );
    let outcome = door.run(&["check", "-c", "doorward.yaml"]);
    assert_eq!(outcome.status.code(), Some(1));
    let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert!(told.contains("CrossDomainSingleSignOnFilter"), "{told}");
    assert!(told.contains("openid-connect"), "{told}");
}

#[tokio::test]
async fn a_matching_header_name_is_spelt_as_the_client_sent_it() {
    let route = r#"{"name": "names", "condition": "${request.uri.path == '/names'}",
        "handler": {"type": "StaticResponseHandler", "config": {"status": 200,
        "entity": "${keyMatch(request.headers, '^x-g.*')}"}}}"#;
    let door = door(&[("names.json", route)]).await;
    let request = b"GET /names HTTP/1.1\r\nHost: files.test\r\nX-gRoups: red\r\n\r\n";
    let mut client = raw::Connection::open(&door.proxy()).await;
    client.send(request).await;
    assert_eq!(client.response().await.text(), "X-gRoups");
}
