//! `doorward man`: manual pages, made of the commands' own help.

use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;

use super::{Cli, complain, output};

pub(super) fn run(directory: Option<&Path>) -> ExitCode {
    let command = Cli::command();
    let Some(directory) = directory else {
        let mut page = Vec::new();
        return match clap_mangen::Man::new(command).render(&mut page) {
            Ok(()) => output::print(&String::from_utf8_lossy(&page)),
            Err(error) => failed(&error),
        };
    };
    let made = std::fs::create_dir_all(directory);
    match made.and_then(|()| clap_mangen::generate_to(command, directory)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&format!("{}: {error}", directory.display())),
    }
}

fn failed(error: &dyn std::fmt::Display) -> ExitCode {
    complain(error);
    ExitCode::FAILURE
}
