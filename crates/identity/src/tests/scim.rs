//! Users that are created, changed and removed over SCIM.

mod changes;

use serde_json::{Value, json};

use crate::testing::{Answer, Provider, config, request};

pub(super) const USER: &str = "urn:ietf:params:scim:schemas:core:2.0:User";
pub(super) const PATCH: &str = "urn:ietf:params:scim:api:messages:2.0:PatchOp";

/// A provider with a client that may write.
pub(super) struct ScimClient {
    pub(super) provider: Provider,
    token: String,
}

impl ScimClient {
    pub(super) async fn new() -> Self {
        let mut config = config();
        config["realms"]["/"]["settings"] = json!({"password_policy": {"min_score": 0}});
        let clients = config["realms"]["/"]["clients"].as_array_mut();
        clients.expect("clients").push(json!({
            "client_id": "hr", "client_secret": "hr-secret",
            "grant_types": ["client_credentials"], "scope": "scim:write other"}));
        let clients = config["realms"]["/"]["clients"].as_array_mut();
        clients.expect("clients")[0]["scope"] =
            json!("openid profile email me:write scim:write groups");
        let provider = Provider::with(config).await;
        let token = Self::granted(&provider, "scim:write").await;
        Self { provider, token }
    }

    async fn granted(provider: &Provider, scope: &str) -> String {
        let body = format!(
            "grant_type=client_credentials&client_id=hr&client_secret=hr-secret&scope={scope}"
        );
        let answer = provider.token(&body).await.json();
        answer["access_token"].as_str().expect("a token").to_owned()
    }

    pub(super) async fn send(&self, method: &str, path: &str, body: &Value) -> Answer {
        self.with(method, path, body, &[]).await
    }

    pub(super) async fn with(
        &self,
        method: &str,
        path: &str,
        body: &Value,
        headers: &[(&str, &str)],
    ) -> Answer {
        self.by(&self.token, method, path, body, headers).await
    }

    pub(super) async fn by(
        &self,
        token: &str,
        method: &str,
        path: &str,
        body: &Value,
        headers: &[(&str, &str)],
    ) -> Answer {
        let bearer = format!("Bearer {token}");
        let mut all = vec![("authorization", bearer.as_str())];
        let text = match body {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            body => body.to_string(),
        };
        if !headers.iter().any(|(name, _)| *name == "content-type") {
            all.push(("content-type", "application/scim+json"));
        }
        all.extend_from_slice(headers);
        self.provider.send(request(method, path, &all, &text)).await
    }

    /// Creates a user; returns its record.
    pub(super) async fn create(&self, record: Value) -> Value {
        let answer = self.send("POST", "/v1/users", &record).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        answer.json()
    }

    pub(super) async fn patch(&self, id: &Value, operations: Value) -> Answer {
        let path = format!("/v1/users/{}", id.as_str().expect("an id"));
        let body = json!({"schemas": [PATCH], "Operations": operations});
        self.send("PATCH", &path, &body).await
    }
}

/// Status and scimType.
pub(super) fn error(answer: &Answer) -> (u16, String) {
    let body = answer.json();
    assert_eq!(body["status"], answer.status.as_u16().to_string());
    assert_eq!(answer.header("content-type"), "application/scim+json");
    let kind = body["scimType"].as_str().unwrap_or_default();
    (answer.status.as_u16(), kind.to_owned())
}

fn ann() -> Value {
    json!({
        "schemas": [USER], "userName": "ann", "displayName": "Ann", "externalId": "7",
        "name": {"givenName": "Ann", "familyName": "Lee"},
        "emails": [{"value": "ann@work.example", "type": "work", "primary": true, "verified": true},
                   {"value": "ann@home.example", "type": "home"}],
    })
}

#[tokio::test]
async fn a_user_lives_from_post_to_delete() {
    let desk = ScimClient::new().await;
    let answer = desk.send("POST", "/v1/users", &ann()).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let made = answer.json();
    let path = format!("/v1/users/{}", made["id"].as_str().expect("an id"));
    assert_eq!(
        answer.header("location"),
        format!("http://localhost:8000{path}")
    );
    assert_eq!(answer.header("location"), made["meta"]["location"]);
    assert_eq!(
        (answer.header("etag"), &made["meta"]["version"]),
        ("W/\"1\"", &json!("W/\"1\""))
    );
    assert_eq!(answer.header("content-type"), "application/scim+json");
    assert_eq!(made["accountStatus"], "Active");
    assert_eq!(made["preferences"], json!({}));
    assert!(made.get("active").is_none(), "{made}");

    let again = desk
        .send("POST", "/v1/users", &json!({"userName": "ANN"}))
        .await;
    assert_eq!(error(&again), (409, "uniqueness".to_owned()));

    let put = json!({"schemas": [USER], "userName": "ann", "nickname": "Annie", "id": "other",
        "emails": [{"value": "ANN@work.example"}, {"value": "new@work.example"}]});
    let put = desk.send("PUT", &path, &put).await;
    assert_eq!(
        (put.status.as_u16(), put.header("etag")),
        (200, "W/\"2\""),
        "{}",
        put.text
    );
    let put = put.json();
    assert_eq!(
        (&put["id"], &put["nickName"]),
        (&made["id"], &json!("Annie"))
    );
    assert!(put.get("displayName").is_none());
    assert_eq!(
        put["emails"][0]["verified"], true,
        "the address stays verified"
    );
    assert!(put["emails"][1].get("verified").is_none());
    assert_eq!(put["meta"]["created"], made["meta"]["created"]);

    let gone = desk.send("DELETE", &path, &Value::Null).await;
    assert_eq!((gone.status.as_u16(), gone.text.as_str()), (204, ""));
    for method in ["GET", "DELETE"] {
        assert_eq!(error(&desk.send(method, &path, &Value::Null).await).0, 404);
    }
    assert_eq!(error(&desk.send("PUT", &path, &ann()).await).0, 404);
}

#[tokio::test]
async fn writes_are_closed_without_the_scope_and_to_users() {
    let desk = ScimClient::new().await;
    let other = ScimClient::granted(&desk.provider, "other").await;
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        let path = match method {
            "POST" => "/v1/users".to_owned(),
            _ => format!("/v1/users/{}", uuid::Uuid::nil()),
        };
        let refused = desk.by(&other, method, &path, &ann(), &[]).await;
        assert_eq!(error(&refused).0, 403, "{method}");
        assert_eq!(
            refused.header("www-authenticate"),
            "Bearer realm=\"/\", error=\"insufficient_scope\", scope=\"scim:write\""
        );
    }
    let tokens = desk.provider.user_tokens("openid+scim:write").await;
    let token = tokens["access_token"].as_str().expect("a token");
    let refused = desk.by(token, "POST", "/v1/users", &ann(), &[]).await;
    assert_eq!(error(&refused).0, 403, "a user made users");
}

#[tokio::test]
async fn versions_guard_changes_and_spare_answers() {
    let desk = ScimClient::new().await;
    let made = desk.create(ann()).await;
    let path = format!("/v1/users/{}", made["id"].as_str().expect("an id"));
    for (header, value, status) in [
        ("if-none-match", "W/\"1\"", 304),
        ("if-none-match", "W/\"0\", \"1\"", 304),
        ("if-none-match", "*", 304),
        ("if-none-match", "W/\"2\"", 200),
    ] {
        let answer = desk
            .with("GET", &path, &Value::Null, &[(header, value)])
            .await;
        assert_eq!(answer.status, status, "{value}");
    }
    for method in ["PUT", "DELETE"] {
        let stale = desk
            .with(method, &path, &ann(), &[("if-match", "W/\"9\"")])
            .await;
        assert_eq!(error(&stale).0, 412, "{method}");
    }
    let stale = json!({"schemas": [PATCH], "Operations": [{"op": "remove", "path": "title"}]});
    let stale = desk
        .with("PATCH", &path, &stale, &[("if-match", "W/\"9\"")])
        .await;
    assert_eq!(stale.status, 412);
    let put = desk
        .with(
            "PUT",
            &path,
            &json!({"userName": "ann"}),
            &[("if-match", "W/\"1\"")],
        )
        .await;
    assert_eq!(put.header("etag"), "W/\"2\"");
    let same = desk
        .with(
            "PUT",
            &path,
            &json!({"userName": "ann"}),
            &[("if-match", "*")],
        )
        .await;
    assert_eq!(same.header("etag"), "W/\"2\"", "nothing changed");
}

#[tokio::test]
async fn a_search_spelt_in_another_case_does_not_find_everybody() {
    let desk = ScimClient::new().await;
    desk.create(ann()).await;
    desk.create(json!({"userName": "bob"})).await;
    let urn = "urn:ietf:params:scim:api:messages:2.0:SearchRequest";
    let search = json!({"Schemas": [urn], "Filter": "userName eq \"bob\"", "COUNT": 1});
    for path in ["/v1/users/.search", "/v1/.search"] {
        let found = desk.send("POST", path, &search).await.json();
        assert_eq!(found["totalResults"], 1, "{path} {found}");
        assert_eq!(found["Resources"][0]["userName"], "bob", "{path}");
    }
    let filter = "/v1/users?Filter=userName%20eq%20%22bob%22";
    let found = desk.send("GET", filter, &Value::Null).await.json();
    assert_eq!(found["totalResults"], 1, "{found}");
    for (body, what) in [
        (
            json!({"schemas": [urn], "fliter": "userName eq \"bob\""}),
            "misspelt",
        ),
        (
            json!({"schemas": [urn], "filter": "title pr", "Filter": "id pr"}),
            "twice",
        ),
    ] {
        let refused = desk.send("POST", "/v1/users/.search", &body).await;
        assert_eq!(error(&refused), (400, "invalidSyntax".to_owned()), "{what}");
    }
    let unset = json!({"schemas": [urn], "filter": null, "cursor": null});
    let all = desk.send("POST", "/v1/users/.search", &unset).await;
    assert_eq!(all.status, 200, "{}", all.text);
}

#[tokio::test]
async fn bodies_out_of_bounds_are_refused() {
    let desk = ScimClient::new().await;
    let post = |body: Value, kind: &'static str| {
        let desk = &desk;
        async move {
            desk.with("POST", "/v1/users", &body, &[("content-type", kind)])
                .await
        }
    };
    let json_kind = "application/json; charset=utf-8";
    for (body, kind, status, scim) in [
        (ann(), "text/plain", 415, ""),
        (ann(), "application/x-www-form-urlencoded", 415, ""),
        (
            json!("{\"userName\":\"a\",\"userName\":\"b\"}"),
            json_kind,
            400,
            "invalidSyntax",
        ),
        (json!("[]"), json_kind, 400, "invalidSyntax"),
        (json!("{"), json_kind, 400, "invalidSyntax"),
        (
            json!("{\"a\":".repeat(5000)),
            json_kind,
            400,
            "invalidSyntax",
        ),
        (
            json!(format!("{{\"userName\":\"{}\"}}", "x".repeat(2_000_000))),
            json_kind,
            413,
            "",
        ),
        (
            json!({"userName": "x", "shoeSize": 43}),
            json_kind,
            400,
            "invalidSyntax",
        ),
        (json!({"displayName": "x"}), json_kind, 400, "invalidValue"),
        (
            json!({"userName": "x", "emails": {}}),
            json_kind,
            400,
            "invalidValue",
        ),
        (
            json!({"userName": "x", "title": "\u{0}"}),
            json_kind,
            400,
            "invalidValue",
        ),
        (
            json!({"userName": "a\u{202e}b"}),
            json_kind,
            400,
            "invalidValue",
        ),
        (
            json!({"userName": "x", "password": 5}),
            json_kind,
            400,
            "invalidValue",
        ),
        (
            json!({"userName": "x", "password": "x".repeat(900_000)}),
            json_kind,
            400,
            "invalidValue",
        ),
        (
            json!({"userName": "x", "schemas": ["urn:other"]}),
            json_kind,
            400,
            "invalidSyntax",
        ),
    ] {
        let answer = post(body, kind).await;
        assert_eq!(error(&answer), (status, scim.to_owned()), "{}", answer.text);
    }
    let refused = desk
        .with("GET", "/v1/users", &Value::Null, &[("accept", "text/html")])
        .await;
    assert_eq!(error(&refused).0, 406);
    let all = desk.send("GET", "/v1/users", &Value::Null).await;
    assert_eq!(all.json()["totalResults"], 3, "something was stored");
}

#[tokio::test]
async fn a_password_is_taken_and_never_shown() {
    let desk = ScimClient::new().await;
    let mut record = ann();
    record["password"] = json!("Wonderland-7");
    let made = desk.create(record).await;
    assert!(!made.to_string().contains("Wonderland"), "{made}");
    let sign_in = async |password: &str| {
        let body = format!(
            "grant_type=password&client_id=app&client_secret=app-secret&scope=openid\
             &username=ann&password={password}"
        );
        desk.provider.token(&body).await.status.as_u16()
    };
    assert_eq!(sign_in("Wonderland-7").await, 200);
    let changed = desk
        .patch(
            &made["id"],
            json!([{"op": "replace", "path": "password", "value": "Looking-glass-8"}]),
        )
        .await;
    assert_eq!(
        (changed.status.as_u16(), changed.header("etag")),
        (200, "W/\"2\"")
    );
    assert_eq!(
        (
            sign_in("Wonderland-7").await,
            sign_in("Looking-glass-8").await
        ),
        (400, 200)
    );
    let short = desk
        .patch(
            &made["id"],
            json!([{"op": "add", "value": {"password": "x"}}]),
        )
        .await;
    assert_eq!(error(&short), (400, "invalidValue".to_owned()));
    let gone = desk
        .patch(&made["id"], json!([{"op": "remove", "path": "password"}]))
        .await;
    assert_eq!(error(&gone), (400, "invalidValue".to_owned()));
}

#[tokio::test]
async fn answers_are_cut_and_sorted_as_asked() {
    let desk = ScimClient::new().await;
    for (name, title) in [("ann", "b"), ("bob", "a"), ("cid", "c")] {
        desk.create(json!({"userName": name, "title": title, "userType": "new",
            "name": {"givenName": name}, "emails": [{"value": format!("{name}@x"), "type": "t"}]}))
            .await;
    }
    let names = async |query: &str| {
        let path = format!("/v1/users?filter=userType%20pr&{query}");
        let body = desk.send("GET", &path, &Value::Null).await.json();
        let all = body["Resources"]
            .as_array()
            .unwrap_or_else(|| panic!("{body}"))
            .clone();
        let names: Vec<_> = all
            .iter()
            .map(|one| one["userName"].as_str().unwrap_or("-").to_owned())
            .collect();
        (
            names.join(" "),
            body["pagedResultsCookie"].as_str().map(str::to_owned),
        )
    };
    assert_eq!(names("sortBy=title").await.0, "bob ann cid");
    assert_eq!(
        names("sortBy=title&sortOrder=descending").await.0,
        "cid ann bob"
    );
    assert_eq!(names("_sortKeys=-userName").await.0, "cid bob ann");
    assert_eq!(names("_sortKeys=%2BuserType,-title").await.0, "cid ann bob");
    assert_eq!(names("sortBy=emails").await.0, "ann bob cid");
    let (first, cookie) = names("sortBy=title&_pageSize=2").await;
    assert_eq!(first, "bob ann");
    let next = format!(
        "sortBy=title&_pageSize=2&_pagedResultsCookie={}",
        cookie.expect("a cookie")
    );
    assert_eq!(names(&next).await, ("cid".to_owned(), None));
    let one = async |query: &str| {
        let path = format!("/v1/users?filter=userName%20eq%20%22ann%22&{query}");
        let mut body = desk.send("GET", &path, &Value::Null).await.json();
        let mut record = body["Resources"][0].take();
        record.as_object_mut().expect("a record").remove("id");
        record.as_object_mut().expect("a record").remove("schemas");
        record
    };
    assert_eq!(
        one("attributes=title,name.givenName").await,
        json!({"title": "b", "name": {"givenName": "ann"}})
    );
    assert_eq!(
        one("_fields=name/givenName").await,
        json!({"name": {"givenName": "ann"}})
    );
    assert_eq!(
        one("attributes=emails.value").await,
        json!({"emails": [{"value": "ann@x"}]})
    );
    let rest = one("excludedAttributes=emails.type,meta,name,id").await;
    assert_eq!(rest["emails"], json!([{"value": "ann@x"}]));
    assert!(rest.get("meta").is_none() && rest.get("name").is_none());
    let search = json!({"schemas": ["urn:ietf:params:scim:api:messages:2.0:SearchRequest"],
        "filter": "userType pr", "sortBy": "title", "sortOrder": "descending", "startIndex": 2,
        "count": 1, "attributes": ["userName"]});
    let found = desk.send("POST", "/v1/users/.search", &search).await.json();
    assert_eq!(
        (&found["totalResults"], &found["startIndex"]),
        (&json!(3), &json!(2))
    );
    assert_eq!(found["Resources"][0]["userName"], "ann");
    for bad in [
        "sortBy=name",
        "sortBy=nothing",
        "sortOrder=up&sortBy=title",
        "count=x",
    ] {
        let answer = desk
            .send("GET", &format!("/v1/users?{bad}"), &Value::Null)
            .await;
        assert_eq!(answer.status, 400, "{bad}");
    }
}

#[tokio::test]
async fn users_change_what_is_theirs_at_me() {
    let desk = ScimClient::new().await;
    let mut record = ann();
    record["password"] = json!("Wonderland-7");
    record["userType"] = json!("Employee");
    desk.create(record).await;
    let token = async |scope: &str| {
        let body = format!(
            "grant_type=password&client_id=app&client_secret=app-secret&scope={scope}\
             &username=ann&password=Wonderland-7"
        );
        let answer = desk.provider.token(&body).await.json();
        answer["access_token"].as_str().expect("a token").to_owned()
    };
    let plain = token("openid").await;
    let me = desk.by(&plain, "GET", "/v1/Me", &Value::Null, &[]).await;
    assert_eq!(me.json()["userName"], "ann");
    assert_eq!(me.header("location"), me.json()["meta"]["location"]);
    let operations = |all: Value| json!({"schemas": [PATCH], "Operations": all});
    let nick = operations(json!([{"op": "add", "path": "nickName", "value": "Annie"}]));
    let refused = desk.by(&plain, "PATCH", "/v1/Me", &nick, &[]).await;
    assert_eq!(error(&refused).0, 403);
    assert!(
        refused
            .header("www-authenticate")
            .ends_with("scope=\"me:write\"")
    );
    let token = token("openid+me:write").await;
    let done = desk.by(&token, "PATCH", "/v1/Me", &nick, &[]).await;
    assert_eq!(done.json()["nickName"], "Annie", "{}", done.text);
    for operation in [
        json!({"op": "replace", "path": "userName", "value": "root"}),
        json!({"op": "replace", "path": "active", "value": false}),
        json!({"op": "add", "path": "roles", "value": [{"value": "admin"}]}),
        json!({"op": "replace", "path": "userType", "value": "Boss"}),
        json!({"op": "replace", "path": "emails[type eq \"home\"].verified", "value": true}),
        json!({"op": "add", "path": "emails", "value": [{"value": "boss@x", "verified": true}]}),
        json!({"op": "replace", "path": "password", "value": "Another-9-word"}),
    ] {
        let refused = desk
            .by(
                &token,
                "PATCH",
                "/v1/Me",
                &operations(json!([operation])),
                &[],
            )
            .await;
        assert_eq!(
            error(&refused),
            (403, "mutability".to_owned()),
            "{operation}"
        );
    }
    let put = json!({"displayName": "Me", "emails": [{"value": "ann@work.example"}]});
    let put = desk.by(&token, "PUT", "/v1/Me", &put, &[]).await.json();
    assert_eq!(
        (&put["userName"], &put["userType"]),
        (&json!("ann"), &json!("Employee"))
    );
    assert_eq!(put["emails"][0]["verified"], true);
    // What a token has added is no address to send links for passwords to.
    let emails = json!({"emails": [{"value": "ann@work.example"}, {"value": "own@x.example"}]});
    let put = desk.by(&token, "PUT", "/v1/Me", &emails, &[]).await.json();
    assert_eq!(put["emails"][1]["verified"], false, "{put}");
    for operation in [
        json!({"op": "remove", "path": "emails[value eq \"own@x.example\"].verified"}),
        json!({"op": "replace", "path": "emails", "value": [{"value": "OWN@x.example"}]}),
    ] {
        let patch = operations(json!([operation]));
        let me = desk.by(&token, "PATCH", "/v1/Me", &patch, &[]).await.json();
        let last = me["emails"].as_array().and_then(|all| all.last());
        assert_eq!(last.expect("an address")["verified"], false, "{me}");
    }
    assert_eq!(
        desk.by(&token, "DELETE", "/v1/Me", &Value::Null, &[])
            .await
            .status,
        403
    );
    let client = desk.send("GET", "/v1/Me", &Value::Null).await;
    assert_eq!(error(&client).0, 404);
}

#[tokio::test]
async fn plain_values_are_objects_where_records_are_the_standards_own() {
    let mut config = crate::testing::config();
    config["realms"]["/"]["users"] = json!([
        {"userName": "ann", "emails": ["ann@x.example"], "ims": ["ann@chat"],
         "phoneNumbers": ["+1 555 1"]},
    ]);
    let provider = Provider::with(config).await;
    let token = provider.client_token().await;
    let shown = async |path: &str| {
        let answer = provider.get_with(path, &token).await;
        answer.json()["Resources"][0].clone()
    };
    let ann = shown("/scim/v2/Users").await;
    assert_eq!(ann["emails"], json!([{"value": "ann@x.example"}]));
    assert_eq!(ann["ims"], json!([{"value": "ann@chat"}]));
    assert_eq!(ann["phoneNumbers"], json!([{"value": "+1 555 1"}]));
    assert!(ann["schemas"][0].is_string());
    let ann = shown("/v1/Users").await;
    assert_eq!(ann["emails"], json!([{"value": "ann@x.example"}]));
    assert_eq!(ann["ims"], json!(["ann@chat"]), "as it was written");
}
