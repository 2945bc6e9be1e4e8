//! What the page shows.

use axum::response::Response;

use super::{AccountRequest, SessionAndUser, agent, purpose};
use crate::error::{Fault, OAuthError};
use crate::pages::{self, AccountPage, Applicant, FormError, FormParts};
use crate::{consent_entry, factors, ldap};
use doorward_core::model::factor::{Kind, StoredFactor};
use doorward_core::model::grant::Consent;
use doorward_core::model::session::{SessionQuery, SessionRecord};
use doorward_core::model::user::Owner;

/// Most sessions that are shown.
const SESSIONS_MAX: u32 = 200;

impl AccountRequest<'_> {
    /// The page, with why a form failed.
    pub(super) async fn show(
        &self,
        (session, user): SessionAndUser<'_>,
        failed: Option<FormError>,
    ) -> Result<Response, OAuthError> {
        self.show_refused((session, user), failed, "").await
    }

    /// As [`AccountRequest::show`], with what is wrong with a new password.
    pub(super) async fn show_refused(
        &self,
        (session, user): SessionAndUser<'_>,
        failed: Option<FormError>,
        refused: &str,
    ) -> Result<Response, OAuthError> {
        let call = self.call;
        let store = &call.state.store;
        let mut all = self.sessions((session, user)).await?;
        // This one first, then those that were used last.
        all.sort_by_key(|one| (one.session.sid != session.sid, -one.session.used_ms));
        let mut consents = Vec::new();
        for consent in store.consents(user.id).await? {
            consents.push(self.consent(&consent).await?);
        }
        let factors = store.factors(user.id).await?;
        let left = store.recovery_codes_left(user.id).await?;
        let form = FormParts {
            action: self.address(),
            csrf: self.browser.token(&purpose(session)),
            since: String::new(),
            provider_links: Vec::new(),
            forgot: None,
        };
        let (links, provider_links) = self.links((session, user)).await?;
        let directory = ldap::source(&call.state, &call.realm, Some(user)).await?;
        let own = user.owner != Owner::File && user.password_hash.is_some();
        let page = AccountPage {
            user_name: &user.user_name,
            sessions: all
                .iter()
                .map(|one| self.session(one, &session.sid))
                .collect(),
            consents,
            factors: factors.iter().map(|one| self.factor(one)).collect(),
            codes_left: (!factors.is_empty()).then_some(left),
            may_add: !factors::kinds(call).is_empty(),
            may_change_password: own && directory.is_none(),
            links,
            provider_links,
            refused,
        };
        let mut response = pages::account(&self.frame, &form, page, failed);
        self.browser.remember(call, &mut response);
        Ok(response)
    }

    /// The sessions of the user in this realm, at most [`SESSIONS_MAX`].
    pub(super) async fn sessions(
        &self,
        (_, user): SessionAndUser<'_>,
    ) -> Result<Vec<SessionRecord>, Fault> {
        let call = self.call;
        let query = SessionQuery {
            realm: Some(call.realm.path.clone()),
            user_id: Some(user.id),
            client_id: None,
        };
        let store = &call.state.store;
        let found = store.sessions(&query, None, SESSIONS_MAX).await?;
        let alive = |one: &SessionRecord| call.state.is_alive(&one.session, call.now_ms);
        Ok(found.sessions.into_iter().filter(alive).collect())
    }

    fn session(&self, one: &SessionRecord, own: &str) -> pages::AccountSession {
        let session = &one.session;
        pages::AccountSession {
            id: session.sid.clone(),
            own: session.sid == own,
            agent: agent::name(&session.agent),
            address: session.address.clone(),
            since: self.moment(session.auth_ms),
            used: self.moment(session.used_ms),
            clients: one.clients.join(", "),
        }
    }

    async fn consent(&self, consent: &Consent) -> Result<pages::AccountConsent, Fault> {
        let call = self.call;
        let state = &call.state;
        let client = state
            .clients
            .find(&state.store, &call.realm, &consent.client_id);
        let client = client.await?;
        let name = client.as_ref().map(|client| {
            let metadata = &client.client.metadata;
            Applicant::of(metadata, &self.frame).name.to_owned()
        });
        Ok(pages::AccountConsent {
            client_id: consent.client_id.clone(),
            name: name.unwrap_or_else(|| consent.client_id.clone()),
            scopes: consent_entry::shown(&consent.scopes),
        })
    }

    fn factor(&self, factor: &StoredFactor) -> pages::AccountFactor {
        pages::AccountFactor {
            id: factor.id.to_string(),
            name: factor.name.clone(),
            is_passkey: factor.kind == Kind::Passkey,
            copied: factors::is_backed_up(factor),
            added: self.moment(factor.created_ms),
            used: factor.used_ms.map(|ms| self.moment(ms)),
        }
    }

    /// A moment in the words of the page.
    pub(super) fn moment(&self, ms: i64) -> pages::Moment {
        self.frame.texts().moment(ms, self.call.now_ms)
    }
}
