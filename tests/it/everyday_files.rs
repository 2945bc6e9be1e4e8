//! What files and clients of the imitated gateway rely on besides each plugin's own
//! work: older spellings, partial updates, and plugins of everything.

use reqwest::Method;
use serde_json::json;

use crate::support::{Reply, Setup, Upstream};

/// A file with what older versions and other products of the family write.
fn services(upstream: &Upstream) -> String {
    format!(
        "
- name: web
  url: {}
  routes:
  - {{name: letters, paths: ['/日本', '/foo bar'], strip_path: false}}
  - {{name: web, paths: [/t]}}
  plugins:
  - {{name: prometheus, protocols: [http, https, tcp, tls]}}
  - {{name: file-log, protocols: [http, tcp, udp], config: {{path: log.txt}}}}
  - {{name: proxy-cache, protocols: [http, https, tls_passthrough], enabled: false, config: {{strategy: memory}}}}
  - {{name: session, config: {{secret: opensesame, cookie_renew: 600, cookie_samesite: 'off'}}}}
  - {{name: request-transformer, config: {{remove: {{headers: ['X-Secret:value']}}}}}}
  - {{name: response-transformer, config: {{remove: {{headers: ['X-Hidden:v'], json: [secret]}}}}}}
",
        upstream.url("")
    )
}

#[tokio::test]
async fn a_file_with_older_spellings_and_protocols_of_streams_loads() {
    let upstream = Upstream::start(|seen| {
        let body = json!({"secret": "s", "target": seen.target, "sent": seen.header("x-secret")});
        let body = body.to_string();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/problem+json\r\nX-Hidden: v\r\n\
                    Upgrade: h2c\r\nConnection: Upgrade, Keep-Alive\r\n";
        let length = body.len();
        Reply::Raw(format!("{head}Content-Length: {length}\r\n\r\n{body}").into_bytes())
    })
    .await;
    let door = Setup::new().services(&services(&upstream)).start().await;
    let answer = door
        .get_with("/t/x", &[("x-secret", "1")])
        .await
        .expect(200);
    assert_eq!(answer.json(), json!({"target": "/x", "sent": null}));
    for gone in ["x-hidden", "upgrade"] {
        assert_eq!(answer.header(gone), "", "{gone}");
    }
    for path in ["/%E6%97%A5%E6%9C%AC/a", "/日本/a", "/foo%20bar/a"] {
        let answer = door.get_with(path, &[]).await.expect(200).json();
        let target = answer["target"].as_str().expect("a target");
        assert!(
            target.starts_with("/%E6%97%A5%E6%9C%AC/") || target == "/foo%20bar/a",
            "{target}"
        );
    }
}

#[tokio::test]
async fn a_partial_update_by_an_older_field_changes_what_holds() {
    let door = Setup::new().start().await;
    let config = json!({"minute": 1, "policy": "redis", "redis_host": "a.test"});
    let plugin = json!({"name": "rate-limiting", "enabled": false, "config": config});
    let plugin = door
        .admin_post("/plugins", &plugin)
        .await
        .expect(201)
        .json();
    let path = format!("/plugins/{}", plugin["id"].as_str().expect("an id"));
    for (update, host) in [
        (json!({"redis_host": "b.test"}), "b.test"),
        (json!({"redis": {"host": "c.test"}}), "c.test"),
    ] {
        let update = json!({"config": update});
        let answer = door.admin_json(Method::PATCH, &path, &update).await;
        let config = answer.expect(200).json()["config"].clone();
        assert_eq!(config["redis"]["host"], host);
        assert_eq!(config["redis_host"], host);
        assert_eq!(config["redis"]["port"], 6379);
    }
}

#[tokio::test]
async fn plugins_of_everything_see_the_answer_to_a_request_that_no_route_takes() {
    let door = Setup::new().start().await;
    for plugin in [
        json!({"name": "cors", "config": {"origins": ["https://app.test"]}}),
        json!({"name": "response-transformer", "config": {"add": {"headers": ["X-Guard:on"]}}}),
        json!({"name": "correlation-id", "config": {"echo_downstream": true, "header_name": "X-Id"}}),
    ] {
        door.admin_post("/plugins", &plugin).await.expect(201);
    }
    let headers = [("origin", "https://app.test"), ("x-id", "mine")];
    let answer = door.get_with("/nowhere", &headers).await.expect(404);
    assert_eq!(
        answer.json()["message"],
        "no Route matched with those values"
    );
    assert_eq!(
        answer.header("access-control-allow-origin"),
        "https://app.test"
    );
    assert_eq!(answer.header("x-guard"), "on");
    assert_eq!(answer.header("x-id"), "mine");
    let answer = door.get_with("/nowhere", &[]).await.expect(404);
    assert!(
        answer.header("x-id").contains('#'),
        "{}",
        answer.header("x-id")
    );
}

#[tokio::test]
async fn a_plugin_that_can_not_be_built_is_not_called_valid() {
    let door = Setup::new().start().await;
    let wrong = json!({"name": "http-log", "config": {"http_endpoint": "http://a.test",
        "custom_fields_by_lua": {"x": "return 1"}}});
    let validated = door.admin_post("/schemas/plugins/validate", &wrong).await;
    let made = door.admin_post("/plugins", &wrong).await;
    assert_eq!((validated.status, made.status), (400, 400));
    assert_eq!(validated.json()["fields"], made.json()["fields"]);
    let right = json!({"name": "http-log", "config": {"http_endpoint": "http://a.test"}});
    door.admin_post("/schemas/plugins/validate", &right)
        .await
        .expect(200);
}
