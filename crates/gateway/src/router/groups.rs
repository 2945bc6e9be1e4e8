//! What the groups of a route's path matched, for the few who want to know.

use std::sync::OnceLock;

use regex::bytes::Regex;

use super::pattern;
use doorward_core::model::route::Route;

/// The expressions of a route's paths, compiled when first asked: finding the
/// route does not need groups, and most requests do not either.
#[derive(Debug)]
pub struct Groups {
    paths: Box<[Box<str>]>,
    compiled: OnceLock<Box<[Regex]>>,
}

impl Groups {
    /// The groups of `route`'s paths.
    pub fn of(route: &Route) -> Self {
        let expressions = route.paths.iter().flatten();
        Self {
            paths: expressions
                .filter_map(|path| path.strip_prefix('~').map(Box::from))
                .collect(),
            compiled: OnceLock::new(),
        }
    }

    /// What the group with this name, or number, matched of `path`.
    pub fn find<'a>(&self, path: &'a str, group: &str) -> Option<&'a [u8]> {
        let expressions = self.compiled.get_or_init(|| {
            let compiled = |path: &str| pattern::compile(&pattern::of_path(path)).ok();
            let paths = self.paths.iter().map(AsRef::as_ref);
            paths.filter_map(compiled).collect()
        });
        let captures = expressions
            .iter()
            .find_map(|expression| expression.captures(path.as_bytes()))?;
        let found = match group.parse() {
            Ok(number) => captures.get(number),
            Err(_) => captures.name(group),
        };
        Some(found?.as_bytes())
    }
}
