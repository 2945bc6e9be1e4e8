//! Accounts at other providers that the user has linked to this one.
//!
//! Nobody removes the last way into their account.

use axum::response::Response;
use uuid::Uuid;

use super::{AccountRequest, SessionAndUser};
use crate::error::{Fault, OAuthError};
use crate::factors;
use crate::federation::{ProviderChoices, ProviderLink, unlink};
use crate::pages::{self, FormError};
use crate::sign_in::Proof;
use crate::{audit, ldap, sessions};
use doorward_core::model::audit::{Event, Kind as Audited, PendingAudit};
use doorward_core::model::factor::Kind;
use doorward_core::model::federation::FederatedIdentity;
use doorward_core::model::user::{Owner, User};

impl AccountRequest<'_> {
    /// What is linked, and the ways to link more.
    pub(super) async fn links(
        &self,
        (_, user): SessionAndUser<'_>,
    ) -> Result<(Vec<pages::AccountLink>, Vec<ProviderLink>), Fault> {
        if user.owner == Owner::File {
            return Ok((Vec::new(), Vec::new()));
        }
        let links = self.removable_links(user).await?;
        let choices = ProviderChoices {
            link: Some(user.id),
            ..self.choices()
        };
        let mut provider_links = choices.provider_links(self.call, &self.browser);
        provider_links.retain(|choice| {
            !links
                .iter()
                .any(|link| self.is_from_provider(link, &choice.name))
        });
        let shown = links.iter().map(|link| pages::AccountLink {
            id: link.id.to_string(),
            title: self.title(link),
            email: link.email.clone().unwrap_or_default(),
            since: self.moment(link.created_ms),
            used: self.moment(link.used_ms),
        });
        Ok((shown.collect(), provider_links))
    }

    /// The links that are the user's own affair: entries of directories are the
    /// operator's.
    async fn removable_links(&self, user: &User) -> Result<Vec<FederatedIdentity>, Fault> {
        let mut links = self.call.state.store.identities(user.id).await?;
        links.retain(|link| !ldap::is_entry(&link.issuer));
        Ok(links)
    }

    /// Whether a link is to a user of the provider of this name.
    fn is_from_provider(&self, link: &FederatedIdentity, name: &str) -> bool {
        let mut all = self.call.realm.providers().iter();
        let provider = all.find(|provider| provider.name() == name);
        link.provider == name
            || provider.is_some_and(|provider| provider.issuer_name() == link.issuer)
    }

    fn title(&self, link: &FederatedIdentity) -> String {
        let mut all = self.call.realm.providers().iter();
        let provider = all.find(|provider| self.is_from_provider(link, provider.name()));
        provider.map_or_else(|| link.issuer.clone(), |found| found.title().to_owned())
    }

    /// Removes a link, if its user has another way in. What was begun ends, as
    /// when the password changes; the browser gets a new session.
    pub(super) async fn unlink(
        &self,
        at: SessionAndUser<'_>,
        id: &str,
    ) -> Result<Response, OAuthError> {
        let (call, (session, user)) = (self.call, at);
        let links = self.removable_links(user).await?;
        let Some(link) = links.iter().find(|link| link.id.to_string() == id) else {
            return Ok(self.back());
        };
        if !self.has_another_way(user, link.id, &links).await? {
            return self.show(at, Some(FormError::LastWay)).await;
        }
        let state = &call.state;
        let write = async |audit: Option<&PendingAudit>| {
            let providers = call.realm.providers();
            unlink(&state.store, providers, link, call.now_ms, audit).await
        };
        let of_link = |event: Event| {
            let event = event.user(user.id, &user.user_name);
            let event = event.with("issuer", link.issuer.as_str());
            event.with("subject", link.subject.as_str())
        };
        let kind = Audited::LinkDelete;
        let gone = audit::with_if(state, kind, of_link, write, |gone| *gone).await?;
        let mut response = self.back();
        if gone {
            state.read_revocations().await?;
            state.backchannel_logout.wake();
            let proof = Proof::of(session);
            if let Some(token) = sessions::begin(call, user, &proof).await? {
                sessions::set_cookie(call, &mut response, &token);
            }
        }
        Ok(response)
    }

    /// Whether the user can sign in without the link `id`.
    async fn has_another_way(
        &self,
        user: &User,
        id: Uuid,
        links: &[FederatedIdentity],
    ) -> Result<bool, Fault> {
        let (call, realm) = (self.call, &self.call.realm);
        let directory = ldap::source(&call.state, realm, Some(user)).await?;
        if user.password_hash.is_some() || directory.is_some() {
            return Ok(true);
        }
        let offered = |link: &FederatedIdentity| {
            let mut all = realm.providers().iter();
            all.any(|provider| {
                provider.is_enabled() && self.is_from_provider(link, provider.name())
            })
        };
        if links.iter().any(|link| link.id != id && offered(link)) {
            return Ok(true);
        }
        if !realm.settings.factors.passkeys_alone || !factors::usable(call).contains(&Kind::Passkey)
        {
            return Ok(false);
        }
        let has = call.state.store.factors(user.id).await?;
        Ok(has.iter().any(|factor| factor.kind == Kind::Passkey))
    }
}
