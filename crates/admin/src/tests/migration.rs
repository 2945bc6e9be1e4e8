//! What clients of the imitated gateway's release 3.9 send and expect.

use serde_json::json;

use super::*;

/// A certificate of X.509 version 1 for `old.example`, and its key.
const VERSION_1: [&str; 2] = [
    "-----BEGIN CERTIFICATE-----\n\
     MIIBKDCBzwIUcQnxExQ8JURM2bwyAPdLvE/+RW8wCgYIKoZIzj0EAwIwFjEUMBIG\n\
     A1UEAwwLb2xkLmV4YW1wbGUwIBcNMjYxMTIzMTcxNTA4WhgPMjEyNjEwMzAxNzE1\n\
     MDhaMBYxFDASBgNVBAMMC29sZC5leGFtcGxlMFkwEwYHKoZIzj0CAQYIKoZIzj0D\n\
     AQcDQgAEzmF4Hy1AKupZdruohUekGrBEJKCzZDT6Z1EigChxbvcIrzKBrKO+idjA\n\
     GpRHZmNYlz54xUPAnJWkI7q7brIY/DAKBggqhkjOPQQDAgNIADBFAiBHNpLSQ7su\n\
     BQfmf5drR35VMZFxKOjuQMHwlNLJkQ6BRwIhAMYS+j16nYSN7PNbmfupVw7zJ8qx\n\
     m9HgLW00GU4nYKAJ\n\
     -----END CERTIFICATE-----\n",
    "-----BEGIN PRIVATE KEY-----\n\
     MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgHvqakHs2lihVGHNI\n\
     LnmnjLzNrewvSX7TEsPl3ZDCE96hRANCAATOYXgfLUAq6ll2u6iFR6QasEQkoLNk\n\
     NPpnUSKAKHFu9wivMoGso76J2MAalEdmY1iXPnjFQ8CclaQjurtushj8\n\
     -----END PRIVATE KEY-----\n",
];

#[tokio::test]
async fn a_whole_record_is_a_reference_to_it() {
    let api = Api::new().await;
    let service = json!({"name":"s","host":"h"});
    let service = api.post("/services", service).await.expect(201).json();
    let shown = api.get("/services/s").await.expect(200).json();
    let route = json!({"hosts":["h"],"service":shown});
    let route = api.post("/routes", route).await.expect(201).json();
    assert_eq!(route["service"], json!({"id": service["id"]}));
}

#[tokio::test]
async fn routes_for_grpc_keep_the_path_by_default() {
    let api = Api::with_route().await;
    let route = json!({"name":"g","protocols":["grpc"],"paths":["/pkg.Service"]});
    let made = api.post("/services/s/routes", route).await.expect(201);
    assert_eq!(made.json()["strip_path"], false);
    let strips = json!({"protocols":["grpcs"],"paths":["/x"],"strip_path":true});
    api.post("/services/s/routes", strips).await.expect(400);
    let plain = api.get("/routes/r").await.json();
    assert_eq!(plain["strip_path"], true);
}

#[tokio::test]
async fn an_empty_body_of_json_type_is_no_json() {
    let api = Api::with_route().await;
    let headers = [("host", "localhost"), ("content-type", "application/json")];
    for (method, path) in [("POST", "/services"), ("PATCH", "/services/s")] {
        let reply = api.raw(method, path, &headers, "").await;
        assert_eq!(reply.refusal(), (400, "Cannot parse JSON body".to_owned()));
    }
}

#[tokio::test]
async fn an_unset_priority_and_an_empty_table_for_a_list_are_taken() {
    let api = Api::with_route().await;
    let route = json!({"paths":["/p"],"hosts":{},"regex_priority":null});
    let made = api
        .post("/services/s/routes", route)
        .await
        .expect(201)
        .json();
    assert_eq!(made["hosts"], json!([]));
    assert_eq!(made["regex_priority"], serde_json::Value::Null);
}

#[tokio::test]
async fn a_put_of_a_target_keeps_what_it_leaves_out() {
    let api = Api::new().await;
    api.post("/upstreams", json!({"name":"u.test"}))
        .await
        .expect(201);
    let target = json!({"target":"10.0.0.1:80","weight":7,"tags":["t"]});
    let made = api
        .post("/upstreams/u.test/targets", target)
        .await
        .expect(201);
    let path = format!("/upstreams/u.test/targets/{}", made.id());
    let put = api
        .send("PUT", &path, json!({"target":"10.0.0.1:80"}))
        .await;
    let put = put.expect(200).json();
    assert_eq!(put["weight"], 7);
    assert_eq!(put["tags"], json!(["t"]));
}

#[tokio::test]
async fn targets_of_ipv6_are_shown_and_found_in_full() {
    let api = Api::new().await;
    api.post("/upstreams", json!({"name":"u.test"}))
        .await
        .expect(201);
    let target = json!({"target":"[2001:db8::1]:80"});
    let made = api
        .post("/upstreams/u.test/targets", target)
        .await
        .expect(201);
    let full = "[2001:0db8:0000:0000:0000:0000:0000:0001]:80";
    assert_eq!(made.json()["target"], full);
    for text in [full, "[2001:db8::1]:80"] {
        let path = format!("/upstreams/u.test/targets/{text}");
        assert_eq!(api.get(&path).await.expect(200).id(), made.id(), "{text}");
    }
}

#[tokio::test]
async fn health_lists_the_newest_target_first_and_the_balancer_as_a_whole() {
    let api = Api::new().await;
    api.post("/upstreams", json!({"name":"u.test"}))
        .await
        .expect(201);
    for last in 1..=5 {
        api.clock.advance(1_000);
        let target = json!({"target":format!("10.0.0.{last}:80")});
        api.post("/upstreams/u.test/targets", target)
            .await
            .expect(201);
    }
    let mut path = "/upstreams/u.test/health?size=2".to_owned();
    let mut targets = Vec::new();
    loop {
        let page = api.get(&path).await.expect(200).json();
        let data = page["data"].as_array().expect("a list");
        targets.extend(data.iter().map(|target| target["target"].clone()));
        match page["next"].as_str() {
            Some(next) => path = format!("{next}&size=2"),
            None => break,
        }
    }
    assert_eq!(
        json!(targets),
        json!([
            "10.0.0.5:80",
            "10.0.0.4:80",
            "10.0.0.3:80",
            "10.0.0.2:80",
            "10.0.0.1:80"
        ])
    );
    let whole = api.get("/upstreams/u.test/health?balancer_health=1").await;
    let whole = whole.expect(200).json();
    assert_eq!(whole["data"]["health"], "HEALTHCHECKS_OFF");
    assert_eq!(whole["data"]["balancer_health"], "HEALTHY");
    assert_eq!(whole["data"]["details"]["weight"]["total"], 500);
}

#[tokio::test]
async fn a_plugin_is_parted_from_the_parent_that_its_path_names() {
    let api = Api::with_route().await;
    let plugin =
        json!({"name":"throttling","config":{"rate":{"numberOfRequests":1,"duration":"1 s"}}});
    let made = api.post("/services/s/plugins", plugin).await.expect(201);
    let path = format!("/services/s/plugins/{}", made.id());
    let parted = api.send("PATCH", &path, json!({"service":null})).await;
    assert_eq!(
        parted.expect(200).json()["service"],
        serde_json::Value::Null
    );
    api.get(&path).await.expect(404);
    api.delete(&path).await.expect(404);
    let id = made.id();
    api.delete(&format!("/plugins/{id}")).await.expect(204);
    api.delete(&format!("/plugins/{id}")).await.expect(204);
    api.delete(&format!("/routes/r/plugins/{id}"))
        .await
        .expect(404);
}

#[tokio::test]
async fn a_wrong_plugin_in_a_taken_place_is_wrong_before_it_is_taken() {
    let api = Api::with_route().await;
    let plugin = |config: Value| json!({"name":"throttling","config":config});
    let good = json!({"rate":{"numberOfRequests":1,"duration":"1 s"}});
    api.post("/services/s/plugins", plugin(good.clone()))
        .await
        .expect(201);
    // One that its schema refuses, one that its filter refuses, a good one.
    for (config, status, code) in [
        (json!({"rate":5}), 400, 2),
        (
            json!({"rate":{"numberOfRequests":1,"duration":"x"}}),
            400,
            2,
        ),
        (good, 409, 5),
    ] {
        let reply = api.post("/services/s/plugins", plugin(config)).await;
        let reply = reply.expect(status);
        assert_eq!(reply.json()["code"], code, "{}", reply.text);
    }
}

#[tokio::test]
async fn tags_choose_among_all_records_and_empty_lists_have_no_total() {
    let api = Api::with_route().await;
    let nested = api.get("/services/s/routes?tags=nobody").await.json();
    assert_eq!(nested["data"].as_array().map(Vec::len), Some(1));
    let flat = api.get("/routes?tags=nobody").await.json();
    assert_eq!(flat["data"], json!([]));
    let upstreams = api.get("/upstreams").await.expect(200).json();
    assert_eq!(upstreams, json!({"data":[],"next":null}));
}

#[tokio::test]
async fn names_of_certificates_go_with_a_put_and_with_null() {
    let api = Api::new().await;
    let [cert, key] = VERSION_1;
    let body = |snis: Value| json!({"cert":cert,"key":key,"snis":snis});
    let made = api
        .post("/certificates", body(json!(["old.example", "*"])))
        .await;
    let made = made.expect(201);
    assert_eq!(made.json()["snis"], json!(["*", "old.example"]));
    let path = format!("/certificates/{}", made.id());
    let cleared = api
        .send("PATCH", &path, json!({"snis":null}))
        .await
        .expect(200);
    assert_eq!(cleared.json()["snis"], json!([]));
    let named = api
        .send("PUT", &path, body(json!(["a.example"])))
        .await
        .expect(200);
    assert_eq!(named.json()["snis"], json!(["a.example"]));
    let kept = api
        .send("PATCH", &path, json!({"tags":["t"]}))
        .await
        .expect(200);
    assert_eq!(kept.json()["snis"], json!(["a.example"]));
    let put = api
        .send("PUT", &path, json!({"cert":cert,"key":key}))
        .await
        .expect(200);
    assert_eq!(put.json()["snis"], json!([]));
    assert_eq!(api.get("/snis").await.json()["data"], json!([]));
}

#[tokio::test]
async fn the_key_of_another_certificate_is_refused_for_version_1_too() {
    let api = Api::new().await;
    let (_, other) = certificates::pair();
    let body = json!({"cert":VERSION_1[0],"key":other});
    let (status, message) = api.post("/certificates", body).await.refusal();
    assert_eq!(status, 400);
    assert!(
        message.contains("certificate does not match key"),
        "{message}"
    );
}

#[tokio::test]
async fn long_labels_are_taken() {
    let api = Api::with_route().await;
    let host = format!("{}.example", "a".repeat(64));
    let route = json!({"hosts":[host]});
    api.post("/services/s/routes", route).await.expect(201);
}
