//! Groups, bulk requests and what describes the service.

use serde_json::{Value, json};

use super::scim::{PATCH, ScimClient, USER, error};

const GROUP: &str = "urn:ietf:params:scim:schemas:core:2.0:Group";

async fn people(desk: &ScimClient) -> Vec<Value> {
    let mut ids = Vec::new();
    for name in ["ann", "bob", "cid"] {
        ids.push(desk.create(json!({"userName": name})).await["id"].clone());
    }
    ids
}

fn members(group: &Value) -> Vec<String> {
    let members = group["members"].as_array().cloned().unwrap_or_default();
    let mut names: Vec<_> = members
        .iter()
        .map(|one| one["display"].as_str().unwrap_or_default().to_owned())
        .collect();
    names.sort();
    names
}

fn path(record: &Value) -> String {
    let location = record["meta"]["location"].as_str().expect("a location");
    location
        .trim_start_matches("http://localhost:8000")
        .to_owned()
}

#[tokio::test]
async fn a_group_lives_from_post_to_delete() {
    let desk = ScimClient::new().await;
    let ids = people(&desk).await;
    let group = json!({"schemas": [GROUP], "displayName": "Staff", "externalId": "s",
        "members": [{"value": ids[0], "type": "User"}, {"value": ids[1]}]});
    let made = desk.send("POST", "/v1/groups", &group).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let made = made.json();
    assert_eq!(members(&made), ["ann", "bob"]);
    let again = desk
        .send("POST", "/v1/groups", &json!({"displayName": "STAFF"}))
        .await;
    assert_eq!(error(&again), (409, "uniqueness".to_owned()));

    let at = path(&made);
    let patch = |operations: Value| json!({"schemas": [PATCH], "Operations": operations});
    let id = |at: usize| ids[at].as_str().expect("an id");
    let change = patch(json!([
        {"op": "Add", "path": "members", "value": [{"value": ids[2]}]},
        {"op": "remove", "path": format!("members[value eq \"{}\"]", id(0))},
        {"op": "replace", "path": "displayName", "value": "Crew"},
    ]));
    let done = desk.send("PATCH", &at, &change).await;
    assert_eq!(
        (done.status.as_u16(), done.header("etag")),
        (200, "W/\"2\""),
        "{}",
        done.text
    );
    let now = desk.send("GET", &at, &Value::Null).await.json();
    assert_eq!(
        (members(&now), &now["displayName"]),
        (vec!["bob".into(), "cid".into()], &json!("Crew"))
    );
    let same = desk.send("PATCH", &at, &change).await;
    assert_eq!(same.header("etag"), "W/\"2\"", "nothing changed");
    let entra = patch(json!([{"op": "Remove", "path": "members", "value": [{"value": ids[1]}]}]));
    assert_eq!(
        members(&desk.send("PATCH", &at, &entra).await.json()),
        ["cid"]
    );
    let asked =
        patch(json!([{"op": "replace", "value": {"id": now["id"], "displayName": "Team"}}]));
    let shown = desk
        .send("PATCH", &format!("{at}?attributes=displayName"), &asked)
        .await
        .json();
    assert_eq!(
        (&shown["displayName"], shown.get("members")),
        (&json!("Team"), None)
    );
    let bare = desk
        .send(
            "GET",
            &format!("{at}?excludedAttributes=members"),
            &Value::Null,
        )
        .await;
    assert!(bare.json().get("members").is_none());

    let put = desk
        .send("PUT", &at, &json!({"displayName": "Team"}))
        .await
        .json();
    assert_eq!(
        (members(&put), put.get("externalId")),
        (vec!["cid".to_owned()], None)
    );
    let put = json!({"displayName": "Team", "members": [{"value": ids[0]}]});
    assert_eq!(members(&desk.send("PUT", &at, &put).await.json()), ["ann"]);
    let stale = desk
        .with("PUT", &at, &put, &[("if-match", "W/\"1\"")])
        .await;
    assert_eq!(error(&stale).0, 412);
    let gone = desk.send("DELETE", &at, &Value::Null).await;
    assert_eq!(gone.status, 204);
    assert_eq!(error(&desk.send("GET", &at, &Value::Null).await).0, 404);
}

#[tokio::test]
async fn members_are_found_from_both_ends_and_go_with_their_user() {
    let desk = ScimClient::new().await;
    let ids = people(&desk).await;
    let mut groups = Vec::new();
    for (name, of) in [("Blue", &ids[..2]), ("Red", &ids[1..])] {
        let members: Vec<_> = of.iter().map(|id| json!({"value": id})).collect();
        let group = json!({"displayName": name, "externalId": name, "members": members});
        groups.push(desk.send("POST", "/v1/groups", &group).await.json());
    }
    let names = async |path: String, name: &str| {
        let path = path.replace(' ', "%20").replace('"', "%22");
        let body = desk.send("GET", &path, &Value::Null).await.json();
        let all = body["Resources"]
            .as_array()
            .cloned()
            .unwrap_or_else(|| panic!("{body}"));
        let names = all
            .iter()
            .map(|one| one[name].as_str().unwrap_or("-").to_owned());
        names.collect::<Vec<_>>().join(" ")
    };
    let red = groups[1]["id"].as_str().expect("an id");
    for (filter, found) in [
        (format!("groups.value eq \"{red}\""), "bob cid"),
        ("groups[display eq \"blue\"]".to_owned(), "ann bob"),
        (
            "groups.display co \"e\" and not (groups.display eq \"Red\")".to_owned(),
            "ann",
        ),
        ("groups pr".to_owned(), "ann bob cid"),
        (
            "groups.type eq \"direct\" and userName sw \"a\"".to_owned(),
            "ann",
        ),
    ] {
        assert_eq!(
            names(format!("/v1/users?filter={filter}"), "userName").await,
            found,
            "{filter}"
        );
    }
    let bob = ids[1].as_str().expect("an id");
    let cid = ids[2].as_str().expect("an id");
    for (filter, found) in [
        (format!("members.value eq \"{bob}\""), "Blue Red"),
        (format!("members[value eq \"{cid}\"]"), "Red"),
        (format!("members.value ne \"{cid}\""), "Blue Red"),
        ("members.display eq \"ann\"".to_owned(), "Blue"),
        (
            "displayName sw \"r\" or externalId eq \"Blue\"".to_owned(),
            "Blue Red",
        ),
        ("externalId eq \"blue\"".to_owned(), ""),
        ("not (externalId eq \"Blue\")".to_owned(), "Red"),
        (
            "meta.resourceType eq \"Group\" and members pr".to_owned(),
            "Blue Red",
        ),
    ] {
        let path = format!("/v1/groups?filter={filter}");
        assert_eq!(names(path, "displayName").await, found, "{filter}");
    }
    let user = desk
        .send("GET", &format!("/v1/users/{bob}"), &Value::Null)
        .await
        .json();
    assert_eq!(user["groups"][1]["display"], "Red");
    assert_eq!(user["groups"][1]["value"], groups[1]["id"]);
    desk.send("DELETE", &format!("/v1/users/{cid}"), &Value::Null)
        .await;
    let red = desk
        .send("GET", &path(&groups[1]), &Value::Null)
        .await
        .json();
    assert_eq!(members(&red), ["bob"]);
}

#[tokio::test]
async fn a_group_is_another_one_when_its_member_was_deleted() {
    let desk = ScimClient::new().await;
    let ids = people(&desk).await;
    let group = json!({"displayName": "Staff", "members": [{"value": ids[0]}, {"value": ids[1]}]});
    let made = desk.send("POST", "/v1/groups", &group).await.json();
    let other = json!({"displayName": "Other", "members": [{"value": ids[2]}]});
    let other = desk.send("POST", "/v1/groups", &other).await.json();
    desk.provider.clock.advance(5000);
    let bob = format!("/v1/users/{}", ids[1].as_str().expect("an id"));
    assert_eq!(desk.send("DELETE", &bob, &Value::Null).await.status, 204);
    let known = [("if-none-match", "W/\"1\"")];
    let now = desk.with("GET", &path(&made), &Value::Null, &known).await;
    assert_eq!((now.status.as_u16(), now.header("etag")), (200, "W/\"2\""));
    let now = now.json();
    assert_eq!(members(&now), ["ann"]);
    assert_ne!(now["meta"]["lastModified"], made["meta"]["lastModified"]);
    let same = desk.with("GET", &path(&other), &Value::Null, &known).await;
    assert_eq!(same.status, 304, "it had no such member");
}

#[tokio::test]
async fn an_empty_list_of_members_to_remove_removes_nobody() {
    let desk = ScimClient::new().await;
    let ids = people(&desk).await;
    let group = json!({"displayName": "Staff", "members": [{"value": ids[0]}, {"value": ids[1]}]});
    let at = path(&desk.send("POST", "/v1/groups", &group).await.json());
    let remove = async |operation: Value| {
        let body = json!({"schemas": [PATCH], "Operations": [operation]});
        desk.send("PATCH", &at, &body).await
    };
    let none = remove(json!({"op": "Remove", "path": "members", "value": []})).await;
    assert_eq!(
        (none.status.as_u16(), none.header("etag")),
        (200, "W/\"1\"")
    );
    assert_eq!(members(&none.json()), ["ann", "bob"]);
    let all = remove(json!({"op": "remove", "path": "members", "value": null})).await;
    assert!(members(&all.json()).is_empty());
}

#[tokio::test]
async fn bad_members_are_refused_and_nothing_is_stored() {
    let desk = ScimClient::new().await;
    let ids = people(&desk).await;
    let nobody = uuid::Uuid::nil().to_string();
    for (member, kind) in [
        (json!({"value": nobody}), "invalidValue"),
        (json!({"value": "x' OR '1'='1"}), "invalidValue"),
        (json!({"value": ids[0], "type": "Group"}), "invalidValue"),
        (json!({"display": "ann"}), "invalidValue"),
        (json!(5), "invalidValue"),
        (json!({"value": ids[0], "size": 1}), "invalidSyntax"),
    ] {
        let group = json!({"displayName": "G", "members": [{"value": ids[1]}, member]});
        let refused = desk.send("POST", "/v1/groups", &group).await;
        assert_eq!(error(&refused), (400, kind.to_owned()), "{member}");
    }
    for body in [
        json!({}),
        json!({"displayName": " "}),
        json!({"displayName": "a\nb"}),
    ] {
        let refused = desk.send("POST", "/v1/groups", &body).await;
        assert_eq!(error(&refused), (400, "invalidValue".to_owned()), "{body}");
    }
    let all = desk.send("GET", "/v1/groups", &Value::Null).await.json();
    assert_eq!(all["totalResults"], 0);
}

#[tokio::test]
async fn one_who_is_a_user_sees_own_groups_without_their_members() {
    let desk = ScimClient::new().await;
    let found = desk
        .send(
            "GET",
            "/v1/users?filter=userName%20eq%20%22demo%22",
            &Value::Null,
        )
        .await;
    let demo = found.json()["Resources"][0]["id"].clone();
    for (name, members) in [("Mine", json!([{"value": demo}])), ("Theirs", json!([]))] {
        let group = json!({"displayName": name, "members": members});
        assert_eq!(desk.send("POST", "/v1/groups", &group).await.status, 201);
    }
    let tokens = desk.provider.user_tokens("openid").await;
    let token = tokens["access_token"].as_str().expect("a token");
    let seen = desk
        .by(token, "GET", "/v1/groups", &Value::Null, &[])
        .await
        .json();
    assert_eq!(seen["totalResults"], 1, "{seen}");
    assert_eq!(
        (
            &seen["Resources"][0]["displayName"],
            seen["Resources"][0].get("members")
        ),
        (&json!("Mine"), None)
    );
    let probe = desk
        .by(
            token,
            "GET",
            "/v1/groups?filter=not%20(members%20pr)",
            &Value::Null,
            &[],
        )
        .await;
    assert_eq!(error(&probe), (400, "invalidFilter".to_owned()));
}

#[tokio::test]
async fn bulk_requests_refer_to_what_they_create() {
    let desk = ScimClient::new().await;
    let bulk = |operations: Value| {
        json!({
        "schemas": ["urn:ietf:params:scim:api:messages:2.0:BulkRequest"], "Operations": operations})
    };
    let body = bulk(json!([
        {"method": "POST", "path": "/Groups", "bulkId": "g",
         "data": {"schemas": [GROUP], "displayName": "Crew", "members": [{"value": "bulkId:u"}]}},
        {"method": "post", "path": "/Users", "bulkId": "u", "data": {"schemas": [USER], "userName": "ann"}},
        {"method": "PATCH", "path": "/Users/bulkId:u", "data": {"schemas": [PATCH],
         "Operations": [{"op": "add", "path": "title", "value": "Captain"}]}},
        {"method": "POST", "path": "/Users", "bulkId": "twice", "data": {"userName": "ANN"}},
        {"method": "POST", "path": "/Nothing", "bulkId": "n", "data": {}},
        {"method": "DELETE", "path": "/Users/00000000-0000-0000-0000-000000000000"},
        {"method": "POST", "path": "/Groups", "bulkId": "x",
         "data": {"displayName": "X", "members": [{"value": "bulkId:x"}]}},
        {"method": "PUT", "path": "/Users/bulkId:nobody", "data": {"userName": "y"}},
    ]));
    let done = desk.send("POST", "/v1/Bulk", &body).await;
    assert_eq!(done.status, 200, "{}", done.text);
    let done = done.json();
    let results = done["Operations"].as_array().expect("results");
    let status = |bulk_id: &str| {
        let found = results.iter().find(|one| one["bulkId"] == bulk_id);
        found
            .map_or("none", |one| one["status"].as_str().unwrap_or_default())
            .to_owned()
    };
    assert_eq!(results.len(), 8, "{done}");
    assert_eq!(status("g"), "201", "{done}");
    assert_eq!(
        (status("u"), status("twice"), status("n"), status("x")),
        ("201".into(), "409".into(), "404".into(), "409".into())
    );
    let crew = desk.send("GET", "/v1/groups", &Value::Null).await.json();
    assert_eq!(members(&crew["Resources"][0]), ["ann"]);
    let ann = desk
        .send(
            "GET",
            "/v1/users?filter=title%20eq%20%22captain%22",
            &Value::Null,
        )
        .await;
    assert_eq!(ann.json()["totalResults"], 1);

    let spelt = json!({
    "Schemas": ["urn:ietf:params:scim:api:messages:2.0:BulkRequest"], "FailOnErrors": 1,
    "operations": [
        {"Method": "POST", "Path": "/Users", "BulkId": "a", "Data": {"userName": "eve"}},
        {"Method": "DELETE", "Path": "/Users/nobody"},
        {"Method": "DELETE", "Path": "/Users/never"},
    ]});
    let done = desk.send("POST", "/v1/Bulk", &spelt).await.json();
    assert_eq!(done["Operations"][0]["status"], "201", "{done}");
    assert_eq!(
        done["Operations"].as_array().map(Vec::len),
        Some(2),
        "{done}"
    );

    let mut stops = bulk(json!([
        {"method": "POST", "path": "/Users", "bulkId": "a", "data": {}},
        {"method": "POST", "path": "/Users", "bulkId": "b", "data": {"userName": "late"}},
    ]));
    stops["failOnErrors"] = json!(1);
    let stopped = desk.send("POST", "/v1/Bulk", &stops).await.json();
    assert_eq!(stopped["Operations"].as_array().map(Vec::len), Some(1));
    let many: Vec<_> = (0..1001)
        .map(|_| json!({"method": "DELETE", "path": "/Users/x"}))
        .collect();
    assert_eq!(
        error(&desk.send("POST", "/v1/Bulk", &bulk(json!(many))).await).0,
        413
    );
    let refused = desk.by("junk", "POST", "/v1/Bulk", &body, &[]).await;
    assert_eq!(error(&refused).0, 401);
}

#[tokio::test]
async fn the_service_describes_itself_to_everybody() {
    let desk = ScimClient::new().await;
    for prefix in ["/v1", "/scim/v2"] {
        let get = async |path: &str| desk.provider.get(&format!("{prefix}{path}")).await;
        let config = get("/ServiceProviderConfig").await.json();
        assert_eq!(
            (
                &config["patch"]["supported"],
                &config["bulk"]["maxOperations"]
            ),
            (&json!(true), &json!(1000))
        );
        assert_eq!(get("/Schemas").await.json()["totalResults"], 3);
        assert_eq!(get(&format!("/Schemas/{USER}")).await.json()["id"], USER);
        assert_eq!(
            get(&format!("/schemas/{}", USER.replace(':', "%3A")))
                .await
                .json()["id"],
            USER
        );
        assert_eq!(get("/ResourceTypes/Group").await.json()["schema"], GROUP);
        for path in ["/Schemas/urn:other", "/ResourceTypes/Robot"] {
            assert_eq!(error(&get(path).await).0, 404, "{path}");
        }
        for path in ["/Schemas", "/ResourceTypes", "/ServiceProviderConfig"] {
            assert_eq!(
                error(&get(&format!("{path}?filter=id%20pr")).await).0,
                403,
                "{path}"
            );
        }
        let post = desk
            .send("POST", &format!("{prefix}/Schemas"), &json!({}))
            .await;
        assert_eq!((error(&post).0, post.header("allow")), (405, "GET"));
    }
}

#[tokio::test]
async fn the_standards_own_prefix_has_its_own_manners() {
    let desk = ScimClient::new().await;
    let user = json!({"schemas": [USER], "userName": "ann", "active": false});
    let made = desk
        .with(
            "POST",
            "/scim/v2/Users",
            &user,
            &[("content-type", "application/json")],
        )
        .await;
    assert_eq!(
        (made.status.as_u16(), made.header("content-type")),
        (201, "application/scim+json")
    );
    assert!(made.header("location").contains("/scim/v2/Users/"));
    let made = made.json();
    assert_eq!(
        (&made["active"], made.get("accountStatus")),
        (&json!(false), None)
    );
    assert!(made.get("preferences").is_none());
    let list = desk
        .with(
            "GET",
            "/scim/v2/users",
            &Value::Null,
            &[("accept", "application/json")],
        )
        .await;
    assert!(list.header("content-type").starts_with("application/json"));
    let list = list.json();
    assert_eq!(
        (&list["startIndex"], list.get("pagedResultsCookie")),
        (&json!(1), None)
    );
    assert_eq!(
        desk.send("GET", "/v1/Users", &Value::Null).await.json()["totalResults"],
        4
    );
}

#[tokio::test]
async fn tokens_tell_groups_to_whom_was_granted_the_scope() {
    let desk = ScimClient::new().await;
    let found = desk
        .send(
            "GET",
            "/v1/users?filter=userName%20eq%20%22demo%22",
            &Value::Null,
        )
        .await;
    let demo = found.json()["Resources"][0]["id"].clone();
    for name in ["staff", "Crew"] {
        let group = json!({"displayName": name, "members": [{"value": demo}]});
        assert_eq!(desk.send("POST", "/v1/groups", &group).await.status, 201);
    }
    let told = json!(["Crew", "staff"]);
    for (scope, expected) in [("openid+groups", told), ("openid", Value::Null)] {
        let tokens = desk.provider.user_tokens(scope).await;
        let id_token = desk
            .provider
            .claims(tokens["id_token"].as_str().expect("an ID token"));
        assert_eq!(id_token["groups"], expected, "{scope}");
        let token = tokens["access_token"].as_str().expect("a token");
        let userinfo = desk
            .provider
            .get_with("/oauth2/userinfo", token)
            .await
            .json();
        assert_eq!(userinfo["groups"], expected, "{scope}");
        let body = format!("client_id=app&client_secret=app-secret&token={token}");
        let said = desk.provider.form("/oauth2/introspect", &body).await.json();
        assert_eq!(
            (&said["active"], &said["groups"]),
            (&json!(true), &expected),
            "{scope}"
        );
    }
}
