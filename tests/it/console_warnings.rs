//! What the writer of the files should know: `check`, the log and the console tell the
//! same.

use crate::console::Browser;
use crate::support::{Door, Setup, eventually};

/// A configuration with something to tell in each of its files.
fn door() -> Door {
    let services = "- name: web\n  url: http://127.0.0.1:1/\n  plugins:\n  - name: prometheus\n    \
                    config: {ai_metrics: true}\n";
    let proxy = r#"{listen: ["@PROXY@"], upstream_verify: false}"#;
    Setup::new().proxy(proxy).services(services).lay_out()
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
