//! Where the configuration file declares records.

use std::cell::OnceCell;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};

use doorward_core::yaml::{PathSegment, RecordFile};

/// The configuration file, read when a record of it is met.
pub(super) struct DeclaredPlaces<'a> {
    /// What it is called.
    name: String,
    file: Option<&'a Path>,
    /// What is in it, once that was read; none if it can't be.
    content: OnceCell<Option<Arc<RecordFile>>>,
}

/// The line that declares a client, a user or a realm.
fn line(file: &RecordFile, record: &Map<String, Value>) -> Option<usize> {
    let text = |name: &str| record.get(name).and_then(Value::as_str);
    let realms = |realm: &str| {
        ["identity", "realms", realm]
            .map(PathSegment::from)
            .to_vec()
    };
    let Some(realm) = text("realm") else {
        return file.line_of(&realms(text("path")?));
    };
    let (list, name) = if record.contains_key("client_id") {
        ("clients", "client_id")
    } else {
        ("users", "userName")
    };
    let mut path = realms(realm);
    path.push(list.into());
    file.line_of_element(&path, |one| one[name].as_str() == text(name))
}

impl<'a> DeclaredPlaces<'a> {
    /// Those of the file, which is called `name`.
    pub(super) fn of(name: String, file: Option<&'a Path>) -> Self {
        Self {
            name,
            file,
            content: OnceCell::new(),
        }
    }

    /// Tells file and line of a record, if the file declares it.
    pub(super) fn tell(&self, record: &mut Map<String, Value>) {
        if record.get("owner").and_then(Value::as_str) != Some("file") {
            return;
        }
        let content = self.content.get_or_init(|| RecordFile::of(self.file?));
        let line = content.as_ref().and_then(|file| line(file, record));
        record.insert("declared_in".to_owned(), self.name.clone().into());
        record.extend(line.map(|line| ("declared_line".to_owned(), line.into())));
    }
}
