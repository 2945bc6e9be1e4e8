//! The command line.

mod audit;
mod config;
mod explain;
pub mod identity;
mod output;
mod run;
mod store;
mod terminal;

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser, Subcommand};

use crate::boot;
use crate::config::Config;
use crate::server::tls;
use doorward_core::clock::Clock;
use doorward_gateway::explain::Listeners;
use doorward_net::telemetry::process_log;

/// One front door: reverse proxy, API gateway and identity provider.
#[derive(Debug, Parser)]
#[command(
    name = "doorward",
    version,
    about,
    propagate_version = true,
    max_term_width = 80
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Starts what the configuration file asks for
    Run(FileArg),
    /// Checks every file without running anything; exit status 1 if one is wrong
    Check(FileArg),
    /// Asks a running instance whether it is ready; exit status 1 if not
    Health {
        #[command(flatten)]
        file: FileArg,
        /// Asks whether it is alive, which it is without its store, too
        #[arg(long)]
        live: bool,
    },
    /// Tells which route a request gets and why, its filters and its peer;
    /// exit status 1 if no route matches
    Explain(Box<explain::Arguments>),
    /// Exports and imports the gateway's entities
    #[command(subcommand)]
    Config(config::Action),
    /// Exports, imports and checks the whole store
    Store(store::Command),
    /// Reads the audit log
    Audit(Box<audit::Command>),
    #[command(flatten)]
    Identity(Box<identity::Command>),
    /// Prints a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, clap::Args)]
struct FileArg {
    /// The configuration file
    #[arg(
        short,
        long,
        value_name = "FILE",
        env = "DOORWARD_CONFIG",
        default_value = "conf/doorward.yaml"
    )]
    config: PathBuf,
}

/// Exit status for a wrong flag or file.
const USAGE: u8 = 2;

/// Does what the command line says.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    install_crypto();
    let code = act(cli.command);
    process_log::flush();
    code
}

fn act(command: Command) -> ExitCode {
    match command {
        Command::Run(file) => run::run(&file.config),
        Command::Check(file) => check(&file.config),
        Command::Health { file, live } => {
            health(&file.config, if live { "/status" } else { "/status/ready" })
        }
        Command::Explain(arguments) => explain::run(*arguments),
        Command::Config(action) => config::run(&action),
        Command::Store(command) => store::run(&command),
        Command::Audit(command) => audit::run(&command),
        Command::Identity(command) => identity::run(*command),
        Command::Completions { shell } => {
            let mut command = Cli::command();
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command, "doorward", &mut script);
            output::print(&String::from_utf8_lossy(&script))
        }
    }
}

/// One provider for every use of TLS and JOSE, installed before anything can
/// choose another.
fn install_crypto() {
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .expect("nothing has chosen a TLS provider before main");
}

/// Says `error` on standard error, a line for each finding.
fn complain(error: &dyn std::fmt::Display) {
    for line in error.to_string().lines() {
        process_log::say(&format!("doorward: {line}\n"));
    }
}

/// An error with its causes, on one line. A cause whose text ends the text
/// before it is not repeated.
fn with_causes(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if line.ends_with(&cause) {
            continue;
        }
        if !line.is_empty() {
            line.push_str(": ");
        }
        line.push_str(&cause);
    }
    line
}

/// What the listeners of `config` contribute to a request.
fn listeners(config: &Config) -> Listeners {
    let port = |addresses: &[String]| {
        let first = addresses.first().and_then(|a| a.rsplit(':').next());
        let port = first.and_then(|port| port.parse().ok()).unwrap_or(0);
        config.proxy.port_maps.known_to_clients(port)
    };
    Listeners {
        port: port(&config.proxy.listen),
        tls_port: config.proxy.tls.as_ref().map_or(0, |tls| port(&tls.listen)),
        trusted: config.proxy.trusted_ips.clone().into(),
        real_ip_header: config.proxy.real_ip_header.clone(),
    }
}

fn check(file: &Path) -> ExitCode {
    process_log::direct();
    match try_check(file) {
        Ok(()) => output::print(&format!("{}: ok\n", file.display())),
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

fn try_check(file: &Path) -> anyhow::Result<()> {
    let config = Config::load(file)?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let clock = Clock::system();
    let tls = tls::check(&config, &clock).map_err(|error| error.located(&config));
    let rest = boot::check(&config, &clock).map_err(|error| error.to_string());
    let findings: Vec<String> = [tls, rest].into_iter().filter_map(Result::err).collect();
    if findings.is_empty() {
        Ok(())
    } else {
        anyhow::bail!(findings.join("\n"))
    }
}

fn health(file: &Path, path: &str) -> ExitCode {
    let config = match Config::load(file) {
        Ok(config) => config,
        Err(error) => {
            complain(&error);
            return ExitCode::from(USAGE);
        }
    };
    match ask_status(&config, path) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            complain(&"not ready");
            ExitCode::FAILURE
        }
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

/// How long the admin listener may take to take a connection, and to answer.
const CONNECT: Duration = Duration::from_secs(2);
const ANSWER: Duration = Duration::from_secs(8);

/// Whether `path` of the admin listener answers 200. It says by itself when the
/// store is silent, and is waited for longer than that takes.
fn ask_status(config: &Config, path: &str) -> std::io::Result<bool> {
    use std::io::Read;
    let address: SocketAddr = config.admin.listen.parse().map_err(std::io::Error::other)?;
    let mut stream = TcpStream::connect_timeout(&address, CONNECT)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    let token = config.admin.token.as_ref();
    let token = token.map_or(String::new(), |token| {
        format!("Kong-Admin-Token: {}\r\n", token.expose())
    });
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{token}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut head = [0_u8; 12];
    stream.read_exact(&mut head)?;
    Ok(&head == b"HTTP/1.1 200")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_said_once() {
        let missing = std::io::Error::other("no such file");
        let error = anyhow::Error::new(missing).context("can't open db: no such file");
        let error = error.context("nothing was exported");
        let line = "nothing was exported: can't open db: no such file";
        assert_eq!(with_causes(&error), line);
    }

    /// Calls `look` with a command and all below it.
    fn each(command: &mut clap::Command, look: &mut impl FnMut(&mut clap::Command)) {
        look(command);
        let names = command.get_subcommands().map(|c| c.get_name().to_owned());
        let names: Vec<_> = names.collect();
        for name in names {
            if let Some(below) = command.find_subcommand_mut(&name) {
                each(below, look);
            }
        }
    }

    #[test]
    fn help_fits_eighty_columns_and_examples_can_be_copied() {
        let mut command = Cli::command();
        command.build();
        each(&mut command, &mut |command| {
            let name = command.get_name().to_owned();
            let examples = command.get_after_help().map(ToString::to_string);
            for line in examples.iter().flat_map(|text| text.lines()) {
                assert!(line.chars().count() <= 80, "{name}: {line}");
            }
            for line in command.render_long_help().to_string().lines() {
                assert!(line.chars().count() <= 80, "{name}: {line}");
            }
        });
    }
}
