//! Every field of a configuration has a reader.
//!
//! The compiler is silent about the fields of structs that a macro of another crate
//! makes, so this looks for the readers in the sources. A reader names the field behind a
//! dot, or in a pattern of its struct. It stands where the field can be seen: in the
//! modules that its visibility allows.

use std::fs;
use std::path::Path;

/// What begins and ends the structs that `config!` makes.
const BEGIN: &str = "\nconfig! {\n";
const END: &str = "\n}\n";

/// The code of one file, without its tests and comments.
struct Source {
    /// The modules that lead to it.
    module: Vec<String>,
    /// What it has besides its configurations.
    rest: String,
    fields: Vec<Field>,
}

/// A field of a configuration.
struct Field {
    of: String,
    name: String,
    /// The module within which it can be seen.
    scope: Vec<String>,
}

impl Source {
    fn new(module: Vec<String>, text: &str) -> Self {
        let text = text.split("#[cfg(test)]\nmod tests {").next();
        let lines = text.unwrap_or_default().lines();
        let code = lines.filter(|line| !line.trim_start().starts_with("//"));
        let code = format!("\n{}\n", code.collect::<Vec<_>>().join("\n"));
        let mut parts = code.split(BEGIN);
        let mut rest = parts.next().unwrap_or_default().to_owned();
        let mut fields = Vec::new();
        for part in parts {
            let (list, behind) = part.split_once(END).unwrap_or((part, ""));
            let of = list.split_once("struct ").map_or("", |(_, behind)| behind);
            let of = of.split([' ', '{']).next().unwrap_or_default();
            let of_struct = list.lines().filter_map(field).map(|(name, levels)| Field {
                of: of.to_owned(),
                name: name.to_owned(),
                scope: levels.map_or(Vec::new(), |levels| {
                    module[..module.len().saturating_sub(levels)].to_vec()
                }),
            });
            fields.extend(of_struct);
            rest.push('\n');
            rest.push_str(behind);
        }
        Self {
            module,
            rest,
            fields,
        }
    }

    /// Whether it reads a field that it can see.
    fn reads(&self, field: &Field) -> bool {
        self.module.starts_with(&field.scope)
            && (is_behind_a_dot(&self.rest, &field.name)
                || patterns(&self.rest, &field.of).any(|names| has_word(names, &field.name)))
    }
}

/// The sources below the folder of a module, without those of tests.
fn sources(folder: &Path, module: &[String], found: &mut Vec<Source>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let stem = stem.expect("a name").to_owned();
        if stem == "tests" {
            continue;
        }
        let mut module = module.to_vec();
        if !["mod", "lib"].contains(&&*stem) {
            module.push(stem);
        }
        if path.is_dir() {
            sources(&path, &module, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a source file");
            found.push(Source::new(module, &text));
        }
    }
}

/// The name of the field that a line declares, unless it says that nobody reads it, and
/// how many modules up it can be seen; `None`: in the whole crate.
fn field(line: &str) -> Option<(&str, Option<usize>)> {
    let line = line.strip_prefix("        ")?;
    let (line, levels) = match line.strip_prefix("pub") {
        Some(public) if public.starts_with("(super)") => {
            (public.strip_prefix("(super) ")?, Some(1))
        }
        Some(public) if public.starts_with('(') => (public.split_once(") ")?.1, None),
        Some(public) => (public.strip_prefix(' ')?, None),
        None => (line, Some(0)),
    };
    let (name, _) = line.split_once(": ")?;
    let name = name.split_once(" as ").map_or(name, |(name, _)| name);
    let is_name = name
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    (is_name && !name.starts_with('_')).then_some((name, levels))
}

fn is_part(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// What stands before and behind each whole `word`.
fn words<'t>(text: &'t str, word: &str) -> impl Iterator<Item = (&'t str, &'t str)> {
    let length = word.len();
    let all = text.match_indices(word);
    let all = all.map(move |(at, _)| (&text[..at], &text[at + length..]));
    all.filter(|(before, behind)| !before.ends_with(is_part) && !behind.starts_with(is_part))
}

fn has_word(text: &str, word: &str) -> bool {
    words(text, word).next().is_some()
}

/// Whether a field of this name is read: a call of a method is none.
fn is_behind_a_dot(text: &str, name: &str) -> bool {
    words(text, name).any(|(before, behind)| {
        let is_call = behind.starts_with('(') || behind.starts_with("::<");
        before.ends_with('.') && !is_call
    })
}

/// What stands between the braces behind the name of a struct.
fn patterns<'t>(text: &'t str, name: &str) -> impl Iterator<Item = &'t str> {
    let all = words(text, name).chain(words(text, "Self"));
    all.filter_map(|(_, behind)| {
        let inner = behind.strip_prefix(" {")?;
        inner.split_once('}').map(|(inner, _)| inner)
    })
}

#[test]
fn every_field_of_a_configuration_has_a_reader() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    let mut without = Vec::new();
    for entry in fs::read_dir(root.join("crates")).expect("the crates") {
        let folder = entry.expect("an entry").path().join("src");
        let mut found = Vec::new();
        sources(&folder, &[], &mut found);
        let fields = found.iter().flat_map(|source| &source.fields);
        count += fields.clone().count();
        let unread = fields.filter(|field| !found.iter().any(|source| source.reads(field)));
        let told = unread.map(|field| format!("{}::{} in {folder:?}", field.of, field.name));
        without.extend(told);
    }
    assert!(count > 500, "only {count} fields are found");
    assert!(
        without.is_empty(),
        "nobody reads these: read them, or call them `_name as \"name\"`: {without:#?}"
    );
}

#[test]
fn a_field_that_nobody_reads_is_found() {
    let text = "\nconfig! {\n    struct Config {\n        #[field(required)]\n        pub(crate) \
        first: u16,\n        second as \"2nd\": u16,\n        _third as \"third\": u16,\n        \
        pub(super) fourth: u16,\n    }\n}\nfn read(config: &Config, second: u16) {\n    \
        config.first + config.second() + config.seconds\n}\n";
    let module = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let source = Source::new(module(&["plugin", "config"]), text);
    let names: Vec<_> = source.fields.iter().map(|field| &*field.name).collect();
    assert_eq!(names, ["first", "second", "fourth"]);
    let [first, second, fourth] = &source.fields[..] else {
        panic!("three fields");
    };
    assert!(source.reads(first) && !source.reads(second));
    let reads = |names: &[&str], text, field| Source::new(module(names), text).reads(field);
    let pattern = "let Config { second, .. } = config;";
    assert!(reads(&["plugin", "config", "limits"], pattern, second));
    assert!(!reads(&["plugin"], pattern, second));
    assert!(!reads(
        &["plugin", "config"],
        "let Other { second, .. } = other;",
        second
    ));
    assert!(reads(&["plugin"], "config.fourth", fourth));
    assert!(!reads(&["other"], "config.fourth", fourth));
    assert!(reads(&["other"], "config.first", first));
}
