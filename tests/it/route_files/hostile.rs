//! Files that are made to hurt: refused, and nothing changes.

use super::*;

fn nested(levels: usize) -> String {
    let open = "{\"type\": \"Chain\", \"config\": {\"filters\": [], \"handler\": ".repeat(levels);
    format!(
        "{{\"handler\": {open}\"ClientHandler\"{}}}",
        "}}".repeat(levels)
    )
}

/// Each name twice the one before.
fn reference_bomb() -> String {
    let objects: Vec<String> = (0..30)
        .map(|i| {
            format!(
                "{{\"name\": \"f{i}\", \"type\": \"ChainOfFilters\", \"config\": {{\"filters\": [\"f{n}\", \"f{n}\"]}}}}",
                n = i + 1
            )
        })
        .collect();
    format!(
        "{{\"handler\": {{\"type\": \"Chain\", \"config\": {{\"filters\": [\"f0\"], \"handler\": \"ClientHandler\"}}}},\n\
         \"heap\": [{}, {{\"name\": \"f30\", \"type\": \"ThrottlingFilter\", \"config\": {{\"rate\": \
         {{\"numberOfRequests\": 1, \"duration\": \"1 s\"}}}}}}]}}",
        objects.join(",\n")
    )
}

fn token_bomb() -> String {
    let mut properties = vec!["\"p0\": \"0123456789\"".to_owned()];
    for i in 1..30 {
        properties.push(format!("\"p{i}\": \"&{{p{}}}&{{p{}}}\"", i - 1, i - 1));
    }
    format!(
        "{{\"properties\": {{{}}}, \"name\": \"&{{p29}}\", \"handler\": \"ClientHandler\"}}",
        properties.join(",\n")
    )
}

fn alias_bomb() -> String {
    let mut text = "handler: ClientHandler\na0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for i in 1..12 {
        let before = format!("*a{}", i - 1);
        text.push_str(&format!(
            "a{i}: &a{i} [{}]\n",
            [before.as_str(); 9].join(", ")
        ));
    }
    text
}

#[tokio::test]
async fn hostile_files_are_refused_and_change_nothing() {
    let door = door(&[("good.json", &answering("good", "/good", 201))]).await;
    let circle = "{\"handler\": \"a\", \"heap\": [{\"name\": \"a\", \"type\": \"Chain\", \"config\": \
                  {\"filters\": [], \"handler\": \"b\"}}, {\"name\": \"b\", \"type\": \"Delegate\", \
                  \"config\": {\"delegate\": \"a\"}}]}";
    let policy = "{\"handler\": \"ClientHandler\", \"heap\": [{\"name\": \"p\", \"type\": \
                  \"DefaultRateThrottlingPolicy\", \"config\": {\"delegateThrottlingRatePolicy\": \"p\", \
                  \"defaultRate\": {\"numberOfRequests\": 1, \"duration\": \"1 s\"}}}]}";
    let itself = "{\"handler\": {\"type\": \"Router\", \"config\": {\"directory\": \".\"}}}";
    let huge = format!(
        "{{\"handler\": \"ClientHandler\", \"comment\": \"{}\"}}",
        "x".repeat(5 << 20)
    );
    for (file, text, message) in [
        ("h.json", nested(33), "nested deeper than"),
        ("h.json", nested(20_000), "h.json:1: "),
        ("h.json", reference_bomb(), "filters would see one request"),
        ("h.json", token_bomb(), "bytes"),
        ("h.yaml", alias_bomb(), "limit"),
        (
            "h.json",
            circle.to_owned(),
            "circular reference: a -> b -> a",
        ),
        ("h.json", policy.to_owned(), "circular reference: p -> p"),
        ("h.json", itself.to_owned(), "would include itself"),
        ("h.json", huge, "longer than"),
        (
            "h.json",
            "{\"handler\": \"ClientHandler\", \"handler\": 1}".to_owned(),
            "duplicate key",
        ),
        (
            "h.yaml",
            "handler: !!python/object:os.system x\nbaseURI: y\n".to_owned(),
            "h.yaml:",
        ),
    ] {
        put(&door, file, &text);
        let refused = until_state(&door, "h", "refused").await;
        let told = refused["errors"].to_string();
        assert!(told.contains(message), "{message} is not in {told}");
        get(&door, "/good").await.expect(201);
        std::fs::remove_file(door.path(&format!("routes/{file}"))).expect("removed");
        eventually("the file to be forgotten", || async {
            (door.admin_get("/route-files/h").await.status == 404).then_some(())
        })
        .await;
    }
    assert_eq!(state(&door, "good").await["state"], "loaded");
}

#[tokio::test]
async fn only_regular_files_directly_in_the_directory_are_read() {
    let door = door(&[
        ("a.json", &answering("a", "/a", 201)),
        (".hidden.json", &answering("hidden", "/hidden", 202)),
        ("b.json~", &answering("b", "/b", 203)),
        ("below/c.json", &answering("c", "/c", 204)),
    ])
    .await;
    std::fs::create_dir(door.path("routes/d.json")).expect("a directory");
    std::os::unix::fs::symlink("/dev/zero", door.path("routes/zero.json")).expect("a link");
    std::os::unix::fs::symlink("nowhere", door.path("routes/dangling.json")).expect("a link");
    std::os::unix::fs::symlink("below/c.json", door.path("routes/linked.json")).expect("a link");
    until(&door, "/c", 204).await;
    get(&door, "/a").await.expect(201);
    for path in ["/hidden", "/b"] {
        get(&door, path).await.expect(404);
    }
    let listed = door.admin_get("/route-files").await.expect(200).json();
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(2), "{listed}");
}

/// A route that takes what its condition holds for, and answers by itself.
fn guarded(name: &str, condition: &str, status: u16) -> String {
    let route = serde_json::json!({
        "name": name, "condition": condition,
        "handler": {"type": "StaticResponseHandler", "config": {"status": status}},
    });
    route.to_string()
}

#[tokio::test]
async fn a_malformed_escape_does_not_lead_past_a_guarding_route() {
    let door = door(&[
        (
            "1.json",
            &guarded("1", "${find(request.uri.path, '^/admin')}", 403),
        ),
        (
            "2.json",
            &guarded("2", "${find(request.uri.query, 'debug=1')}", 403),
        ),
        ("3.json", &guarded("3", "${true}", 200)),
    ])
    .await;
    get(&door, "/open").await.expect(200);
    for path in ["/admin", "/admin/%ff", "/%61dmin%C3", "/?debug=1&q=100%"] {
        get(&door, path).await.expect(403);
    }
}

#[tokio::test]
async fn a_condition_that_exceeds_a_limit_refuses_the_request() {
    let guard = "${not contains(request.queryParams['role'], 'admin')}";
    let enforced = serde_json::json!({
        "name": "2", "condition": "${find(request.uri.path, '^/enforced')}",
        "handler": {"type": "Chain", "config": {
            "filters": [{"type": "ConditionEnforcementFilter", "config": {"condition": guard}}],
            "handler": {"type": "StaticResponseHandler", "config": {"status": 200}},
        }},
    });
    let on_response = serde_json::json!({
        "name": "3", "condition": "${find(request.uri.path, '^/answered')}",
        "handler": {"type": "Chain", "config": {
            "filters": [{"type": "SwitchFilter", "config": {"onResponse": [{
                "condition": "${response.status.code == 200 and contains(request.queryParams['role'], 'admin')}",
                "handler": {"type": "StaticResponseHandler", "config": {"status": 403}},
            }]}}],
            "handler": {"type": "StaticResponseHandler", "config": {"status": 200}},
        }},
    });
    let matched =
        "${find(request.uri.path, '^/routed') and contains(request.queryParams['role'], 'admin')}";
    let door = door(&[
        ("1.json", &guarded("1", matched, 403)),
        ("2.json", &enforced.to_string()),
        ("3.json", &on_response.to_string()),
        ("4.json", &guarded("4", "${true}", 200)),
    ])
    .await;
    let many = "&role=a".repeat(1024);
    for path in ["/routed", "/enforced", "/answered"] {
        get(&door, &format!("{path}?role=user")).await.expect(200);
        get(&door, &format!("{path}?role=admin")).await.expect(403);
        let answer = get(&door, &format!("{path}?role=admin{many}")).await;
        assert_eq!(answer.status, 500, "{path}");
    }
    get(&door, &format!("/other?role=admin{many}"))
        .await
        .expect(200);
}

#[tokio::test]
async fn a_condition_on_the_body_refuses_no_upload_to_another_route() {
    let hook = "${find(request.uri.path, '^/ho+k') and request.entity.json.kind == 'x'}";
    let posted = "${request.method == 'PUT' and request.entity.json.kind == 'x'}";
    let door = door(&[
        ("1.json", &guarded("1", hook, 201)),
        ("2.json", &guarded("2", posted, 202)),
        ("3.json", &guarded("3", "${true}", 200)),
    ])
    .await;
    let post = |path: &str, body: Vec<u8>| {
        let request = http::client().post(door.proxy_url(path));
        http::send(request.header("host", "files.test").body(body))
    };
    for path in ["/upload", "/upl%6fad"] {
        post(path, vec![b'x'; 1 << 20]).await.expect(200);
    }
    post("/hook", b"{\"kind\":\"x\"}".to_vec())
        .await
        .expect(201);
    post("/hook", b"{}".to_vec()).await.expect(200);
    post("/hook", vec![b'x'; 1 << 20]).await.expect(413);
}
