//! The command line.

mod admin_listener;
mod audit;
mod check;
mod config;
mod explain;
pub mod identity;
mod manual;
mod output;
mod progress;
mod run;
mod setup;
mod store;
mod terminal;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser, Subcommand};

use crate::config::Config;
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
    #[command(flatten)]
    file: FileArg,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Starts what the configuration file asks for
    Run {
        /// Takes over from the process that serves the same file, on its sockets: it
        /// ends as soon as this one is ready
        #[arg(long)]
        upgrade: bool,
    },
    /// Starts a door to try things with: no file, a user, a client, hints
    StartDev(setup::start_dev::Arguments),
    /// Starts a door before one upstream, from flags alone
    Proxy(Box<setup::proxy::Arguments>),
    /// Writes a commented configuration to begin with
    Init(setup::init::Arguments),
    /// Checks every file without running anything; exit status 1 if one is wrong
    Check {
        /// How findings are told
        #[arg(long, value_enum, default_value_t)]
        format: check::Format,
        /// Asks what the file names as well: store, Redis, issuers, directories, the
        /// mail relay, dates of certificates, and whether base_url leads here
        #[arg(long)]
        online: bool,
    },
    /// Asks a running instance whether it is ready; exit status 1 if not
    Health {
        /// Asks whether it is ready for requests, as without a flag
        #[arg(long, conflicts_with = "live")]
        ready: bool,
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
    /// Prints the manual page, or writes those of all commands
    Man {
        /// Writes a page for each command into this directory
        #[arg(value_name = "DIR")]
        directory: Option<PathBuf>,
    },
}

#[derive(Debug, clap::Args)]
struct FileArg {
    /// The configuration file [default: conf/doorward.yaml if there is one, else
    /// /etc/doorward/doorward.yaml]
    #[arg(
        short,
        long,
        value_name = "FILE",
        env = "DOORWARD_CONFIG",
        global = true
    )]
    config: Option<PathBuf>,
}

/// Where the configuration file is when none is named: that of the working
/// directory, or else the machine's.
const USUAL_FILES: [&str; 2] = ["conf/doorward.yaml", "/etc/doorward/doorward.yaml"];

impl FileArg {
    /// The configuration file.
    fn find(self) -> PathBuf {
        self.config.unwrap_or_else(|| {
            let [here, machine] = USUAL_FILES.map(Path::new);
            if here.exists() { here } else { machine }.to_owned()
        })
    }
}

/// Exit status for a wrong flag or file.
const USAGE: u8 = 2;

/// Does what the command line says.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    install_crypto();
    let code = act(cli.command, &cli.file.find());
    process_log::flush();
    code
}

fn act(command: Command, file: &Path) -> ExitCode {
    match command {
        Command::Run { upgrade } => run::run(file, upgrade),
        Command::StartDev(arguments) => setup::start_dev::run(&arguments),
        Command::Proxy(arguments) => setup::proxy::run(&arguments),
        Command::Init(arguments) => setup::init::run(&arguments),
        Command::Check { format, online } => check::run(file, format, online),
        Command::Health { live, .. } => {
            health(file, if live { "/status" } else { "/status/ready" })
        }
        Command::Explain(arguments) => explain::run(*arguments, file),
        Command::Config(action) => config::run(&action, file),
        Command::Store(command) => store::run(&command, file),
        Command::Audit(command) => audit::run(&command, file),
        Command::Identity(command) => identity::run(*command, file),
        Command::Completions { shell } => {
            let mut command = Cli::command();
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command, "doorward", &mut script);
            output::print(&String::from_utf8_lossy(&script))
        }
        Command::Man { directory } => manual::run(directory.as_deref()),
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
        let mut ports = addresses
            .iter()
            .filter_map(|a| a.rsplit(':').next()?.parse().ok());
        let port = ports.next().unwrap_or(0);
        config.proxy.port_maps.known_to_clients(port)
    };
    Listeners {
        port: port(&config.proxy.listen),
        tls_port: config.proxy.tls.as_ref().map_or(0, |tls| port(&tls.listen)),
        trusted: config.proxy.trusted_ips.clone().into(),
        real_ip_header: config.proxy.real_ip_header.clone(),
        https_redirect: config.proxy.https_redirect,
        probes: config.proxy.health.clone(),
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

/// How long the admin listener may take to answer.
const ANSWER: Duration = Duration::from_secs(8);

/// Whether `path` of the admin listener answers 200. It says by itself when the
/// store is silent, and is waited for longer than that takes.
fn ask_status(config: &Config, path: &str) -> std::io::Result<bool> {
    use std::io::Read;
    let (mut stream, host) = admin_listener::connect(&config.admin.listen, ANSWER)?;
    let token = config.admin.token.as_ref();
    let token = token.map_or(String::new(), |token| {
        format!("Kong-Admin-Token: {}\r\n", token.expose())
    });
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{token}Connection: close\r\n\r\n");
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
