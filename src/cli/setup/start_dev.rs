//! `doorward start-dev`: a door to try things with, without a file to write first.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use super::development::Development;
use super::{MAIN_FILE, ROUTES_FILE, make_directory, write_new};
use crate::cli::{USAGE, complain, run, with_causes};

/// Where the hints lie, with the passwords that they name.
const HINTS_FILE: &str = "hints.txt";

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    /// The directory of files and state, made when it is missing
    #[arg(long, value_name = "DIR", default_value = "doorward-dev")]
    dir: PathBuf,
    /// The proxy's port on loopback [default: 8000]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// The Admin API's port on loopback [default: 8001]
    #[arg(long, value_name = "PORT")]
    admin_port: Option<u16>,
}

pub(in crate::cli) fn run(arguments: &Arguments) -> ExitCode {
    match prepare(arguments) {
        Ok(hints) => run::run_with_hints(&arguments.dir.join(MAIN_FILE), hints),
        Err(error) => {
            complain(&with_causes(&error));
            ExitCode::from(USAGE)
        }
    }
}

/// Writes the files unless they are there; what to print once it runs.
fn prepare(arguments: &Arguments) -> Result<String> {
    let directory = &arguments.dir;
    let (main, hints) = (directory.join(MAIN_FILE), directory.join(HINTS_FILE));
    if main.exists() {
        if arguments.port.or(arguments.admin_port).is_some() {
            bail!(
                "{} is there already and names the ports; change them there, or name another \
                 directory with --dir",
                main.display()
            );
        }
        let read = std::fs::read_to_string(&hints);
        return read.with_context(|| format!("can't read {}", hints.display()));
    }
    write_files(arguments, directory)
}

fn write_files(arguments: &Arguments, directory: &Path) -> Result<String> {
    make_directory(directory)?;
    let files = Development::new(directory, arguments.port, arguments.admin_port);
    write_new(&directory.join(ROUTES_FILE), &files.routes)?;
    write_new(&directory.join(HINTS_FILE), &files.hints)?;
    // The last one: where it is, the others are.
    write_new(&directory.join(MAIN_FILE), &files.main)?;
    Ok(files.hints)
}
