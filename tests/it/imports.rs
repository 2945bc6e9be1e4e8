//! Imports point one way: from the parts that know more to those that know less.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules from the top to the bottom; a row may import its own row and
/// those below.
const LAYERS: &[&[&str]] = &[
    &["main", "cli", "boot", "server"],
    &["config"],
    &["gateway", "admin", "identity"],
    &["plugins", "audit"],
    &["filter", "session", "store", "http", "shared", "telemetry"],
    &["model", "expr", "jose", "x509", "yaml", "clock"],
];

/// Imports that the rows alone would allow.
const FORBIDDEN: &[(&str, &str)] = &[
    ("identity", "gateway"),
    ("identity", "admin"),
    ("gateway", "admin"),
];

#[test]
fn imports_point_one_way() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut wrong = Vec::new();
    for file in rust_files(&src) {
        let module = top_module(&src, &file);
        if module == "lib" {
            continue;
        }
        let text = fs::read_to_string(&file).expect("a source file");
        for imported in imports(&text) {
            if !allowed(&module, &imported) {
                wrong.push(format!("{} imports {imported}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_module_has_its_place_in_the_layers() {
    let lib = include_str!("../../src/lib.rs");
    for line in lib.lines() {
        let Some(name) = line.strip_prefix("pub mod ") else {
            continue;
        };
        let name = name.trim_end_matches(';');
        assert!(layer(name).is_some(), "give {name} a row in LAYERS");
    }
}

#[test]
fn grouped_and_nested_imports_are_found() {
    let text =
        "use crate::{gateway::{a, b}, clock};\nfn f() { crate::store::open(); }\n// crate::admin\n";
    let found: Vec<_> = imports(text).into_iter().collect();
    assert_eq!(found, ["clock", "gateway", "store"]);
}

fn allowed(module: &str, imported: &str) -> bool {
    let (Some(from), Some(to)) = (layer(module), layer(imported)) else {
        return false;
    };
    module == imported || (from <= to && !FORBIDDEN.contains(&(module, imported)))
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|row| row.contains(&module))
}

/// The first part of the path below `src`: `gateway` of `gateway/router/radix.rs`.
fn top_module(src: &Path, file: &Path) -> String {
    let below = file.strip_prefix(src).expect("a file below src");
    let first = below.components().next().expect("a name");
    let name = first.as_os_str().to_str().expect("UTF-8");
    name.trim_end_matches(".rs").to_owned()
}

/// Every module that `text` names as `crate::module` or `doorward::module`
/// outside of comments and test modules.
fn imports(text: &str) -> BTreeSet<String> {
    let code: String = text
        .lines()
        .take_while(|line| line.trim() != "#[cfg(test)]")
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n");
    let mut found = BTreeSet::new();
    for root in ["crate::", "doorward::"] {
        for (at, _) in code.match_indices(root) {
            let rest = &code[at + root.len()..];
            match rest.strip_prefix('{') {
                Some(group) => found.extend(heads(group)),
                None => found.extend(identifier(rest)),
            }
        }
    }
    found
}

/// The first identifier of each item in a brace group, the opening brace gone.
fn heads(group: &str) -> Vec<String> {
    let mut heads = Vec::new();
    let mut depth = 0_usize;
    let mut item_starts = true;
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => item_starts = true,
            c if item_starts && !c.is_whitespace() => {
                heads.extend(identifier(&group[at..]));
                item_starts = false;
            }
            _ => {}
        }
    }
    heads
}

fn identifier(text: &str) -> Option<String> {
    let word: String = text
        .chars()
        .take_while(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '_')
        .collect();
    (!word.is_empty()).then_some(word)
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs")
            && path.file_name().is_some_and(|name| name != "tests.rs")
        {
            files.push(path);
        }
    }
    files
}
