//! `doorward sessions …`

use chrono::{DateTime, SecondsFormat};
use clap::{ArgGroup, Args, Subcommand};
use serde_json::{Value, json};

use super::CommandContext;
use doorward_core::model::session::{ENDED_AT_ONCE, Ending, SessionQuery, SessionRecord};
use doorward_identity as identity;

/// What `doorward sessions --help` ends with.
pub(super) const EXAMPLES: &str = "\
Examples:
  doorward sessions list --user demo
  doorward sessions list --client shop --json
  doorward sessions end 2f1b9c1e-7a51-4c2b-9f5e-0d1c6a4e8b77
  doorward sessions end --user demo

With a session ends what was given in it, except by offline_access. A running
server tells its clients (back-channel logout).";

/// What to do with sessions.
#[derive(Debug, Subcommand)]
pub(super) enum Action {
    /// Lists sessions
    List(Which),
    /// Shows a session
    Show {
        /// Its identifier: what ID tokens call `sid`
        id: String,
    },
    /// Ends sessions: those named, or every one of a user or a client
    #[command(group(ArgGroup::new("some").args(["ids", "user", "client"]).multiple(true).required(true)))]
    End {
        /// Their identifiers
        #[arg(conflicts_with_all = ["user", "client"])]
        ids: Vec<String>,
        #[command(flatten)]
        which: Which,
    },
}

/// Which sessions are meant.
#[derive(Debug, Args)]
pub(super) struct Which {
    /// Those of this user
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Those in which this client is signed in
    #[arg(long, value_name = "CLIENT_ID")]
    client: Option<String>,
}

pub(super) async fn act(action: Action, context: &mut CommandContext<'_>) -> anyhow::Result<()> {
    match action {
        Action::List(which) => list(&which, context).await,
        Action::Show { id } => {
            let found = find(&id, context).await?;
            let record = record(&found, context);
            context.print(&record, &format!("{record:#}"))
        }
        Action::End { ids, which } if ids.is_empty() => {
            let query = which.query(context).await?;
            let ended = end_every(&query, context).await?;
            told(ended, context)
        }
        Action::End { ids, .. } => {
            // All of them are there, or nothing is done.
            for id in &ids {
                find(id, context).await?;
            }
            let mut ended = 0;
            for sid in ids {
                let realm = context.realm.clone();
                let which = Ending::Named { realm, sid };
                let now_ms = context.clock.now_ms();
                ended += context
                    .store
                    .end_sessions(&which, now_ms, context.audit())
                    .await?
                    .len();
            }
            told(ended, context)
        }
    }
}

fn told(ended: usize, context: &mut CommandContext<'_>) -> anyhow::Result<()> {
    let line = match ended {
        1 => "1 session ended".to_owned(),
        ended => format!("{ended} sessions ended"),
    };
    context.print(&json!({"ended": ended}), &line)
}

async fn find(sid: &str, context: &CommandContext<'_>) -> anyhow::Result<SessionRecord> {
    let found = context.store.session_named(&context.realm, sid).await?;
    found.ok_or_else(|| anyhow::anyhow!("there is no session {sid} in realm {}", context.realm))
}

async fn end_every(query: &SessionQuery, context: &CommandContext<'_>) -> anyhow::Result<usize> {
    let which = Ending::Every(query.clone());
    let mut all = 0;
    loop {
        let ended = context
            .store
            .end_sessions(&which, context.clock.now_ms(), context.audit())
            .await?;
        all += ended.len();
        if ended.len() < usize::try_from(ENDED_AT_ONCE)? {
            return Ok(all);
        }
    }
}

impl Which {
    /// What to ask the store for; a name that nobody has is a mistake.
    async fn query(&self, context: &CommandContext<'_>) -> anyhow::Result<SessionQuery> {
        let realm = &context.realm;
        let mut query = SessionQuery {
            realm: Some(realm.clone()),
            user_id: None,
            client_id: self.client.clone(),
        };
        if let Some(name) = &self.user {
            let user = context.store.user_by_name(realm, name).await?;
            let user =
                user.ok_or_else(|| anyhow::anyhow!("there is no user {name} in realm {realm}"))?;
            query.user_id = Some(user.id);
        }
        if let Some(client_id) = &self.client {
            let client = context.store.client(realm, client_id).await?;
            anyhow::ensure!(
                client.is_some(),
                "there is no client {client_id} in realm {realm}"
            );
        }
        Ok(query)
    }
}

fn record(found: &SessionRecord, context: &CommandContext<'_>) -> Value {
    let idle_ms = i64::from(context.identity.session.idle_minutes) * 60_000;
    identity::session_record(found, idle_ms)
}

async fn list(which: &Which, context: &mut CommandContext<'_>) -> anyhow::Result<()> {
    let query = which.query(context).await?;
    let mut records = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = context
            .store
            .sessions(&query, after.as_deref(), 500)
            .await?;
        for found in &page.sessions {
            let record = record(found, context);
            if context.json {
                records.push(record);
            } else {
                let line = line(found, &record);
                writeln!(context.out, "{line}")?;
            }
        }
        after = page.sessions.last().map(|one| one.session.sid.clone());
        if !page.more || after.is_none() {
            break;
        }
    }
    if context.json {
        writeln!(context.out, "{:#}", Value::from(records))?;
    }
    Ok(())
}

fn line(found: &SessionRecord, record: &Value) -> String {
    let time = |name: &str| {
        let seconds = record[name].as_i64().unwrap_or_default();
        let time = DateTime::from_timestamp(seconds, 0).unwrap_or_default();
        time.to_rfc3339_opts(SecondsFormat::Secs, true)
    };
    let clients = if found.clients.is_empty() {
        "-".to_owned()
    } else {
        found.clients.join(" ")
    };
    let (sid, user) = (&found.session.sid, &found.user_name);
    let (used, expires) = (time("used_at"), time("expires_at"));
    format!("{sid}\t{user}\t{clients}\t{used}\t{expires}")
}
