//! Secrets that commands are given.

use std::io::{BufRead, IsTerminal};
use std::process::{Command as Process, Stdio};

use clap::Args;

use doorward_core::model::secret::Secret;
use doorward_net::telemetry::process_log;

/// Where a secret comes from; never from a list of processes unless asked to.
#[derive(Debug, Args)]
pub(super) struct SecretArgs {
    /// Reads the secret from the first line of standard input
    #[arg(long = "password-stdin", visible_alias = "secret-stdin")]
    pub(super) stdin: bool,
    /// The secret itself; others on this machine may see it while the command runs
    #[arg(
        long = "password",
        visible_alias = "secret",
        value_name = "TEXT",
        env = "DOORWARD_PASSWORD",
        hide_env_values = true,
        conflicts_with = "stdin"
    )]
    pub(super) text: Option<String>,
}

impl SecretArgs {
    /// The secret; `None` when none is given and nobody can be asked.
    pub(super) fn read(
        &self,
        what: &str,
        input: &mut dyn BufRead,
    ) -> anyhow::Result<Option<Secret>> {
        let text = if let Some(text) = &self.text {
            text.clone()
        } else if self.stdin {
            first_line(input)?
        } else if std::io::stdin().is_terminal() {
            ask_twice(what, input)?
        } else {
            return Ok(None);
        };
        anyhow::ensure!(!text.is_empty(), "the {what} is empty");
        anyhow::ensure!(text.len() <= 1024, "the {what} is longer than 1024 bytes");
        Ok(Some(Secret::new(text)))
    }
}

fn first_line(input: &mut dyn BufRead) -> std::io::Result<String> {
    let mut line = String::new();
    input.read_line(&mut line)?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

fn ask_twice(what: &str, input: &mut dyn BufRead) -> anyhow::Result<String> {
    let once = ask(&format!("{what}: "), input)?;
    let twice = ask(&format!("{what} again: "), input)?;
    anyhow::ensure!(once == twice, "the two do not agree");
    Ok(once)
}

/// Asks on the terminal, without showing what is typed.
fn ask(prompt: &str, input: &mut dyn BufRead) -> anyhow::Result<String> {
    process_log::say(prompt);
    let echo = |switch: &str| {
        let mut stty = Process::new("stty");
        stty.arg(switch).stderr(Stdio::null());
        stty.status().is_ok_and(|status| status.success())
    };
    anyhow::ensure!(
        echo("-echo"),
        "the terminal can't hide what is typed; use --password-stdin"
    );
    let line = first_line(input);
    echo("echo");
    process_log::say("\n");
    Ok(line?)
}
