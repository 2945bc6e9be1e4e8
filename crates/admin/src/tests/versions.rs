//! Changes that name the version of the record that they are of.

use super::*;

/// The version of what is at `path`.
async fn version(api: &Api, path: &str) -> String {
    let shown = api.get(&format!("{path}?declared=true")).await.expect(200);
    let version = shown.json()["version"].as_str().map(str::to_owned);
    version.expect("a version")
}

#[tokio::test]
async fn of_many_changes_of_one_version_exactly_one_is_made() {
    let api = Api::with_route().await;
    let seen = version(&api, "/services/s").await;
    let target = format!("/services/s?version={seen}");
    let changes = (1..=8).map(|port| api.send("PATCH", &target, json!({"port": port})));
    let answers = futures_util::future::join_all(changes).await;
    let statuses: Vec<_> = answers.iter().map(|one| one.status.as_u16()).collect();
    let count = |status| statuses.iter().filter(|one| **one == status).count();
    assert_eq!((count(200), count(412)), (1, 7), "{statuses:?}");
    let made = answers.iter().find(|one| one.status == 200);
    let made = made.expect("one is made").json();
    let now = api.get("/services/s").await.expect(200).json();
    assert_eq!(now["port"], made["port"]);
}

#[tokio::test]
async fn a_change_a_replacement_and_a_deletion_of_another_version_are_refused() {
    let api = Api::with_route().await;
    let record = json!({"name": "s", "host": "other"});
    for (method, path) in [
        ("PATCH", "/services/s"),
        ("PUT", "/services/s"),
        ("PATCH", "/routes/r/service"),
        ("PUT", "/routes/r/service"),
        ("DELETE", "/services/s/routes/r"),
        ("DELETE", "/routes/r"),
        ("PUT", "/services/none"),
        ("DELETE", "/services/none"),
    ] {
        let target = format!("{path}?version=another");
        let body = if method == "DELETE" {
            json!({})
        } else {
            record.clone()
        };
        let refused = api.send(method, &target, body).await;
        assert_eq!(refused.status, 412, "{method} {path}: {}", refused.text);
    }
    assert_eq!(api.get("/services/s").await.expect(200).json()["host"], "h");
    let seen = version(&api, "/routes/r").await;
    // Each that is named has to be that of the record, not the first of them alone.
    for two in [
        format!("{seen}&version=another"),
        format!("another&version={seen}"),
    ] {
        let refused = api.delete(&format!("/routes/r?version={two}")).await;
        assert_eq!(refused.status, 412, "{}", refused.text);
    }
    let gone = api.delete(&format!("/routes/r?version={seen}")).await;
    gone.expect(204);
    // Who names none changes what is there.
    api.send("PATCH", "/services/s", record).await.expect(200);
}

#[tokio::test]
async fn the_answer_to_a_change_tells_the_version_that_it_made() {
    let api = Api::new().await;
    let (cert, key) = certificates::pair();
    let certificate = json!({"cert": cert, "key": key, "snis": ["b.example", "a.example"]});
    for (list, body, patch) in [
        ("/services", json!({"host": "h"}), json!({"port": 8080})),
        (
            "/plugins",
            json!({"name": "key-auth"}),
            json!({"enabled": false}),
        ),
        ("/certificates", certificate, json!({"snis": ["c.example"]})),
    ] {
        let made = api.post(&format!("{list}?declared=true"), body).await;
        let made = made.expect(201).json();
        let own = format!("{list}/{}", made["id"].as_str().expect("an id"));
        assert_eq!(made["version"], version(&api, &own).await, "{list}");
        let target = format!(
            "{own}?declared=true&version={}",
            made["version"].as_str().expect("one")
        );
        let now = api.send("PATCH", &target, patch).await.expect(200).json();
        assert_eq!(now["version"], version(&api, &own).await, "{list}");
        assert_ne!(now["version"], made["version"], "{list}");
        // Tools that know the imitated gateway alone find nothing new.
        let plain = api.get(&own).await.expect(200).json();
        assert_eq!(plain.get("version"), None);
    }
}

#[tokio::test]
async fn a_record_that_was_read_with_its_version_is_put_back_once() {
    let api = Api::with_route().await;
    let (cert, key) = certificates::pair();
    let certificate = json!({"cert": cert, "key": key, "snis": ["a.example"]});
    let made = api.post("/certificates", certificate).await.expect(201);
    let id = made.json()["id"].as_str().expect("an id").to_owned();
    let own = [
        "/services/s".to_owned(),
        "/routes/r".to_owned(),
        format!("/certificates/{id}"),
    ];
    for own in own {
        let target = format!("{own}?declared=true");
        let mut read = api.get(&target).await.expect(200).json();
        read["tags"] = json!(["blue"]);
        let now = api.send("PUT", &target, read.clone()).await;
        let now = now.expect(200).json();
        assert_ne!(now["version"], read["version"], "{own}");
        assert_eq!(now["version"], version(&api, &own).await, "{own}");
        for method in ["PUT", "PATCH"] {
            let refused = api.send(method, &target, read.clone()).await;
            assert_eq!(refused.status, 412, "{method} {own}: {}", refused.text);
        }
        // Where the two differ, one of them is another.
        let both = format!("{target}&version={}", now["version"].as_str().expect("one"));
        let refused = api.send("PATCH", &both, read.clone()).await;
        assert_eq!(refused.status, 412, "{}", refused.text);
        read["version"] = json!(7);
        let refused = api.send("PUT", &target, read.clone()).await;
        assert_eq!(refused.status, 400, "{}", refused.text);
        // Tools that know the imitated gateway alone are told that it is no field.
        read["version"] = now["version"].clone();
        let refused = api.send("PUT", &own, read).await;
        assert_eq!(refused.status, 400, "{}", refused.text);
    }
    let parent = "/routes/r/service?declared=true";
    let mut read = api
        .get("/services/s?declared=true")
        .await
        .expect(200)
        .json();
    read["port"] = json!(8080);
    api.send("PUT", parent, read.clone()).await.expect(200);
    assert_eq!(api.send("PUT", parent, read).await.status, 412);
}

#[tokio::test]
async fn another_secret_behind_the_same_mask_is_another_version() {
    let api = Api::new().await;
    let consumer = json!({"username": "bob"});
    api.post("/consumers", consumer).await.expect(201);
    let list = "/consumers/bob/jwt";
    let body = json!({"key": "k", "secret": "first"});
    let made = api.post(list, body).await.expect(201).json();
    let own = format!("{list}/{}", made["id"].as_str().expect("an id"));
    let before = version(&api, &own).await;
    let other = json!({"secret": "second"});
    api.send("PATCH", &own, other).await.expect(200);
    let shown = api.get(&own).await.expect(200).json();
    assert_eq!(shown["secret"], "**");
    assert_ne!(version(&api, &own).await, before);
    let back = json!({"secret": "first"});
    let stale = format!("{own}?version={before}");
    let refused = api.send("PATCH", &stale, back).await;
    assert_eq!(refused.status, 412);
}
