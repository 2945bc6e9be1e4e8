//! `/openapi.json`: the description is sound, has every endpoint, and answers are as
//! it says.

use std::collections::BTreeSet;

use doorward_core::openapi::open_parts;
use doorward_core::openapi::testing::{resolved, violations};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Door, Setup, http};

/// The methods that have operations.
const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

/// A description that was fetched.
struct Description(Value);

impl Description {
    async fn of(door: &Door) -> Self {
        let answer = door.admin_get("/openapi.json").await.expect(200);
        assert_eq!(
            answer.header("content-type"),
            "application/json; charset=utf-8"
        );
        Self(answer.json())
    }

    /// Every operation with its method and path.
    fn operations(&self) -> impl Iterator<Item = (&str, &str, &Value)> {
        let paths = self.0["paths"].as_object().expect("paths");
        paths.iter().flat_map(|(path, item)| {
            let methods = item.as_object().expect("methods").iter();
            methods.map(move |(method, operation)| (method.as_str(), path.as_str(), operation))
        })
    }

    fn operation(&self, method: &str, path: &str) -> &Value {
        let operation = &self.0["paths"][path][method.to_ascii_lowercase()];
        assert!(operation.is_object(), "{method} {path} is not described");
        operation
    }

    /// Fails the test unless the answer is one of the operation's.
    fn check(&self, method: &str, path: &str, answer: &Answer) {
        let responses = &self.operation(method, path)["responses"];
        let status = answer.status.to_string();
        let response = responses.get(&status);
        let response = response.unwrap_or_else(|| panic!("{method} {path} answered {status}"));
        let Some(content) = resolved(&self.0, response).get("content") else {
            assert_eq!(answer.body, "", "{method} {path} {status} has a body");
            return;
        };
        let media = answer.header("content-type").split(';').next();
        let schema = &content[media.unwrap_or_default()]["schema"];
        assert!(!schema.is_null(), "{method} {path} {status}: {media:?}");
        if media == Some("application/json") {
            let wrong = violations(&self.0, schema, &answer.json());
            assert!(
                wrong.is_empty(),
                "{method} {path} {status}: {wrong:#?} in {}",
                answer.body
            );
        }
    }

    /// As [`Description::check`], where an answer may have more members than are
    /// named: claims of a token, say.
    fn check_loosely(&self, method: &str, path: &str, answer: &Answer) {
        let responses = &self.operation(method, path)["responses"];
        let status = answer.status.to_string();
        let response = responses.get(&status);
        let response = response.unwrap_or_else(|| panic!("{method} {path} answered {status}"));
        let content = &resolved(&self.0, response)["content"];
        let media = answer.header("content-type").split(';').next();
        let schema = &content[media.unwrap_or_default()]["schema"];
        assert!(!schema.is_null(), "{method} {path} {status}: {media:?}");
        if media.is_some_and(|media| media.ends_with("json")) {
            let mut schema = resolved(&self.0, schema).clone();
            schema["additionalProperties"] = true.into();
            let wrong = violations(&self.0, &schema, &answer.json());
            assert!(wrong.is_empty(), "{method} {path}: {wrong:#?}");
        }
    }

    /// Sends a body that the description admits, and holds the answer to it.
    async fn send(&self, door: &Door, method: Method, call: &Call<'_>, body: Value) -> Answer {
        let Call { template, path } = call;
        let operation = self.operation(method.as_str(), template);
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        let wrong = violations(&self.0, schema, &body);
        assert!(
            wrong.is_empty(),
            "{method} {template}: {wrong:#?} in {body}"
        );
        let answer = door.admin_json(method.clone(), path, &body).await;
        self.check(method.as_str(), template, &answer);
        answer
    }

    async fn get(&self, door: &Door, call: &Call<'_>) -> Answer {
        let answer = door.admin_get(call.path).await;
        self.check("GET", call.template, &answer);
        answer
    }
}

/// A path, and the one that the description knows it by.
struct Call<'a> {
    template: &'a str,
    path: &'a str,
}

const fn at<'a>(template: &'a str, path: &'a str) -> Call<'a> {
    Call { template, path }
}

const fn to(path: &str) -> Call<'_> {
    at(path, path)
}

/// Every reference of a document.
fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(map) => {
            found.extend(map.get("$ref").and_then(Value::as_str));
            map.values().for_each(|value| references(value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[tokio::test]
async fn the_description_is_sound() {
    let door = Setup::new().start().await;
    let description = Description::of(&door).await;
    assert_eq!(description.0["openapi"], "3.1.1");
    check_soundness(&description);
    let mut found = Vec::new();
    references(&description.0, &mut found);
    assert!(found.len() > 1000, "{}", found.len());
}

/// References lead somewhere, operations have names of their own, and open parts of
/// paths are declared.
fn check_soundness(description: &Description) {
    let mut found = Vec::new();
    references(&description.0, &mut found);
    for reference in found {
        let pointer = reference
            .strip_prefix('#')
            .expect("a place in the document");
        assert!(description.0.pointer(pointer).is_some(), "{reference}");
    }
    let mut ids = BTreeSet::new();
    for (method, path, operation) in description.operations() {
        assert!(METHODS.contains(&method), "{method} {path}");
        let id = operation["operationId"].as_str().expect("an identifier");
        assert!(ids.insert(id), "{id} names two operations");
        let parameters = operation["parameters"].as_array();
        let parameters = parameters.into_iter().flatten();
        let in_path = parameters.filter(|parameter| parameter["in"] == "path");
        let names: Vec<&str> = in_path.filter_map(|one| one["name"].as_str()).collect();
        assert_eq!(names, open_parts(path), "{method} {path}");
        let responses = operation["responses"].as_object().expect("responses");
        // Users can't remove themselves.
        let succeeds = (method, path) != ("delete", "/v1/Me");
        let is_good = |status: &String| status.starts_with('2');
        assert_eq!(responses.keys().any(is_good), succeeds, "{method} {path}");
    }
}

#[tokio::test]
async fn a_changed_record_is_named_as_a_refusal_where_a_version_is_compared() {
    let door = Setup::new().start().await;
    let description = Description::of(&door).await;
    let mut named = 0;
    for (method, path, operation) in description.operations() {
        let text = operation.to_string();
        let has_version = text.contains("\"version\"");
        // Members come and go with the version of their group.
        let compares = path.ends_with("/members/{id2}")
            || has_version && !path.starts_with("/broker/")
            // Changes to records of the broker share a schema, which has the version.
            || (has_version || text.contains("-change\"")) && path.starts_with("/broker/");
        // A realm is new, whatever its document says; and what is read is not changed.
        let is_change = method != "get" && (method, path) != ("post", "/identity/realms");
        let compares = compares && is_change;
        let names = !operation["responses"]["412"].is_null();
        assert_eq!(names, compares, "{method} {path}");
        named += usize::from(names);
    }
    assert!(named > 80, "{named}");
}

#[tokio::test]
async fn every_endpoint_is_described_with_its_methods() {
    let door = Setup::new().start().await;
    let description = Description::of(&door).await;
    let listed = door.admin_get("/endpoints").await.expect(200).json();
    let listed: BTreeSet<&str> = listed["data"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let paths = description.0["paths"].as_object().expect("paths");
    let own = paths.keys().map(String::as_str);
    let own: BTreeSet<&str> = own.filter(|path| !path.starts_with("/identity/")).collect();
    assert_eq!(own, listed);
    for (path, item) in paths {
        if path.starts_with("/identity/") {
            // OPTIONS is answered before the provider is asked.
            continue;
        }
        let called = path.replace(['{', '}'], "");
        let request = http::client().request(Method::OPTIONS, door.admin_url(&called));
        let answer = http::send(request).await;
        let allowed: BTreeSet<String> = answer
            .header("allow")
            .split(", ")
            .map(str::to_ascii_lowercase)
            .filter(|method| method != "head" && method != "options")
            .collect();
        let methods = item.as_object().expect("methods").keys().cloned();
        assert_eq!(methods.collect::<BTreeSet<_>>(), allowed, "{path}");
    }
}

#[tokio::test]
async fn the_description_is_for_operators_alone() {
    let token = "0123456789abcdef0123456789abcdef";
    let section = format!("{{listen: \"@ADMIN@\", token: {token}}}");
    let door = Setup::new().admin(&section).start().await;
    let refused = door.admin_get("/openapi.json").await.expect(401);
    let request = http::client().get(door.admin_url("/openapi.json"));
    let answer = http::send(request.header("kong-admin-token", token)).await;
    let description = Description(answer.expect(200).json());
    description.check("GET", "/openapi.json", &refused);
    assert_eq!(
        description.0["security"],
        json!([{"token": []}, {"bearer": []}])
    );
}

/// A self-signed certificate and its key.
fn certificate(names: &[&str], is_ca: IsCa) -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("parameters");
    params.is_ca = is_ca;
    let certificate = params.self_signed(&key).expect("a certificate");
    (certificate.pem(), key.serialize_pem())
}

/// The public key of RFC 7517, appendix A.1.
const JWK: &str = r#"{"kty":"EC","crv":"P-256","kid":"1",
    "x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
    "y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}"#;

/// Records of every kind: their collection, and what makes one.
fn samples() -> Vec<(&'static str, Value)> {
    let (cert, key) = certificate(&["tls.test"], IsCa::NoCa);
    let (authority, _) = certificate(&[], IsCa::Ca(BasicConstraints::Unconstrained));
    vec![
        (
            "/services",
            json!({"name": "s", "url": "http://127.0.0.1:9/a"}),
        ),
        (
            "/routes",
            json!({"name": "r", "hosts": ["r.test"], "service": {"name": "s"}}),
        ),
        (
            "/consumers",
            json!({"username": "c", "custom_id": "7", "tags": ["a"]}),
        ),
        (
            "/upstreams",
            json!({"name": "u", "healthchecks": {"active": {"timeout": 2}}}),
        ),
        (
            "/certificates",
            json!({"cert": cert, "key": key, "snis": ["tls.test"]}),
        ),
        ("/key-sets", json!({"name": "ks"})),
        (
            "/keys",
            json!({"name": "k", "kid": "1", "set": {"name": "ks"}, "jwk": JWK}),
        ),
        ("/ca_certificates", json!({"cert": authority})),
        (
            "/vaults",
            json!({"name": "env", "prefix": "my-env", "config": {"prefix": "MY_"}}),
        ),
        (
            "/plugins",
            json!({"name": "correlation-id", "service": {"name": "s"}}),
        ),
    ]
}

/// The paths below a consumer, what their records are called, and what makes one there.
const CREDENTIALS: [(&str, &str, &str); 6] = [
    ("key-auth", "keyauth_credentials", r#"{"ttl": 1000}"#),
    (
        "basic-auth",
        "basicauth_credentials",
        r#"{"username": "b", "password": "0123456789"}"#,
    ),
    ("jwt", "jwt_secrets", "{}"),
    ("hmac-auth", "hmacauth_credentials", r#"{"username": "h"}"#),
    (
        "oauth2",
        "oauth2_credentials",
        r#"{"name": "app", "redirect_uris": ["https://a.test/cb"]}"#,
    ),
    ("acls", "acls", r#"{"group": "g"}"#),
];

#[tokio::test]
async fn records_of_every_kind_are_as_described() {
    let door = Setup::new().start().await;
    let description = Description::of(&door).await;
    for (path, body) in samples() {
        let all = to(path);
        let made = description.send(&door, Method::POST, &all, body).await;
        let made = made.expect(201).json();
        let id = made["id"].as_str().expect("an id");
        let part = path[1..].replace('-', "_");
        let template = format!("{path}/{{{part}}}");
        let one = format!("{path}/{id}");
        description.get(&door, &all).await.expect(200);
        let one = at(&template, &one);
        description.get(&door, &one).await.expect(200);
        let patch = json!({"tags": ["b"]});
        let changed = description.send(&door, Method::PATCH, &one, patch).await;
        assert_eq!(changed.expect(200).json()["tags"], json!(["b"]), "{path}");
    }
    let listed = at("/services", "/services?declared=true&size=1");
    description.get(&door, &listed).await.expect(200);
    let parent = at("/routes/{routes}/service", "/routes/r/service");
    description.get(&door, &parent).await.expect(200);
    let target = json!({"target": "127.0.0.1:9"});
    let targets = at("/upstreams/{upstreams}/targets", "/upstreams/u/targets");
    let made = description.send(&door, Method::POST, &targets, target);
    made.await.expect(201);
    for query in ["", "?balancer_health=1"] {
        let path = format!("/upstreams/u/health{query}");
        let health = at("/upstreams/{upstreams}/health", &path);
        description.get(&door, &health).await.expect(200);
    }
    for (scheme, records, body) in CREDENTIALS {
        let template = format!("/consumers/{{consumers}}/{scheme}");
        let path = format!("/consumers/c/{scheme}");
        let body = serde_json::from_str(body).expect("JSON");
        let all = at(&template, &path);
        let made = description.send(&door, Method::POST, &all, body).await;
        let made = made.expect(201).json();
        description.get(&door, &all).await.expect(200);
        let template = format!("{template}/{{{records}}}");
        let path = format!("{path}/{}", made["id"].as_str().expect("an id"));
        let one = at(&template, &path);
        description.get(&door, &one).await.expect(200);
        let gone = door.admin_delete(&path).await.expect(204);
        description.check("DELETE", &template, &gone);
    }
    // Every path without open parts once more, now that there is something.
    for (method, path, _) in description.operations() {
        if method == "get" && open_parts(path).is_empty() {
            description.get(&door, &to(path)).await;
        }
    }
}

#[tokio::test]
async fn refusals_are_as_described() {
    let door = Setup::new().start().await;
    let description = Description::of(&door).await;
    let send = |method: Method, path: &'static str, body: Value| {
        let door = &door;
        async move { door.admin_json(method, path, &body).await }
    };
    let service = json!({"name": "s", "host": "h", "port": 70_000, "bogus": 1});
    for (method, template, path, body, status) in [
        (Method::POST, "/services", "/services", service, 400),
        (Method::POST, "/services", "/services", json!([]), 400),
        (
            Method::PATCH,
            "/services/{services}",
            "/services/nobody",
            json!({"port": 1}),
            404,
        ),
        (
            Method::PATCH,
            "/services/{services}",
            "/services/identity",
            json!({"port": 1}),
            409,
        ),
        (
            Method::POST,
            "/routes",
            "/routes",
            json!({"hosts": ["h"], "service": {"name": "nobody"}}),
            400,
        ),
        (
            Method::POST,
            "/config",
            "/config",
            json!({"services": 1}),
            400,
        ),
        (Method::POST, "/explain", "/explain", json!({"url": 1}), 400),
        (
            Method::POST,
            "/identity/realms",
            "/identity/realms",
            json!({"": 1, "path": "/a"}),
            400,
        ),
    ] {
        let answer = send(method.clone(), path, body).await.expect(status);
        description.check(method.as_str(), template, &answer);
    }
    for (template, path, status) in [
        ("/services", "/services?size=0", 400),
        ("/services", "/services?offset=x", 400),
        ("/services", "/services?tags=a,", 400),
        ("/services/{services}", "/services/nobody", 404),
        ("/acme", "/acme", 404),
        ("/audit", "/audit?surprise=1", 400),
        ("/proxy-cache/{key}", "/proxy-cache/x", 404),
        ("/identity/clients", "/identity/clients?realm=/x", 404),
    ] {
        let answer = description.get(&door, &at(template, path)).await;
        answer.expect(status);
    }
    let text = http::client().post(door.admin_url("/services"));
    let text = text.header("content-type", "text/plain").body("x");
    let answer = http::send(text).await.expect(415);
    description.check("POST", "/services", &answer);
}

#[tokio::test]
async fn every_plugin_has_a_schema_that_its_defaults_satisfy() {
    let door = Setup::new().start().await;
    let description = Description::of(&door).await;
    let names = door.admin_get("/plugins/enabled").await.expect(200).json();
    let names = names["enabled_plugins"].as_array().expect("a list").clone();
    let shown = &description.0["components"]["schemas"]["plugin"]["oneOf"];
    assert_eq!(shown.as_array().map(Vec::len), Some(names.len()));
    let mut made = 0;
    for name in &names {
        let answer = door.admin_post("/plugins", &json!({"name": name})).await;
        description.check("POST", "/plugins", &answer);
        made += usize::from(answer.status == 201);
    }
    // The others have settings without defaults.
    assert!(made > 15, "{made}");
    let all = at("/plugins", "/plugins?size=1000");
    let listed = description.get(&door, &all).await.expect(200).json();
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(made));
}

#[tokio::test]
async fn the_provider_is_administered_as_described() {
    let door = Setup::new().start().await;
    let description = Description::of(&door).await;
    door.user_token("demo", "openid").await;
    let client = json!({"client_id": "made", "grant_types": ["client_credentials"]});
    let realm = json!({"path": "/staff", "settings": {"access_token_lifetime": 60}});
    for (path, body) in [
        ("/identity/clients", client),
        ("/identity/realms", realm),
        (
            "/identity/users",
            json!({"userName": "made", "displayName": "M"}),
        ),
        ("/identity/initial-tokens", json!({"uses": 2, "note": "n"})),
        ("/identity/keys/rotate", json!({"alg": "ES256"})),
    ] {
        let path = to(path);
        let made = description.send(&door, Method::POST, &path, body).await;
        made.expect(201);
    }
    for (method, path, _) in description.operations() {
        if method == "get" && path.starts_with("/identity/") && open_parts(path).is_empty() {
            let answer = description.get(&door, &to(path)).await.expect(200);
            assert!(answer.json()["data"].is_array(), "{path}");
        }
    }
    let one = at("/identity/clients/{id}", "/identity/clients/made");
    description.get(&door, &one).await.expect(200);
    let patch = json!({"client_name": "Made"});
    let changed = description.send(&door, Method::PATCH, &one, patch).await;
    changed.expect(200);
    let users = at("/identity/users", "/identity/users?name=made");
    let users = description.get(&door, &users).await.expect(200).json();
    let id = users["data"][0]["id"].as_str().expect("an id");
    let one = format!("/identity/users/{id}");
    let user = at("/identity/users/{id}", &one);
    description.get(&door, &user).await.expect(200);
    let patch = json!({"displayName": null, "active": false, "version": 1});
    let changed = description.send(&door, Method::PATCH, &user, patch.clone());
    changed.await.expect(200);
    let stale = description.send(&door, Method::PATCH, &user, patch);
    stale.await.expect(412);
    let consents = format!("{one}/consents");
    let consents = at("/identity/users/{id}/consents", &consents);
    description.get(&door, &consents).await.expect(200);
    let realm = at("/identity/realms/{path}", "/identity/realms/staff");
    description.get(&door, &realm).await.expect(200);
    let wrong = door
        .admin_post("/identity/clients", &json!({"surprise": 1}))
        .await;
    description.check("POST", "/identity/clients", &wrong.expect(400));
}

#[tokio::test]
async fn the_provider_answers_as_described() {
    let door = Setup::new().start().await;
    let answer = door.admin_get("/openapi/provider.json").await.expect(200);
    let description = Description(answer.json());
    check_soundness(&description);
    let server = &description.0["servers"][0]["url"];
    assert_eq!(*server, format!("http://{}", door.proxy()));
    let token = door.user_token("demo", "openid profile").await;
    let form = |path: &str, pairs: &[(&str, &str)]| {
        let request = http::client().post(door.proxy_url(path)).form(pairs);
        http::send(request.basic_auth("orders", Some("orders-secret")))
    };
    let password = [
        ("grant_type", "password"),
        ("username", "demo"),
        ("password", "Ch4ng31t-demo"),
        ("scope", "openid"),
    ];
    for (path, pairs, status) in [
        ("/oauth2/access_token", &password[..], 200),
        ("/oauth2/access_token", &[("grant_type", "x")], 400),
        ("/oauth2/introspect", &[("token", &*token)], 200),
        ("/oauth2/introspect", &[("token", "x")], 200),
        ("/oauth2/token/revoke", &[("token", "x")], 200),
        ("/oauth2/par", &[("client_id", "orders")], 400),
        ("/oauth2/device/code", &[("scope", "x")], 400),
    ] {
        let answer = form(path, pairs).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        description.check_loosely("POST", path, &answer);
    }
    for (template, path, status) in [
        ("/oauth2/tokeninfo", "/oauth2/tokeninfo", 200),
        ("/oauth2/userinfo", "/oauth2/userinfo", 200),
        ("/oauth2/connect/jwk_uri", "/oauth2/connect/jwk_uri", 200),
        (
            "/oauth2/.well-known/openid-configuration",
            "/oauth2/.well-known/openid-configuration",
            200,
        ),
        ("/oauth2/authorize", "/oauth2/authorize", 400),
        ("/oauth2/account", "/oauth2/account", 200),
        ("/oauth2/device/user", "/oauth2/device/user", 200),
        ("/oauth2/passkey.js", "/oauth2/passkey.js", 200),
        ("/oauth2/connect/register", "/oauth2/connect/register", 404),
        ("/json/serverinfo/{id}", "/json/serverinfo/*", 200),
        ("/v1/users", "/v1/users", 200),
        ("/v1/users", "/v1/users?filter=x", 400),
        ("/v1/users/{id}", "/v1/users/nobody", 404),
        ("/v1/Me", "/v1/Me", 200),
        ("/v1/groups", "/v1/groups", 200),
        ("/v1/Schemas", "/v1/Schemas", 200),
        ("/v1/ResourceTypes", "/v1/ResourceTypes", 200),
        (
            "/v1/ServiceProviderConfig",
            "/v1/ServiceProviderConfig",
            200,
        ),
    ] {
        let bearer = format!("Bearer {token}");
        let answer = door.get_with(path, &[("authorization", &bearer)]).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        description.check_loosely("GET", template, &answer);
    }
    let bearer = format!("Bearer {token}");
    let seen = door
        .get_with("/v1/Me", &[("authorization", &bearer)])
        .await
        .expect(200);
    let known = [
        ("authorization", &*bearer),
        ("if-none-match", seen.header("etag")),
    ];
    let same = door.get_with("/v1/Me", &known).await.expect(304);
    description.check("GET", "/v1/Me", &same);
}
