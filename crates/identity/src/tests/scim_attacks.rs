//! What attackers and broken programs send: each gets the error of SCIM that
//! fits, and nothing is stored.

use serde_json::{Value, json};

use super::scim::{PATCH, ScimClient, error};
use doorward_core::clock::random_bytes;

const SEARCH: &str = "urn:ietf:params:scim:api:messages:2.0:SearchRequest";

/// All users as they are.
async fn everybody(desk: &ScimClient) -> Value {
    desk.send("GET", "/v1/users", &Value::Null).await.json()["Resources"].take()
}

/// What a filter finds, or is refused with.
async fn found(desk: &ScimClient, filter: &str) -> Result<u64, (u16, String)> {
    let body = json!({"schemas": [SEARCH], "filter": filter});
    let answer = desk.send("POST", "/v1/users/.search", &body).await;
    match answer.status.as_u16() {
        200 => Ok(answer.json()["totalResults"].as_u64().expect("a number")),
        _ => Err(error(&answer)),
    }
}

/// Text that no compression shortens much.
fn noise(length: usize) -> String {
    let mut text = String::new();
    while text.len() < length {
        text.extend(random_bytes::<32>().map(|byte| format!("{byte:02x}")));
    }
    text.truncate(length);
    text
}

#[tokio::test]
async fn a_filter_injects_no_sql() {
    let desk = ScimClient::new().await;
    let before = everybody(&desk).await;
    for text in [
        "' OR 1=1 --",
        "'; DROP TABLE users; --",
        "%",
        "_",
        "\\\\",
        "') OR ('1'='1",
        "$1",
        "?1",
        "x' UNION SELECT password FROM users --",
        "\\u0000",
        "\\u0000' OR true --",
    ] {
        for attribute in ["userName", "title", "emails.value", "id", "externalId"] {
            for op in ["eq", "co", "sw", "ew"] {
                let filter = format!("{attribute} {op} \"{text}\"");
                assert_eq!(found(&desk, &filter).await, Ok(0), "{filter}");
            }
        }
    }
    for filter in [
        "userName eq 'demo'",
        "userName eq \"a\" or 1=1",
        "userName\u{a0}eq \"demo\"",
        "userName eq \"demo\"; DELETE",
        "(userName eq \"demo\"",
        "userName eq \"demo\" --",
        "userName eq \"demo\" /* */",
        "u.password pr\u{0}",
        "emails[type eq \"work\"",
        "emails[emails[type eq \"a\"]]",
        "userName eq",
        "eq \"demo\"",
        "userName gt true",
        "active gt true",
        "meta.created gt \"yesterday\"",
    ] {
        let refused = found(&desk, filter).await;
        assert_eq!(refused, Err((400, "invalidFilter".to_owned())), "{filter}");
    }
    // There is no such attribute for anybody, whatever the table's columns.
    for filter in [
        "password pr",
        "password sw \"$argon2\"",
        "user_key pr",
        "owner eq \"file\"",
    ] {
        assert_eq!(found(&desk, filter).await, Ok(0), "{filter}");
    }
    assert_eq!(everybody(&desk).await, before);
}

#[tokio::test]
async fn a_filter_is_bounded_in_depth_and_length() {
    let desk = ScimClient::new().await;
    let deep = |levels: usize| format!("{}title pr{}", "(".repeat(levels), ")".repeat(levels));
    let (titles, users) = (found(&desk, "title pr").await, found(&desk, "id pr").await);
    assert_eq!(found(&desk, &deep(32)).await, titles);
    let refused = Err((400, "invalidFilter".to_owned()));
    assert_eq!(found(&desk, &deep(33)).await, refused);
    assert_eq!(found(&desk, &"(".repeat(4096)).await, refused);
    assert_eq!(found(&desk, &"!".repeat(4000)).await, refused);
    let long = vec!["title eq \"x\""; 240].join(" or ");
    assert!(long.len() <= 4096, "{}", long.len());
    assert_eq!(found(&desk, &long).await, Ok(0));
    let all = |many| vec!["title eq \"x\""; many].join(" and ");
    assert_eq!(found(&desk, &all(32)).await, Ok(0));
    assert_eq!(found(&desk, &all(33)).await, refused);
    let nested = format!("({}) and ({})", all(16), all(17));
    assert_eq!(found(&desk, &nested).await, refused);
    assert_eq!(found(&desk, &format!("{long}{long}")).await, refused);
    let not = format!("{}title pr{}", "not (".repeat(32), ")".repeat(32));
    assert_eq!(found(&desk, &not).await, titles);
    let elements = |many| vec!["emails[type ne \"x\" or value pr]"; many].join(" or ");
    assert_eq!(
        found(&desk, &elements(16)).await,
        found(&desk, "emails pr").await
    );
    assert_eq!(found(&desk, &elements(17)).await, refused);
    assert_eq!(found(&desk, "title ne \"x\"").await, users);
}

#[tokio::test]
async fn a_filter_that_has_everything_read_many_times_is_refused() {
    let desk = ScimClient::new().await;
    let refused = Err((400, "invalidFilter".to_owned()));
    for clause in ["title co", "title ew", "title ne", "title sw", "title ge"] {
        let clauses = |many: usize| {
            let all = (0..many).map(|at| format!("{clause} \"q{at}\""));
            all.collect::<Vec<_>>().join(" or ")
        };
        assert!(found(&desk, &clauses(32)).await.is_ok(), "{clause}");
        assert_eq!(found(&desk, &clauses(33)).await, refused, "{clause}");
    }
}

#[tokio::test]
async fn long_values_are_kept_and_found_on_every_database() {
    let desk = ScimClient::new().await;
    let long = noise(10_000);
    let made = desk
        .create(
            json!({"userName": "long", "displayName": long, "externalId": long,
            "emails": [{"value": long, "type": "work"}]}),
        )
        .await;
    assert_eq!(made["displayName"], *long);
    for filter in [
        format!("displayName eq \"{}\"", &long[..3000]),
        format!("displayName lt \"{}\"", &long[..3000]),
        format!("displayName ew \"{}\"", &long[..500]),
    ] {
        assert_eq!(found(&desk, &filter).await, Ok(0), "{filter:.80}");
    }
    for filter in [
        format!("displayName sw \"{}\"", &long[..3000]),
        format!("displayName gt \"{}\"", &long[..3000]),
        format!("displayName co \"{}\"", &long[5000..8000]),
        format!("displayName ew \"{}\"", &long[7000..]),
        format!(
            "emails[type eq \"work\" and value ew \"{}\"]",
            &long[9000..]
        ),
        format!(
            "externalId ne \"{}\" and userName eq \"long\"",
            &long[..3000]
        ),
    ] {
        assert_eq!(found(&desk, &filter).await, Ok(1), "{filter:.80}");
    }
    let short = desk.patch(
        &made["id"],
        json!([{"op": "replace", "path": "displayName", "value": "x"}]),
    );
    assert_eq!(short.await.json()["displayName"], "x");
    let sorted = desk
        .send("GET", "/v1/users?sortBy=externalId", &Value::Null)
        .await;
    assert_eq!(sorted.json()["totalResults"], 4);
}

#[tokio::test]
async fn look_alike_and_unfolded_names_make_no_second_account() {
    let desk = ScimClient::new().await;
    desk.create(json!({"userName": "scope"})).await;
    desk.create(json!({"userName": "ren\u{e9}"})).await;
    let before = everybody(&desk).await;
    for name in [
        "SCOPE",
        "\u{455}\u{441}\u{43e}\u{440}\u{435}",      // Cyrillic
        "\u{ff53}\u{ff43}\u{ff4f}\u{ff50}\u{ff45}", // full width
        "rene\u{301}",
        "REN\u{c9}",
    ] {
        let answer = desk
            .send("POST", "/v1/users", &json!({"userName": name}))
            .await;
        assert_eq!(error(&answer), (409, "uniqueness".to_owned()), "{name}");
    }
    for name in [
        "sc\u{43e}pe",
        "scope\u{200b}",
        "\u{202e}epocs",
        " scope",
        "scope\u{a0}",
        "sco\u{ad}pe",
        "",
        "x\u{0}",
        "\u{fdfa}\u{fdfa}\u{fdfa}\u{fdfa}".repeat(20).as_str(),
        "x".repeat(256).as_str(),
        "x".repeat(900_000).as_str(),
    ] {
        let answer = desk
            .send("POST", "/v1/users", &json!({"userName": name}))
            .await;
        assert_eq!(
            error(&answer),
            (400, "invalidValue".to_owned()),
            "{name:.40}"
        );
    }
    assert_eq!(everybody(&desk).await, before);
}

#[tokio::test]
async fn a_groups_name_has_one_composition_and_nothing_unseen() {
    let desk = ScimClient::new().await;
    let post = async |name: &str| {
        desk.send("POST", "/v1/groups", &json!({"displayName": name}))
            .await
    };
    let made = post("Caf\u{e9}").await;
    assert_eq!(made.status, 201, "{}", made.text);
    for name in ["Cafe\u{301}", "CAF\u{c9}", " caf\u{e9} "] {
        assert_eq!(error(&post(name).await), (409, "uniqueness".to_owned()));
    }
    let long = noise(1025);
    for name in ["admins\u{200b}", "\u{202e}nimda", "a\u{0}b", "", " ", &long] {
        assert_eq!(
            error(&post(name).await),
            (400, "invalidValue".to_owned()),
            "{name}"
        );
    }
    let fits = noise(1024);
    assert_eq!(post(&fits).await.status, 201);
}

#[tokio::test]
async fn wrong_types_and_read_only_attributes_store_nothing() {
    let desk = ScimClient::new().await;
    let made = desk
        .create(json!({"userName": "ann", "active": true}))
        .await;
    let path = format!("/v1/users/{}", made["id"].as_str().expect("an id"));
    let deep = format!("{}1{}", "{\"a\":".repeat(100), "}".repeat(100));
    let deep: Value = serde_json::from_str(&deep).expect("JSON");
    for (member, value, kind) in [
        ("userName", json!(5), "invalidValue"),
        ("userName", json!(["ann"]), "invalidValue"),
        ("userName", Value::Null, "invalidValue"),
        ("displayName", json!({"a": 1}), "invalidValue"),
        ("active", json!("maybe"), "invalidValue"),
        ("active", json!(1), "invalidValue"),
        ("accountStatus", json!("Deleted"), "invalidValue"),
        ("name", json!("Ann"), "invalidValue"),
        ("name", json!({"givenName": 1}), "invalidValue"),
        ("name", json!({"lastName": "x"}), "invalidSyntax"),
        ("emails", json!("a@b"), "invalidValue"),
        ("emails", json!([[]]), "invalidValue"),
        ("emails", json!([5]), "invalidValue"),
        (
            "emails",
            json!([{"value": "a", "primary": "yes"}]),
            "invalidValue",
        ),
        (
            "emails",
            json!([{"value": "a", "primary": true}, {"value": "b", "primary": true}]),
            "invalidValue",
        ),
        (
            "emails",
            json!(vec![json!({"value": "a"}); 65]),
            "invalidValue",
        ),
        ("preferences", json!("x"), "invalidValue"),
        (
            "preferences",
            json!({"x": "y".repeat(70_000)}),
            "invalidValue",
        ),
        ("displayName", json!("x".repeat(17_000)), "invalidValue"),
        ("schemas", json!("urn:other"), "invalidSyntax"),
        ("schemas", json!(["urn:other"]), "invalidSyntax"),
        ("__proto__", json!({"admin": true}), "invalidSyntax"),
        ("userName\u{0}", json!("x"), "invalidSyntax"),
    ] {
        let mut record = json!({"userName": "ann"});
        record[member] = value.clone();
        let answer = desk.send("PUT", &path, &record).await;
        assert_eq!(
            error(&answer),
            (400, kind.to_owned()),
            "{member}: {value}: {}",
            answer.text
        );
        if member != "userName" {
            record["userName"] = json!("eve");
        }
        let answer = desk.send("POST", "/v1/users", &record).await;
        assert_eq!(error(&answer), (400, kind.to_owned()), "{member}: {value}");
    }
    // What only the service sets is left alone, whatever is said of it.
    let put = json!({"userName": "ann", "active": true, "id": "0", "preferences": deep, "groups": [{"value": "x"}],
        "meta": {"created": "1970-01-01T00:00:00Z", "version": "W/\"99\"", "location": "http://evil"}});
    let answer = desk.send("PUT", &path, &put).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let record = answer.json();
    assert_eq!(
        (&record["id"], &record["meta"]["created"]),
        (&made["id"], &made["meta"]["created"])
    );
    assert_eq!(record["meta"]["version"], "W/\"2\"");
    assert!(record.get("groups").is_none() && !answer.text.contains("evil"));
}

#[tokio::test]
async fn operations_that_conflict_change_nothing() {
    let desk = ScimClient::new().await;
    desk.create(json!({"userName": "bob"})).await;
    let made = desk
        .create(json!({"userName": "ann", "emails": [
            {"value": "ann@x.test", "type": "work", "verified": true, "primary": true}]}))
        .await;
    let before = everybody(&desk).await;
    for (operations, refused) in [
        (
            json!([{"op": "add", "path": "title", "value": "x"},
                {"op": "replace", "path": "userName", "value": "BOB"}]),
            (409, "uniqueness"),
        ),
        (
            json!([{"op": "remove", "path": "emails"},
                {"op": "replace", "path": "emails[type eq \"work\"].value", "value": "x"}]),
            (400, "noTarget"),
        ),
        (
            json!([{"op": "replace", "value": {"active": false, "accountStatus": "Active"}}]),
            (400, "invalidValue"),
        ),
        (
            json!([{"op": "replace", "value": {"title": "a", "urn:ietf:params:scim:schemas:core:2.0:User:title": "b"}}]),
            (400, "invalidValue"),
        ),
        (
            json!([{"op": "replace", "path": "title", "value": "x"}, {"op": "remove", "path": "userName"}]),
            (400, "mutability"),
        ),
        (
            json!([{"op": "add", "path": "emails", "value": [{"value": "b@x.test", "primary": true},
                {"value": "c@x.test", "primary": true}]}]),
            (400, "invalidValue"),
        ),
        (
            json!([{"op": "replace", "path": "password", "value": "short"}]),
            (400, "invalidValue"),
        ),
        (
            json!([{"op": "replace", "path": "password", "value": "x".repeat(900_000)}]),
            (400, "invalidValue"),
        ),
        (
            json!([{"op": "remove", "path": "password"}]),
            (400, "invalidValue"),
        ),
        (
            json!([{"op": "replace", "path": "meta.version", "value": "x"}]),
            (400, "mutability"),
        ),
        (
            json!([{"op": "replace", "path": "emails[type eq \"work\"].value", "value": {"a": 1}}]),
            (400, "invalidValue"),
        ),
    ] {
        let answer = desk.patch(&made["id"], operations.clone()).await;
        let (status, kind) = refused;
        assert_eq!(
            error(&answer),
            (status, kind.to_owned()),
            "{operations:.200}"
        );
    }
    let many = vec![json!({"op": "add", "path": "title", "value": "x"}); 1001];
    let answer = desk.patch(&made["id"], json!(many)).await;
    assert_eq!(error(&answer), (400, "tooMany".to_owned()));
    assert_eq!(everybody(&desk).await, before);
}

#[tokio::test]
async fn an_address_that_is_swapped_under_a_filter_is_not_verified() {
    let desk = ScimClient::new().await;
    let made = desk
        .create(json!({"userName": "ann", "emails": [
            {"value": "ann@x.test", "type": "work", "verified": true}]}))
        .await;
    let answer = desk
        .patch(
            &made["id"],
            json!([{"op": "add", "path": "emails[type eq \"work\"]",
            "value": {"value": "eve@x.test"}}]),
        )
        .await;
    assert_eq!(
        answer.json()["emails"],
        json!([{"value": "eve@x.test", "type": "work"}])
    );
}

#[tokio::test]
async fn a_stale_tag_removes_nothing_even_at_the_last_moment() {
    let desk = ScimClient::new().await;
    let made = desk.create(json!({"userName": "ann"})).await;
    let path = format!("/v1/users/{}", made["id"].as_str().expect("an id"));
    let first = made["meta"]["version"].as_str().expect("a version");
    desk.patch(
        &made["id"],
        json!([{"op": "add", "path": "title", "value": "x"}]),
    )
    .await;
    for method in ["DELETE", "PUT", "PATCH"] {
        let body = match method {
            "DELETE" => Value::Null,
            "PUT" => json!({"userName": "eve"}),
            _ => json!({"schemas": [PATCH], "Operations": [{"op": "remove", "path": "title"}]}),
        };
        let stale = desk
            .with(method, &path, &body, &[("if-match", first)])
            .await;
        assert_eq!(error(&stale).0, 412, "{method}");
    }
    let id = made["id"].as_str().expect("an id").parse().expect("an id");
    let store = &desk.provider.store;
    let late = store.delete_user(id, Some(1), 5, None).await;
    assert!(
        matches!(late, Err(doorward_store::StoreError::Conflict(_))),
        "{late:?}"
    );
    assert_eq!(
        desk.send("GET", &path, &Value::Null).await.json()["title"],
        "x"
    );
    let good = desk
        .with("DELETE", &path, &Value::Null, &[("if-match", "W/\"2\"")])
        .await;
    assert_eq!(good.status, 204);
    let again = desk
        .with("DELETE", &path, &Value::Null, &[("if-match", "*")])
        .await;
    assert_eq!(error(&again).0, 404);
}

#[tokio::test]
async fn a_record_grows_to_its_bound_and_no_further() {
    let desk = ScimClient::new().await;
    let made = desk.create(json!({"userName": "ann"})).await;
    let mut refused = 0;
    for part in [
        "streetAddress",
        "locality",
        "region",
        "postalCode",
        "country",
    ] {
        let values: Vec<_> = (0..40)
            .map(|at| json!({"type": at.to_string(), part: "x".repeat(16_000)}))
            .collect();
        let path = if part == "streetAddress" {
            "addresses"
        } else {
            "emails"
        };
        let values = match path {
            "addresses" => json!(values),
            _ => json!(
                (0..40)
                    .map(|at| json!({"value": format!("{at}{part}{}", "x".repeat(15_000))}))
                    .collect::<Vec<_>>()
            ),
        };
        let answer = desk
            .patch(
                &made["id"],
                json!([{"op": "add", "path": path, "value": values}]),
            )
            .await;
        match answer.status.as_u16() {
            200 => {}
            _ => {
                assert_eq!(error(&answer), (400, "invalidValue".to_owned()));
                refused += 1;
            }
        }
    }
    assert!(refused > 0);
    let path = format!("/v1/users/{}", made["id"].as_str().expect("an id"));
    assert!(desk.send("GET", &path, &Value::Null).await.text.len() < 2_500_000);
}
