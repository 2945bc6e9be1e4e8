//! Changes by PATCH (RFC 7644 section 3.5.2), and who may make them.

use super::*;

#[tokio::test]
async fn a_declared_user_is_changed_in_its_file_only() {
    let desk = ScimClient::new().await;
    let found = desk
        .send(
            "GET",
            "/v1/users?filter=userName%20eq%20%22demo%22",
            &Value::Null,
        )
        .await;
    let id = found.json()["Resources"][0]["id"].clone();
    let change = json!([{"op": "replace", "path": "title", "value": "Chief"}]);
    let refused = desk.patch(&id, change).await;
    assert_eq!(error(&refused), (409, "mutability".to_owned()));
    assert!(refused.text.contains("is declared in"), "{}", refused.text);
    let path = format!("/v1/users/{}", id.as_str().expect("an id"));
    assert_eq!(desk.send("DELETE", &path, &Value::Null).await.status, 409);
    assert_eq!(desk.send("PUT", &path, &ann()).await.status, 409);
}

#[tokio::test]
async fn every_form_of_path_is_patched() {
    let desk = ScimClient::new().await;
    let id = &desk.create(ann()).await["id"];
    let enterprise = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User";
    let done = desk
        .patch(
            id,
            json!([
                {"op": "Replace", "path": "displayName", "value": "Ann L."},
                {"op": "add", "path": "name.middleName", "value": "B"},
                {"op": "replace", "path": format!("{USER}:title"), "value": "Boss"},
                {"op": "add", "path": format!("{enterprise}:department"), "value": "Sales"},
                {"op": "add", "path": format!("{enterprise}:manager"), "value": "42"},
                {"op": "replace", "path": "emails[type eq \"work\"].value", "value": "a@work.example"},
                {"op": "add", "path": "emails", "value": [{"value": "x@x.example", "primary": true}]},
                {"op": "add", "path": "phoneNumbers[type eq \"mobile\"].value", "value": "1"},
                {"op": "remove", "path": "emails[type eq \"home\"]"},
                {"op": "add", "value": {"name.honorificPrefix": "Dr.", "nickName": "Annie",
                                        format!("{enterprise}:costCenter"): "9"}},
                {"op": "remove", "path": "externalId"},
            ]),
        )
        .await;
    assert_eq!(done.status, 200, "{}", done.text);
    let user = done.json();
    assert_eq!(
        user["name"],
        json!({"givenName": "Ann", "familyName": "Lee", "middleName": "B", "honorificPrefix": "Dr."})
    );
    assert_eq!(
        user["emails"],
        json!([{"value": "a@work.example", "type": "work", "primary": false},
               {"value": "x@x.example", "primary": true}]),
        "the new address is not verified, and the primary one moved"
    );
    assert_eq!(
        user["phoneNumbers"],
        json!([{"type": "mobile", "value": "1"}])
    );
    assert_eq!(
        user[enterprise],
        json!({"department": "Sales", "manager": {"value": "42"}, "costCenter": "9"})
    );
    assert_eq!(user["schemas"], json!([USER, enterprise]));
    assert_eq!(
        (&user["title"], &user["nickName"]),
        (&json!("Boss"), &json!("Annie"))
    );
    assert!(user.get("externalId").is_none());
    let filter = format!("{enterprise}:department%20eq%20%22sales%22");
    let found = desk
        .send("GET", &format!("/v1/users?filter={filter}"), &Value::Null)
        .await;
    assert_eq!(found.json()["totalResults"], 1);
}

#[tokio::test]
async fn an_empty_list_of_values_to_remove_removes_none() {
    let desk = ScimClient::new().await;
    let made = desk.create(ann()).await;
    assert!(made["emails"].is_array());
    for value in [json!([]), json!([{"value": null}]), json!([{}])] {
        let operation = json!([{"op": "remove", "path": "emails", "value": value}]);
        let done = desk.patch(&made["id"], operation).await;
        assert_eq!(done.status, 200, "{value} {}", done.text);
        assert_eq!(done.json()["emails"], made["emails"], "{value}");
    }
    let all = json!([{"op": "remove", "path": "emails"}]);
    let done = desk.patch(&made["id"], all).await.json();
    assert!(done.get("emails").is_none(), "{done}");
}

#[tokio::test]
async fn state_changes_as_provisioning_tools_say_it() {
    let desk = ScimClient::new().await;
    let id = &desk.create(ann()).await["id"];
    for (operation, status) in [
        (
            json!({"op": "Replace", "path": "active", "value": "False"}),
            "Deactivated",
        ),
        (
            json!({"op": "replace", "value": {"active": true}}),
            "Active",
        ),
        (
            json!({"op": "Replace", "value": {"id": id, "active": false}}),
            "Deactivated",
        ),
        (
            json!({"op": "add", "path": "accountStatus", "value": "Active"}),
            "Active",
        ),
        (
            json!({"op": "Add", "path": "active", "value": [{"value": "false"}]}),
            "Deactivated",
        ),
    ] {
        let done = desk.patch(id, json!([operation])).await;
        assert_eq!(
            done.json()["accountStatus"],
            status,
            "{operation} {}",
            done.text
        );
    }
    let path = format!("/v1/users/{}", id.as_str().expect("an id"));
    let put = desk.send("PUT", &path, &json!({"userName": "ann"})).await;
    assert_eq!(
        put.json()["accountStatus"],
        "Deactivated",
        "nobody is let in by omission"
    );
    let both = json!({"userName": "ann", "active": true, "accountStatus": "Deactivated"});
    let both = desk.send("PUT", &path, &both).await;
    assert_eq!(error(&both), (400, "invalidValue".to_owned()));
}

#[tokio::test]
async fn bad_operations_are_refused_and_change_nothing() {
    let desk = ScimClient::new().await;
    let made = desk.create(ann()).await;
    let id = &made["id"];
    let good = json!({"op": "add", "path": "title", "value": "x"});
    for (operation, kind) in [
        (
            json!({"op": "replace", "path": "emails[type eq \"other\"].value", "value": "x"}),
            "noTarget",
        ),
        (
            json!({"op": "remove", "path": "emails[type eq \"other\"]"}),
            "noTarget",
        ),
        (json!({"op": "remove"}), "noTarget"),
        (
            json!({"op": "add", "path": "id", "value": "x"}),
            "mutability",
        ),
        (
            json!({"op": "replace", "path": "meta.created", "value": "x"}),
            "mutability",
        ),
        (
            json!({"op": "add", "path": "groups", "value": [{"value": "x"}]}),
            "mutability",
        ),
        (json!({"op": "add", "value": {"id": "other"}}), "mutability"),
        (json!({"op": "remove", "path": "userName"}), "mutability"),
        (json!({"op": "remove", "path": "active"}), "mutability"),
        (
            json!({"op": "replace", "path": "shoeSize", "value": 43}),
            "invalidPath",
        ),
        (
            json!({"op": "replace", "path": "emails[type eq].value", "value": "x"}),
            "invalidPath",
        ),
        (
            json!({"op": "replace", "path": "emails[type eq \"work\"", "value": "x"}),
            "invalidPath",
        ),
        (
            json!({"op": "replace", "path": "title[value eq \"x\"]", "value": "x"}),
            "invalidPath",
        ),
        (
            json!({"op": "replace", "path": "urn:other:User:title", "value": "x"}),
            "invalidPath",
        ),
        (
            json!({"op": "replace", "path": "displayName", "value": 5}),
            "invalidValue",
        ),
        (
            json!({"op": "replace", "path": "emails", "value": "x\u{0}"}),
            "invalidValue",
        ),
        (
            json!({"op": "replace", "path": "active", "value": "maybe"}),
            "invalidValue",
        ),
        (
            json!({"op": "replace", "path": "accountStatus", "value": "Asleep"}),
            "invalidValue",
        ),
        (
            json!({"op": "replace", "path": "userName", "value": "\u{430}nn"}),
            "invalidValue",
        ),
        (
            json!({"op": "replace", "path": "userName", "value": " ann"}),
            "invalidValue",
        ),
        (
            json!({"op": "add", "path": "emails", "value": [
            {"value": "a", "primary": true}, {"value": "b", "primary": true}]}),
            "invalidValue",
        ),
        (
            json!({"op": "replace", "path": "emails[value pr].primary", "value": true}),
            "invalidValue",
        ),
        (
            json!({"op": "replace", "value": {"nickName": "a", "nickname": "b"}}),
            "invalidValue",
        ),
        (json!({"op": "add", "path": "title"}), "invalidValue"),
        (
            json!({"op": "move", "path": "title", "value": "x"}),
            "invalidSyntax",
        ),
        (
            json!({"op": "add", "path": 5, "value": "x"}),
            "invalidSyntax",
        ),
        (json!("add"), "invalidSyntax"),
    ] {
        let answer = desk.patch(id, json!([good, operation])).await;
        assert_eq!(
            error(&answer),
            (400, kind.to_owned()),
            "{operation}: {}",
            answer.text
        );
    }
    for body in [
        json!({"Operations": [good]}),
        json!({"schemas": [PATCH]}),
        json!({"schemas": [PATCH], "Operations": []}),
    ] {
        let path = format!("/v1/users/{}", id.as_str().expect("an id"));
        let answer = desk.send("PATCH", &path, &body).await;
        assert_eq!(error(&answer), (400, "invalidSyntax".to_owned()), "{body}");
    }
    let path = format!("/v1/users/{}", id.as_str().expect("an id"));
    assert_eq!(desk.send("GET", &path, &Value::Null).await.json(), made);
}

#[tokio::test]
async fn adding_what_is_there_changes_nothing() {
    let desk = ScimClient::new().await;
    let made = desk.create(ann()).await;
    let same = json!([
        {"op": "add", "path": "emails", "value": [{"value": "ann@home.example", "type": "home"}]},
        {"op": "add", "path": "displayName", "value": "Ann"},
        {"op": "remove", "path": "title"},
    ]);
    let done = desk.patch(&made["id"], same).await;
    assert_eq!(done.json(), made);
}
