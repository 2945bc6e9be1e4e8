//! What is wrong is refused with its status and the field's name, and nothing
//! of it is stored.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::http::{client, send};
use crate::support::raw::{Connection, exchange};
use crate::support::{Answer, Door, Setup};

/// Fails unless the answer is 400 with code 2 and names `field`.
#[track_caller]
fn assert_violation(answer: Answer, field: &str) {
    let answer = answer.expect(400);
    let body = answer.json();
    assert_eq!(body["code"], 2, "{body}");
    assert_eq!(body["name"], "schema violation", "{body}");
    let message = body["message"].as_str().expect("a message");
    assert!(message.contains(field), "{field} in {message}");
}

/// Everything that is stored, to compare before and after.
async fn contents(door: &Door) -> Vec<Value> {
    let mut all = Vec::new();
    for kind in ["services", "routes", "plugins"] {
        all.push(door.admin_get(&format!("/{kind}")).await.expect(200).json());
    }
    all
}

async fn door_with_service() -> Door {
    let door = Setup::new().start().await;
    door.expose("users", "http://127.0.0.1:9", "users.test")
        .await;
    door
}

#[tokio::test]
async fn malformed_bodies_are_refused() {
    let door = door_with_service().await;
    let before = contents(&door).await;
    let url = door.admin_url("/services");
    for body in ["{\"name\": ", "[1,2", "nonsense", "{\"name\": \"a\",}"] {
        let request = client()
            .post(&url)
            .header("content-type", "application/json");
        let answer = send(request.body(body)).await.expect(400).json();
        assert_eq!(answer["message"], "Cannot parse JSON body", "{body}");
    }
    for body in ["[]", "1", "\"text\""] {
        let request = client()
            .post(&url)
            .header("content-type", "application/json");
        send(request.body(body)).await.expect(400);
    }
    for kind in ["application/xml", "text/plain"] {
        let request = client().post(&url).header("content-type", kind);
        send(request.body("{}")).await.expect(415);
    }
    send(client().post(&url).body("name=a")).await.expect(415);
    let deep = format!("{}1{}", "{\"a\":".repeat(5000), "}".repeat(5000));
    let request = client()
        .post(&url)
        .header("content-type", "application/json");
    send(request.body(deep)).await.expect(400);
    let request = client()
        .post(&url)
        .header("content-type", "application/x-www-form-urlencoded");
    send(request.body("name=%ff%fe&host=a")).await.expect(400);
    assert_eq!(contents(&door).await, before);
}

#[tokio::test]
async fn fields_that_are_wrong_are_named() {
    let door = door_with_service().await;
    let before = contents(&door).await;
    for (body, field) in [
        (json!({"name": "x"}), "host"),
        (json!({"name": "x", "host": "a", "nonsense": 1}), "nonsense"),
        (json!({"name": 1, "host": "a"}), "name"),
        (json!({"name": "a b", "host": "a"}), "name"),
        (json!({"host": ""}), "host"),
        (json!({"host": "a:80"}), "host"),
        (json!({"host": "a", "port": "http"}), "port"),
        (json!({"host": "a", "port": 65536}), "port"),
        (json!({"host": "a", "port": 1.5}), "port"),
        (json!({"host": "a", "protocol": "gopher"}), "protocol"),
        (json!({"host": "a", "path": "x"}), "path"),
        (json!({"host": "a", "path": "/a//b"}), "path"),
        (json!({"host": "a", "retries": -1}), "retries"),
        (json!({"host": "a", "retries": 32768}), "retries"),
        (
            json!({"host": "a", "connect_timeout": 0}),
            "connect_timeout",
        ),
        (json!({"host": "a", "read_timeout": "soon"}), "read_timeout"),
        (json!({"host": "a", "tags": "x"}), "tags"),
        (json!({"url": "ftp://a"}), "protocol"),
    ] {
        let answer = door.admin_post("/services", &body).await;
        assert_violation(answer, field);
    }
    for (body, field) in [
        (json!({}), "hosts"),
        (json!({"hosts": "a.test"}), "hosts"),
        (json!({"hosts": ["a*b.test"]}), "hosts"),
        (json!({"paths": ["x"]}), "paths"),
        (json!({"paths": ["~/("]}), "paths"),
        (json!({"methods": ["get"]}), "methods"),
        (
            json!({"hosts": ["a.test"], "strip_path": "maybe"}),
            "strip_path",
        ),
        (
            json!({"hosts": ["a.test"], "protocols": ["smtp"]}),
            "protocols",
        ),
        (json!({"hosts": ["a.test"], "protocols": []}), "protocols"),
        (json!({"headers": {"Host": ["a"]}}), "headers"),
        (
            json!({"hosts": ["a.test"], "regex_priority": "high"}),
            "regex_priority",
        ),
    ] {
        let answer = door.admin_post("/services/users/routes", &body).await;
        assert_violation(answer, field);
    }
    assert_eq!(contents(&door).await, before);
}

#[tokio::test]
async fn plugin_configurations_that_are_wrong_are_named() {
    let door = door_with_service().await;
    let before = contents(&door).await;
    let rate = json!({"numberOfRequests": 6, "duration": "10 s"});
    for (name, config, field) in [
        ("nonsense", json!({}), "name"),
        ("openid-connect", json!({}), "issuer"),
        ("openid-connect", json!({"issuer": "not a url"}), "issuer"),
        (
            "openid-connect",
            json!({"issuer": "http://a.test", "nonsense": 1}),
            "nonsense",
        ),
        (
            "openid-connect",
            json!({"issuer": "http://a.test", "leeway": "long"}),
            "leeway",
        ),
        (
            "openid-connect",
            json!({"issuer": "http://a.test", "auth_methods": ["magic"]}),
            "auth_methods",
        ),
        (
            "openid-connect",
            json!({"issuer": "http://a.test", "ssl_verify": "maybe"}),
            "ssl_verify",
        ),
        ("throttling", json!({}), "rate"),
        (
            "throttling",
            json!({"rate": {"duration": "10 s"}}),
            "numberOfRequests",
        ),
        (
            "throttling",
            json!({"rate": {"numberOfRequests": 6}}),
            "duration",
        ),
        (
            "throttling",
            json!({"rate": {"numberOfRequests": 0, "duration": "10 s"}}),
            "numberOfRequests",
        ),
        (
            "throttling",
            json!({"rate": {"numberOfRequests": 6, "duration": "10"}}),
            "duration",
        ),
        (
            "throttling",
            json!({"rate": {"numberOfRequests": 6, "duration": "1.5 s"}}),
            "duration",
        ),
        (
            "throttling",
            json!({"rate": {"numberOfRequests": 6, "duration": "unlimited"}}),
            "duration",
        ),
        (
            "throttling",
            json!({"rate": rate, "cleaningInterval": "2 days"}),
            "cleaningInterval",
        ),
        (
            "throttling",
            json!({"rate": rate, "cleaningInterval": "zero"}),
            "cleaningInterval",
        ),
        (
            "throttling",
            json!({"rate": rate, "requestGroupingPolicy": "${request.headers["}),
            "requestGroupingPolicy",
        ),
        (
            "throttling",
            json!({"rate": rate, "requestGroupingPolicy": "${no.such.root}"}),
            "requestGroupingPolicy",
        ),
        (
            "throttling",
            json!({"rate": rate, "requestGroupingPolicy": "${nosuch('x')}"}),
            "requestGroupingPolicy",
        ),
    ] {
        let body = json!({"name": name, "config": config});
        let answer = door.admin_post("/services/users/plugins", &body).await;
        assert_violation(answer, field);
    }
    assert_eq!(contents(&door).await, before);
}

#[tokio::test]
async fn duplicates_and_dangling_references_are_refused() {
    let door = door_with_service().await;
    let before = contents(&door).await;
    let twice = json!({"name": "users", "host": "a"});
    let answer = door
        .admin_post("/services", &twice)
        .await
        .expect(409)
        .json();
    assert_eq!(answer["code"], 5);
    assert_eq!(
        answer["message"],
        "UNIQUE violation detected on '{name=\"users\"}'"
    );
    assert_eq!(answer["fields"]["name"], "users");

    let nothing = "00000000-0000-4000-8000-000000000000";
    let route = json!({"hosts": ["x.test"], "service": {"id": nothing}});
    let answer = door.admin_post("/routes", &route).await.expect(400).json();
    assert_eq!(answer["code"], 4, "{answer}");
    assert!(
        answer["message"]
            .as_str()
            .expect("a message")
            .contains(nothing)
    );
    assert!(answer["fields"].get("service").is_some(), "{answer}");
    let route = json!({"hosts": ["x.test"], "service": {"name": "nobody"}});
    let answer = door.admin_post("/routes", &route).await.expect(400).json();
    assert_eq!(answer["code"], 13, "{answer}");

    let route = json!({"hosts": ["x.test"]});
    door.admin_post("/services/nobody/routes", &route)
        .await
        .expect(404);
    let plugin = json!({"name": "throttling", "config": {"rate": {"numberOfRequests": 6, "duration": "10 s"}}});
    door.admin_post("/services/nobody/plugins", &plugin)
        .await
        .expect(404);
    let patch = json!({"retries": 1});
    let answer = door
        .admin_json(Method::PATCH, "/services/nobody", &patch)
        .await;
    assert_eq!(answer.expect(404).json()["code"], 6);
    assert_eq!(contents(&door).await, before);
}

#[tokio::test]
async fn bodies_over_the_limit_are_refused() {
    let door = door_with_service().await;
    let before = contents(&door).await;
    let long = "x".repeat(16 << 20);
    let body = json!({"name": "large", "host": "a", "tags": [long]});
    let answer = door.admin_post("/services", &body).await;
    assert_eq!(answer.status, 413, "{}", answer.body);
    // A client that only sends still gets to read the answer.
    let form = format!("grant_type=client_credentials&scope={long}");
    let request = client()
        .post(door.proxy_url("/oauth2/access_token"))
        .header("content-type", "application/x-www-form-urlencoded");
    assert_eq!(send(request.body(form)).await.status, 413);
    // The length alone is too much: nobody waits for the body.
    let head = "POST /oauth2/access_token HTTP/1.1\r\nHost: a.test\r\nContent-Length: 99999999\r\n\
                Content-Type: application/x-www-form-urlencoded\r\n\r\n";
    let answer = exchange(&door.proxy(), head.as_bytes()).await;
    assert_eq!(answer.expect("an answer").status, 413);
    let many: Vec<_> = (0..1200).map(|n| format!("tags[]={n}")).collect();
    let request = client()
        .post(door.admin_url("/services"))
        .header("content-type", "application/x-www-form-urlencoded");
    let answer = send(request.body(many.join("&"))).await.expect(400).json();
    assert_eq!(answer["message"], "Too many arguments");
    assert_eq!(contents(&door).await, before);
}

#[tokio::test]
async fn list_parameters_out_of_range_are_refused() {
    let door = door_with_service().await;
    for (query, code, message) in [
        ("size=many", 9, "size must be a number"),
        ("size=0", 9, "size must be an integer between 1 and 1000"),
        ("size=1001", 9, "size must be an integer between 1 and 1000"),
        (
            "offset=!!",
            7,
            "'!!' is not a valid offset: bad base64 encoding",
        ),
    ] {
        let answer = door.admin_get(&format!("/services?{query}")).await;
        let body = answer.expect(400).json();
        assert_eq!(body["code"], code, "{query}");
        let text = body["message"].as_str().expect("a message");
        assert!(text.contains(message), "{query}: {text}");
    }
}

#[tokio::test]
async fn a_patch_that_breaks_a_record_leaves_it_as_it_was() {
    let door = door_with_service().await;
    let before = contents(&door).await;
    for (method, body, field) in [
        (Method::PATCH, json!({"port": -1}), "port"),
        (Method::PATCH, json!({"host": null}), "host"),
        (Method::PUT, json!({"retries": 1}), "host"),
    ] {
        let answer = door.admin_json(method, "/services/users", &body).await;
        assert_violation(answer, field);
    }
    assert_eq!(contents(&door).await, before);
}

#[tokio::test]
async fn random_bytes_never_break_a_listener() {
    // A fixed sequence of noise, from a small generator: reproducible.
    let door = door_with_service().await;
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    for round in 0..200_usize {
        let noise: Vec<u8> = (0..round % 97)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 32) as u8
            })
            .collect();
        let listener = if round % 2 == 0 {
            door.proxy()
        } else {
            door.admin()
        };
        let mut connection = Connection::open(&listener).await;
        connection.try_send(&noise).await;
        connection.try_send(b"\r\n\r\n").await;
    }
    door.get("nowhere.test", "/").await.expect(404);
    door.admin_get("/status").await.expect(200);
    assert!(!door.log_text().contains("panicked"), "{}", door.log_text());
}

#[tokio::test]
async fn a_body_is_not_read_of_who_may_not_send_one() {
    let door = Setup::new().start().await;
    let admin = door.admin();
    for head in [
        format!("host: {admin}\r\norigin: http://evil.example\r\n"),
        "host: evil.example\r\n".to_owned(),
    ] {
        let mut connection = Connection::open(&admin).await;
        // The answer comes though none of the announced body does.
        let request = format!(
            "POST /services HTTP/1.1\r\ncontent-type: application/json\r\n\
             content-length: 1000000\r\nexpect: 100-continue\r\n{head}\r\n"
        );
        connection.send(request.as_bytes()).await;
        assert_eq!(connection.response().await.status, 403, "{head}");
    }
}
