//! Route files among declared entities: told apart by what is in them.

use std::path::Path;

use serde_json::{Map, Value};

use super::MAX_TEXT;
use doorward_core::yaml::Document;

/// Members of which a route file has at least one.
const MEMBERS: [&str; 4] = ["handler", "baseURI", "condition", "heap"];
/// What makes a document one of entities.
const VERSION: &str = "_format_version";
/// Members of the imitated gateway's own settings, in a file of this name.
const SETTINGS_FILE: &str = "admin.json";
const SETTINGS: [&str; 5] = ["connectors", "mode", "prefix", "adminConnector", "vertx"];

/// What a file among the entities is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Declared entities, or nothing that is known.
    Entities,
    /// A route file.
    Route,
    /// Settings of another gateway's process, which mean nothing here.
    Settings,
}

/// What `text`, read from `file`, is. `before` says whether it was a route
/// file when it was last read: half of one, as editors leave it for a moment,
/// then still is.
pub fn classify(text: &str, file: &Path, before: bool) -> Content {
    let marked = text.contains(VERSION);
    let route = MEMBERS.iter().any(|member| text.contains(member));
    let named = file.file_name().is_some_and(|name| name == SETTINGS_FILE);
    // Most of what is read need not be parsed twice.
    if (!route && !before && !named) || (marked && text.len() > MAX_TEXT) {
        return Content::Entities;
    }
    let top = match Document::parse_relaxed(text, file) {
        Ok(mut document) => match document.take_value() {
            Value::Object(top) => top,
            _ => Map::new(),
        },
        Err(_) if before || (text.contains(MEMBERS[0]) && !marked) => return Content::Route,
        Err(_) => return Content::Entities,
    };
    let has = |members: &[&str]| members.iter().any(|member| top.contains_key(*member));
    if top.contains_key(VERSION) {
        Content::Entities
    } else if named && has(&SETTINGS) && !has(&MEMBERS[..1]) {
        // They have a heap too, of TLS options for instance.
        Content::Settings
    } else if before || has(&MEMBERS) {
        Content::Route
    } else {
        Content::Entities
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(file: &str, text: &str, before: bool) -> Content {
        classify(text, Path::new(file), before)
    }

    #[test]
    fn a_route_file_is_told_by_its_members() {
        for text in [
            r#"{"handler": "ClientHandler"}"#,
            r#"{"baseURI": "http://a"}"#,
            r#"{"condition": true}"#,
            r#"{"heap": []}"#,
            "// a comment\n{\"handler\": \"ClientHandler\"}",
        ] {
            assert_eq!(of("a.json", text, false), Content::Route, "{text}");
        }
        let entities = "_format_version: '3.0'\nservices: [{name: handler}]\n";
        assert_eq!(of("a.yaml", entities, false), Content::Entities);
        assert_eq!(of("a.yaml", entities, true), Content::Entities);
        assert_eq!(of("a.yaml", "services: []\n", false), Content::Entities);
        assert_eq!(of("a.yaml", "", false), Content::Entities);
    }

    #[test]
    fn half_a_route_file_is_one() {
        assert_eq!(of("a.json", "{\"handler\": {", false), Content::Route);
        assert_eq!(of("a.json", "{\"name\": \"a", true), Content::Route);
        assert_eq!(of("a.json", "", true), Content::Route);
        assert_eq!(of("a.json", "{\"name\": \"a", false), Content::Entities);
        let half = "_format_version: '3.0'\nhandler: [";
        assert_eq!(of("a.yaml", half, false), Content::Entities);
    }

    #[test]
    fn settings_of_the_imitated_gateway_are_neither() {
        let text = r#"{"mode": "PRODUCTION", "connectors": [{"port": 8080}]}"#;
        assert_eq!(of("config/admin.json", text, false), Content::Settings);
        assert_eq!(of("config/other.json", text, false), Content::Entities);
        let heap = r#"{"connectors": [{"port": 8443, "tls": "t"}], "heap": [{"name": "t", "type": "ServerTlsOptions"}]}"#;
        assert_eq!(of("config/admin.json", heap, false), Content::Settings);
        let route = r#"{"prefix": "a", "handler": "ClientHandler"}"#;
        assert_eq!(of("config/admin.json", route, false), Content::Route);
    }
}
