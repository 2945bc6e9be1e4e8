//! Consumers, upstreams with targets, and what is the same for all kinds.

use serde_json::{Value, json};

use super::certificates::{ca, certificate, pair};
use super::*;

#[tokio::test]
async fn a_consumer_is_found_by_id_name_and_custom_id() {
    let api = Api::new().await;
    let body = json!({"username":"ada","custom_id":"7"});
    let id = api.send("POST", "/consumers", body).await.expect(201).id();
    for path in [format!("/consumers/{id}"), "/consumers/ada".to_owned()] {
        assert_eq!(api.get(&path).await.expect(200).json()["custom_id"], "7");
    }
    let found = api.get("/consumers?custom_id=7").await.expect(200).json();
    assert_eq!(found["data"][0]["id"], id.as_str());
    assert_eq!(found["next"], Value::Null);
    let none = api.get("/consumers?custom_id=8").await.expect(200).json();
    assert_eq!(none, json!({"data":[],"next":null}));
    let empty = api.get("/consumers?custom_id=").await.expect(400).json();
    assert_eq!(empty["code"], 10);
    for (body, taken) in [
        (json!({"username":"ada"}), "username=\"ada\""),
        (json!({"custom_id":"7"}), "custom_id=\"7\""),
    ] {
        let refused = api
            .send("POST", "/consumers", body)
            .await
            .expect(409)
            .json();
        assert_eq!(
            refused["message"],
            format!("UNIQUE violation detected on '{{{taken}}}'")
        );
    }
    let nameless = api
        .send("POST", "/consumers", json!({}))
        .await
        .expect(400)
        .json();
    assert_eq!(
        nameless["fields"],
        json!({"@entity":["at least one of these fields must be non-empty: 'custom_id', 'username'"]})
    );
}

#[tokio::test]
async fn a_consumer_takes_its_plugins_along() {
    let api = Api::new().await;
    api.send("PUT", "/consumers/ada", json!({}))
        .await
        .expect(200);
    let plugin =
        json!({"name":"throttling","config":{"rate":{"numberOfRequests":6,"duration":"1 s"}}});
    let made = api
        .send("POST", "/consumers/ada/plugins", plugin.clone())
        .await
        .expect(201);
    assert!(made.json()["consumer"]["id"].is_string());
    assert_eq!(made.json()["consumer_id"], made.json()["consumer"]["id"]);
    let again = api.send("POST", "/consumers/ada/plugins", plugin).await;
    assert_eq!(again.expect(409).json()["code"], 5);
    let path = format!("/plugins/{}/consumer", made.id());
    assert_eq!(api.get(&path).await.expect(200).json()["username"], "ada");
    api.send("DELETE", "/consumers/ada", json!({}))
        .await
        .expect(204);
    api.get(&format!("/plugins/{}", made.id()))
        .await
        .expect(404);
}

#[tokio::test]
async fn targets_are_found_by_id_and_by_address() {
    let api = Api::new().await;
    api.send("POST", "/upstreams", json!({"name":"u"}))
        .await
        .expect(201);
    api.send("POST", "/upstreams", json!({"name":"v"}))
        .await
        .expect(201);
    let made = api
        .send("POST", "/upstreams/u/targets", json!({"target":"10.0.0.1"}))
        .await
        .expect(201);
    assert_eq!(made.json()["target"], "10.0.0.1:8000");
    assert_eq!(made.json()["weight"], 100);
    assert_eq!(made.json()["created_at"], 1_700_000_000.123);
    for key in [made.id(), "10.0.0.1:8000".to_owned(), "10.0.0.1".to_owned()] {
        let path = format!("/upstreams/u/targets/{key}");
        let patched = api
            .send("PATCH", &path, json!({"weight":0}))
            .await
            .expect(200);
        assert_eq!(patched.json()["id"], made.id().as_str());
        assert_eq!(patched.json()["weight"], 0);
        // One that is switched off is there for changes and in lists alone.
        api.get(&path).await.expect(404);
        let on = json!({"weight":1});
        api.send("PATCH", &path, on).await.expect(200);
        assert_eq!(api.get(&path).await.expect(200).json()["weight"], 1);
        let path = format!("/upstreams/v/targets/{key}");
        api.get(&path).await.expect(404);
    }
    let twice = json!({"target":"10.0.0.1:8000"});
    let refused = api
        .send("POST", "/upstreams/u/targets", twice.clone())
        .await
        .expect(409);
    assert_eq!(refused.json()["fields"]["target"], "10.0.0.1:8000");
    api.send("POST", "/upstreams/v/targets", twice)
        .await
        .expect(201);
    let all = api.get("/upstreams/u/targets/all").await.expect(200).json();
    assert_eq!(all["data"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn a_missing_target_is_not_made_by_its_address() {
    let api = Api::new().await;
    api.send("POST", "/upstreams", json!({"name":"u"}))
        .await
        .expect(201);
    let id = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    for key in [id, "10.0.0.1:80"] {
        let path = format!("/upstreams/u/targets/{key}");
        for method in ["PUT", "PATCH", "DELETE"] {
            let refused = api
                .send(method, &path, json!({"target":"10.0.0.1:80"}))
                .await;
            assert_eq!(refused.refusal(), (404, "Not found".to_owned()));
        }
    }
    // So that clients then create it under the id that they chose.
    let body = json!({"id":id,"target":"10.0.0.1:80"});
    let made = api
        .send("POST", "/upstreams/u/targets", body)
        .await
        .expect(201);
    assert_eq!(made.id(), id);
    api.get("/targets").await.expect(404);
    api.get(&format!("/targets/{id}")).await.expect(404);
}

#[tokio::test]
async fn an_upstream_takes_its_targets_along() {
    let api = Api::new().await;
    api.send("POST", "/upstreams", json!({"name":"u"}))
        .await
        .expect(201);
    api.send("POST", "/upstreams/u/targets", json!({"target":"a"}))
        .await
        .expect(201);
    api.send("DELETE", "/upstreams/u", json!({}))
        .await
        .expect(204);
    assert!(api.control.entities().targets.is_empty());
}

#[tokio::test]
async fn records_of_an_upstream_merge() {
    let api = Api::new().await;
    api.send(
        "PUT",
        "/upstreams/u",
        json!({"healthchecks":{"active":{"http_path":"/up"}}}),
    )
    .await
    .expect(200);
    let body = json!({"healthchecks":{"active":{"timeout":2,"healthy":{"interval":5}}}});
    let patched = api
        .send("PATCH", "/upstreams/u", body)
        .await
        .expect(200)
        .json();
    let active = &patched["healthchecks"]["active"];
    assert_eq!(active["http_path"], "/up");
    assert_eq!(active["timeout"], 2);
    assert_eq!(active["healthy"]["interval"], 5);
    assert_eq!(active["healthy"]["http_statuses"], json!([200, 302]));
    let cleared = json!({"healthchecks":{"active":{"http_path":null}}});
    let patched = api
        .send("PATCH", "/upstreams/u", cleared)
        .await
        .expect(200)
        .json();
    assert_eq!(patched["healthchecks"]["active"]["http_path"], Value::Null);
    assert_eq!(api.get("/upstreams/u").await.json(), patched);
}

#[tokio::test]
async fn tags_reach_over_all_kinds() {
    let api = Api::new().await;
    for (path, body) in [
        ("/services", json!({"name":"s","host":"h","tags":["t","x"]})),
        ("/consumers", json!({"username":"c","tags":["t"]})),
        ("/upstreams", json!({"name":"u","tags":["t"]})),
        (
            "/upstreams/u/targets",
            json!({"target":"a","tags":["t","y"]}),
        ),
        ("/ca_certificates", json!({"cert":ca(),"tags":["t"]})),
    ] {
        api.send("POST", path, body).await.expect(201);
    }
    let rows = api.get("/tags/t").await.expect(200).json();
    let mut kinds: Vec<&str> = rows["data"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|row| row["entity_name"].as_str())
        .collect();
    kinds.sort_unstable();
    assert_eq!(
        kinds,
        [
            "ca_certificates",
            "consumers",
            "services",
            "targets",
            "upstreams"
        ]
    );
    for (query, count) in [("t", 1), ("t,x", 1), ("t,y", 0), ("x/y", 1)] {
        let path = format!("/services?tags={query}");
        let list = api.get(&path).await.expect(200).json();
        assert_eq!(
            list["data"].as_array().map(Vec::len),
            Some(count),
            "{query}"
        );
    }
}

#[tokio::test]
async fn tags_come_in_pages() {
    let api = Api::new().await;
    for name in ["a", "b", "c"] {
        let body = json!({"name":name,"host":"h","tags":["t","u v"]});
        api.send("POST", "/services", body).await.expect(201);
    }
    for (path, all) in [("/tags", 6), ("/tags/u%20v", 3)] {
        let whole = api.get(path).await.expect(200).json();
        assert_eq!(whole.get("offset"), None, "{path}");
        let whole = whole["data"].as_array().expect("a list").clone();
        assert_eq!(whole.len(), all, "{path}");
        let mut rows = Vec::new();
        let mut next = format!("{path}?size=2");
        loop {
            let page = api.get(&next).await.expect(200).json();
            let data = page["data"].as_array().expect("a list");
            assert!((1..=2).contains(&data.len()), "{next}");
            rows.extend(data.iter().cloned());
            match page["next"].as_str() {
                Some(more) => more.clone_into(&mut next),
                None => break,
            }
        }
        assert_eq!(rows, whole, "{path}");
    }
    api.get("/tags?size=0").await.expect(400);
    api.get("/tags?offset=WyJhIl0=").await.expect(400);
    for (path, tag) in [
        ("/tags/a,b", "a,b"),
        ("/tags/%FF", "%FF"),
        ("/default/tags/%c3", "%c3"),
    ] {
        let wrong = api.get(path).await.expect(400).json();
        assert_eq!(wrong["code"], 10, "{path}");
        assert_eq!(wrong["name"], "invalid unique tag");
        let message = format!(
            "invalid tag '{tag}': expected printable ascii (except `,` and `/`) or valid utf-8 \
             sequences"
        );
        assert_eq!(wrong["message"], message);
        assert!(wrong.get("fields").is_none(), "{path}");
    }
    for path in ["/services/%FF", "/tags/%FF/x", "/tags%FF"] {
        api.get(path).await.expect(404);
    }
}

#[tokio::test]
async fn the_level_of_the_log_is_told_and_odd_ones_are_refused() {
    let api = Api::new().await;
    let told = api.get("/debug/node/log-level").await.expect(200).json();
    let level = told["message"].as_str().expect("a text");
    let level = level.strip_prefix("log level: ").expect("its name");
    let path = format!("/debug/node/log-level/{level}");
    let same = api.send("PUT", &path, json!({})).await.expect(200).json();
    assert_eq!(same["message"], format!("log level is already {level}"));
    for (path, message) in [
        ("/loud", "unknown log level: loud"),
        ("/trace", "unknown log level: trace"),
        (
            "/debug?timeout=-1",
            "timeout must be greater than or equal to 0",
        ),
    ] {
        let path = format!("/debug/node/log-level{path}");
        let refused = api.send("PUT", &path, json!({})).await.expect(400).json();
        assert_eq!(refused["message"], message);
    }
    let timers = api.get("/timers").await.expect(200).json();
    assert_eq!(timers["stats"]["sys"]["running"], 0);
}

#[tokio::test]
async fn every_kind_has_a_schema_and_validates() {
    let api = Api::new().await;
    let (cert, key) = pair();
    let id = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    for (kind, good, bad) in [
        ("services", json!({"host":"h"}), json!({"host":"h:1"})),
        (
            "routes",
            json!({"paths":["/"],"service":{"name":"later"}}),
            json!({}),
        ),
        ("consumers", json!({"username":"c"}), json!({})),
        ("upstreams", json!({"name":"u"}), json!({"name":"1.2.3.4"})),
        (
            "targets",
            json!({"target":"a","upstream":{"id":id}}),
            json!({"target":"a"}),
        ),
        (
            "certificates",
            json!({"cert":cert,"key":key,"snis":["a"]}),
            json!({"cert":cert}),
        ),
        (
            "snis",
            json!({"name":"a","certificate":{"id":id}}),
            json!({"name":"a"}),
        ),
        (
            "ca_certificates",
            json!({"cert":ca()}),
            json!({"cert":cert}),
        ),
        (
            "plugins",
            json!({"name":"throttling","config":{"rate":{"numberOfRequests":1,"duration":"1 s"}}}),
            json!({"name":"nothing"}),
        ),
    ] {
        let schema = api
            .get(&format!("/schemas/{kind}"))
            .await
            .expect(200)
            .json();
        assert!(
            schema["fields"]
                .as_array()
                .is_some_and(|fields| fields.len() > 4),
            "{kind}"
        );
        let path = format!("/schemas/{kind}/validate");
        let fine = api.send("POST", &path, good).await.expect(200).json();
        assert_eq!(fine["message"], "schema validation successful");
        assert_eq!(
            api.send("POST", &path, bad).await.expect(400).json()["code"],
            2,
            "{kind}"
        );
    }
    assert_eq!(
        api.get("/schemas/partials").await.refusal(),
        (404, "No entity named 'partials'".to_owned())
    );
    let fields = api.get("/schemas/vaults/env").await.expect(200).json();
    assert!(fields["fields"].is_array());
    assert_eq!(
        api.get("/schemas/vaults/other").await.refusal(),
        (404, "No vault named 'other'".to_owned())
    );
}

#[tokio::test]
async fn all_kinds_survive_a_restart() {
    let api = Api::new().await;
    api.send("POST", "/consumers", json!({"username":"c"}))
        .await
        .expect(201);
    api.send("POST", "/upstreams", json!({"name":"u","slow_start":5}))
        .await
        .expect(201);
    api.send("POST", "/upstreams/u/targets", json!({"target":"a"}))
        .await
        .expect(201);
    certificate(&api, json!(["a.example"])).await.expect(201);
    api.send("POST", "/ca_certificates", json!({"cert":ca()}))
        .await
        .expect(201);
    let before = api.control.entities();
    let url = format!("sqlite:{}", api._directory.path().join("x.db").display());
    let store = doorward_store::open(&url).await.expect("a store");
    let outbound = Arc::new(Outbound::new());
    let telemetry = Telemetry::default();
    let context = CompileContext {
        parts: Parts::new(api.clock.clone(), outbound, telemetry.metrics.clone()),
        internals: HashMap::new(),
        traffic: telemetry.traffic.clone(),
        resolver: doorward_gateway::resolve::Resolver::new(&Default::default(), Default::default()),
        upstream_verify: true,
        mount: None,
    };
    let again = Control::open(context, store, DeclaredEntities::default())
        .await
        .expect("opens")
        .entities();
    let docs = |entities: &doorward_gateway::entities::Entities| -> Vec<Value> {
        entities
            .items()
            .map(|item| Value::Object(item.doc()))
            .collect()
    };
    assert_eq!(docs(&before).len(), 6);
    assert_eq!(docs(&before), docs(&again));
}

#[tokio::test]
async fn what_is_not_there_is_told_before_a_method_is_refused() {
    let api = Api::new().await;
    let missing = "/routes/00000000-0000-4000-8000-000000000000/service";
    for path in [missing, "/routes/nope/service"] {
        let gone = api.send("DELETE", path, json!({})).await.expect(404);
        assert_eq!(gone.json()["message"], "Not found");
        api.send("POST", path, json!({})).await.expect(405);
    }
    let service = json!({"name":"s","host":"a.example"});
    api.send("POST", "/services", service).await.expect(201);
    let alone = json!({"name":"alone","paths":["/a"]});
    let route = json!({"name":"r","paths":["/r"],"service":{"name":"s"}});
    for (route, path, status) in [
        (alone, "/routes/alone/service", 404),
        (route, "/routes/r/service", 405),
    ] {
        api.send("POST", "/routes", route).await.expect(201);
        api.send("DELETE", path, json!({})).await.expect(status);
    }
    api.get("/routes/r/service").await.expect(200);
}

#[tokio::test]
async fn a_patch_of_no_plugin_finds_nothing() {
    let api = Api::new().await;
    let patch = json!({"enabled":false});
    for key in ["nope", "00000000-0000-4000-8000-000000000000"] {
        let path = format!("/plugins/{key}");
        let gone = api.send("PATCH", &path, patch.clone()).await.expect(404);
        assert_eq!(gone.json()["message"], "Not found");
        assert!(gone.json().get("code").is_none());
    }
}

#[tokio::test]
async fn a_reference_without_its_key_says_only_that() {
    let api = Api::new().await;
    let message = "schema violation (service.id: missing primary key)";
    for service in [
        json!({"foo":1}),
        json!({"protocol":"http"}),
        json!({"name":null}),
    ] {
        let route = json!({"paths":["/a"],"service":service});
        let refused = api.send("POST", "/routes", route).await.expect(400).json();
        assert_eq!(refused["message"], message);
        let fields = json!({"service":{"id":"missing primary key"}});
        assert_eq!(refused["fields"], fields);
    }
    // A form has no null but the empty text.
    let empty = api.form("POST", "/routes", "paths=/a&service.name=").await;
    assert_eq!(empty.refusal(), (400, message.to_owned()));
}

#[tokio::test]
async fn a_name_in_a_path_that_can_be_none_is_the_paths_fault() {
    let api = Api::new().await;
    for (path, body, name, message) in [
        (
            "/upstreams/1.2.3.4",
            json!({}),
            "invalid unique name",
            "Invalid name; no ip addresses allowed",
        ),
        (
            "/vaults/env",
            json!({"name":"env"}),
            "invalid unique prefix",
            "must not be one of: env",
        ),
    ] {
        let refused = api.send("PUT", path, body).await.expect(400).json();
        let wanted = json!({"code":10,"name":name,"message":message});
        assert_eq!(refused, wanted);
    }
}

#[tokio::test]
async fn the_url_of_a_service_leaves_out_its_query() {
    let api = Api::new().await;
    for (url, path) in [
        ("http://a.example/p?q=1#f", json!("/p")),
        ("http://a.example/?q", json!("/")),
        ("http://a.example?q", Value::Null),
    ] {
        let made = api.send("POST", "/services", json!({"url":url})).await;
        let made = made.expect(201).json();
        assert_eq!((&made["host"], &made["path"]), (&json!("a.example"), &path));
    }
}
