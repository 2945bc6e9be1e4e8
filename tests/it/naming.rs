//! Files and types are named by nouns of the field.
//!
//! A participle tells what happened to a thing and not what the thing is. Nobody
//! who looks for introspection opens `told.rs`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Words that are no names of files, modules or types, whatever their case.
const REFUSED: &[&str] = &[
    "answered",
    "asked",
    "begun",
    "beside",
    "forgotten",
    "found",
    "given",
    "gone",
    "heard",
    "held",
    "hidden",
    "kept",
    "known",
    "lost",
    "made",
    "meant",
    "merged",
    "met",
    "named",
    "proxied",
    "pushed",
    "remembered",
    "revoked",
    "said",
    "seen",
    "sent",
    "shown",
    "sought",
    "spent",
    "standing",
    "taken",
    "told",
    "torn",
    "trusted",
    "unsigned",
    "untold",
    "wanted",
    "watched",
    "word",
];

/// Each refused name of the sources below `folder`, with a file that has it.
fn refused_names(folder: &Path) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            let place = path.display().to_string();
            let mut note = |name: &str| {
                if REFUSED.contains(&name.to_ascii_lowercase().as_str()) {
                    names.insert(name.to_owned(), place.clone());
                }
            };
            if path.is_dir() {
                note(name_of(&path));
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                note(name_of(&path));
                let text = fs::read_to_string(&path).expect("a source file");
                text.lines().filter_map(declared_name).for_each(note);
            }
        }
    }
    names
}

/// The name of a file without its extension.
fn name_of(path: &Path) -> &str {
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    stem.expect("a name in UTF-8")
}

/// The name of the type or module that a line declares.
fn declared_name(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let mut word = words.next()?;
    if word.starts_with("pub") {
        // `pub(in crate::sql)` is two words.
        if word.contains('(') && !word.ends_with(')') {
            words.next()?;
        }
        word = words.next()?;
    }
    if !["struct", "enum", "trait", "type", "union", "mod"].contains(&word) {
        return None;
    }
    let name = words.next()?;
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    let end = name.find(|character| !is_part(character));
    Some(&name[..end.unwrap_or(name.len())])
}

#[test]
fn files_and_types_have_nouns_for_names() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec!["benches".to_owned(), "src".to_owned(), "tests".to_owned()];
    for entry in fs::read_dir(root.join("crates")).expect("the crates") {
        let path = entry.expect("an entry").path();
        folders.push(format!("crates/{}", name_of(&path)));
    }
    let refused: Vec<_> = folders
        .iter()
        .flat_map(|folder| refused_names(&root.join(folder)))
        .map(|(name, path)| format!("{name} in {path}"))
        .collect();
    assert!(
        refused.is_empty(),
        "give these a noun of the field for a name: {refused:#?}"
    );
}

#[test]
fn declarations_are_read_with_any_visibility() {
    for (line, name) in [
        ("struct Told {", Some("Told")),
        ("    pub(in crate::sql) enum Kept<'a> {", Some("Kept")),
        ("pub trait Standing: Debug {", Some("Standing")),
        ("pub(super) type Seen = u8;", Some("Seen")),
        ("mod word;", Some("word")),
        ("let told = 1;", None),
        ("// struct Told", None),
        ("", None),
    ] {
        assert_eq!(declared_name(line), name, "{line}");
    }
}
