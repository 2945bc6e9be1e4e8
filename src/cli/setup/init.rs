//! `doorward init`: a commented configuration to begin with.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;

use super::development::Development;
use super::{MAIN_FILE, ROUTES_FILE, make_directory, write_new};
use crate::cli::{complain, output, with_causes};

/// What the repository has under `conf/`: one text for both.
const PRODUCTION: &str = include_str!("../../../conf/doorward.yaml");
const PRODUCTION_ROUTES: &str = include_str!("../../../conf/routes.yaml");

/// What is in the place of the directory of the repository's own files.
const REPOSITORY_STATE: &str = "../data";
const STATE: &str = "data";

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Arguments {
    /// The directory, made when it is missing
    #[arg(value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Secrets from the environment, all addresses, notes on TLS, Redis and keys
    #[arg(long)]
    production: bool,
}

pub(in crate::cli) fn run(arguments: &Arguments) -> ExitCode {
    let directory = &arguments.directory;
    let written = if arguments.production {
        production(directory)
    } else {
        development(directory)
    };
    match written {
        Ok(()) => output::print(&next_steps(directory)),
        Err(error) => {
            complain(&with_causes(&error));
            ExitCode::FAILURE
        }
    }
}

fn production(directory: &Path) -> Result<()> {
    make_directory(&directory.join("routes.d"))?;
    let main = PRODUCTION.replace(REPOSITORY_STATE, STATE);
    write_new(&directory.join(MAIN_FILE), &main)?;
    write_new(&directory.join(ROUTES_FILE), PRODUCTION_ROUTES)
}

fn development(directory: &Path) -> Result<()> {
    make_directory(directory)?;
    let files = Development::new(directory, None, None);
    write_new(&directory.join(MAIN_FILE), &files.main)?;
    write_new(&directory.join(ROUTES_FILE), &files.routes)
}

fn next_steps(directory: &Path) -> String {
    let main = directory.join(MAIN_FILE);
    format!(
        "wrote {}\nwrote {}\n\nNext:\n  doorward check -c {2}\n  doorward run -c {2}\n",
        main.display(),
        directory.join(ROUTES_FILE).display(),
        main.display()
    )
}
