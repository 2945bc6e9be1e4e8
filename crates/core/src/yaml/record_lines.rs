//! The lines of all records of a document, found in one pass.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::{Document, PathSegment};

/// Most records whose lines are kept.
const MAX_RECORDS: usize = 1_000_000;
/// Message of the error that a record's first key ends with: the library attaches the
/// position to errors, and to nothing else.
const FOUND: &str = "record found";

/// The members that name records.
const NAMES: [&str; 5] = ["client_id", "userName", "name", "email", "consumer_key"];
/// The mapping whose entries are records, and not elements of a list.
const REALMS: [&str; 2] = ["identity", "realms"];

/// Lines by the paths of the mappings in lists, and of the realms. JSON is read as the YAML
/// that it is, too: what is none has no lines.
pub(super) fn of(text: &str) -> HashMap<Vec<PathSegment>, usize> {
    let found = RefCell::default();
    let seed = Records {
        found: &found,
        is_element: false,
    };
    let read = seed.deserialize(serde_yaml::Deserializer::from_str(text));
    match read {
        Ok(()) => found.into_inner().lines,
        Err(_) => HashMap::new(),
    }
}

/// On which lines of a file its records begin. It holds their names and nothing else of
/// them: a file may have secrets.
pub struct RecordFile {
    /// Lines by the path of the list, the member that names the record, and the name.
    named: HashMap<(Vec<PathSegment>, &'static str, String), usize>,
    /// Lines of the realms.
    realms: HashMap<String, usize>,
}

/// What tells a content of a file from others.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileIdentity {
    path: PathBuf,
    length: u64,
    modified: Option<SystemTime>,
    inode: u64,
}

impl FileIdentity {
    fn of(file: &Path) -> Option<Self> {
        let about = std::fs::metadata(file).ok()?;
        Some(Self {
            path: file.to_owned(),
            length: about.len(),
            modified: about.modified().ok(),
            inode: about.ino(),
        })
    }
}

/// The file that was read last: there is one that declares records besides entities.
static LAST: Mutex<Option<(FileIdentity, Arc<RecordFile>)>> = Mutex::new(None);

impl RecordFile {
    /// The content of the file, which is read again once it is another one; `None`: it
    /// can't be read. Who asks meanwhile waits, and nobody reads it twice: this is no call
    /// for a thread that serves others.
    pub fn of(file: &Path) -> Option<Arc<Self>> {
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        let identity = FileIdentity::of(file)?;
        match &*last {
            Some((known, content)) if *known == identity => Some(Arc::clone(content)),
            _ => {
                let content = Arc::new(Self::read(file)?);
                *last = Some((identity, Arc::clone(&content)));
                Some(content)
            }
        }
    }

    fn read(file: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(file).ok()?;
        let document = Document::parse_unresolved(&text, file).ok()?;
        Some(Self::index(document.value(), of(&text)))
    }

    /// What is kept of `document`, whose records are on these lines.
    fn index(document: &Value, lines: HashMap<Vec<PathSegment>, usize>) -> Self {
        let mut index = Self {
            named: HashMap::new(),
            realms: HashMap::new(),
        };
        for (mut path, line) in lines {
            let mut steps = path.iter();
            let record = steps.try_fold(document, |value, segment| match segment {
                PathSegment::Key(key) => value.get(key),
                PathSegment::Index(index) => value.get(index),
            });
            match path.pop() {
                Some(PathSegment::Index(_)) => index.name(&path, record, line),
                Some(PathSegment::Key(realm)) => drop(index.realms.insert(realm, line)),
                None => {}
            }
        }
        index
    }

    /// Notes the line of a record in the list at `list`. Of several with a name, the first
    /// counts.
    fn name(&mut self, list: &[PathSegment], record: Option<&Value>, line: usize) {
        for member in NAMES {
            let name = record.and_then(|record| record.get(member)?.as_str());
            if let Some(name) = name {
                let key = (list.to_vec(), member, name.to_owned());
                let first = self.named.entry(key).or_insert(line);
                *first = line.min(*first);
            }
        }
    }

    /// The line of a realm.
    pub fn line_of_realm(&self, realm: &str) -> Option<usize> {
        self.realms.get(realm).copied()
    }

    /// The line of the record in the list at `path` whose `member` is `name`.
    pub fn line_of(&self, path: &[PathSegment], member: &str, name: &str) -> Option<usize> {
        let member = NAMES.into_iter().find(|known| *known == member)?;
        let key = (path.to_vec(), member, name.to_owned());
        self.named.get(&key).copied()
    }
}

#[derive(Default)]
struct LineIndex {
    path: Vec<PathSegment>,
    lines: HashMap<Vec<PathSegment>, usize>,
}

impl LineIndex {
    /// Whether the entries of the mapping at this path are records.
    fn is_of_realms(&self) -> bool {
        let is = |(segment, name): (&PathSegment, &str)| matches!(segment, PathSegment::Key(key) if key == name);
        self.path.len() == REALMS.len() && self.path.iter().zip(REALMS).all(is)
    }

    fn note(&mut self, error: &str) {
        let line = error.rsplit_once(" at line ").map_or("", |(_, rest)| rest);
        let line = line.split(' ').next().unwrap_or_default();
        if let Ok(line) = line.parse()
            && self.lines.len() < MAX_RECORDS
        {
            self.lines.insert(self.path.clone(), line);
        }
    }
}

/// Walks through a value.
#[derive(Clone, Copy)]
struct Records<'a> {
    found: &'a RefCell<LineIndex>,
    /// Whether it is in a list.
    is_element: bool,
}

impl<'a> Records<'a> {
    /// Walks through what `read` reads at the next segment of the path.
    fn below<T>(
        self,
        segment: PathSegment,
        is_element: bool,
        read: impl FnOnce(Records<'a>) -> T,
    ) -> T {
        self.found.borrow_mut().path.push(segment);
        let read = read(Records { is_element, ..self });
        self.found.borrow_mut().path.pop();
        read
    }
}

impl<'de> DeserializeSeed<'de> for Records<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Records<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i128<E: serde::de::Error>(self, _: i128) -> Result<(), E> {
        Ok(())
    }

    fn visit_u128<E: serde::de::Error>(self, _: u128) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        for index in 0.. {
            let next = self.below(index.into(), true, |seed| access.next_element_seed(seed));
            if next?.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let mut is_first = self.is_element;
        let is_of_realms = self.found.borrow().is_of_realms();
        loop {
            let mut name = None;
            let fails = is_first || is_of_realms;
            let key = access.next_key_seed(RecordKey {
                name: &mut name,
                fails,
            });
            let line = match key {
                Ok(None) => return Ok(()),
                Ok(Some(())) => None,
                // The key has been read all the same.
                Err(error) if fails && name.is_some() => Some(error.to_string()),
                Err(error) => return Err(error),
            };
            if let Some(line) = line.as_ref().filter(|_| is_first) {
                self.found.borrow_mut().note(line);
            }
            is_first = false;
            let name = PathSegment::Key(name.unwrap_or_default());
            self.below(name, false, |seed| {
                if let Some(line) = line.filter(|_| is_of_realms) {
                    self.found.borrow_mut().note(&line);
                }
                access.next_value_seed(seed)
            })?;
        }
    }
}

/// A key of a mapping.
struct RecordKey<'a> {
    name: &'a mut Option<String>,
    /// Whether it fails, to tell its line.
    fails: bool,
}

impl<'de> DeserializeSeed<'de> for RecordKey<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for RecordKey<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text as key")
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<(), E> {
        *self.name = Some(key.to_owned());
        if self.fails {
            return Err(E::custom(FOUND));
        }
        Ok(())
    }

    fn visit_bool<E: serde::de::Error>(self, key: bool) -> Result<(), E> {
        self.visit_str(if key { "true" } else { "false" })
    }

    fn visit_i64<E: serde::de::Error>(self, key: i64) -> Result<(), E> {
        self.visit_str(&key.to_string())
    }

    fn visit_u64<E: serde::de::Error>(self, key: u64) -> Result<(), E> {
        self.visit_str(&key.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each line that is found in one pass is that of a look-up by path.
    fn agree(name: &str, text: &str, count: usize) {
        let document = Document::parse_unresolved(text, Path::new(name)).expect("a document");
        let lines = of(text);
        assert_eq!(lines.len(), count, "{lines:?}");
        for (path, line) in lines {
            assert_eq!(document.line_of(&path), Some(line), "{path:?}");
        }
    }

    #[test]
    fn lines_of_all_records_are_those_of_single_look_ups() {
        let yaml = "# comment\n_format_version: \"3.0\"\nservices:\n- name: a\n  routes:\n  \
                    - {name: r, paths: [/a]}\n  - name: s\n    plugins:\n\n    -\n      name: p\n\
                    - url: http://b/\n  tags: [x, y]\nother: {1: {list: [{true: 2}, []]}}\n\
                    empty: [{}]\n";
        agree("a.yaml", yaml, 6);
        let json = "{\n\t\"services\": [\n\t\t{\"name\": \"a\\/b\",\n\t\t \"routes\": [{\"name\": \"r\"}]},\n\
                    {\"name\": \"c\"}\n]}";
        agree("a.json", json, 3);
    }

    #[test]
    fn realms_have_the_lines_of_their_keys() {
        let yaml = "identity:\n  realms:\n    /: {}\n    /staff:\n      users:\n      - userName: a\n\
                    other:\n  realms: {/x: {}}\n";
        agree("a.yaml", yaml, 3);
        let json = "{\"identity\": {\"realms\": {\n\"/\": {},\n\"/a\": {\"clients\": [{\n\"client_id\": \"a\"}]}}}}";
        agree("a.json", json, 3);
    }

    #[test]
    fn no_secret_of_a_file_is_kept_and_names_are_those_of_their_list() {
        let text = "identity:\n  realms:\n    /:\n      clients:\n      - client_secret: hush\n        \
                    client_id: shop\n      - client_id: shop\n      users:\n      \
                    - {userName: demo, password: hush}\n";
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.yaml");
        std::fs::write(&path, text).expect("written");
        let file = RecordFile::of(&path).expect("a file");
        let list = |name: &str| ["identity", "realms", "/", name].map(PathSegment::from);
        assert_eq!(file.line_of(&list("clients"), "client_id", "shop"), Some(5));
        assert_eq!(file.line_of(&list("users"), "userName", "demo"), Some(9));
        assert_eq!(file.line_of(&list("clients"), "userName", "demo"), None);
        assert_eq!(file.line_of_realm("/"), Some(3));
        let names = file.named.keys().map(|(_, _, name)| name);
        assert!(names.into_iter().all(|name| name != "hush"));
    }

    #[test]
    fn a_file_is_read_once_until_it_is_another_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.yaml");
        let line = |file: &RecordFile| file.line_of(&["list".into()], "name", "a");
        std::fs::write(&path, "list:\n- name: a\n").expect("written");
        let first = RecordFile::of(&path).expect("a file");
        let again = RecordFile::of(&path).expect("a file");
        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!(line(&first), Some(2));
        std::fs::write(&path, "# more\nlist:\n- name: a\n").expect("written");
        let other = RecordFile::of(&path).expect("a file");
        assert_eq!(line(&other), Some(3));
        std::fs::remove_file(&path).expect("removed");
        assert!(RecordFile::of(&path).is_none());
    }

    #[test]
    fn records_that_stand_for_others_are_told_and_nothing_else_fails() {
        let lines = of("a: &x\n  k: 1\nlist:\n- *x\n- k: 2\n");
        let of = |index: usize| lines.get(&vec!["list".into(), index.into()]).copied();
        assert_eq!(of(1), Some(5));
        assert!(super::of("a: [").is_empty());
        assert!(super::of("").is_empty());
    }
}
