//! The kinds that the great walk through the program does not come by.

use super::*;

/// The door with a client that may write users.
async fn office() -> Door {
    let mut door = Setup::new().lay_out();
    let last = "          scope: openid read\n";
    let more = "        - client_id: hr
          client_secret: hr-secret
          grant_types: [client_credentials]
          scope: scim:write\n";
    door.edit("doorward.yaml", last, &format!("{last}{more}"));
    door.start().await;
    door
}

async fn directory(door: &Door, secrets: &mut Secrets) {
    let asked = [
        ("client_id", "hr"),
        ("client_secret", "hr-secret"),
        ("grant_type", "client_credentials"),
        ("scope", "scim:write"),
    ];
    let token = door.token_request(&asked).await.expect(200).json();
    let token = secrets.add(&token["access_token"]);
    secrets.add(&"hr-secret".into());
    let send = async |method: Method, path: &str, body: &Value| {
        let request = http::client().request(method, door.proxy_url(path));
        let request = request.bearer_auth(&token).json(body);
        http::send(request).await
    };
    let ann = json!({"userName": "ann", "password": "Anns-Pass-word-3", "title": "Told-to-nobody"});
    secrets.add(&"Anns-Pass-word-3".into());
    secrets.add(&"Told-to-nobody".into());
    let ann = send(Method::POST, "/v1/users", &ann)
        .await
        .expect(201)
        .json();
    let user = format!("/v1/users/{}", ann["id"].as_str().expect("an id"));
    let patch = |operation: Value| {
        json!({"schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"],
            "Operations": [operation]})
    };
    let password = json!({"op": "replace", "path": "password", "value": "Anns-Pass-word-4"});
    secrets.add(&"Anns-Pass-word-4".into());
    send(Method::PATCH, &user, &patch(password))
        .await
        .expect(200);
    let twice = json!({"userName": "ANN"});
    send(Method::POST, "/v1/users", &twice).await.expect(409);
    let crew = json!({"displayName": "Crew", "members": [{"value": ann["id"]}]});
    let crew = send(Method::POST, "/v1/groups", &crew)
        .await
        .expect(201)
        .json();
    let group = format!("/v1/groups/{}", crew["id"].as_str().expect("an id"));
    let gone = json!({"op": "remove", "path": "members"});
    send(Method::PATCH, &group, &patch(gone)).await.expect(200);
    send(Method::DELETE, &group, &Value::Null).await.expect(204);
    send(Method::DELETE, &user, &Value::Null).await.expect(204);
}

fn command_line(door: &Door, secrets: &mut Secrets) {
    let rows = "userName,password\ncsv-one,Csv-Pass-word-5\n";
    secrets.add(&"Csv-Pass-word-5".into());
    door.write("people.csv", rows);
    cli(door, "users import people.csv", "");
    cli(door, "realms add /shop", "");
    cli(door, "realms delete /shop", "");
    cli(door, "store export all.jsonl", "");
}

#[tokio::test]
async fn directories_imports_and_refusals_are_told_too() {
    let mut door = office().await;
    let mut secrets = Secrets::default();
    directory(&door, &mut secrets).await;
    command_line(&door, &mut secrets);
    let wrong = http::client()
        .post(door.proxy_url("/oauth2/introspect"))
        .form(&[
            ("client_id", "orders"),
            ("client_secret", "Wrong-Secret-6"),
            ("token", "Some-Token-7"),
        ]);
    secrets.add(&"Wrong-Secret-6".into());
    secrets.add(&"Some-Token-7".into());
    http::send(wrong).await.expect(401);
    let document = "_format_version: \"3.0\"\nservices:\n- {name: imported, host: 127.0.0.1}\n";
    door.write("entities-import.yaml", document);
    // The running process is asked to do it, and then the store itself.
    door.signal("TERM");
    door.wait_exit().await;
    cli(&door, "config import entities-import.yaml", "");
    door.start().await;
    let expected = [
        ("user.create", "success"),
        ("user.create", "failure"),
        ("user.update", "success"),
        ("user.delete", "success"),
        ("group.create", "success"),
        ("group.update", "success"),
        ("group.delete", "success"),
        ("user.import", "success"),
        ("realm.create", "success"),
        ("realm.delete", "success"),
        ("store.export", "success"),
        ("client.refuse", "failure"),
        ("entity.import", "success"),
        ("process.stop", "success"),
    ];
    let all = told(&door, &expected).await;
    let text = door.admin_get("/audit/export").await.expect(200).body;
    secrets.assert_absent(&text);
    secrets.assert_absent(&door.log_text());
    assert!(!text.contains("argon2"), "a hash is in the audit log");
    let find = |event: &str| {
        let found = all.iter().find(|record| is(record, event, "success"));
        found.unwrap_or_else(|| panic!("{event}"))
    };
    assert_eq!(
        find("user.update")["details"]["changed"],
        json!(["password"])
    );
    assert_eq!(
        find("user.update")["actor"],
        json!({"type": "client", "id": "hr"})
    );
    assert_eq!(find("entity.import")["actor"]["type"], "cli");
    assert_eq!(find("user.import")["actor"]["type"], "cli");
}
