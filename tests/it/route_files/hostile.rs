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
