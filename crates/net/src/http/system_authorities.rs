//! The authorities of this machine, as the engine reads them for its connections to
//! upstreams.
//!
//! The engine panics where there are none, as in an image without `ca-certificates`.
//! Whoever makes a connector of it asks here which file to name.

use std::fs::File;
use std::path::Path;

use pingora::tls::{RootCertStore, load_platform_certs_incl_env_into_store};

/// A file that is always there, and names nobody.
const NOBODY: &str = "/dev/null";

/// The file of authorities that a connector of the engine is given: the operator's;
/// `None`: it reads those of the system. Where they can't be read, no authority is
/// trusted, so that no certificate is verified.
pub fn of_engine(file: Option<&Path>) -> Option<String> {
    match file {
        Some(file) => Some(file.display().to_string()),
        None => fault().map(|_| NOBODY.to_owned()),
    }
}

/// Whether the file that [`of_engine`] names is there, where no operator's file is.
///
/// # Errors
/// The engine can't make a connection: the system has neither authorities nor the file
/// that stands for none.
pub fn check() -> Result<(), String> {
    check_with(fault(), Path::new(NOBODY))
}

fn check_with(fault: Option<String>, nobody: &Path) -> Result<(), String> {
    let Some((fault, missing)) = fault.zip(File::open(nobody).err()) else {
        return Ok(());
    };
    Err(format!(
        "is not set, and the authorities of this machine can't be read ({fault}), nor can {} \
         ({missing})",
        nobody.display()
    ))
}

/// Why the authorities of the system can't be read; `None`: they can.
pub fn fault() -> Option<String> {
    let mut store = RootCertStore::empty();
    let read = load_platform_certs_incl_env_into_store(&mut store);
    read.err().map(|error| match &error.cause {
        Some(cause) => cause.to_string(),
        None => error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use pingora::connectors::{ConnectorOptions, TransportConnector};

    use super::*;

    #[test]
    fn the_engine_takes_the_file_that_names_nobody() {
        let made = catch_unwind(|| {
            let mut options = ConnectorOptions::new(1);
            options.ca_file = Some(NOBODY.to_owned());
            TransportConnector::new(Some(options))
        });
        assert!(made.is_ok());
    }

    #[test]
    fn a_machine_without_authorities_needs_the_file_that_names_nobody() {
        let (there, missing) = (Path::new(NOBODY), Path::new("/nowhere/null"));
        assert_eq!(check_with(None, missing), Ok(()));
        assert_eq!(check_with(Some("no file".to_owned()), there), Ok(()));
        let told = check_with(Some("no file".to_owned()), missing).expect_err("refused");
        assert!(
            told.contains("can't be read (no file), nor can /nowhere/null"),
            "{told}"
        );
    }

    #[test]
    fn the_operators_file_is_named_whatever_the_system_has() {
        let file = of_engine(Some(Path::new("/etc/own.pem")));
        assert_eq!(file.as_deref(), Some("/etc/own.pem"));
    }
}
