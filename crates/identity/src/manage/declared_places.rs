//! Where the configuration file declares records.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};

use doorward_core::yaml::{PathSegment, RecordFile};

/// The configuration file, as far as it declares records.
pub(super) struct DeclaredPlaces {
    /// What it is called.
    name: String,
    /// What is in it; none if it can't be read.
    content: Option<Arc<RecordFile>>,
}

/// Whether the configuration file declares a record.
pub(super) fn is_declared(record: &Map<String, Value>) -> bool {
    record.get("owner").and_then(Value::as_str) == Some("file")
}

/// The line that declares a client, a user or a realm.
fn line(file: &RecordFile, record: &Map<String, Value>) -> Option<usize> {
    let text = |name: &str| record.get(name).and_then(Value::as_str);
    let Some(realm) = text("realm") else {
        return file.line_of_realm(text("path")?);
    };
    let (list, name) = if record.contains_key("client_id") {
        ("clients", "client_id")
    } else {
        ("users", "userName")
    };
    let path = ["identity", "realms", realm, list].map(PathSegment::from);
    file.line_of(&path, name, text(name)?)
}

impl DeclaredPlaces {
    /// Those of the file, which is called `name`. It is read where nobody else waits.
    pub(super) async fn of(name: String, file: Option<&Path>) -> Self {
        let file = file.map(Path::to_owned);
        let read = tokio::task::spawn_blocking(move || RecordFile::of(&file?));
        let content = read.await.ok().flatten();
        Self { name, content }
    }

    /// Tells file and line of a record, if the file declares it.
    pub(super) fn tell(&self, record: &mut Map<String, Value>) {
        if !is_declared(record) {
            return;
        }
        let line = self.content.as_ref().and_then(|file| line(file, record));
        record.insert("declared_in".to_owned(), self.name.clone().into());
        record.extend(line.map(|line| ("declared_line".to_owned(), line.into())));
    }
}
