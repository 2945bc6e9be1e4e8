//! Routers: directories of route files below a route.

use super::*;

const CONFIG: &str = r#"{
  "heap": [
    {"name": "_router", "type": "Router", "config": {"scanInterval": "2 seconds",
      "directory": "&{ig.instance.dir}/config/routes",
      "defaultHandler": {"type": "StaticResponseHandler", "config": {"status": 299}}}},
    {"name": "shared", "type": "ThrottlingFilter", "config": {"rate": {"numberOfRequests": 4, "duration": "10 hours"}}},
    {"name": "ok", "type": "StaticResponseHandler", "config": {"status": 200}}
  ],
  "properties": {"greeting": "outer"},
  "handler": "_router"
}"#;

fn limited(name: &str, path: &str) -> String {
    format!(
        "{{\"name\": \"{name}\", \"condition\": \"${{find(request.uri.path, '^{path}')}}\",\n\
         \"handler\": {{\"type\": \"Chain\", \"config\": {{\"filters\": [\"shared\"], \"handler\": \"ok\"}}}}}}"
    )
}

/// A door that serves `config/config.json` as it lies there.
async fn instance(files: &[(&str, &str)]) -> Door {
    let mut door = laid_out(Setup::new(), &[]);
    let text = std::fs::read_to_string(door.path("doorward.yaml")).expect("the file");
    door.write("doorward.yaml", &text.replace("/routes\"", "/config/\""));
    for (name, text) in files {
        let path = door.path(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        door.write(name, text);
    }
    door.start().await;
    door
}

#[tokio::test]
async fn a_whole_configuration_is_served_by_its_top_file() {
    let door = instance(&[
        ("config/config.json", CONFIG),
        ("config/admin.json", r#"{"mode": "DEVELOPMENT", "connectors": [{"port": 8080}]}"#),
        ("config/routes/00.json", &limited("x", "/x")),
        ("config/routes/01.json", &limited("y", "/y")),
        (
            "config/routes/02.json",
            r#"{"properties": {"own": "&{greeting}-inner"}, "condition": "${request.uri.path == '/z'}",
               "heap": [{"name": "ok", "type": "StaticResponseHandler", "config": {"status": 207, "headers": {"X-Own": ["&{own}"]}}}],
               "handler": "ok"}"#,
        ),
    ])
    .await;
    // One filter of the outer heap counts for both routes.
    for (path, status) in [
        ("/x", 200),
        ("/y", 200),
        ("/x", 200),
        ("/y", 200),
        ("/x", 429),
        ("/y", 429),
    ] {
        get(&door, path).await.expect(status);
    }
    assert_eq!(
        get(&door, "/z").await.expect(207).header("x-own"),
        "outer-inner"
    );
    get(&door, "/none").await.expect(299);
    door.wait_log("the file", |line| line.contains("admin.json"))
        .await;

    // Changes below are noticed, one by one, and the bucket stays.
    door.write("config/routes/03.json", &answering("new", "/new", 204));
    until(&door, "/new", 204).await;
    get(&door, "/x").await.expect(429);
    door.write("config/routes/03.json", "{\"handler\": ");
    let stale = until_state(&door, "config/03", "stale").await;
    assert_eq!(stale["router"], "config");
    get(&door, "/new").await.expect(204);
    std::fs::remove_file(door.path("config/routes/03.json")).expect("removed");
    until(&door, "/new", 299).await;
    get(&door, "/y").await.expect(429);
}

#[tokio::test]
async fn a_directory_that_appears_later_is_read() {
    let router = "{\"handler\": {\"type\": \"Router\", \"config\": {\"directory\": \"below\"}}}";
    let door = door(&[("main.json", router)]).await;
    get(&door, "/a").await.expect(404);
    put(&door, "below/a.json", &answering("a", "/a", 201));
    until(&door, "/a", 201).await;
    put(&door, "below/b.json", &answering("b", "/b", 202));
    until(&door, "/b", 202).await;
}

#[tokio::test]
async fn files_that_are_referred_to_are_followed() {
    let text = r#"{"properties": {"$location": "values/p.json"}, "handler": {"type": "StaticResponseHandler",
      "config": {"status": "&{status}", "headers": {"X-File": ["&{file:values/text}"]}}}}"#;
    let door = door(&[
        ("values/p.json", r#"{"status": 201}"#),
        ("values/text", "one\n"),
        ("a.json", text),
    ])
    .await;
    assert_eq!(get(&door, "/").await.expect(201).header("x-file"), "one");
    put(&door, "values/p.json", r#"{"status": 202}"#);
    until(&door, "/", 202).await;
    put(&door, "values/text", "two\n");
    eventually("the text to change", || async {
        (get(&door, "/").await.header("x-file") == "two").then_some(())
    })
    .await;
}
