//! `doorward keys …`

use clap::Subcommand;
use serde_json::{Value, json};

use super::clients::alg;
use super::{CommandContext, instant};
use doorward_core::jose::keys;
use doorward_core::model::client::SignAlg;
use doorward_core::model::grant::{MAX_TOKEN_LIFE_MS, StoredKey};
use doorward_identity::{AHEAD_MS, state_of};

/// What `doorward keys --help` ends with.
pub(super) const EXAMPLES: &str = "\
Examples:
  doorward keys list
  doorward keys rotate                     # every algorithm, signing in an hour
  doorward keys rotate --alg ES256 --now
  doorward keys rotate --now --drop-old    # after a key was stolen";

/// What to do with signing keys.
#[derive(Debug, Subcommand)]
pub(super) enum Action {
    /// Lists signing keys
    List,
    /// Shows a signing key: its public facts
    Show {
        /// Its `kid`
        kid: String,
    },
    /// Makes a successor: published at once, signing in an hour
    Rotate {
        /// The algorithm, such as RS256, PS256, ES256 or EdDSA; by default each that has a key
        #[arg(long, value_parser = alg)]
        alg: Option<SignAlg>,
        /// Signs with the successor at once
        #[arg(long)]
        now: bool,
        /// Withdraws the older keys at once: every token they signed dies
        #[arg(long, requires = "now")]
        drop_old: bool,
    },
}

pub(super) async fn act(action: Action, context: &mut CommandContext<'_>) -> anyhow::Result<()> {
    match action {
        Action::List => list(context).await,
        Action::Show { kid } => {
            let keys = context.store.signing_keys().await?;
            let key = keys.iter().find(|key| key.kid == kid);
            let Some(key) = key else {
                anyhow::bail!("there is no key {kid}; see `doorward keys list`");
            };
            let now_ms = context.clock.now_ms();
            let record = record(key, now_ms, state_of(key, &keys, now_ms));
            context.print(&record, &format!("{record:#}"))
        }
        Action::Rotate { alg, now, drop_old } => {
            let known = context.store.signing_keys().await?;
            can_open(&known, context)?;
            let all = SignAlg::OWN.into_iter();
            let wanted: Vec<_> = match alg {
                Some(alg) => vec![alg],
                None => all
                    .filter(|alg| known.iter().any(|key| key.alg == *alg))
                    .collect(),
            };
            anyhow::ensure!(
                !wanted.is_empty(),
                "the store has no key yet; name one with --alg"
            );
            for alg in wanted {
                rotate(alg, now, drop_old, context).await?;
            }
            Ok(())
        }
    }
}

/// A successor must be as safe in the store as the keys before it, and the
/// server must be able to open it.
fn can_open(known: &[StoredKey], context: &CommandContext<'_>) -> anyhow::Result<()> {
    let sealed = known.iter().find(|key| context.vault.open(key).is_err());
    anyhow::ensure!(
        sealed.is_none(),
        "the store's keys are sealed with a master key that is not at hand: name the \
         configuration file with identity.keys.master_key (--config)"
    );
    Ok(())
}

async fn rotate(
    alg: SignAlg,
    now: bool,
    drop_old: bool,
    context: &mut CommandContext<'_>,
) -> anyhow::Result<()> {
    let now_ms = context.clock.now_ms();
    let from_ms = if now { now_ms } else { now_ms + AHEAD_MS };
    let mut key = keys::generate(alg, now_ms, from_ms)?;
    if let Some(sealed) = context.vault.seal(&key)? {
        key.pkcs8 = sealed;
    }
    let others_expire_ms = if drop_old {
        now_ms
    } else {
        from_ms + MAX_TOKEN_LIFE_MS
    };
    let added = context
        .store
        .add_signing_key(&key, others_expire_ms, now, context.audit());
    let added = added.await?;
    anyhow::ensure!(
        added,
        "there is a successor for {} already; see `doorward keys list`",
        alg.as_str()
    );
    let line = format!(
        "{} key {} signs from {}",
        alg.as_str(),
        key.kid,
        instant(from_ms)
    );
    context.print(&record(&key, now_ms, "next"), &line)
}

fn record(key: &StoredKey, now_ms: i64, state: &str) -> Value {
    json!({
        "kid": key.kid,
        "alg": key.alg.as_str(),
        "state": if key.active_from_ms <= now_ms && state == "next" { "active" } else { state },
        "created": instant(key.created_ms),
        "active_from": instant(key.active_from_ms),
        "expires": key.expires_ms.map(instant),
    })
}

async fn list(context: &mut CommandContext<'_>) -> anyhow::Result<()> {
    let keys = context.store.signing_keys().await?;
    let now_ms = context.clock.now_ms();
    let records = keys
        .iter()
        .map(|key| record(key, now_ms, state_of(key, &keys, now_ms)));
    let records: Vec<_> = records.collect();
    context.table(records, &["kid", "alg", "state", "active_from", "expires"])
}
