//! Every field of a configuration has a reader.
//!
//! The compiler is silent about the fields of structs that a macro of another crate
//! makes, so this looks for the readers in the sources. It knows them by name alone.

use std::fs;
use std::path::Path;

/// What begins and ends the structs that `config!` makes.
const BEGIN: &str = "\nconfig! {\n";
const END: &str = "\n}\n";

/// The sources below a folder, without their tests and comments.
fn sources(folder: &Path, texts: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        if stem == Some("tests") {
            continue;
        }
        if path.is_dir() {
            sources(&path, texts);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a source file");
            let text = text.split("#[cfg(test)]\nmod tests {").next();
            let lines = text.unwrap_or_default().lines();
            let code = lines.filter(|line| !line.trim_start().starts_with("//"));
            texts.push(format!("\n{}\n", code.collect::<Vec<_>>().join("\n")));
        }
    }
}

/// The fields that a source lists, and what it has besides.
fn fields_and_rest(text: &str) -> (Vec<String>, String) {
    let mut parts = text.split(BEGIN);
    let mut rest = parts.next().unwrap_or_default().to_owned();
    let mut fields = Vec::new();
    for part in parts {
        let (list, behind) = part.split_once(END).unwrap_or((part, ""));
        fields.extend(list.lines().filter_map(field).map(str::to_owned));
        rest.push('\n');
        rest.push_str(behind);
    }
    (fields, rest)
}

/// The name of the field that a line declares, unless it says that nobody reads it.
fn field(line: &str) -> Option<&str> {
    let line = line.strip_prefix("        ")?;
    let line = match line.strip_prefix("pub") {
        Some(public) if public.starts_with('(') => public.split_once(") ")?.1,
        Some(public) => public.strip_prefix(' ')?,
        None => line,
    };
    let (name, _) = line.split_once(": ")?;
    let name = name.split_once(" as ").map_or(name, |(name, _)| name);
    let is_name = name
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    (is_name && !name.starts_with('_')).then_some(name)
}

/// Whether a text reads a field: behind a dot, or as one of several of its struct.
fn reads(text: &str, name: &str) -> bool {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    text.match_indices(name).any(|(at, _)| {
        let (before, behind) = (&text[..at], &text[at + name.len()..]);
        let is_whole = !before.ends_with(is_part) && !behind.starts_with(is_part);
        let is_listed = behind.starts_with([',', ':']) || behind.starts_with(" }");
        is_whole && (before.ends_with('.') || is_listed)
    })
}

#[test]
fn every_field_of_a_configuration_has_a_reader() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    let mut without = Vec::new();
    for entry in fs::read_dir(root.join("crates")).expect("the crates") {
        let folder = entry.expect("an entry").path().join("src");
        let mut texts = Vec::new();
        sources(&folder, &mut texts);
        let all = texts.iter().map(|text| fields_and_rest(text));
        let (fields, rest): (Vec<_>, Vec<_>) = all.unzip();
        let fields = fields.concat();
        let rest = rest.join("\n");
        count += fields.len();
        let unread = fields.into_iter().filter(|name| !reads(&rest, name));
        without.extend(unread.map(|name| format!("{name} in {}", folder.display())));
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
        first: u16,\n        second as \"2nd\": u16,\n        _third as \"third\": u16,\n    \
        }\n}\nfn read(config: &Config) {\n    config.first\n}\n";
    let (fields, rest) = fields_and_rest(text);
    assert_eq!(fields, ["first", "second"]);
    assert!(reads(&rest, "first") && !reads(&rest, "second"));
    assert!(reads("let Config { second, .. } = config;", "second"));
    assert!(!reads("config.seconds + a_second", "second"));
}
