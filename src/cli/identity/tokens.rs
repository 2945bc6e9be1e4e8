//! `doorward tokens …`: initial access tokens.

use clap::Subcommand;
use serde_json::{Value, json};

use super::CommandContext;
use doorward_identity::registry::{self, InitialTokenRequest};

/// What `doorward tokens --help` ends with.
pub(super) const EXAMPLES: &str = "\
Examples:
  doorward tokens add --note 'the new shop'
  doorward tokens add --uses 20 --expires-in 3600 --realm /staff --json
  doorward tokens list

They let their holder register clients where
identity.realms.PATH.settings.registration.mode is `token`.";

/// What to do with initial access tokens.
#[derive(Debug, Subcommand)]
pub(super) enum Action {
    /// Makes a token and shows it, once: by default for one client within a day
    #[command(visible_alias = "create")]
    Add {
        /// How many clients may be registered with it
        #[arg(long, value_name = "NUMBER", conflicts_with = "any_uses")]
        uses: Option<u32>,
        /// Any number of clients may be registered with it
        #[arg(long)]
        any_uses: bool,
        /// Seconds that it lives
        #[arg(long, value_name = "SECONDS", conflicts_with = "no_expiry")]
        expires_in: Option<u32>,
        /// It lives until it is deleted
        #[arg(long)]
        no_expiry: bool,
        /// What it is made for
        #[arg(long, default_value = "")]
        note: String,
    },
    /// Lists tokens: what they are good for, not the tokens themselves
    List,
    /// Deletes a token; clients that were registered with it stay
    Delete {
        /// Its `id` in the list
        id: String,
    },
}

pub(super) async fn act(action: Action, context: &mut CommandContext<'_>) -> anyhow::Result<()> {
    match action {
        Action::Add {
            uses,
            any_uses,
            expires_in,
            no_expiry,
            note,
        } => {
            let usual = InitialTokenRequest::default();
            let wish = InitialTokenRequest {
                uses: if any_uses { None } else { uses.or(usual.uses) },
                expires_in: if no_expiry {
                    None
                } else {
                    expires_in.or(usual.expires_in)
                },
                note,
            };
            add(wish, context).await
        }
        Action::List => list(context).await,
        Action::Delete { id } => {
            let gone = context
                .store
                .delete_initial_token(&context.realm, &id, context.audit())
                .await?;
            anyhow::ensure!(gone, "there is no token {id} in realm {}", context.realm);
            context.print(&json!({"id": id}), &format!("token {id} deleted"))
        }
    }
}

async fn add(wish: InitialTokenRequest, context: &mut CommandContext<'_>) -> anyhow::Result<()> {
    let now_ms = context.clock.now_ms();
    let (token, text) = registry::initial_token(&context.realm, wish, now_ms)?;
    context
        .store
        .insert_initial_token(&token, context.audit())
        .await?;
    let mut record = registry::token_record(&token);
    record["initial_access_token"] = text.expose().into();
    let line = format!(
        "token {} added to realm {}\ninitial_access_token: {}",
        token.id,
        context.realm,
        text.expose()
    );
    context.print(&record, &line)
}

async fn list(context: &mut CommandContext<'_>) -> anyhow::Result<()> {
    let tokens = context.store.initial_tokens(&context.realm).await?;
    let records: Vec<_> = tokens.iter().map(registry::token_record).collect();
    if context.json {
        writeln!(context.out, "{:#}", Value::from(records))?;
        return Ok(());
    }
    for (token, record) in tokens.iter().zip(&records) {
        let uses = token
            .uses_left
            .map_or("any".to_owned(), |uses| uses.to_string());
        let expires = &record["expires_at"];
        let expires = match expires.as_i64() {
            Some(seconds) => super::instant(seconds * 1000),
            None => "never".to_owned(),
        };
        writeln!(
            context.out,
            "{}\t{uses}\t{expires}\t{}",
            token.id, token.note
        )?;
    }
    Ok(())
}
