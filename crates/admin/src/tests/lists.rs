//! Paging, filters, schemas and the information endpoints
//! (gateway-admin-api §3, §7).

use super::*;

async fn with_services(count: usize) -> Api {
    let api = Api::new().await;
    for number in 0..count {
        let tags = match number % 3 {
            0 => json!(["a", "b"]),
            1 => json!(["b"]),
            _ => Value::Null,
        };
        let body = json!({"name": format!("s{number}"), "host": "h", "tags": tags});
        api.post("/services", body).await.expect(201);
    }
    api
}

fn names(reply: &Reply) -> Vec<String> {
    let body = reply.json();
    let data = body["data"].as_array().expect("a list");
    data.iter()
        .map(|record| record["name"].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[tokio::test]
async fn an_empty_list_is_a_list_without_offset() {
    let api = Api::new().await;
    assert_eq!(
        api.get("/services").await.expect(200).json(),
        json!({"data":[],"next":null})
    );
    assert_eq!(
        api.get("/plugins").await.expect(200).json(),
        json!({"data":[],"next":null,"total":0})
    );
    for path in [
        "/routes",
        "/consumers",
        "/consumer_groups",
        "/upstreams",
        "/certificates",
        "/snis",
        "/ca_certificates",
    ] {
        assert_eq!(api.get(path).await.expect(200).json()["data"], json!([]));
    }
    api.get("/targets").await.expect(404);
}

#[tokio::test]
async fn following_next_meets_every_record_once() {
    let api = with_services(7).await;
    let mut path = "/services?size=3".to_owned();
    let mut seen = Vec::new();
    loop {
        let page = api.get(&path).await.expect(200);
        seen.extend(names(&page));
        let body = page.json();
        match body["next"].as_str() {
            Some(next) => {
                assert!(next.starts_with("/services?offset="), "{next}");
                assert!(next.ends_with("&size=3"), "{next}");
                assert!(body["offset"].is_string());
                path = next.to_owned();
            }
            None => {
                assert!(body.get("offset").is_none());
                break;
            }
        }
    }
    seen.sort();
    assert_eq!(seen, ["s0", "s1", "s2", "s3", "s4", "s5", "s6"]);
}

#[tokio::test]
async fn a_page_that_ends_with_the_last_record_has_no_next() {
    let api = with_services(3).await;
    let page = api.get("/services?size=3").await.json();
    assert_eq!(page["next"], Value::Null);
}

#[tokio::test]
async fn tags_filter_by_all_or_by_any() {
    let api = with_services(6).await;
    assert_eq!(names(&api.get("/services?tags=a,b").await).len(), 2);
    assert_eq!(names(&api.get("/services?tags=a/b").await).len(), 4);
    assert_eq!(names(&api.get("/services?tags=b").await).len(), 4);
    assert_eq!(names(&api.get("/services?tags=none").await).len(), 0);
    let page = api.get("/services?tags=b&size=1").await.json();
    let next = page["next"].as_str().expect("more");
    assert!(next.contains("&tags=b&size=1"), "{next}");
    assert_eq!(
        api.get("/tags/a").await.json()["data"]
            .as_array()
            .map(Vec::len),
        Some(2)
    );
    assert_eq!(
        api.get("/tags").await.json()["data"]
            .as_array()
            .map(Vec::len),
        Some(6)
    );
}

const DECLARED: &str = "_format_version: \"3.0\"
services:
- name: declared
  host: h
  tags: [t]
  routes: [{name: declared-route, paths: [/a]}]
upstreams:
- name: declared.test
  targets: [{target: '10.0.0.1:80'}]
consumers:
- {username: ada, custom_id: '7'}
";

#[tokio::test]
async fn what_files_declare_is_listed_when_it_is_asked_for() {
    let api = Api::with(DECLARED, None).await;
    for name in ["a", "b", "c"] {
        let body = json!({"name":name,"host":"h","tags":["t"]});
        api.post("/services", body).await.expect(201);
    }
    api.post("/services/declared/routes", json!({"paths":["/b"]}))
        .await
        .expect(201);
    for (path, stored, all) in [
        ("/services", 3, 4),
        ("/services?tags=t", 3, 4),
        ("/routes", 1, 2),
        ("/services/declared/routes", 1, 2),
        ("/upstreams", 0, 1),
        ("/upstreams/declared.test/targets", 0, 1),
        ("/consumers", 0, 1),
        ("/tags", 3, 4),
        ("/tags/t", 3, 4),
    ] {
        let count = async |query: &str| {
            let sign = if path.contains('?') { '&' } else { '?' };
            let reply = api.get(&format!("{path}{sign}{query}")).await.expect(200);
            reply.json()["data"].as_array().map(Vec::len)
        };
        assert_eq!(count("").await, Some(stored), "{path}");
        assert_eq!(count("declared=false").await, Some(stored), "{path}");
        assert_eq!(count("declared=true").await, Some(all), "{path}");
        assert_eq!(count("declared=1").await, Some(all), "{path}");
    }
    assert_eq!(api.get("/consumers").await.json()["total"], 0);
    assert_eq!(api.get("/consumers?declared=1").await.json()["total"], 1);
    let refused = api.get("/services?declared=maybe").await.refusal();
    let message = "invalid option (declared: expected true or false)";
    assert_eq!(refused, (400, message.to_owned()));
}

#[tokio::test]
async fn pages_with_declared_records_lead_to_such_pages() {
    let api = Api::with(DECLARED, None).await;
    for name in ["a", "b"] {
        let route = json!({"name":name,"paths":[format!("/{name}")]});
        api.post("/services/declared/routes", route)
            .await
            .expect(201);
    }
    for start in [
        "/routes?size=1&declared=true",
        "/services/declared/routes?size=1&declared=true",
    ] {
        let mut path = start.to_owned();
        let mut seen = Vec::new();
        loop {
            let page = api.get(&path).await.expect(200);
            seen.extend(names(&page));
            match page.json()["next"].as_str() {
                Some(next) => path = next.to_owned(),
                None => break,
            }
        }
        seen.sort();
        assert_eq!(seen, ["a", "b", "declared-route"], "{start}");
    }
}

#[tokio::test]
async fn a_declared_record_is_found_by_its_key_and_says_its_file_when_asked() {
    let api = Api::with(DECLARED, None).await;
    let id = api.get("/services/declared").await.expect(200).id();
    for path in [
        "/services/declared".to_owned(),
        format!("/services/{id}"),
        "/routes/declared-route/service".to_owned(),
        "/services/declared/routes/declared-route".to_owned(),
        "/upstreams/declared.test/targets/10.0.0.1:80".to_owned(),
        "/consumers/ada".to_owned(),
    ] {
        let plain = api.get(&path).await.expect(200).json();
        assert_eq!(plain.get("declared_in"), None, "{path}");
        let asked = api.get(&format!("{path}?declared=true")).await.expect(200);
        assert_eq!(asked.json()["declared_in"], "conf/routes.yaml", "{path}");
    }
    // A look-up by a unique field is no list.
    let found = api.get("/consumers?custom_id=7").await.expect(200).json();
    assert_eq!(found["data"][0]["username"], "ada");
    // The gateway still works with what is not listed.
    let used = api.get("/upstreams/declared.test/health").await.expect(200);
    assert_eq!(used.json()["data"][0]["target"], "10.0.0.1:80");
}

#[tokio::test]
async fn nested_lists_page_without_filters_in_next() {
    let api = Api::with_route().await;
    for path in ["/a", "/b"] {
        api.post("/services/s/routes", json!({"paths":[path]}))
            .await
            .expect(201);
    }
    api.post("/routes", json!({"paths":["/other"]}))
        .await
        .expect(201);
    let page = api.get("/services/s/routes?size=2").await.json();
    let next = page["next"].as_str().expect("more");
    assert!(next.starts_with("/services/s/routes?offset="), "{next}");
    assert!(!next.contains("size"), "{next}");
    assert_eq!(
        api.get(next).await.json()["data"].as_array().map(Vec::len),
        Some(1)
    );
}

#[tokio::test]
async fn plugins_are_filtered_by_any_field() {
    let api = Api::with_route().await;
    let service = api.get("/services/s").await.id();
    let plugin = json!({"name":"openid-connect","config":{"issuer":"http://i"}});
    api.post("/services/s/plugins", plugin.clone())
        .await
        .expect(201);
    api.post("/plugins", plugin).await.expect(201);
    for (query, count) in [
        ("name=openid-connect".to_owned(), 2),
        ("name=other".to_owned(), 0),
        (format!("service_id={service}"), 1),
        ("enabled=true".to_owned(), 2),
    ] {
        let body = api.get(&format!("/plugins?{query}")).await.json();
        assert_eq!(body["total"], count, "{query}");
    }
}

#[tokio::test]
async fn options_that_make_no_sense_are_refused() {
    let api = Api::new().await;
    for (query, code, message) in [
        ("size=x", 9, "size must be a number"),
        ("size=0", 9, "size must be an integer between 1 and 1000"),
        ("size=1001", 9, "size must be an integer between 1 and 1000"),
        ("size=1.5", 9, "size must be an integer between 1 and 1000"),
        (
            "offset=x",
            7,
            "'x' is not a valid offset: bad base64 encoding",
        ),
        ("tags=", 11, "invalid option (tags: cannot be null)"),
        (
            "tags=a,b/c",
            11,
            "invalid option (tags: invalid filter syntax)",
        ),
        (
            "tags=1,2,3,4,5,6",
            11,
            "invalid option (tags: cannot query more than 5 tags)",
        ),
    ] {
        let body = api
            .get(&format!("/services?{query}"))
            .await
            .expect(400)
            .json();
        assert_eq!(
            (&body["code"], &body["message"]),
            (&json!(code), &json!(message))
        );
    }
    let body = api.get("/services?tags=a,b/c").await.json();
    assert_eq!(body["options"], json!({"tags":"invalid filter syntax"}));
    assert_eq!(body["name"], "invalid options");
}

#[tokio::test]
async fn the_root_tells_version_and_plugins() {
    let api = Api::with_route().await;
    api.post(
        "/plugins",
        json!({"name":"openid-connect","config":{"issuer":"http://i"}}),
    )
    .await
    .expect(201);
    let reply = api.get("/").await.expect(200);
    let body = reply.json();
    assert!(
        body["version"]
            .as_str()
            .is_some_and(|v| v.starts_with("3."))
    );
    assert!(body["configuration"]["database"].is_string());
    assert_eq!(
        body["plugins"]["available_on_server"]["openid-connect"]["priority"],
        1050
    );
    assert_eq!(
        body["plugins"]["enabled_in_cluster"],
        json!(["openid-connect"])
    );
    let enabled = api.get("/plugins/enabled").await.json();
    assert!(
        enabled["enabled_plugins"]
            .as_array()
            .is_some_and(|l| l.contains(&json!("throttling")))
    );
}

#[tokio::test]
async fn the_root_tells_where_the_process_listens() {
    let api = Api::new().await;
    let configuration = api.get("/").await.expect(200).json()["configuration"].clone();
    let proxy = configuration["proxy_listeners"].as_array().expect("a list");
    let told = |at: usize| {
        let listener = &proxy[at];
        let told = (&listener["ip"], &listener["port"], &listener["ssl"]);
        (
            json!([told.0, told.1, told.2]),
            listener["listener"].clone(),
        )
    };
    let plain = (
        json!(["127.0.0.1", 8000, false]),
        json!("127.0.0.1:8000 http2 reuseport"),
    );
    let tls = (
        json!(["[::]", 8443, true]),
        json!("[::]:8443 ssl http2 reuseport"),
    );
    assert_eq!((told(0), told(1)), (plain, tls));
    assert_eq!(configuration["admin_listeners"], json!([]));
}

#[tokio::test]
async fn the_status_tells_of_the_store_and_of_connections() {
    let api = Api::new().await;
    let body = api.get("/status").await.expect(200).json();
    assert_eq!(body["database"], json!({"reachable":true}));
    for field in [
        "connections_active",
        "connections_accepted",
        "total_requests",
    ] {
        assert!(body["server"][field].is_number(), "{field}");
    }
    let metrics = api.get("/metrics").await.expect(200);
    assert!(metrics.text.contains("doorward_build_info"));
}

#[test]
fn the_page_of_the_admin_api_names_every_kind_of_endpoint() {
    let page = include_str!("../../../../docs/admin-api.md");
    for endpoint in crate::endpoints::all() {
        let parts: Vec<_> = endpoint.path.split('/').skip(1).take(2).collect();
        let of_group = ["broker", "openid-connect"].contains(&parts[0]);
        let named = match (of_group, parts.as_slice()) {
            (true, [group, part, ..]) => format!("`/{group}/{part}"),
            (_, parts) => format!("`/{}", parts[0]),
        };
        assert!(page.contains(&named), "{named}");
    }
}

#[tokio::test]
async fn endpoints_are_listed_as_patterns() {
    let api = Api::new().await;
    let body = api.get("/endpoints").await.expect(200).json();
    let list = body["data"].as_array().expect("a list");
    for path in [
        "/services/{services}/routes",
        "/consumers/{consumers}/key-auth/{keyauth_credentials}",
        "/basic-auths/{basicauth_credentials}/consumer",
        "/jwts/{jwt_secrets}",
        "/hmac-auths/{hmacauth_credentials}",
        "/oauth2/{oauth2_credentials}",
        "/oauth2_tokens/{oauth2_tokens}",
        "/consumers/{consumers}/acls/{acls}",
    ] {
        assert!(list.contains(&json!(path)), "{path}");
    }
}

#[tokio::test]
async fn schemas_are_shown() {
    let api = Api::new().await;
    let services = api.get("/schemas/services").await.expect(200).json();
    let fields = services["fields"].as_array().expect("a list");
    assert!(fields.contains(&json!({"host":{"type":"string","required":true}})));
    assert!(fields.contains(
        &json!({"port":{"type":"integer","between":[0,65535],"default":80,"required":true}})
    ));
    let plugin = api
        .get("/schemas/plugins/openid-connect")
        .await
        .expect(200)
        .json();
    let config = plugin["fields"]
        .as_array()
        .and_then(|fields| fields.iter().find_map(|field| field.get("config")))
        .expect("a config");
    assert_eq!(config["type"], "record");
    assert_eq!(config["required"], true);
    let legacy = api
        .get("/plugins/schema/openid-connect")
        .await
        .expect(200)
        .json();
    assert_eq!(legacy["fields"]["leeway"]["default"], 0);
    let tags = api.get("/schemas/tags").await.expect(200).json();
    let fields = tags["fields"].as_array().expect("a list").iter();
    let names: Vec<_> = fields
        .filter_map(|field| field.as_object())
        .flat_map(|field| field.keys())
        .collect();
    assert_eq!(names, ["tag", "entity_name", "entity_id"]);
    assert_eq!(
        api.get("/schemas/nope").await.refusal(),
        (404, "No entity named 'nope'".to_owned())
    );
    assert_eq!(
        api.get("/schemas/plugins/nope").await.refusal(),
        (404, "No plugin named 'nope'".to_owned())
    );
}

#[tokio::test]
async fn defaults_of_a_schema_are_those_of_the_records() {
    let api = Api::with_route().await;
    for (entity, path) in [("services", "/services/s"), ("routes", "/routes/r")] {
        let schema = api.get(&format!("/schemas/{entity}")).await.json();
        let record = api.get(path).await.json();
        for field in schema["fields"].as_array().expect("a list") {
            for (name, about) in field.as_object().expect("a field") {
                // Programs compare records; fields of our own are there where they are used.
                let rare = ["proxy_protocol", "socket"].contains(&&**name);
                assert_eq!(record.get(name).is_some(), !rare, "{entity}.{name}");
                if let Some(default) = about.get("default") {
                    assert_eq!(record[name], *default, "{entity}.{name}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_record_is_validated_without_following_references() {
    let api = Api::new().await;
    let dangling = json!({"id":"6ba7b810-9dad-11d1-80b4-00c04fd430c8"});
    for (path, body) in [
        ("/schemas/services/validate", json!({"host":"h"})),
        (
            "/schemas/routes/validate",
            json!({"paths":["/a"],"service":dangling}),
        ),
        (
            "/schemas/routes/validate",
            json!({"paths":["/a"],"service":{"name":"x"}}),
        ),
        (
            "/schemas/plugins/validate",
            json!({"name":"openid-connect","service":dangling,"config":{"issuer":"http://i"}}),
        ),
    ] {
        let reply = api.post(path, body).await.expect(200);
        assert_eq!(
            reply.json(),
            json!({"message":"schema validation successful"})
        );
    }
    assert_eq!(
        api.post("/schemas/services/validate", json!({}))
            .await
            .refusal(),
        (
            400,
            "schema violation (host: required field missing)".to_owned()
        )
    );
    assert_eq!(api.get("/services").await.json()["data"], json!([]));
}

#[tokio::test]
async fn a_new_consumer_has_no_credentials_and_a_stranger_is_not_found() {
    let api = Api::new().await;
    api.post("/consumers", json!({"username": "bob"}))
        .await
        .expect(201);
    for kind in [
        "acls",
        "basic-auth",
        "hmac-auth",
        "jwt",
        "key-auth",
        "oauth2",
    ] {
        let list = api.get(&format!("/consumers/bob/{kind}")).await.expect(200);
        assert_eq!(list.json(), json!({"data": [], "next": null}));
        api.get(&format!("/consumers/eve/{kind}")).await.expect(404);
    }
}
