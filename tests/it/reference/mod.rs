//! The shelf *Reference*: what the code knows is written once.
//!
//! Pages that are all facts of the code are generated, and compared with what is
//! in docs/. Tables that say more than the code knows are written by hand, and
//! each of their names is looked for in the code, and the other way round.

mod accounts;
mod expressions;
mod fields;
mod generated;
mod openid_connect;
mod page_tables;
mod sections;
mod settings;
mod stores;
mod tables;

use std::path::{Path, PathBuf};

/// A file of the project.
fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The text of a page.
fn page(name: &str) -> String {
    let path = file("docs").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names in backticks of the first cell of a row of a table.
fn names(row: &str) -> Vec<&str> {
    let cell = row.strip_prefix("| ").unwrap_or_default();
    let cell = cell.split(" | ").next().unwrap_or_default();
    cell.split('`').skip(1).step_by(2).collect()
}

/// What is between the first `from` of a source and the next `to`.
fn part<'a>(source: &'a str, from: &str, to: &str) -> &'a str {
    let (_, rest) = source.split_once(from).expect(from);
    rest.split_once(to).expect(to).0
}
