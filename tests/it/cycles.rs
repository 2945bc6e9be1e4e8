//! Files of a crate import one another in one direction, as far as it goes.
//!
//! Who changes one file of a cycle has to know all of them. An edge is a path that
//! begins with `crate` or `super` in a `use` declaration and leads to another file;
//! a parent that names its own children with plain paths makes none. Tests and what
//! is for tests alone do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Most files of a cycle.
const MOST: usize = 8;

/// Crates with a larger cycle, and how many files it has. Numbers may only become
/// smaller, and lines be removed.
const REMAINING: &[(&str, usize)] = &[("crates/identity", 33)];

/// A module's path below its crate.
type Module = Vec<String>;

/// The modules of a crate that have files of their own, each with those that it
/// imports.
type Imports = BTreeMap<Module, BTreeSet<Module>>;

/// Every source file below `folder`, by its module.
fn sources(folder: &Path, module: &Module, files: &mut BTreeMap<Module, String>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let stem = stem.expect("a name in UTF-8");
        if ["tests", "testing", "main"].contains(&stem) {
            continue;
        }
        let mut inner = module.clone();
        if !["lib", "mod"].contains(&stem) {
            inner.push(stem.to_owned());
        }
        if path.is_dir() {
            sources(&path, &inner, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a source file");
            files.insert(inner, text);
        }
    }
}

/// The paths of all `use` declarations outside the unit tests.
fn used_paths(text: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]\nmod tests {").next();
    let lines = text.unwrap_or_default().lines();
    let mut code = lines.map(|line| line.split("//").next().unwrap_or_default());
    let mut paths = Vec::new();
    while let Some(line) = code.next() {
        let Some(tree) = import_of(line) else {
            continue;
        };
        let mut tree = tree.to_owned();
        while !tree.contains(';') {
            let Some(more) = code.next() else { break };
            tree.push_str(more);
        }
        expand("", tree.split(';').next().unwrap_or_default(), &mut paths);
    }
    paths
}

/// What stands after `use` where a declaration of an import begins.
fn import_of(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let rest = line.strip_prefix("pub").map_or(line, |rest| {
        let inner = rest.strip_prefix('(');
        let rest = inner
            .and_then(|inner| inner.split_once(')'))
            .map_or(rest, |(_, rest)| rest);
        rest.trim_start()
    });
    rest.strip_prefix("use ")
}

/// Each path of a tree of them, such as `a::{b, c::d}`.
fn expand(before: &str, tree: &str, paths: &mut Vec<String>) {
    let tree = tree.trim();
    let Some((head, rest)) = tree.split_once('{') else {
        let name = tree.split(" as ").next().unwrap_or_default();
        paths.push(format!("{before}{name}"));
        return;
    };
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let before = format!("{before}{}", head.trim());
    let (mut depth, mut from) = (0_usize, 0);
    for (at, character) in inner.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                expand(&before, &inner[from..at], paths);
                from = at + 1;
            }
            _ => {}
        }
    }
    if !inner[from..].trim().is_empty() {
        expand(&before, &inner[from..], paths);
    }
}

/// The module with a file of its own that a path of `from` leads to.
fn target(from: &Module, path: &str, files: &BTreeMap<Module, String>) -> Option<Module> {
    let mut segments = path.split("::").map(str::trim).peekable();
    let mut module = match segments.next()? {
        "crate" => Module::new(),
        "super" => {
            let mut module = from.clone();
            module.pop();
            while segments.next_if_eq(&"super").is_some() {
                module.pop();
            }
            module
        }
        _ => return None,
    };
    for segment in segments {
        module.push(segment.to_owned());
        if !files.contains_key(&module) {
            module.pop();
            break;
        }
    }
    // A module without a file of its own lies in that of its parent.
    while !files.contains_key(&module) {
        module.pop()?;
    }
    (module != *from).then_some(module)
}

fn imports(folder: &Path) -> Imports {
    let mut files = BTreeMap::new();
    sources(folder, &Module::new(), &mut files);
    let of = |module: &Module, text: &str| {
        let paths = used_paths(text).into_iter();
        paths
            .filter_map(|path| target(module, &path, &files))
            .collect()
    };
    let all = files.iter();
    all.map(|(module, text)| (module.clone(), of(module, text)))
        .collect()
}

/// All that `from` imports, over others too.
fn reachable<'i>(from: &'i Module, imports: &'i Imports) -> BTreeSet<&'i Module> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![from];
    while let Some(module) = waiting.pop() {
        for next in &imports[module] {
            if found.insert(next) {
                waiting.push(next);
            }
        }
    }
    found
}

/// The largest set of modules that all import one another.
fn largest_cycle(imports: &Imports) -> Vec<String> {
    let reached: BTreeMap<_, _> = imports
        .keys()
        .map(|module| (module, reachable(module, imports)))
        .collect();
    let cycles = reached.iter().map(|(module, others)| {
        let back = others
            .iter()
            .filter(|other| reached[*other].contains(module));
        back.map(|other| other.join("::")).collect::<Vec<_>>()
    });
    cycles.max_by_key(Vec::len).unwrap_or_default()
}

#[test]
fn files_import_one_another_in_small_cycles_only() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec!["src".to_owned()];
    for entry in fs::read_dir(root.join("crates")).expect("the crates") {
        let name = entry.expect("an entry").file_name();
        folders.push(format!("crates/{}", name.to_str().expect("UTF-8")));
    }
    for folder in folders {
        let path = root.join(&folder);
        let inner = path.join("src");
        let imports = imports(if inner.is_dir() { &inner } else { &path });
        let cycle = largest_cycle(&imports);
        let listed = REMAINING.iter().find(|(name, _)| *name == folder);
        let most = listed.map_or(MOST, |(_, most)| *most);
        assert!(
            cycle.len() <= most,
            "{folder}: {} files import one another: {cycle:#?}",
            cycle.len()
        );
        assert!(
            listed.is_none() || cycle.len() == most && most > MOST,
            "{folder}: the largest cycle has {} files: say so in REMAINING",
            cycle.len()
        );
    }
}

#[test]
fn paths_of_imports_are_read_from_any_form() {
    let text = "//! use crate::no;\nuse super::a;\npub(in crate::x) use crate::{b, c::{d, e as f}};\n\
                fn g() {}\npub use h::i;\nstruct S;\nuse crate::j::{\n    k,\n    l,\n};\n\
                #[cfg(test)]\nmod tests {\n    use super::m;\n}\n";
    let wanted = [
        "super::a",
        "crate::b",
        "crate::c::d",
        "crate::c::e",
        "h::i",
        "crate::j::k",
        "crate::j::l",
    ];
    assert_eq!(used_paths(text), wanted);
}

#[test]
fn a_path_leads_to_the_nearest_file() {
    let file = |path: &str| {
        (
            path.split_terminator("::").map(str::to_owned).collect(),
            String::new(),
        )
    };
    let files: BTreeMap<Module, String> = ["", "a", "a::b", "a::c"].map(file).into();
    let from = file("a::b").0;
    for (path, wanted) in [
        ("super::c::Thing", Some("a::c")),
        ("super::Thing", Some("a")),
        ("super::super::Thing", Some("")),
        ("crate::a::c::inner::Thing", Some("a::c")),
        ("crate::a::b::Own", None),
        ("std::fmt", None),
    ] {
        assert_eq!(
            target(&from, path, &files),
            wanted.map(|of| file(of).0),
            "{path}"
        );
    }
}
