//! Sessions as operators see them: listed and ended, wherever they are kept.

use async_trait::async_trait;

use crate::OpenIdConnect;
use crate::session::hashed;
use crate::session::revoked_sessions::SessionSelector;
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::login::{LoginQuery, SessionTombstone, StoredLogin};
use doorward_plugin_api::filter::{SessionKeeper, SessionsUnavailable};

#[async_trait]
impl SessionKeeper for OpenIdConnect {
    async fn list(&self) -> Result<Option<(Vec<StoredLogin>, bool)>, SessionsUnavailable> {
        match &self.sessions {
            Some(sessions) => sessions.list().await,
            None => Ok(None),
        }
    }

    async fn end(
        &self,
        which: &LoginQuery,
        now_ms: i64,
        audit: Option<&PendingAudit>,
    ) -> Result<usize, SessionsUnavailable> {
        let Some(sessions) = &self.sessions else {
            return Ok(0);
        };
        let mut which = which.clone();
        if which.issuer.is_none() && which.id.is_none() {
            let metadata = self.provider_client.metadata().await.ok();
            let issuer = metadata.map(|metadata| metadata.issuer.clone());
            which.issuer = issuer.or_else(|| Some(self.config().provider.issuer.to_string()));
        }
        sessions.end_all(&which, now_ms, audit).await
    }
}

/// What is to be marked as over so that the sessions that `which` means end also
/// where they can't be listed: in cookies.
pub(crate) fn marks_for(
    which: &LoginQuery,
    mark: impl Fn(doorward_core::model::login::TombstoneKey) -> SessionTombstone,
) -> Vec<SessionTombstone> {
    if let Some(id) = &which.id {
        return vec![mark(SessionSelector::Session(id).digest())];
    }
    let issuer = which.issuer.as_deref().unwrap_or_default();
    let mut about = Vec::new();
    if let Some(sid) = &which.sid {
        about.push(SessionSelector::ProviderSession { issuer, sid });
    } else if which.subjects.is_empty() {
        about.extend(which.client_id.as_deref().map(SessionSelector::Client));
    }
    for subject in &which.subjects {
        about.push(match &which.client_id {
            Some(client) => SessionSelector::UserOfClient {
                issuer,
                subject,
                client,
            },
            None => SessionSelector::User { issuer, subject },
        });
    }
    about
        .into_iter()
        .map(|about| mark(about.digest()))
        .collect()
}

/// The ways in which a subject may be stored.
pub fn subjects(subject: &str) -> Vec<String> {
    vec![subject.to_owned(), hashed(subject)]
}

/// What [`SessionTombstone`]s the command line leaves for running nodes, which end also
/// sessions in cookies.
pub fn end_marks(which: &LoginQuery, now_ms: i64) -> Vec<SessionTombstone> {
    marks_for(which, |what| SessionTombstone {
        what,
        before_ms: now_ms,
        until_ms: now_ms.saturating_add(MARKED_MS),
    })
}

/// For how long the command line, which knows no timers, leaves its marks: 400
/// days, in milliseconds.
const MARKED_MS: i64 = 400 * 86_400_000;
