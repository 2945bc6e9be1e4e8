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

    fn expressions(&self) -> &[Regex] {
        self.compiled.get_or_init(|| {
            let compiled = |path: &str| pattern::compile(&pattern::of_path(path)).ok();
            let paths = self.paths.iter().map(AsRef::as_ref);
            paths.filter_map(compiled).collect()
        })
    }

    /// What every group matched of `path`: by number, and by name where it has
    /// one. Nothing where no expression matches.
    pub fn all(&self, path: &str) -> Vec<(Box<str>, Box<str>)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into();
        for expression in self.expressions() {
            let Some(captures) = expression.captures(path.as_bytes()) else {
                continue;
            };
            let names = expression.capture_names().enumerate();
            let mut all = Vec::new();
            for ((number, name), found) in names.zip(captures.iter()) {
                let Some(found) = found else { continue };
                all.push((number.to_string().into(), text(found.as_bytes())));
                all.extend(name.map(|name| (name.into(), text(found.as_bytes()))));
            }
            return all;
        }
        Vec::new()
    }

    /// What the group with this name, or number, matched of `path`.
    pub fn find<'a>(&self, path: &'a str, group: &str) -> Option<&'a [u8]> {
        let captures = self
            .expressions()
            .iter()
            .find_map(|expression| expression.captures(path.as_bytes()))?;
        let found = match group.parse() {
            Ok(number) => captures.get(number),
            Err(_) => captures.name(group),
        };
        Some(found?.as_bytes())
    }
}
