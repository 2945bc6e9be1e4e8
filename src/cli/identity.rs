//! `doorward users`, `clients`, `sessions` and `keys`: administering the store.
//!
//! They work on the store itself, beside a running process or without one; a
//! running process notices within a second.

mod clients;
mod keys;
mod sessions;
mod users;

use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::process::{Command as Process, ExitCode, Stdio};
use std::sync::Arc;

use clap::{Args, Subcommand};

use super::{USAGE, complain};
use crate::clock::Clock;
use crate::config::Config;
use crate::identity::config::{HashingConfig, IdentityConfig};
use crate::jose::vault::Vault;
use crate::model::secret::Secret;
use crate::store::{self, Store};

/// `doorward users …`
#[derive(Debug, Args)]
pub struct Users {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    action: users::Action,
}

/// `doorward clients …`
#[derive(Debug, Args)]
pub struct Clients {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    action: clients::Action,
}

/// `doorward keys …`
#[derive(Debug, Args)]
pub struct Keys {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    action: keys::Action,
}

/// `doorward sessions …`
#[derive(Debug, Args)]
#[command(after_help = sessions::EXAMPLES)]
pub struct Sessions {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    action: sessions::Action,
}

/// The commands of this module.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Administers users in the store
    Users(Users),
    /// Administers OAuth clients in the store
    Clients(Clients),
    /// Lists and ends sessions of users
    Sessions(Sessions),
    /// Lists and rotates signing keys
    Keys(Keys),
}

/// Which store, which realm, which form of output.
#[derive(Debug, Args)]
struct Target {
    /// The configuration file that names the store
    #[arg(
        short,
        long,
        value_name = "FILE",
        env = "DOORWARD_CONFIG",
        default_value = "conf/doorward.yaml",
        global = true
    )]
    config: PathBuf,
    /// The store itself (sqlite:PATH), without a configuration file
    #[arg(long, value_name = "URL", global = true)]
    store: Option<String>,
    /// The realm
    #[arg(long, default_value = "/", global = true)]
    realm: String,
    /// Prints JSON
    #[arg(long, global = true)]
    json: bool,
}

/// What every action works with.
struct Desk<'a> {
    store: Arc<dyn Store>,
    /// Path of the realm; it exists.
    realm: String,
    json: bool,
    clock: Clock,
    /// The cost of password hashes.
    hashing: HashingConfig,
    /// The file's section.
    identity: IdentityConfig,
    /// What private keys are sealed with.
    vault: Vault,
    input: &'a mut dyn BufRead,
    out: &'a mut dyn Write,
}

impl Desk<'_> {
    /// Prints `record` as JSON, or else the line.
    fn print(&mut self, record: &serde_json::Value, line: &str) -> anyhow::Result<()> {
        if self.json {
            writeln!(self.out, "{record:#}")?;
        } else {
            writeln!(self.out, "{line}")?;
        }
        Ok(())
    }
}

/// Does what the command says; exit status 1 when it can't, 2 for a wrong file.
pub fn run(command: Command) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&error);
            return ExitCode::FAILURE;
        }
    };
    let target = match &command {
        Command::Users(users) => &users.target,
        Command::Clients(clients) => &clients.target,
        Command::Sessions(sessions) => &sessions.target,
        Command::Keys(keys) => &keys.target,
    };
    let (url, section) = match (&target.store, Config::load(&target.config)) {
        (Some(url), config) => (url.clone(), section(config.ok())),
        (None, Ok(config)) => (config.store.0.clone(), section(Some(config))),
        (None, Err(error)) => {
            complain(&error);
            return ExitCode::from(USAGE);
        }
    };
    let (realm, json) = (target.realm.clone(), target.json);
    let done = runtime.block_on(async {
        let mut desk = Desk {
            store: store::open(&url).await?,
            realm: format!("/{}", realm.trim_matches('/')),
            json,
            clock: Clock::system(),
            vault: section.keys.vault()?,
            hashing: section.hashing.clone(),
            identity: section,
            input: &mut std::io::stdin().lock(),
            out: &mut std::io::stdout().lock(),
        };
        check_realm(&desk).await?;
        act(command, &mut desk).await
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

/// The file's section: checking a password must take the server as long as
/// checking that of nobody, and it must be able to open the keys made here.
fn section(config: Option<Config>) -> IdentityConfig {
    let identity = config.and_then(|config| config.identity);
    identity.unwrap_or_default()
}

async fn act(command: Command, desk: &mut Desk<'_>) -> anyhow::Result<()> {
    match command {
        Command::Users(users) => users::act(users.action, desk).await,
        Command::Clients(clients) => clients::act(clients.action, desk).await,
        Command::Sessions(sessions) => sessions::act(sessions.action, desk).await,
        Command::Keys(keys) => keys::act(keys.action, desk).await,
    }
}

async fn check_realm(desk: &Desk<'_>) -> anyhow::Result<()> {
    let realms = desk.store.realms().await?;
    let realms: Vec<_> = realms.into_iter().map(|realm| realm.path).collect();
    anyhow::ensure!(
        realms.contains(&desk.realm),
        "the store has no realm {}; it has {}",
        desk.realm,
        realms.join(", ")
    );
    Ok(())
}

/// Where a secret comes from; never from a list of processes unless asked to.
#[derive(Debug, Args)]
struct SecretArgs {
    /// Reads the secret from the first line of standard input
    #[arg(long = "password-stdin", visible_alias = "secret-stdin")]
    stdin: bool,
    /// The secret itself; others on this machine may see it while the command runs
    #[arg(
        long = "password",
        visible_alias = "secret",
        value_name = "TEXT",
        env = "DOORWARD_PASSWORD",
        hide_env_values = true,
        conflicts_with = "stdin"
    )]
    text: Option<String>,
}

impl SecretArgs {
    /// The secret; `None` when none is given and nobody can be asked.
    fn read(&self, what: &str, input: &mut dyn BufRead) -> anyhow::Result<Option<Secret>> {
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
    eprint!("{prompt}");
    std::io::stderr().flush()?;
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
    eprintln!();
    Ok(line?)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::Value;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(subcommand)]
        command: Command,
    }

    /// Runs a command line on `store`; what it printed.
    async fn doorward(store: &Arc<dyn Store>, input: &str, line: &str) -> anyhow::Result<String> {
        let words = std::iter::once("doorward").chain(line.split_whitespace());
        let command = Line::try_parse_from(words)?.command;
        let json = line.contains("--json");
        let mut out = Vec::new();
        let mut desk = Desk {
            store: Arc::clone(store),
            realm: "/".to_owned(),
            json,
            clock: Clock::manual(1_000_000),
            hashing: HashingConfig::default(),
            identity: IdentityConfig::default(),
            vault: Vault::default(),
            input: &mut input.as_bytes(),
            out: &mut out,
        };
        act(command, &mut desk).await?;
        Ok(String::from_utf8(out)?)
    }

    async fn new_store(directory: &tempfile::TempDir) -> Arc<dyn Store> {
        let url = format!("sqlite:{}", directory.path().join("db").display());
        store::open(&url).await.expect("a store")
    }

    #[tokio::test]
    async fn users_are_added_shown_changed_and_deleted() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = new_store(&directory).await;
        let line =
            "users add alice --email alice@example.com --display-name Alice --password-stdin";
        let said = doorward(&store, "Wonderland-7\n", line)
            .await
            .expect("added");
        assert!(said.contains("alice"), "{said}");
        let again = doorward(&store, "x\n", "users add ALICE --password-stdin").await;
        assert_eq!(again.expect_err("taken").to_string(), "ALICE is taken");

        let shown = doorward(&store, "", "users show Alice --json")
            .await
            .expect("shown");
        let record: Value = serde_json::from_str(&shown).expect("JSON");
        assert_eq!(record["emails"][0]["value"], "alice@example.com");
        assert!(!shown.contains("argon2"), "the hash is shown");

        doorward(&store, "x\n", "users add bob --password-stdin")
            .await
            .expect("added");
        let listed = doorward(&store, "", "users list").await.expect("listed");
        assert_eq!(listed.lines().count(), 2);
        let user = store
            .user_by_name("/", "alice")
            .await
            .expect("a lookup")
            .expect("alice");
        doorward(&store, "new\n", "users set-password alice --password-stdin")
            .await
            .expect("set");
        let changed = store
            .user_by_name("/", "alice")
            .await
            .expect("a lookup")
            .expect("alice");
        let hash = |user: &crate::model::user::User| {
            user.password_hash
                .as_ref()
                .map(|hash| hash.expose().to_owned())
        };
        assert_ne!(hash(&user), hash(&changed));
        doorward(&store, "", "users delete alice")
            .await
            .expect("deleted");
        assert!(doorward(&store, "", "users show alice").await.is_err());
    }

    #[tokio::test]
    async fn clients_get_a_secret_that_is_shown_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = new_store(&directory).await;
        let line =
            "clients add orders --grant client_credentials --grant password --scope openid --json";
        let said = doorward(&store, "", line).await.expect("added");
        let record: Value = serde_json::from_str(&said).expect("JSON");
        assert_eq!(
            record["grant_types"],
            serde_json::json!(["client_credentials", "password"])
        );
        assert_eq!(record["client_secret"].as_str().map(str::len), Some(43));
        let shown = doorward(&store, "", "clients show orders --json")
            .await
            .expect("shown");
        assert!(!shown.contains("client_secret\""), "{shown}");
        doorward(&store, "own-secret\n", "clients add own --secret-stdin")
            .await
            .expect("added");
        let public = doorward(&store, "", "clients add app --public")
            .await
            .expect("added");
        assert!(!public.contains("secret"), "{public}");
        let line = r#"clients add robot --metadata {"token_endpoint_auth_method":"private_key_jwt","jwks_uri":"https://robot.example/keys"}"#;
        let robot = doorward(&store, "", line).await.expect("added");
        assert!(!robot.contains("secret"), "{robot}");
        let line = r#"clients add http --metadata {"jwks_uri":"http://robot.example/keys"}"#;
        assert!(
            doorward(&store, "", line).await.is_err(),
            "keys by plain http"
        );
        let listed = doorward(&store, "", "clients list").await.expect("listed");
        assert_eq!(listed.lines().count(), 4);
        doorward(&store, "", "clients delete own")
            .await
            .expect("deleted");
        assert!(doorward(&store, "", "clients delete own").await.is_err());
        assert!(
            doorward(&store, "", "clients add bad --scope a\"b")
                .await
                .is_err()
        );
    }

    #[tokio::test]
    async fn sealed_keys_get_no_open_successor() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = new_store(&directory).await;
        let mut key =
            crate::jose::keys::generate(crate::model::client::SignAlg::ES256, 0, 0).expect("a key");
        let vault = Vault::new(&[Secret::new("m".repeat(32))]).expect("a vault");
        key.pkcs8 = vault.seal(&key).expect("sealed").expect("another text");
        store.add_signing_key(&key, 0, false).await.expect("stored");
        for line in ["keys rotate", "keys rotate --alg RS256 --now"] {
            let refused = doorward(&store, "", line).await.expect_err("refused");
            assert!(refused.to_string().contains("--config"), "{refused}");
        }
        assert_eq!(store.signing_keys().await.expect("keys").len(), 1);
    }

    #[tokio::test]
    async fn keys_rotate_ahead_or_at_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = new_store(&directory).await;
        doorward(&store, "", "keys rotate --alg ES256 --now")
            .await
            .expect("made");
        doorward(&store, "", "keys rotate --alg ES256")
            .await
            .expect("made");
        let listed = doorward(&store, "", "keys list --json")
            .await
            .expect("listed");
        let keys: Value = serde_json::from_str(&listed).expect("JSON");
        let states: Vec<_> = keys
            .as_array()
            .expect("keys")
            .iter()
            .map(|key| &key["state"])
            .collect();
        assert_eq!(states, ["active", "next"]);
        assert!(!listed.contains("pkcs8"));
        let emergency = doorward(&store, "", "keys rotate --alg ES256 --now").await;
        emergency.expect("made, in the place of the one to come");
        let listed = doorward(&store, "", "keys list --json").await;
        let keys: Value = serde_json::from_str(&listed.expect("listed")).expect("JSON");
        let states = keys.as_array().expect("keys").iter();
        let active = states.filter(|key| key["state"] != "old");
        assert_eq!(active.count(), 1);
    }
}
