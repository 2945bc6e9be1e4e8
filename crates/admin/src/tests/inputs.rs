//! Bad input: the documented status, a body that names the field, and nothing
//! stored (gateway-admin-api §1, §4).

use super::*;

/// That a request is refused so, and that it changed nothing.
async fn refused(api: &Api, method: &str, path: &str, body: Value, expected: (u16, &str)) -> Value {
    let before = api.control.entities();
    let reply = api.send(method, path, body).await;
    assert_eq!(
        reply.refusal(),
        (expected.0, expected.1.to_owned()),
        "{method} {path}: {}",
        reply.text
    );
    assert!(
        Arc::ptr_eq(&before, &api.control.entities()),
        "nothing changed"
    );
    reply.json()
}

#[tokio::test]
async fn violations_of_the_schema_name_their_fields() {
    let api = Api::with_route().await;
    let body = refused(
        &api,
        "POST",
        "/services",
        json!({"port":"x","bogus":1}),
        (
            400,
            "3 schema violations (bogus: unknown field; host: required field missing; \
             port: expected an integer)",
        ),
    )
    .await;
    assert_eq!(
        body,
        json!({
            "code": 2, "name": "schema violation",
            "message": body["message"],
            "fields": {
                "bogus": "unknown field", "host": "required field missing",
                "port": "expected an integer"
            }
        })
    );
    refused(
        &api,
        "POST",
        "/services/s/routes",
        json!({}),
        (
            400,
            "schema violation (must set one of 'methods', 'hosts', 'headers', 'paths', 'snis' \
             when 'protocols' is 'https')",
        ),
    )
    .await;
    refused(
        &api,
        "PATCH",
        "/routes/r",
        json!({"hosts":null}),
        (
            400,
            "schema violation (must set one of 'methods', 'hosts', 'headers', 'paths', 'snis' \
             when 'protocols' is 'https')",
        ),
    )
    .await;
    refused(
        &api,
        "PATCH",
        "/services/s",
        json!({"protocol":"tcp"}),
        (
            400,
            "2 schema violations (streams of TCP, TLS and UDP are not proxied here; protocol: \
             expected one of: grpc, grpcs, http, https, internal)",
        ),
    )
    .await;
    let body = refused(
        &api,
        "POST",
        "/services/s/plugins",
        json!({"name":"openid-connect","config":{"leeway":"x","nope":1}}),
        (
            400,
            "3 schema violations (config.issuer: required field missing; \
             config.leeway: expected an integer; config.nope: unknown field)",
        ),
    )
    .await;
    assert_eq!(body["fields"]["config"]["nope"], "unknown field");
}

#[tokio::test]
async fn a_plugin_of_no_kind_is_refused() {
    let api = Api::with_route().await;
    for (body, message) in [
        (
            json!({"name":"nope"}),
            "schema violation (name: plugin 'nope' not enabled; add it to the 'plugins' \
             configuration property)",
        ),
        (json!({}), "schema violation (name: required field missing)"),
    ] {
        refused(&api, "POST", "/plugins", body, (400, message)).await;
    }
}

#[tokio::test]
async fn a_filter_that_can_not_be_built_names_the_field_of_the_config() {
    let api = Api::with_route().await;
    let body = json!({"name":"throttling","config":{
        "requestGroupingPolicy":"${contexts.","rate":{"numberOfRequests":6,"duration":"10 s"}
    }});
    let reply = api
        .post("/services/s/plugins", body)
        .await
        .expect(400)
        .json();
    assert_eq!(reply["code"], 2);
    assert!(
        reply["fields"]["config"]["requestGroupingPolicy"].is_string(),
        "{reply}"
    );
    assert_eq!(api.get("/plugins").await.json()["data"], json!([]));
}

#[tokio::test]
async fn names_are_unique() {
    let api = Api::with_route().await;
    let body = refused(
        &api,
        "POST",
        "/services",
        json!({"name":"s","host":"h"}),
        (409, "UNIQUE violation detected on '{name=\"s\"}'"),
    )
    .await;
    assert_eq!(body["code"], 5);
    assert_eq!(body["name"], "unique constraint violation");
    assert_eq!(body["fields"], json!({"name":"s"}));
}

#[tokio::test]
async fn a_plugin_is_unique_in_its_place() {
    let api = Api::with_route().await;
    let service = api.get("/services/s").await.id();
    let plugin = json!({"name":"openid-connect","config":{"issuer":"http://i"}});
    api.post("/services/s/plugins", plugin.clone())
        .await
        .expect(201);
    let message = format!(
        "UNIQUE violation detected on '{{consumer=null,name=\"openid-connect\",route=null,\
         service={{id=\"{service}\"}}}}'"
    );
    refused(
        &api,
        "POST",
        "/services/s/plugins",
        plugin.clone(),
        (409, &message),
    )
    .await;
    api.post("/routes/r/plugins", plugin.clone())
        .await
        .expect(201);
    api.post("/plugins", plugin).await.expect(201);
}

#[tokio::test]
async fn an_id_is_taken_once() {
    let api = Api::with_route().await;
    let id = api.get("/services/s").await.id();
    let message = format!("primary key violation on key '{{id=\"{id}\"}}'");
    let body = json!({"id":id,"host":"h"});
    let body = refused(&api, "POST", "/services", body, (400, &message)).await;
    assert_eq!(body["code"], 3);
    let body = json!({"id":"6ba7b810-9dad-11d1-80b4-00c04fd430c8"});
    refused(
        &api,
        "PATCH",
        "/services/s",
        body,
        (
            400,
            "schema violation (id: immutable field cannot be updated)",
        ),
    )
    .await;
}

#[tokio::test]
async fn references_to_nothing_are_refused() {
    let api = Api::with_route().await;
    let id = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    let message = format!(
        "the foreign key '{{id=\"{id}\"}}' does not reference an existing 'services' entity."
    );
    let body = json!({"paths":["/a"],"service":{"id":id}});
    let body = refused(&api, "POST", "/routes", body, (400, &message)).await;
    assert_eq!(body["code"], 4);
    assert_eq!(body["fields"], json!({"service":{"id":id}}));
    let message = message.replace("services", "consumers");
    let rate = json!({"rate": {"numberOfRequests": 1, "duration": "1 s"}});
    let body = json!({"name":"throttling","consumer":{"id":id},"config":rate});
    refused(&api, "POST", "/plugins", body, (400, &message)).await;
    let body = json!({"name":"openid-connect","consumer":{"id":id},"config":{"issuer":"http://i"}});
    let message = "schema violation (consumer: value must be null)";
    refused(&api, "POST", "/plugins", body, (400, message)).await;
    let body = json!({"paths":["/a"],"service":{"id":"x"}});
    refused(
        &api,
        "POST",
        "/routes",
        body,
        (400, "schema violation (service.id: expected a valid UUID)"),
    )
    .await;
}

#[tokio::test]
async fn a_plugin_shares_a_protocol_with_its_routes() {
    let api = Api::with_route().await;
    let body = json!({"name":"openid-connect","protocols":["grpc"],"config":{"issuer":"http://i"}});
    refused(
        &api,
        "POST",
        "/routes/r/plugins",
        body.clone(),
        (
            400,
            "schema violation (protocols: must match the associated route's protocols)",
        ),
    )
    .await;
    refused(
        &api,
        "POST",
        "/services/s/plugins",
        body,
        (
            400,
            "schema violation (protocols: must match the protocols of at least one route \
             pointing to this Plugin's service)",
        ),
    )
    .await;
}

#[tokio::test]
async fn bodies_that_can_not_be_read_are_refused() {
    let api = Api::new().await;
    let host = ("host", "localhost");
    for (content_type, body, expected) in [
        ("application/json", "{", (400, "Cannot parse JSON body")),
        ("application/json", "[]", (400, "Cannot parse JSON body")),
        ("text/plain", "x", (415, "")),
        ("application/xml", "<x/>", (415, "")),
        (
            "application/x-www-form-urlencoded",
            "name=%zz",
            (400, "Cannot parse form body: broken percent-encoding"),
        ),
        (
            "application/x-www-form-urlencoded",
            "name=a&name.b=c",
            (
                400,
                "Cannot parse form body: 'name.b' contradicts an earlier value",
            ),
        ),
    ] {
        let headers = [host, ("content-type", content_type)];
        let reply = api.raw("POST", "/services", &headers, body).await;
        assert_eq!(
            reply.refusal(),
            (expected.0, expected.1.to_owned()),
            "{body}"
        );
    }
    let reply = api.raw("POST", "/services", &[host], "{}").await;
    assert_eq!((reply.status.as_u16(), reply.text.as_str()), (415, ""));
    let two = [
        host,
        ("content-type", "application/json"),
        ("content-type", "application/json"),
    ];
    api.raw("POST", "/services", &two, "{}").await.expect(400);
    let many = "a=1&".repeat(1001);
    assert_eq!(
        api.form("POST", "/services", &many).await.refusal(),
        (400, "Too many arguments".to_owned())
    );
    let large = format!("{{\"name\":\"{}\"}}", "x".repeat(MAX_BODY));
    let headers = [host, ("content-type", "application/json")];
    api.raw("POST", "/services", &headers, &large)
        .await
        .expect(413);
    assert_eq!(api.get("/services").await.json()["data"], json!([]));
}

#[tokio::test]
async fn a_query_that_can_not_be_read_is_refused_as_a_query() {
    let api = Api::new().await;
    for (query, text) in [
        ("%zz=1", "broken percent-encoding"),
        ("tags=%FF", "not UTF-8"),
    ] {
        let message = format!("Cannot parse query: {text}");
        let path = format!("/services?{query}");
        refused(&api, "GET", &path, Value::Null, (400, &message)).await;
    }
}

#[tokio::test]
async fn a_body_may_be_absent() {
    let api = Api::with_route().await;
    let host = ("host", "localhost");
    assert_eq!(
        api.raw("POST", "/services", &[host], "").await.refusal(),
        (
            400,
            "schema violation (host: required field missing)".to_owned()
        )
    );
    api.raw("PATCH", "/services/s", &[host], "")
        .await
        .expect(200);
}

#[tokio::test]
async fn multipart_bodies_are_read() {
    let api = Api::new().await;
    let body = "--b\r\nContent-Disposition: form-data; name=\"name\"\r\n\r\ns\r\n\
                --b\r\nContent-Disposition: form-data; name=\"host\"\r\n\r\nh\r\n\
                --b\r\nContent-Disposition: form-data; name=\"port\"\r\n\r\n81\r\n--b--\r\n";
    let headers = [
        ("host", "localhost"),
        ("content-type", "multipart/form-data; boundary=b"),
    ];
    let reply = api
        .raw("POST", "/services", &headers, body)
        .await
        .expect(201);
    assert_eq!(reply.json()["port"], 81);
}

#[tokio::test]
async fn dotted_keys_are_understood_in_json_too() {
    let api = Api::new().await;
    let reply = api
        .post(
            "/plugins",
            json!({"name":"openid-connect","config.issuer":"http://i","config.scopes":"a,b"}),
        )
        .await
        .expect(201);
    assert_eq!(reply.json()["config"]["scopes"], json!(["a", "b"]));
}

#[tokio::test]
async fn an_empty_form_value_clears() {
    let api = Api::new().await;
    api.form(
        "POST",
        "/services",
        "name=s&host=h&path=/x&tags[]=a&tags[]=b",
    )
    .await
    .expect(201);
    let reply = api
        .form("PATCH", "/services/s", "path=&tags=")
        .await
        .expect(200)
        .json();
    assert_eq!(reply["path"], Value::Null);
    assert_eq!(reply["tags"], Value::Null);
}

proptest::proptest! {
    #[test]
    fn no_body_makes_the_reader_panic(
        body in "[ -~\r\n]{0,200}|(--b\r\n[a-zA-Z:;=\" \r\n-]{0,80}){0,3}",
        content_type in proptest::sample::select(vec![
            "application/json",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=b",
        ]),
    ) {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static(content_type));
        let _ = body::arguments(&headers, &bytes::Bytes::from(body));
    }

    #[test]
    fn no_form_makes_a_schema_panic(
        pairs in proptest::collection::vec(("[a-z._\\[\\]0-9]{1,24}", ".{0,12}"), 0..8),
    ) {
        let mut root = form::Node::default();
        for (key, value) in pairs {
            let _ = form::insert(&mut root, &key, form::Node::Text(value));
        }
        let input = root.into_map();
        for schema in [
            doorward_gateway::schemas::service(),
            doorward_gateway::schemas::route(),
            doorward_gateway::schemas::plugin(Some(&json!("openid-connect"))).expect("a kind"),
        ] {
            for source in [doorward_core::model::schema::Source::Form, doorward_core::model::schema::Source::Json] {
                if let Ok(read) = schema.read(input.clone(), source)
                    && let Err(violations) = schema.complete(read)
                {
                    proptest::prop_assert!(!violations.message().is_empty());
                    let _ = violations.to_json();
                }
            }
        }
    }
}

#[tokio::test]
async fn a_key_that_looks_like_a_huge_position_does_not_make_a_huge_answer() {
    let api = Api::new().await;
    let policy = json!({
        "type": "MappedThrottlingPolicy",
        "config": {
            "throttlingRateMapper": "${request.method}",
            "throttlingRatesMapping": {"4915112345678": "oops"},
        },
    });
    let plugin = json!({"name": "throttling", "config": {"throttlingRatePolicy": policy}});
    let reply = api.post("/plugins", plugin).await.expect(400);
    assert!(reply.json().to_string().len() < 2000);
}
