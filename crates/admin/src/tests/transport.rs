//! Methods, headers, slashes and who may ask (gateway-admin-api §1).

use super::*;

const HOST: (&str, &str) = ("host", "localhost:8001");

#[tokio::test]
async fn every_answer_names_its_server_and_time() {
    let api = Api::new().await;
    for path in ["/", "/services", "/nowhere"] {
        let reply = api.get(path).await;
        assert_eq!(
            reply.headers["content-type"],
            "application/json; charset=utf-8"
        );
        assert!(reply.headers.contains_key("server"), "{path}");
        assert!(reply.headers.contains_key("x-kong-admin-latency"), "{path}");
        assert_eq!(reply.headers["access-control-allow-origin"], "*");
        assert_eq!(reply.headers["access-control-allow-credentials"], "true");
    }
}

#[tokio::test]
async fn head_is_get_without_the_body() {
    let api = Api::with_route().await;
    let get = api.get("/services/s").await;
    let head = api
        .raw("HEAD", "/services/s", &[HOST], "")
        .await
        .expect(200);
    assert_eq!(head.text, "");
    assert_eq!(
        head.headers["content-length"],
        get.text.len().to_string().as_str()
    );
    api.raw("HEAD", "/services/none", &[HOST], "")
        .await
        .expect(404);
}

#[tokio::test]
async fn options_lists_the_methods() {
    let api = Api::new().await;
    let reply = api
        .raw("OPTIONS", "/services/x/", &[HOST], "")
        .await
        .expect(204);
    let methods = "DELETE, GET, HEAD, OPTIONS, PATCH, PUT";
    assert_eq!(reply.headers["allow"], methods);
    assert_eq!(reply.headers["access-control-allow-methods"], methods);
    assert_eq!(
        reply.headers["access-control-allow-headers"],
        "Content-Type"
    );
    let asked = [HOST, ("access-control-request-headers", "X-A, X-B")];
    let reply = api
        .raw("OPTIONS", "/services", &asked, "")
        .await
        .expect(204);
    assert_eq!(reply.headers["access-control-allow-headers"], "X-A, X-B");
    assert_eq!(reply.headers["allow"], "GET, HEAD, OPTIONS, POST");
}

#[tokio::test]
async fn unknown_paths_and_methods_are_told_apart() {
    let api = Api::new().await;
    for path in ["/nope", "/services/a/b/c", "/targets", "/services/%zz"] {
        assert_eq!(
            api.get(path).await.refusal(),
            (404, "Not found".to_owned()),
            "{path}"
        );
    }
    for (method, path) in [
        ("DELETE", "/services"),
        ("PUT", "/services"),
        ("POST", "/"),
        ("TRACE", "/"),
    ] {
        let reply = api.raw(method, path, &[HOST], "").await;
        assert_eq!(
            reply.refusal(),
            (405, "Method not allowed".to_owned()),
            "{method} {path}"
        );
        assert!(reply.headers.contains_key("allow"));
    }
}

#[tokio::test]
async fn keys_in_paths_are_decoded() {
    let api = Api::new().await;
    api.post("/services", json!({"name":"caf\u{e9}","host":"h"}))
        .await
        .expect(201);
    api.get("/services/caf%C3%A9").await.expect(200);
    api.get("/services/caf%c3%a9/").await.expect(200);
}

#[tokio::test]
async fn a_web_page_can_not_drive_it() {
    let api = Api::new().await;
    let json = ("content-type", "application/json");
    let body = r#"{"name":"s","host":"h"}"#;
    for headers in [
        vec![HOST, json, ("origin", "http://evil.example")],
        vec![("host", "evil.example:8001"), json],
        vec![HOST, json, ("sec-fetch-site", "cross-site")],
    ] {
        let reply = api
            .raw("POST", "/services", &headers, body)
            .await
            .expect(403);
        assert!(!reply.headers.contains_key("access-control-allow-origin"));
    }
    assert_eq!(api.get("/services").await.json()["data"], json!([]));
}

#[tokio::test]
async fn the_token_is_asked_for_everywhere() {
    let api = Api::with("", Some("s3cret")).await;
    for path in ["/", "/services", "/metrics", "/nope"] {
        api.get(path).await.expect(401);
        let headers = [("host", "gate.example"), ("kong-admin-token", "s3cret")];
        let reply = api.raw("GET", path, &headers, "").await;
        assert_ne!(reply.status, StatusCode::UNAUTHORIZED, "{path}");
        let headers = [HOST, ("kong-admin-token", "wrong")];
        api.raw("GET", path, &headers, "").await.expect(401);
    }
}

#[tokio::test]
async fn the_gate_admits_whom_the_router_admits() {
    let api = Api::with("", Some("s3cret")).await;
    for (headers, admitted) in [
        (vec![("host", "localhost")], false),
        (
            vec![("host", "localhost"), ("kong-admin-token", "wrong")],
            false,
        ),
        (
            vec![("host", "localhost"), ("kong-admin-token", "s3cret")],
            true,
        ),
        (
            vec![
                ("host", "localhost"),
                ("kong-admin-token", "s3cret"),
                ("origin", "http://evil.example"),
            ],
            false,
        ),
    ] {
        let mut request = Request::builder().method("POST").uri("/services");
        for (name, value) in &headers {
            request = request.header(*name, *value);
        }
        let head = request.body(()).expect("a request").into_parts().0;
        assert_eq!((api.gate)(&head), admitted, "{headers:?}");
        let answer = api.raw("POST", "/services", &headers, "").await;
        assert_eq!(answer.status.as_u16() == 400, admitted, "{}", answer.text);
    }
}
