//! What the writer of the files should know: `check`, the log and the console tell the
//! same.

use crate::console::Browser;
use crate::support::tls::Pair;
use crate::support::{Door, Setup, eventually};

/// A configuration with something to tell in each of its files.
fn door() -> Door {
    let services = "- name: web\n  url: http://127.0.0.1:1/\n  plugins:\n  - name: prometheus\n    \
                    config: {ai_metrics: true}\n";
    let proxy = r#"{listen: ["@PROXY@"], upstream_verify: false}"#;
    Setup::new().proxy(proxy).services(services).lay_out()
}

#[tokio::test]
async fn a_certificate_that_comes_near_its_end_is_told_in_the_console_without_a_reload() {
    let door = Setup::new().start().await;
    let warnings = || async {
        let status = door.admin_get("/status").await.expect(200).json();
        status["configuration"]["warnings"].clone()
    };
    assert_eq!(warnings().await, serde_json::json!([]));
    // No file is read again for a certificate of the store.
    let pair = Pair::expired("old.example");
    let old = pair.json(&["old.example"]);
    let made = door.admin_post("/certificates", &old).await;
    let made = made.expect(201).json();
    let told = warnings().await;
    let told = told[0].as_str().expect("a warning");
    let place = "certificates old.example";
    assert!(
        told.starts_with(&format!("{place}: the certificate expired on ")),
        "{told}"
    );
    let mut browser = Browser::new(&door);
    let page = browser.get("/console").await.expect(200).body;
    assert!(page.contains(&format!("{place}</")), "{page}");
    // A renewed one is told no more.
    let path = format!("/certificates/{}", made["id"].as_str().expect("an id"));
    let renewed = Pair::new("old.example").json(&["old.example"]);
    let request = crate::support::http::client().put(door.admin_url(&path));
    let answer = crate::support::http::send(request.json(&renewed)).await;
    answer.expect(200);
    assert_eq!(warnings().await, serde_json::json!([]));
}

/// The line of a file that has a text, from one.
fn line(door: &Door, file: &str, text: &str) -> usize {
    let content = std::fs::read_to_string(door.path(file)).expect("the file");
    let line = content.lines().position(|line| line.contains(text));
    line.expect("a line") + 1
}

#[tokio::test]
async fn warnings_of_the_configuration_name_file_and_line_in_check_log_and_console() {
    let mut door = door();
    let places = [
        ("doorward.yaml", "upstream_verify"),
        ("routes.yaml", "- name: prometheus"),
    ];
    let places = places.map(|(file, text)| {
        let line = line(&door, file, text);
        format!("{file}:{line}")
    });
    let output = door.run(&["check", "-c", "doorward.yaml"]);
    assert!(output.status.success(), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    for place in &places {
        assert!(told.contains(&format!("{place}: ")), "{place}: {told}");
    }
    assert!(told.contains("ai_metrics"), "{told}");
    door.start().await;
    for place in &places {
        let log = door.log_text();
        assert!(log.contains(&format!("{place}: ")), "{place}: {log}");
    }
    let status = door.admin_get("/status").await.expect(200).json();
    let warnings = &status["configuration"]["warnings"];
    assert_eq!(warnings.as_array().map(Vec::len), Some(2), "{status}");
    let mut browser = Browser::new(&door);
    let page = browser.get("/console").await.expect(200).body;
    for place in &places {
        assert!(page.contains(&format!("{place}</")), "{place}: {page}");
    }
    // What is mended is told no more.
    door.edit("routes.yaml", "ai_metrics: true", "ai_metrics: false");
    eventually("the warning to go", || async {
        let status = door.admin_get("/status").await.expect(200).json();
        let left = status["configuration"]["warnings"].as_array().map(Vec::len);
        (left == Some(1)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_start_that_fails_tells_the_warnings_first_and_once() {
    let door = door();
    // What is wrong is found when the entities are put together.
    door.edit(
        "routes.yaml",
        "- name: web",
        "- name: web\n  routes: [{name: r, paths: [\"~(\"]}]",
    );
    let output = door.run(&["run", "-c", "doorward.yaml"]);
    assert!(!output.status.success(), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let place = format!(
        "doorward.yaml:{}: proxy.upstream_verify",
        line(&door, "doorward.yaml", "upstream_verify")
    );
    assert_eq!(told.matches(&place).count(), 1, "{told}");
    let lines: Vec<_> = told.lines().collect();
    let warning = lines.iter().position(|one| one.contains(&place));
    let error = lines.iter().rposition(|one| one.contains("routes.yaml"));
    assert!(
        warning.expect("the warning") < error.expect("the error"),
        "{told}"
    );
}

#[tokio::test]
async fn a_certificate_near_its_end_is_told_once_at_the_start_with_its_place() {
    let pair = Pair::expired("old.example");
    let indented = |text: &str| text.trim().replace('\n', "\n    ");
    let service = "- name: web\n  url: http://127.0.0.1:1/\n";
    let certificate = format!(
        "certificates:\n- cert: |\n    {}\n  key: |\n    {}\n  snis: [{{name: old.example}}]\n",
        indented(&pair.cert),
        indented(&pair.key)
    );
    let mut door = Setup::new()
        .services(&format!("{service}{certificate}"))
        .lay_out();
    door.start().await;
    let place = format!("routes.yaml:{}: ", line(&door, "routes.yaml", "- cert:"));
    door.wait_log("the warning", |line| line.contains(&place))
        .await;
    let log = door.log_text();
    let told: Vec<_> = log
        .lines()
        .filter(|one| one.contains("expired on"))
        .collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains(&place), "{told:?}");
    // Another of the store is named by its server name.
    door.admin_post("/certificates", &pair.json(&["b.example"]))
        .await
        .expect(201);
    door.kill();
    door.clear_log();
    door.start().await;
    let stored = "certificates b.example: the certificate expired";
    door.wait_log("the certificate of the store", |line| line.contains(stored))
        .await;
    let log = door.log_text();
    assert_eq!(log.matches(&place).count(), 1, "{log}");
    assert_eq!(log.matches(stored).count(), 1, "{log}");
}
