//! Routers of files inside of others, and what attackers would nest.

use super::*;

#[test]
fn files_of_a_router_come_and_go_by_themselves() {
    let main =
        "{\"handler\": {\"type\": \"Router\", \"config\": {\"scanInterval\": \"2 seconds\"}}}";
    let mut files = Files::with(&[("main.json", main), ("routes/a.json", &throttled(RATE))]);
    let limit = |files: &Files| throttle_of_nested(files, "t");
    assert_eq!(
        (files.errors().len(), nested(&files)),
        (0, vec!["t".to_owned()])
    );
    let first = limit(&files);
    files.write("routes/b.json", "{\"handler\": \"ClientHandler\"}");
    assert!(!files.files.is_current());
    files.load();
    assert_eq!(nested(&files), ["b", "t"]);
    files.write("routes/a.json", "{");
    files.load();
    assert_eq!(nested(&files), ["b", "t"]);
    assert_eq!(files.state("main/a"), State::Stale);
    assert!(Arc::ptr_eq(&first, &limit(&files)), "its buckets are kept");
    files.remove("routes/a.json");
    files.load();
    assert_eq!(
        (files.errors().len(), nested(&files)),
        (0, vec!["b".to_owned()])
    );
    let watched = files.files.directories();
    assert!(
        watched.contains(&files.directory.path().join("routes")),
        "{watched:?}"
    );
}

fn nested(files: &Files) -> Vec<String> {
    let report = files.files.board().read();
    let inner = report.files.iter().filter(|file| file.router.is_some());
    let in_force = inner.filter(|file| file.state != State::Refused);
    in_force.map(|file| file.name.clone()).collect()
}

fn throttle_of_nested(files: &Files, name: &str) -> Arc<dyn doorward_plugin_api::filter::Filter> {
    let found = files.files.file_set.filters_of_nested(name);
    found.into_iter().next().expect("a filter")
}

#[test]
fn a_router_that_scans_once_stays_as_it_is() {
    for interval in ["\"disabled\"", "0", "-1", "\"zero\"", "\"0 s\"", "\"0\""] {
        let main = format!(
            "{{\"handler\": {{\"type\": \"Router\", \"config\": {{\"scanInterval\": {interval}}}}}}}"
        );
        let mut files = Files::with(&[
            ("main.json", &main),
            ("routes/a.json", "{\"handler\": \"ClientHandler\"}"),
        ]);
        files.write("routes/b.json", "{\"handler\": \"ClientHandler\"}");
        assert!(files.files.is_current(), "{interval}");
        files.write("main.json", &format!("{main}\n"));
        files.load();
        assert_eq!(nested(&files), ["a"], "{interval}");
    }
    for (interval, message) in [
        ("\"unlimited\"", "must not be unlimited"),
        ("\"10\\u0020parsecs\"", "is not a unit of time"),
        ("1.5", "expected whole seconds"),
        ("[]", "expected a string"),
    ] {
        let main = format!(
            "{{\"handler\": {{\"type\": \"Router\", \"config\": {{\"scanInterval\": {interval}}}}}}}"
        );
        let told = error(&main);
        assert!(
            told.contains("config.scanInterval: ") && told.contains(message),
            "{told}"
        );
    }
}

#[test]
fn routers_in_circles_and_too_deep_are_refused() {
    let router = |directory: &str| {
        format!(
            "{{\"handler\": {{\"type\": \"Router\", \"config\": {{\"directory\": \"{directory}\"}}}}}}"
        )
    };
    assert!(error(&router(".")).contains("would include itself"));
    let files = Files::with(&[("a.json", &router("x")), ("x/b.json", &router("../x"))]);
    assert_eq!(files.state("a/b"), State::Refused);
    let mut deep = Vec::new();
    let mut directory = String::new();
    for _ in 0..12 {
        deep.push((format!("{directory}r.json"), router("d")));
        directory.push_str("d/");
    }
    let deep: Vec<_> = deep
        .iter()
        .map(|(file, text)| (file.as_str(), text.as_str()))
        .collect();
    let files = Files::with(&deep);
    assert!(
        files
            .errors()
            .iter()
            .any(|e| e.contains("nested deeper than")),
        "{:?}",
        files.errors()
    );
    let missing = Files::with(&[("a.json", &router("nowhere"))]);
    assert_eq!(missing.state("a"), State::Loaded);
    assert!(
        missing.warnings()[0].contains("is no directory"),
        "{:?}",
        missing.warnings()
    );
}

#[test]
fn nesting_bomb_of_handlers_is_refused() {
    let mut text = "\"ClientHandler\"".to_owned();
    for _ in 0..40 {
        text = format!(
            "{{\"type\": \"Chain\", \"config\": {{\"filters\": [], \"handler\": {text}}}}}"
        );
    }
    let told = error(&format!("{{\"handler\": {text}}}"));
    assert!(told.contains("nested deeper than"), "{told}");
    // Neither by names.
    let objects: Vec<String> = (0..5000)
        .map(|i| {
            format!(
                "{{\"name\": \"h{i}\", \"type\": \"Chain\", \"config\": {{\"filters\": [], \
                 \"handler\": \"h{}\"}}}}",
                i + 1
            )
        })
        .collect();
    let told = error(&format!(
        "{{\"handler\": \"h0\", \"heap\": [{},{{\"name\": \"h5000\", \"type\": \"ClientHandler\"}}]}}",
        objects.join(",")
    ));
    assert!(told.contains("nested deeper than"), "{told}");
}

#[test]
fn reference_bomb_of_filters_is_refused() {
    let objects: Vec<String> = (0..20)
        .map(|i| {
            format!(
                "{{\"name\": \"f{i}\", \"type\": \"ChainOfFilters\", \"config\": {{\"filters\": \
                 [\"f{n}\", \"f{n}\"]}}}}",
                n = i + 1
            )
        })
        .collect();
    let last = format!("{{\"name\": \"f20\", \"type\": \"ThrottlingFilter\", \"config\": {RATE}}}");
    let told = error(&format!(
        "{{\"handler\": {{\"type\": \"Chain\", \"config\": {{\"filters\": [\"f0\"], \"handler\": \
         \"ClientHandler\"}}}}, \"heap\": [{},{last}]}}",
        objects.join(",")
    ));
    assert!(told.contains("filters would see one request"), "{told}");
}
