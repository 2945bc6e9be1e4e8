//! The files of a door for development, with passwords of their own.

use std::path::Path;

use super::{ADMIN_PORT, PORT, filled, secret};

const MAIN: &str = include_str!("templates/dev.yaml");
const ROUTES: &str = include_str!("templates/dev-routes.yaml");
const HINTS: &str = include_str!("templates/dev.txt");

/// The texts of the files.
pub(super) struct Development {
    pub(super) main: String,
    pub(super) routes: String,
    /// What to try, with the passwords.
    pub(super) hints: String,
}

impl Development {
    /// Fills the templates in, for a door of this directory.
    pub(super) fn new(directory: &Path, port: Option<u16>, admin_port: Option<u16>) -> Self {
        let values = [
            ("@PORT@", &*port.unwrap_or(PORT).to_string()),
            (
                "@ADMIN_PORT@",
                &admin_port.unwrap_or(ADMIN_PORT).to_string(),
            ),
            ("@PASSWORD@", &secret()),
            ("@ADMIN_PASSWORD@", &secret()),
            ("@SECRET@", &secret()),
            ("@DIR@", &directory.display().to_string()),
        ];
        Self {
            main: filled(MAIN, &values),
            routes: filled(ROUTES, &values),
            hints: filled(HINTS, &values),
        }
    }
}
