//! Where the configuration file declares records.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Map, Value};

use doorward_core::yaml::{Document, PathSegment};

/// The configuration file, read when a record of it is met.
pub(super) struct DeclaredPlaces<'a> {
    /// What it is called.
    name: String,
    file: Option<&'a Path>,
    content: Option<Content>,
}

/// What is in the file; none if it can't be read.
struct Content {
    document: Option<Document>,
    lines: HashMap<Vec<PathSegment>, usize>,
}

impl Content {
    fn read(file: Option<&Path>) -> Self {
        let document = file.and_then(|file| {
            let text = std::fs::read_to_string(file).ok()?;
            Document::parse_unresolved(&text, file).ok()
        });
        let lines = document.as_ref().map(Document::record_lines);
        Self {
            lines: lines.unwrap_or_default(),
            document,
        }
    }

    /// The line that declares a client, a user or a realm.
    fn line(&self, record: &Map<String, Value>) -> Option<usize> {
        let document = self.document.as_ref()?;
        let text = |name: &str| record.get(name).and_then(Value::as_str);
        let realms = |realm: &str| {
            ["identity", "realms", realm]
                .map(PathSegment::from)
                .to_vec()
        };
        let Some(realm) = text("realm") else {
            return document.line_of(&realms(text("path")?));
        };
        let (list, name) = if record.contains_key("client_id") {
            ("clients", "client_id")
        } else {
            ("users", "userName")
        };
        let declared = &document.value()["identity"]["realms"][realm][list];
        let mut declared = declared.as_array()?.iter();
        let index = declared.position(|one| one[name].as_str() == text(name))?;
        let mut path = realms(realm);
        path.extend([list.into(), index.into()]);
        self.lines.get(&path).copied()
    }
}

impl<'a> DeclaredPlaces<'a> {
    /// Those of the file, which is called `name`.
    pub(super) fn of(name: String, file: Option<&'a Path>) -> Self {
        Self {
            name,
            file,
            content: None,
        }
    }

    /// Tells file and line of a record, if the file declares it.
    pub(super) fn tell(&mut self, record: &mut Map<String, Value>) {
        if record.get("owner").and_then(Value::as_str) != Some("file") {
            return;
        }
        let content = self.content.get_or_insert_with(|| Content::read(self.file));
        let line = content.line(record);
        record.insert("declared_in".to_owned(), self.name.clone().into());
        record.extend(line.map(|line| ("declared_line".to_owned(), line.into())));
    }
}
