use serde_json::{Value, json};

use crate::testing::{Answer, Provider, config, request};

/// `text` as it stands in a query.
fn encode(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

async fn query(provider: &Provider, token: &str, filter: &str) -> Answer {
    provider
        .get_with(&format!("/v1/users?filter={}", encode(filter)), token)
        .await
}

fn names(answer: &Answer) -> Vec<String> {
    let body = answer.json();
    let users = body["Resources"]
        .as_array()
        .unwrap_or_else(|| panic!("{}", answer.text));
    users
        .iter()
        .filter_map(|user| user["userName"].as_str().map(str::to_owned))
        .collect()
}

async fn crowd() -> Provider {
    let mut config = config();
    config["realms"]["/"]["users"] = json!([
        {"userName": "ann", "title": "Boss", "userType": "Employee", "nickname": "Annie",
         "name": {"givenName": "Ann", "familyName": "Lee"},
         "emails": [{"value": "ann@example.com", "type": "work", "primary": true}],
         "addresses": [{"type": "home", "streetAddress": "1 Main St", "locality": "Springfield",
                        "postalCode": "12345"}],
         "ims": ["ann@chat"]},
        {"userName": "bob", "userType": "Contractor",
         "emails": [{"value": "bob@home.org", "type": "home"},
                    {"value": "bob@example.com", "type": "work"}]},
        {"userName": "Cid", "accountStatus": "Deactivated"},
    ]);
    Provider::with(config).await
}

#[tokio::test]
async fn a_user_is_found_by_name_with_the_record_of_the_interface() {
    let provider = crowd().await;
    let token = provider.client_token().await;
    let answer = query(&provider, &token, "userName eq \"ann\"").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert!(
        answer
            .header("content-type")
            .starts_with("application/json")
    );
    assert_eq!(answer.header("cache-control"), "no-store");
    let mut body = answer.json();
    let user = body["Resources"][0].take();
    assert_eq!(
        body,
        json!({
            "schemas": ["urn:ietf:params:scim:api:messages:2.0:ListResponse"],
            "Resources": [null],
            "totalResults": 1,
            "itemsPerPage": 1,
            "pagedResultsCookie": null,
        })
    );
    for (name, value) in [
        ("userName", json!("ann")),
        ("accountStatus", json!("Active")),
        ("nickName", json!("Annie")),
        ("title", json!("Boss")),
        ("preferences", json!({})),
        ("ims", json!(["ann@chat"])),
        ("name", json!({"givenName": "Ann", "familyName": "Lee"})),
    ] {
        assert_eq!(user[name], value, "{name}");
    }
    assert_eq!(
        user["addresses"][0]["formatted"],
        "1 Main St, Springfield, 12345"
    );
    assert_eq!(user["meta"]["created"], "2027-01-15T08:00:00.500Z");
    let id = user["id"].as_str().expect("an id");
    assert!(uuid::Uuid::parse_str(id).is_ok());
    assert!(user.get("password").is_none() && user.get("active").is_none());

    let one = provider.get_with(&format!("/v1/users/{id}"), &token).await;
    assert_eq!(one.json(), user);
    assert_eq!(one.header("etag"), "W/\"1\"");
    assert_eq!(
        provider.get_with("/v1/users/nobody", &token).await.status,
        404
    );
}

#[tokio::test]
async fn the_whole_filter_grammar_selects() {
    let provider = crowd().await;
    let token = provider.client_token().await;
    for (filter, expected) in [
        ("userName eq \"ANN\"", vec!["ann"]),
        ("USERNAME Eq \"cid\"", vec!["Cid"]),
        ("userName ne \"ann\"", vec!["bob", "Cid"]),
        ("userName sw \"b\" or userName ew \"N\"", vec!["ann", "bob"]),
        ("userName co \"i\"", vec!["Cid"]),
        ("userName gt \"ann\"", vec!["bob", "Cid"]),
        ("title pr", vec!["ann"]),
        ("not (title pr)", vec!["bob", "Cid"]),
        ("name.familyName eq \"lee\"", vec!["ann"]),
        (
            "nickname eq \"annie\" and nickName eq \"ANNIE\"",
            vec!["ann"],
        ),
        ("accountStatus eq \"Deactivated\"", vec!["Cid"]),
        ("active eq true", vec!["ann", "bob"]),
        ("emails co \"example.com\"", vec!["ann", "bob"]),
        (
            "emails[type eq \"home\" and value co \"example.com\"]",
            vec![],
        ),
        (
            "emails[type eq \"work\" and not (primary eq true)]",
            vec!["bob"],
        ),
        ("addresses.formatted co \"springfield\"", vec!["ann"]),
        ("ims eq \"ann@chat\"", vec!["ann"]),
        (
            "userType eq \"Employee\" or userType eq \"Contractor\" and title pr",
            vec!["ann"],
        ),
        (
            "(userType eq \"Employee\" or userType eq \"Contractor\") and emails pr",
            vec!["ann", "bob"],
        ),
        (
            "meta.created ge \"2027-01-15T09:00:00.500+01:00\"",
            vec!["ann", "bob", "Cid"],
        ),
        ("meta.lastModified lt \"2027-01-15T08:00:00Z\"", vec![]),
        ("shoeSize eq 43", vec![]),
        ("userName eq \"nobody\"", vec![]),
    ] {
        let answer = query(&provider, &token, filter).await;
        assert_eq!(names(&answer), expected, "{filter}");
        assert_eq!(answer.json()["totalResults"], expected.len());
    }
    assert_eq!(
        names(&provider.get_with("/v1/users", &token).await),
        ["ann", "bob", "Cid"]
    );
}

#[tokio::test]
async fn sql_injection_through_a_filter_finds_nothing() {
    let provider = crowd().await;
    let token = provider.client_token().await;
    for hostile in [
        "userName eq \"x' OR '1'='1\"",
        "userName eq \"'; DROP TABLE users; --\"",
        "title sw \"%\"",
        "userName co \"_\"",
        "emails.value ew \"') OR 1=1 --\"",
    ] {
        let answer = query(&provider, &token, hostile).await;
        assert_eq!(
            (answer.status.as_u16(), names(&answer).len()),
            (200, 0),
            "{hostile}"
        );
    }
    for hostile in [
        "user'Name eq \"x\"",
        "userName;-- eq \"x\"",
        "1=1",
        "userName) OR (1 eq 1",
    ] {
        assert_eq!(
            query(&provider, &token, hostile).await.status,
            400,
            "{hostile}"
        );
    }
    assert_eq!(
        names(&query(&provider, &token, "userName pr").await).len(),
        3
    );
}

#[tokio::test]
async fn a_bad_filter_is_refused_with_its_place() {
    let provider = crowd().await;
    let token = provider.client_token().await;
    let answer = query(&provider, &token, "userName is \"x\"").await;
    assert_eq!(answer.header("content-type"), "application/scim+json");
    assert_eq!(
        answer.json(),
        json!({
            "schemas": ["urn:ietf:params:scim:api:messages:2.0:Error"],
            "status": "400",
            "scimType": "invalidFilter",
            "detail": "expected an operator (eq ne co sw ew gt ge lt le pr) at character 10 of the filter",
        })
    );
    let bomb = query(&provider, &token, &"(".repeat(3000)).await;
    assert_eq!(bomb.json()["scimType"], "invalidFilter");
    let terms = |many| vec!["title pr"; many].join(" or ");
    assert_eq!(query(&provider, &token, &terms(32)).await.status, 200);
    let bomb = query(&provider, &token, &terms(330)).await;
    assert_eq!(bomb.json()["scimType"], "invalidFilter");
}

#[tokio::test]
async fn a_token_is_required() {
    let provider = crowd().await;
    let none = provider.get("/v1/users").await;
    assert_eq!(
        (none.status.as_u16(), none.header("www-authenticate")),
        (401, "Bearer realm=\"/\"")
    );
    assert_eq!(none.json()["status"], "401");
    let bad = provider.get_with("/v1/users", "junk").await;
    assert_eq!(bad.status, 401);
    assert!(
        bad.header("www-authenticate")
            .contains("error=\"invalid_token\"")
    );
    let basic = [("authorization", "Basic eDp5")];
    assert_eq!(
        provider
            .send(request("GET", "/v1/users", &basic, ""))
            .await
            .status,
        401
    );
    let token = provider.client_token().await;
    let query = provider
        .get(&format!("/v1/users?access_token={token}"))
        .await;
    assert_eq!(query.status, 401, "a token in the query was read");
    let post = provider.send(request("POST", "/v1/users", &[], "{}")).await;
    assert_eq!(post.status, 401);
    let put = provider.send(request("PUT", "/v1/users", &[], "{}")).await;
    assert_eq!(
        (put.status.as_u16(), put.header("allow")),
        (405, "GET, POST")
    );
}

#[tokio::test]
async fn a_users_own_token_sees_that_user_only() {
    let provider = Provider::new().await;
    let tokens = provider.user_tokens("openid").await;
    let token = tokens["access_token"].as_str().expect("a token");
    assert_eq!(
        names(&provider.get_with("/v1/users", token).await),
        ["demo"]
    );
    assert_eq!(
        names(&query(&provider, token, "userName eq \"demo\"").await),
        ["demo"]
    );
    assert!(names(&query(&provider, token, "userName eq \"other\"").await).is_empty());
    assert!(names(&query(&provider, token, "id pr or true").await).len() == 1);
}

#[tokio::test]
async fn a_realm_may_demand_a_scope() {
    let mut config = config();
    config["realms"]["/"]["settings"] = json!({"users_scope": "email"});
    let provider = Provider::with(config).await;
    let token = provider.client_token().await;
    let refused = provider.get_with("/v1/users", &token).await;
    assert_eq!(refused.status, 403);
    assert!(
        refused
            .header("www-authenticate")
            .ends_with("error=\"insufficient_scope\", scope=\"email\"")
    );
    let tokens = provider.user_tokens("email").await;
    let token = tokens["access_token"].as_str().expect("a token");
    assert_eq!(names(&provider.get_with("/v1/users", token).await).len(), 3);
}

#[tokio::test]
async fn a_token_of_one_realm_sees_no_user_of_another() {
    let provider = Provider::new().await;
    let body =
        "grant_type=client_credentials&client_id=app&client_secret=alpha-secret&scope=openid";
    let answer = provider
        .form("/oauth2/realms/alpha/access_token", body)
        .await
        .json();
    let token = answer["access_token"].as_str().expect("a token");
    assert_eq!(
        names(&provider.get_with("/v1/users", token).await),
        ["demo"]
    );
}

#[tokio::test]
async fn pages_are_cut_both_ways() {
    let provider = crowd().await;
    let token = provider.client_token().await;
    let get = async |query: &str| {
        provider
            .get_with(&format!("/v1/users?{query}"), &token)
            .await
    };
    let first = get("_pageSize=2").await;
    let body = first.json();
    assert_eq!(names(&first), ["ann", "bob"]);
    assert_eq!(
        (&body["totalResults"], &body["itemsPerPage"]),
        (&json!(3), &json!(2))
    );
    let cookie = body["pagedResultsCookie"].as_str().expect("a cookie");
    let last = get(&format!("_pageSize=2&_pagedResultsCookie={cookie}")).await;
    assert_eq!(
        (names(&last), &last.json()["pagedResultsCookie"]),
        (vec!["Cid".to_owned()], &Value::Null)
    );
    assert_eq!(names(&get("startIndex=2&count=1").await), ["bob"]);
    assert_eq!(names(&get("startIndex=-5&count=1").await), ["ann"]);
    assert_eq!(get("count=0").await.json()["totalResults"], 3);
    let both = get("_pageSize=1&_pagedResultsOffset=1&_pagedResultsCookie=YQ").await;
    assert_eq!(
        both.json()["detail"],
        "The parameters _pagedResultsOffset and _pagedResultsCookie are mutually exclusive"
    );
    for bad in [
        "count=x",
        "_pageSize=2&_pagedResultsCookie=***",
        "_pagedResultsCookie=YQ",
        "filter=a&filter=b",
    ] {
        assert_eq!(get(bad).await.status, 400, "{bad}");
    }
}

#[tokio::test]
async fn scim_clients_get_their_media_type() {
    let provider = crowd().await;
    let bearer = format!("Bearer {}", provider.client_token().await);
    let headers = [
        ("authorization", bearer.as_str()),
        ("accept", "application/scim+json"),
    ];
    let answer = provider
        .send(request("GET", "/v1/users", &headers, ""))
        .await;
    assert_eq!(answer.header("content-type"), "application/scim+json");
}

#[tokio::test]
async fn filters_on_what_every_record_shows_find_what_it_shows() {
    let mut config = config();
    config["realms"]["/"]["users"] = json!([
        {"userName": "ann", "preferences": {"theme": "dark"}},
        {"userName": "bob"},
    ]);
    let provider = Provider::with(config).await;
    let token = provider.client_token().await;
    let urn = "urn:ietf:params:scim:schemas:core:2.0:User";
    for (filter, found) in [
        (format!("schemas eq \"{urn}\""), 2),
        ("schemas pr".to_owned(), 2),
        ("schemas eq \"urn:other\"".to_owned(), 0),
        ("meta.version eq \"W/\\\"1\\\"\"".to_owned(), 2),
        ("meta.version ne \"W/\\\"1\\\"\"".to_owned(), 0),
        ("meta.location pr".to_owned(), 2),
        ("preferences pr".to_owned(), 1),
        ("not (preferences pr)".to_owned(), 1),
    ] {
        let answer = query(&provider, &token, &filter).await;
        assert_eq!(names(&answer).len(), found, "{filter}");
    }
    for filter in [
        "preferences.theme eq \"dark\"",
        "preferences.theme pr",
        "preferences eq \"dark\"",
        "meta.location eq \"http://x\"",
    ] {
        let answer = query(&provider, &token, filter).await;
        assert_eq!(answer.json()["scimType"], "invalidFilter", "{filter}");
    }
}
