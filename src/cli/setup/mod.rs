//! Commands that write a configuration: to begin with, to try things, and to
//! stand before one upstream.

mod address;
mod development;
pub(super) mod init;
pub(super) mod proxy;
mod rate;
pub(super) mod start_dev;

use std::fs::{DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result, bail};

use doorward_core::clock;

/// The main file's name, and that of the declared entities.
const MAIN_FILE: &str = "doorward.yaml";
const ROUTES_FILE: &str = "routes.yaml";
/// The ports on loopback where no other is named.
const PORT: u16 = 8000;
const ADMIN_PORT: u16 = 8001;

/// Letters and digits of a generated secret: none that look alike.
const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

/// A secret that can be typed: 20 characters, 100 bits.
fn secret() -> String {
    let bytes: [u8; 20] = clock::random_bytes();
    let letters = bytes.iter().map(|byte| ALPHABET[usize::from(byte % 32)]);
    letters.map(char::from).collect()
}

/// `template` with each `@NAME@` replaced.
fn filled(template: &str, values: &[(&str, &str)]) -> String {
    let replace = |text: String, (name, value): &(&str, &str)| text.replace(name, value);
    values.iter().fold(template.to_owned(), replace)
}

/// Makes a directory that only its owner may look into; one that is there stays
/// as it is.
fn make_directory(directory: &Path) -> Result<()> {
    let mut builder = DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(directory);
    made.with_context(|| format!("can't make the directory {}", directory.display()))
}

/// Writes a new file that only its owner may read.
///
/// # Errors
/// When there is a file of this name, or it can't be written.
fn write_new(file: &Path, text: &str) -> Result<()> {
    write(OpenOptions::new().create_new(true), file, text)
}

/// Writes a file that only its owner may read, in the place of one that is there.
fn overwrite(file: &Path, text: &str) -> Result<()> {
    write(OpenOptions::new().create(true).truncate(true), file, text)
}

fn write(options: &mut OpenOptions, file: &Path, text: &str) -> Result<()> {
    let opened = options.write(true).mode(0o600).open(file);
    let mut opened = match opened {
        Ok(opened) => opened,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail!(
                "{} is there already, and stays as it is; name another directory",
                file.display()
            );
        }
        Err(error) => {
            return Err(error).with_context(|| format!("can't write {}", file.display()));
        }
    };
    opened
        .write_all(text.as_bytes())
        .and_then(|()| opened.sync_all())
        .with_context(|| format!("can't write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_there_is_not_overwritten_and_what_is_written_is_private() {
        use std::os::unix::fs::PermissionsExt;

        let directory = tempfile::tempdir().expect("a directory");
        let inner = directory.path().join("a/b");
        make_directory(&inner).expect("made");
        make_directory(&inner).expect("is there");
        let file = inner.join("file");
        write_new(&file, "one").expect("written");
        let error = write_new(&file, "two").expect_err("is there");
        assert!(error.to_string().contains("is there already"), "{error}");
        assert_eq!(std::fs::read_to_string(&file).expect("read"), "one");
        for path in [inner, file] {
            let mode = path.metadata().expect("there").permissions().mode();
            assert_eq!(mode & 0o077, 0, "{}", path.display());
        }
    }

    #[test]
    fn secrets_are_long_and_differ() {
        let (one, other) = (secret(), secret());
        assert_eq!(one.len(), 20);
        assert_ne!(one, other);
        assert!(one.bytes().all(|byte| ALPHABET.contains(&byte)));
    }
}
