//! Groups of consumers: their members over the Admin API and in files, and the plugins
//! that are for them.

mod files;

use reqwest::Method;
use serde_json::{Value, json};

use crate::stores::postgres::Cluster;
use crate::support::door::IDENTITY;
use crate::support::{Door, Setup, Upstream, eventually};

/// Anna is in gold and silver, Bert in silver, Carl in none.
const FILE: &str = "
- name: api
  url: @UPSTREAM@
  routes:
  - {name: one, paths: [/one]}
  - {name: two, paths: [/two]}
  plugins: [{name: key-auth}]
consumers:
- {username: anna, keyauth_credentials: [{key: annas}], groups: [{name: silver}, {name: gold}]}
- {username: bert, keyauth_credentials: [{key: berts}]}
- {username: carl, keyauth_credentials: [{key: carls}]}
consumer_groups:
- name: gold
- name: silver
  consumers: [{username: bert}]
";

async fn door(more: &str) -> (Door, Upstream) {
    let upstream = Upstream::echo().await;
    let file = FILE.replace("@UPSTREAM@", &upstream.url("")) + more;
    let door = Setup::new().services(&file).start().await;
    (door, upstream)
}

/// A door whose records are all of the Admin API: `anna` with a key, on `one.test`.
async fn stored() -> (Door, Upstream) {
    let upstream = Upstream::echo().await;
    let door = Setup::new().start().await;
    fill(&door, &upstream).await;
    (door, upstream)
}

/// Makes these records.
async fn fill(door: &Door, upstream: &Upstream) {
    door.expose("one", &upstream.url(""), "one.test").await;
    for (path, body) in [
        ("/plugins", json!({"name": "key-auth"})),
        ("/consumers", json!({"username": "anna"})),
        ("/consumers/anna/key-auth", json!({"key": "annas"})),
        ("/consumers", json!({"username": "bert"})),
        (
            "/consumer_groups",
            json!({"name": "gold", "tags": ["tier"]}),
        ),
        ("/consumer_groups", json!({"name": "silver"})),
    ] {
        door.admin_post(path, &body).await.expect(201);
    }
}

/// The status that a client of this key gets.
async fn status(door: &Door, path: &str, key: &str) -> u16 {
    door.get_with(path, &[("apikey", key)]).await.status
}

/// A plugin that answers with a status, at a place.
fn ends(status: u16, place: &Value) -> Value {
    let mut plugin = json!({"name": "request-termination", "config": {"status_code": status}});
    if let (Some(plugin), Some(place)) = (plugin.as_object_mut(), place.as_object()) {
        plugin.extend(place.clone());
    }
    plugin
}

fn names(list: &Value, name: &str) -> Vec<String> {
    let list = list.as_array().expect("a list").iter();
    let mut names: Vec<String> = list
        .map(|one| one[name].as_str().expect("a name").to_owned())
        .collect();
    names.sort();
    names
}

async fn members(door: &Door, path: &str) -> Vec<String> {
    let listed = door.admin_get(path).await.expect(200).json();
    names(&listed["data"], "username")
}

#[tokio::test]
async fn a_group_has_a_name_of_its_own_and_is_made_changed_and_deleted() {
    let (door, _upstream) = stored().await;
    let again = json!({"name": "gold"});
    let taken = door
        .admin_post("/consumer_groups", &again)
        .await
        .expect(409);
    assert_eq!(
        taken.json()["message"],
        "UNIQUE violation detected on '{name=\"gold\"}'"
    );
    let nameless = door.admin_post("/consumer_groups", &json!({})).await;
    assert_eq!(
        nameless.expect(400).json()["fields"],
        json!({"name": "required field missing"})
    );
    let tagged = door
        .admin_get("/consumer_groups?tags=tier")
        .await
        .expect(200);
    assert_eq!(names(&tagged.json()["data"], "name"), ["gold"]);
    let page = door.admin_get("/consumer_groups?size=1").await.expect(200);
    assert!(page.json()["next"].is_string());
    // What the imitated gateway's client reads: the group in a member of its own.
    let shown = door
        .admin_get("/consumer_groups/gold?list_consumers=false")
        .await
        .expect(200)
        .json();
    let id = shown["consumer_group"]["id"].as_str().expect("an id");
    assert_eq!(shown.as_object().map(serde_json::Map::len), Some(1));
    let path = format!("/consumer_groups/{id}");
    let change = json!({"name": "lead"});
    let changed = door.admin_json(Method::PATCH, &path, &change).await;
    assert_eq!(changed.expect(200).json()["name"], "lead");
    let put = json!({"name": "gold", "id": id});
    let put = door.admin_json(Method::PUT, &path, &put).await.expect(200);
    assert_eq!(put.json()["tags"], Value::Null);
    door.admin_delete(&path).await.expect(204);
    door.admin_get(&path).await.expect(404);
    door.admin_delete(&path).await.expect(204);
}

#[tokio::test]
async fn members_are_added_listed_and_parted_from_either_side() {
    let (door, _upstream) = stored().await;
    let both = json!({"consumer": ["anna", "bert"]});
    let added = door
        .admin_post("/consumer_groups/gold/consumers", &both)
        .await
        .expect(201)
        .json();
    assert_eq!(added["consumer_group"]["name"], "gold");
    assert_eq!(names(&added["consumers"], "username"), ["anna", "bert"]);
    let silver = json!({"group": "silver"});
    let added = door
        .admin_post("/consumers/anna/consumer_groups", &silver)
        .await
        .expect(201)
        .json();
    assert_eq!(added["consumer"]["username"], "anna");
    assert_eq!(names(&added["consumer_groups"], "name"), ["silver"]);
    let listed = door
        .admin_get("/consumers/anna/consumer_groups")
        .await
        .expect(200)
        .json();
    assert_eq!(names(&listed["data"], "name"), ["gold", "silver"]);
    assert_eq!(listed["data"], listed["consumer_groups"]);
    let shown = door.admin_get("/consumer_groups/gold").await.expect(200);
    assert_eq!(
        names(&shown.json()["consumers"], "username"),
        ["anna", "bert"]
    );
    let path = "/consumer_groups/gold/consumers/anna";
    let one = door.admin_get(path).await.expect(200).json();
    assert_eq!(one["consumer"]["username"], "anna");
    let one = door
        .admin_get("/consumers/anna/consumer_groups/silver")
        .await;
    assert_eq!(one.expect(200).json()["consumer_group"]["name"], "silver");
    door.admin_delete(path).await.expect(204);
    door.admin_delete(path).await.expect(404);
    door.admin_get(path).await.expect(404);
    assert_eq!(
        members(&door, "/consumer_groups/gold/consumers").await,
        ["bert"]
    );
    door.admin_delete("/consumer_groups/gold/consumers")
        .await
        .expect(204);
    assert!(
        members(&door, "/consumer_groups/gold/consumers")
            .await
            .is_empty()
    );
    door.admin_delete("/consumers/anna/consumer_groups")
        .await
        .expect(204);
    let left = door.admin_get("/consumers/anna/consumer_groups").await;
    assert_eq!(left.expect(200).json()["data"], json!([]));
}

#[tokio::test]
async fn members_are_named_in_forms_too() {
    let (door, _upstream) = stored().await;
    let path = "/consumer_groups/gold/consumers";
    let both = [("consumer", "anna"), ("consumer", "bert")];
    door.admin_form(path, &both).await.expect(201);
    assert_eq!(members(&door, path).await, ["anna", "bert"]);
    let path = "/consumers/anna/consumer_groups";
    let group = [("group", "silver")];
    door.admin_form(path, &group).await.expect(201);
}

#[tokio::test]
async fn the_calls_of_the_imitated_gateways_tool_come_to_rest() {
    let (door, _upstream) = stored().await;
    let id = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    let group = json!({"id": id, "name": "lead", "tags": ["team"]});
    let path = format!("/consumer_groups/{id}");
    let made = door.admin_json(Method::PUT, &path, &group).await;
    assert_eq!(made.expect(200).json()["name"], "lead");
    let anna = door.admin_get("/consumers/anna").await.expect(200).json();
    let member = json!({"consumer": anna["id"]});
    let added = door.admin_post(&format!("{path}/consumers"), &member).await;
    let added = added.expect(201).json();
    assert_eq!(added["consumer_group"]["id"], id);
    let plugin = ends(418, &json!({"consumer_group": {"id": id}}));
    let plugin = door
        .admin_post("/plugins", &plugin)
        .await
        .expect(201)
        .json();
    // It reads groups, each by its name, their members, and plugins for themselves.
    let listed = door
        .admin_get("/consumer_groups?size=1000&tags=team")
        .await
        .expect(200)
        .json();
    assert_eq!(names(&listed["data"], "name"), ["lead"]);
    let read = "/consumer_groups/lead?list_consumers=false";
    let read = door.admin_get(read).await.expect(200).json();
    assert_eq!(read, json!({"consumer_group": listed["data"][0]}));
    let all = members(&door, "/consumer_groups/lead/consumers").await;
    assert_eq!(all, ["anna"]);
    let plugins = door
        .admin_get("/plugins?size=1000")
        .await
        .expect(200)
        .json();
    let plugins = plugins["data"].as_array().expect("a list").iter();
    let of_group = plugins.filter(|one| one["consumer_group"] == json!({"id": id}));
    let of_group: Vec<_> = of_group.map(|one| one["id"].clone()).collect();
    assert_eq!(of_group, [plugin["id"].clone()]);
    let anna = anna["id"].as_str().expect("an id");
    let member = format!("{path}/consumers/{anna}");
    door.admin_delete(&member).await.expect(204);
    door.admin_delete(&path).await.expect(204);
}

#[tokio::test]
async fn a_list_of_members_has_pages() {
    let (door, _upstream) = stored().await;
    let both = json!({"consumer": ["anna", "bert"]});
    let path = "/consumer_groups/gold/consumers";
    door.admin_post(path, &both).await.expect(201);
    let first = door
        .admin_get(&format!("{path}?size=1"))
        .await
        .expect(200)
        .json();
    let next = first["next"].as_str().expect("a second page");
    let second = door.admin_get(next).await.expect(200).json();
    let mut all = names(&first["data"], "username");
    all.extend(names(&second["data"], "username"));
    all.sort();
    assert_eq!(all, ["anna", "bert"]);
    let found = door.admin_get(&format!("{path}?q=ber")).await.expect(200);
    assert_eq!(names(&found.json()["data"], "username"), ["bert"]);
    door.admin_get(&format!("{path}?size=0")).await.expect(400);
}

#[tokio::test]
async fn members_that_there_are_not_are_refused_and_then_nobody_is_added() {
    let (door, _upstream) = stored().await;
    let path = "/consumer_groups/gold/consumers";
    for (body, status) in [
        (json!({"consumer": ["anna", "nobody"]}), 404),
        (json!({"consumer": ["anna", "anna"]}), 409),
        (json!({"consumer": []}), 400),
        (json!({"consumer": 7}), 400),
        (json!({"consumer": {"id": "anna"}}), 400),
        (json!({}), 400),
        (json!({"consumer": "anna", "tags": []}), 400),
    ] {
        let answer = door.admin_post(path, &body).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.body);
    }
    assert!(members(&door, path).await.is_empty());
    let anna = json!({"consumer": "anna"});
    door.admin_post(path, &anna).await.expect(201);
    let again = door.admin_post(path, &anna).await.expect(409).json();
    assert_eq!(again["name"], "unique constraint violation");
    for path in [
        "/consumer_groups/none/consumers",
        "/consumers/none/consumer_groups",
    ] {
        let body = json!({"consumer": "anna", "group": "gold"});
        door.admin_get(path).await.expect(404);
        door.admin_delete(path).await.expect(404);
        assert!(door.admin_post(path, &body).await.status >= 400, "{path}");
    }
}

#[tokio::test]
async fn a_consumer_belongs_to_a_hundred_groups_at_most() {
    let (door, _upstream) = stored().await;
    let mut groups = vec!["gold".to_owned()];
    for number in 1..=100 {
        let name = format!("g{number}");
        let group = json!({"name": name});
        door.admin_post("/consumer_groups", &group)
            .await
            .expect(201);
        groups.push(name);
    }
    let path = "/consumers/anna/consumer_groups";
    let all = json!({"group": groups});
    let refused = door.admin_post(path, &all).await.expect(400);
    assert!(
        refused.body.contains("100 groups at most"),
        "{}",
        refused.body
    );
    let most = json!({"group": groups[1..]});
    door.admin_post(path, &most).await.expect(201);
    door.admin_post(path, &json!({"group": "gold"}))
        .await
        .expect(400);
}

#[tokio::test]
async fn plugins_and_members_of_a_group_go_with_it_and_members_with_their_consumer() {
    let (mut door, _upstream) = stored().await;
    let both = json!({"consumer": ["anna", "bert"]});
    let path = "/consumer_groups/gold/consumers";
    door.admin_post(path, &both).await.expect(201);
    let plugin = ends(418, &json!({}));
    let made = door
        .admin_post("/consumer_groups/gold/plugins", &plugin)
        .await
        .expect(201)
        .json();
    let plugin = format!("/plugins/{}", made["id"].as_str().expect("an id"));
    let shown = door.admin_get(&format!("{plugin}/consumer_group")).await;
    assert_eq!(shown.expect(200).json()["name"], "gold");
    let listed = door.admin_get("/consumer_groups/gold/plugins").await;
    assert_eq!(listed.expect(200).json()["data"][0]["id"], made["id"]);
    let group = made["consumer_group"]["id"].as_str().expect("an id");
    let chosen = format!("/plugins?consumer_group_id={group}");
    let chosen = door.admin_get(&chosen).await.expect(200).json();
    assert_eq!(chosen["total"], 1);
    door.admin_delete("/consumers/bert").await.expect(204);
    assert_eq!(members(&door, path).await, ["anna"]);
    // What was acknowledged is there after a crash.
    door.kill();
    door.start().await;
    assert_eq!(members(&door, path).await, ["anna"]);
    let host = [("apikey", "annas"), ("host", "one.test")];
    assert_eq!(door.get_with("/", &host).await.status, 418);
    let ids = door
        .admin_get("/consumer_groups/gold")
        .await
        .expect(200)
        .json();
    let id = |record: &Value| record["id"].as_str().expect("an id").to_owned();
    let (gold, anna) = (id(&ids["consumer_group"]), id(&ids["consumers"][0]));
    let came = door
        .admin_get("/audit?kind=entity.create")
        .await
        .expect(200);
    let member = format!("\"target\":\"consumer_groups/{gold}/consumers/{anna}\"");
    assert!(came.body.contains(&member), "{}", came.body);
    door.admin_delete("/consumer_groups/gold").await.expect(204);
    assert_eq!(door.get_with("/", &host).await.status, 200);
    door.admin_get(&plugin).await.expect(404);
    let left = door.admin_get("/consumers/anna/consumer_groups").await;
    assert_eq!(left.expect(200).json()["data"], json!([]));
    let told = door.admin_get("/audit?kind=entity.delete&size=1").await;
    let told = told.expect(200).body;
    let ended = format!("delete consumer_groups/{gold}/consumers/{anna}");
    assert!(told.contains(&ended), "{told}");
}

#[tokio::test]
async fn the_most_specific_plugin_of_callers_routes_and_services_runs() {
    let (door, _upstream) = door("").await;
    let [anna, gold, route, service] =
        ["anna", "gold", "one", "api"].map(|name| json!({"name": name}));
    // From the most specific place down, as the imitated gateway documents it.
    let places = [
        json!({"consumer": {"username": "anna"}, "route": route, "service": service}),
        json!({"consumer_group": gold, "route": route, "service": service}),
        json!({"consumer": anna, "route": route}),
        json!({"consumer": anna, "service": service}),
        json!({"consumer_group": gold, "route": route}),
        json!({"consumer_group": gold, "service": service}),
        json!({"route": route, "service": service}),
        json!({"consumer": anna}),
        json!({"consumer_group": gold}),
        json!({"route": route}),
        json!({"service": service}),
        json!({}),
    ];
    let mut made = Vec::new();
    for (number, place) in (500..).zip(&places).collect::<Vec<_>>().into_iter().rev() {
        let plugin = door.admin_post("/plugins", &ends(number, place)).await;
        let plugin = plugin.expect(201).json();
        made.push(plugin["id"].as_str().expect("an id").to_owned());
        assert_eq!(status(&door, "/one", "annas").await, number, "{place}");
    }
    // And up again.
    for number in 500..511 {
        assert_eq!(status(&door, "/one", "annas").await, number);
        let id = made.pop().expect("a plugin");
        door.admin_delete(&format!("/plugins/{id}"))
            .await
            .expect(204);
    }
    // Nobody else meets plugins of a group.
    let plugin = ends(500, &json!({"consumer_group": gold}));
    door.admin_post("/plugins", &plugin).await.expect(201);
    assert_eq!(status(&door, "/one", "berts").await, 511);
    assert_eq!(status(&door, "/one", "annas").await, 500);
}

#[tokio::test]
async fn of_two_groups_of_a_consumer_the_plugin_of_the_first_by_name_runs() {
    let more = "plugins:
- {name: request-termination, consumer_group: silver, config: {status_code: 501}}
- {name: request-termination, consumer_group: gold, config: {status_code: 502}}
- {name: response-transformer, consumer_group: silver, config: {add: {headers: ['x-tier:silver']}}}
";
    let (door, _upstream) = door(more).await;
    assert_eq!(status(&door, "/one", "annas").await, 502);
    assert_eq!(status(&door, "/one", "berts").await, 501);
    assert_eq!(status(&door, "/one", "carls").await, 200);
    let anna = door.get_with("/one", &[("apikey", "annas")]).await;
    assert_eq!(
        anna.header("x-tier"),
        "silver",
        "another plugin of another group"
    );
    let carl = door.get_with("/one", &[("apikey", "carls")]).await;
    assert_eq!(carl.header("x-tier"), "");
    let asked = json!({"url": door.proxy_url("/one"), "consumer": "anna"});
    let explained = door.admin_post("/explain", &asked).await.expect(200).body;
    assert!(
        explained.contains("\"scope\":\"consumer_group\""),
        "{explained}"
    );
    let reason = "that of a group whose name comes before runs";
    assert!(explained.contains(reason), "{explained}");
}

#[tokio::test]
async fn a_limit_of_a_group_counts_its_members_alone() {
    let more = "plugins:
- {name: rate-limiting, config: {hour: 1000}}
- {name: rate-limiting, consumer_group: silver, config: {hour: 2}}
";
    let (door, _upstream) = door(more).await;
    for expected in [200, 200, 429] {
        assert_eq!(status(&door, "/one", "berts").await, expected);
    }
    for _ in 0..3 {
        assert_eq!(status(&door, "/one", "carls").await, 200);
    }
}

#[tokio::test]
async fn members_come_and_go_while_the_gateway_runs() {
    let (door, _upstream) = stored().await;
    let plugin = ends(418, &json!({}));
    door.admin_post("/consumer_groups/silver/plugins", &plugin)
        .await
        .expect(201);
    let ask = async || {
        let host = [("apikey", "annas"), ("host", "one.test")];
        door.get_with("/", &host).await.status
    };
    assert_eq!(ask().await, 200);
    let anna = json!({"consumer": "anna"});
    let path = "/consumer_groups/silver/consumers";
    door.admin_post(path, &anna).await.expect(201);
    assert_eq!(ask().await, 418);
    // The name of a group says which of two comes first.
    let other = ends(419, &json!({}));
    let other_path = "/consumer_groups/gold/plugins";
    door.admin_post(other_path, &other).await.expect(201);
    let path = "/consumer_groups/gold/consumers";
    door.admin_post(path, &anna).await.expect(201);
    assert_eq!(ask().await, 419);
    let renamed = json!({"name": "zinc"});
    let renamed = door.admin_json(Method::PATCH, "/consumer_groups/gold", &renamed);
    renamed.await.expect(200);
    assert_eq!(ask().await, 418);
    let both = door.admin_delete("/consumers/anna/consumer_groups").await;
    both.expect(204);
    assert_eq!(ask().await, 200);
}

#[tokio::test]
async fn what_a_client_says_of_groups_chooses_no_plugin() {
    let more = "plugins:
- {name: request-termination, consumer_group: gold, config: {status_code: 418}}
- {name: response-transformer, consumer_group: gold, config: {add: {headers: ['x-tier:gold']}}}
";
    let (door, upstream) = door(more).await;
    for name in [
        "x-consumer-groups",
        "x_consumer_groups",
        "x-authenticated-groups",
    ] {
        let forged = [
            ("apikey", "carls"),
            (name, "gold"),
            ("x-consumer-username", "anna"),
        ];
        let answer = door.get_with("/one", &forged).await.expect(200);
        assert_eq!(answer.header("x-tier"), "", "{name}");
        assert_eq!(upstream.last().all("x-consumer-username"), ["carl"]);
    }
    // Nor does it help a member to deny the group, or to come without a key.
    let denied = [("apikey", "annas"), ("x-consumer-groups", "")];
    door.get_with("/one", &denied).await.expect(418);
    door.get_with("/one", &[("x-consumer-groups", "gold")])
        .await
        .expect(401);
}

#[tokio::test]
async fn plugins_that_run_before_the_consumer_is_known_are_for_no_group() {
    let (door, _upstream) = stored().await;
    for name in ["key-auth", "acl", "cors", "bot-detection", "correlation-id"] {
        let plugin = json!({"name": name, "consumer_group": {"name": "gold"},
            "config": if name == "acl" { json!({"allow": ["a"]}) } else { json!({}) }});
        let refused = door
            .admin_post("/plugins", &plugin)
            .await
            .expect(400)
            .json();
        assert_eq!(
            refused["message"], "schema violation (consumer_group: value must be null)",
            "{name}"
        );
        let path = "/consumer_groups/gold/plugins";
        door.admin_post(path, &plugin).await.expect(400);
    }
    let both = ends(
        418,
        &json!({"consumer": {"name": "anna"}, "consumer_group": {"name": "gold"}}),
    );
    let refused = door.admin_post("/plugins", &both).await.expect(400);
    assert!(
        refused.body.contains("only one of these fields"),
        "{}",
        refused.body
    );
    let nowhere = ends(418, &json!({"consumer_group": {"name": "tin"}}));
    let refused = door.admin_post("/plugins", &nowhere).await.expect(400);
    assert_eq!(refused.json()["name"], "foreign keys unresolved");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL"]
async fn nodes_on_one_database_learn_who_belongs_to_a_group() {
    let database = Cluster::shared().database("consumer_groups");
    let upstream = Upstream::echo().await;
    let identity = format!("\n  base_url: http://door.test{IDENTITY}");
    let node = || Setup::new().identity(&identity).store(&database).start();
    let (mut one, other) = (node().await, node().await);
    fill(&one, &upstream).await;
    let anna = json!({"consumer": "anna"});
    let path = "/consumer_groups/gold/consumers";
    one.admin_post(path, &anna).await.expect(201);
    let plugins = "/consumer_groups/gold/plugins";
    let plugin = ends(418, &json!({}));
    one.admin_post(plugins, &plugin).await.expect(201);
    let host = [("apikey", "annas"), ("host", "one.test")];
    eventually("the other node to know the group", || async {
        (other.get_with("/", &host).await.status == 418).then_some(())
    })
    .await;
    one.admin_delete(&format!("{path}/anna")).await.expect(204);
    eventually("the other node to part them", || async {
        (other.get_with("/", &host).await.status == 200).then_some(())
    })
    .await;
    one.kill();
    one.start().await;
    assert!(members(&one, path).await.is_empty());
    assert_eq!(one.get_with("/", &host).await.status, 200);
}
