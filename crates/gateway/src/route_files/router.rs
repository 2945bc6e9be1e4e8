//! Nested routers: a directory of route files of their own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::build_context;
use super::builder::RouteFileBuilder;
use super::fields::Fields;
use super::loader::{Site, Source};
use super::objects::Built;
use crate::handler::{Handler, Routes};
use doorward_expr::duration::{self, Length};

/// Deepest nesting of routers.
const MAX_ROUTERS: usize = 8;
/// Where a router looks that does not say, beside its file.
const USUAL_DIRECTORY: &str = "routes";

/// How often a router's directory is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scan {
    /// When it is first read.
    Once,
    /// Whenever something changes there.
    Watched,
}

impl RouteFileBuilder<'_> {
    pub(super) fn router(&self, config: &Fields<'_>) -> Option<Built> {
        let known = ["directory", "defaultHandler", "scanInterval"];
        config.known(&known, &["openApiValidation"]);
        let scan = scan_interval(config);
        let directory = self.directory(config);
        let default = match config.value("defaultHandler") {
            None => Some(None),
            Some(_) => self.leads_to(config, "defaultHandler").map(Some),
        };
        let (scan, directory, default) = (scan?, directory?, default?);
        let (routes, mut height, mut weight) = self.nested(config, &directory, scan)?;
        if let Some(leads) = &default {
            height = height.max(leads.height);
            weight = weight.max(leads.weight);
        }
        let routes = Routes::new(routes, default.map(|leads| leads.handler));
        Some(Built::handler(
            Handler::Router(Arc::new(routes)),
            height,
            weight,
        ))
    }

    /// The directory that the router is for.
    fn directory(&self, config: &Fields<'_>) -> Option<PathBuf> {
        let text = config.text("directory")?;
        let text = text.as_deref().unwrap_or(USUAL_DIRECTORY);
        let path = text.strip_prefix("file://").unwrap_or(text);
        let own = self.document.file().parent().unwrap_or(Path::new(""));
        Some(own.join(path))
    }

    /// The routes of `directory`, and the height and weight of the greatest.
    fn nested(
        &self,
        config: &Fields<'_>,
        directory: &Path,
        scan: Scan,
    ) -> Option<(Vec<Arc<super::FileRoute>>, usize, usize)> {
        let number = self.routers.get() + 1;
        self.routers.set(number);
        let Ok(real) = directory.canonicalize() else {
            // So that it is noticed when it appears.
            let _ = self.context.list(directory);
            let message = format!(
                "{} is no directory: there are no routes",
                directory.display()
            );
            self.warn(&config.at("directory"), message);
            return Some((Vec::new(), 0, 0));
        };
        if self.directories.contains(&real) {
            let message = format!("{} would include itself", directory.display());
            return config.wrong("directory", message);
        }
        if self.directories.len() > MAX_ROUTERS {
            let message = format!("routers are nested deeper than {MAX_ROUTERS} levels");
            return config.wrong("directory", message);
        }
        let key = (directory.to_owned(), number);
        let before = self.file_sets.borrow().before(&key);
        let file_set = match before {
            Some(before) if scan == Scan::Once => before,
            before => {
                let mut file_set = before.unwrap_or_default();
                let mut directories = self.directories.clone();
                directories.push(real);
                let site = Site {
                    context: self.context,
                    outer: Some(self),
                    prefix: match number {
                        1 => format!("{}/", self.id),
                        _ => format!("{}/{number}/", self.id),
                    },
                    directories,
                };
                match self.sources(directory, scan) {
                    Ok(sources) => file_set.load(sources, &site),
                    Err(message) => return config.wrong("directory", message),
                }
                file_set
            }
        };
        let routes = file_set.routes();
        let (height, weight) = file_set.extent();
        self.file_sets.borrow_mut().put(key, file_set);
        Some((routes, height, weight))
    }

    fn sources(&self, directory: &Path, scan: Scan) -> Result<Vec<Source>, String> {
        let files = match scan {
            Scan::Once => build_context::documents(directory).map_err(|error| error.to_string())?,
            Scan::Watched => self.context.list(directory)?,
        };
        let read = |file: PathBuf| Source {
            text: match scan {
                Scan::Once => build_context::read(&file),
                Scan::Watched => self.context.read(&file),
            },
            file,
        };
        Ok(files.into_iter().map(read).collect())
    }
}

/// How often it is to be looked at: a number of seconds, or a duration. What
/// is watched is noticed at once, whatever the number.
fn scan_interval(config: &Fields<'_>) -> Option<Scan> {
    const FIELD: &str = "scanInterval";
    let seconds = match config.value(FIELD) {
        None => return Some(Scan::Watched),
        Some(Value::Number(number)) => number.as_i64(),
        Some(_) => {
            let text = config.text(FIELD)?.unwrap_or_default();
            match (text.trim().parse::<i64>(), duration::parse(&text)) {
                (Ok(seconds), _) => Some(seconds),
                (_, Ok(Length::Finite(length))) => Some(i64::from(!length.is_zero())),
                (_, Ok(Length::Unlimited)) => {
                    return config.wrong(FIELD, "must not be unlimited; `disabled` reads once");
                }
                (_, Err(error)) => return config.wrong(FIELD, error.to_string()),
            }
        }
    };
    match seconds {
        None => config.wrong(
            FIELD,
            "expected whole seconds, or a duration such as `10 seconds`",
        ),
        Some(..=0) => Some(Scan::Once),
        Some(_) => Some(Scan::Watched),
    }
}
