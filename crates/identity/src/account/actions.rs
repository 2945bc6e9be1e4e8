//! What the forms of the page do.

use axum::response::Response;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{AccountRequest, SessionAndUser, purpose};
use crate::authorize::redirect;
use crate::change_password::{self, ChangeError};
use crate::context::{PASSWORD, SEVERAL};
use crate::error::OAuthError;
use crate::factors::{self, EnrolmentResult, NewSecret};
use crate::form::Form;
use crate::pages::{self, Applicant, Ceremony, FormError, FormParts};
use crate::sign_in::{self, CODE, PASSKEY, Proof, STEP};
use crate::{audit, sessions};
use doorward_core::model::audit::Kind as Audited;
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::factor::{FACTORS_MAX, Kind};
use doorward_core::model::session::Ending;

/// A factor that is about to be added, as the browser carries it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct PendingFactor {
    challenge: String,
    handle: String,
    secret: String,
}

impl AccountRequest<'_> {
    /// Does what a form asks for.
    pub(super) async fn act(
        &self,
        at: SessionAndUser<'_>,
        body: &Form<'_>,
    ) -> Result<Response, OAuthError> {
        match body.get("do").unwrap_or_default() {
            "end" => self.end(at, body.get("id").unwrap_or_default()).await,
            "end-others" => self.end_others(at).await,
            "withdraw" => self.withdraw(at, body.get("id").unwrap_or_default()).await,
            "password" => self.password(at, body).await,
            sensitive => {
                // Before it is asked what was shown: what a user gets meanwhile
                // was not.
                let factors = self.call.state.store.factors(at.1.id).await?;
                if let Some(page) = self.confirm(at).await? {
                    return Ok(page);
                }
                match sensitive {
                    "add" => self.add(at, None, None).await,
                    "added" => self.added(at, body, factors.is_empty()).await,
                    "rename" => self.rename(at, body).await,
                    "remove" => self.remove(at, body.get("id").unwrap_or_default()).await,
                    "codes" => self.codes(at).await,
                    "unlink" => self.unlink(at, body.get("id").unwrap_or_default()).await,
                    _ => self.show(at, Some(FormError::Stale)).await,
                }
            }
        }
    }

    /// Back to the page itself: a reload repeats nothing.
    pub(super) fn back(&self) -> Response {
        redirect(self.call, &self.address())
    }

    async fn end(&self, at: SessionAndUser<'_>, sid: &str) -> Result<Response, OAuthError> {
        // Of the user's own, or of nobody's.
        let all = self.sessions(at).await?;
        if let Some(found) = all.iter().find(|one| one.session.sid == sid) {
            let which = Ending::Named {
                realm: found.session.realm.clone(),
                sid: sid.to_owned(),
            };
            let call = self.call;
            call.state.end_sessions(&which, call.now_ms, None).await?;
        }
        Ok(self.back())
    }

    async fn end_others(&self, at: SessionAndUser<'_>) -> Result<Response, OAuthError> {
        let call = self.call;
        let all = self.sessions(at).await?;
        for one in all.iter().filter(|one| one.session.sid != at.0.sid) {
            let which = Ending::Named {
                realm: one.session.realm.clone(),
                sid: one.session.sid.clone(),
            };
            call.state.end_sessions(&which, call.now_ms, None).await?;
        }
        Ok(self.back())
    }

    async fn withdraw(
        &self,
        (_, user): SessionAndUser<'_>,
        client_id: &str,
    ) -> Result<Response, OAuthError> {
        let call = self.call;
        let (store, realm) = (&call.state.store, &call.realm.path);
        let write = async |audit: Option<&PendingAudit>| {
            let withdrawn = store.withdraw_consent(realm, user.id, client_id, call.now_ms, audit);
            withdrawn.await
        };
        let of_client = |event: doorward_core::model::audit::Event| {
            event
                .user(user.id, &user.user_name)
                .target(&format!("clients/{client_id}"))
        };
        let grants = audit::with(&call.state, Audited::ConsentRevoke, of_client, write).await?;
        call.state.mark_revoked(&grants, call.now_ms);
        Ok(self.back())
    }

    /// The page that offers what may be added.
    async fn add(
        &self,
        (session, user): SessionAndUser<'_>,
        known: Option<PendingFactor>,
        failed: Option<FormError>,
    ) -> Result<Response, OAuthError> {
        let call = self.call;
        let kinds = factors::kinds(call);
        let has = call.state.store.factors(user.id).await?;
        let secret = known.and_then(|known| NewSecret::parse(&known.secret));
        let secret = secret.or_else(|| kinds.contains(&Kind::Totp).then(NewSecret::make));
        let mut adding = PendingFactor {
            challenge: factors::new_challenge(),
            handle: String::new(),
            secret: secret.as_ref().map(NewSecret::text).unwrap_or_default(),
        };
        let live = &call.live;
        let party = live.relying_party.as_ref();
        let party = party.filter(|_| kinds.contains(&Kind::Passkey));
        let options = party.map(|party| {
            let (options, handle) = factors::creation(call, party, user, &adding.challenge, &has);
            adding.handle = handle;
            options
        });
        let step = self.browser.carry(call, &purpose(session), &adding);
        let ceremony = options.map(|options| Ceremony {
            creates: true,
            options,
            step: step.clone(),
        });
        let address = self.address();
        let totp = secret.map(|secret| secret.shown(call, user, step));
        let shown = pages::Enrolment {
            user_name: &user.user_name,
            totp: totp.as_ref(),
            ceremony: ceremony.as_ref(),
            again: &address,
            of_account: true,
        };
        let form = FormParts {
            action: address.clone(),
            csrf: self.browser.token(&purpose(session)),
            since: String::new(),
            provider_links: Vec::new(),
            forgot: None,
        };
        let applicant = Applicant::ours(&self.frame);
        let mut response = pages::enrol(&self.frame, applicant, &form, &shown, failed);
        self.browser.remember(call, &mut response);
        Ok(response)
    }

    async fn added(
        &self,
        (session, user): SessionAndUser<'_>,
        body: &Form<'_>,
        is_first: bool,
    ) -> Result<Response, OAuthError> {
        let call = self.call;
        let most = if is_first { 1 } else { FACTORS_MAX };
        let step = body.get(STEP).unwrap_or_default();
        let adding: Option<PendingFactor> = self.browser.brought(call, &purpose(session), step);
        let Some(adding) = adding else {
            return self
                .add((session, user), None, Some(FormError::Stale))
                .await;
        };
        let (texts, name) = (self.frame.texts(), body.get("doorward_name"));
        let (enrolled, wrong) = match body.get(PASSKEY) {
            Some(text) => {
                let ceremony = (adding.challenge.as_str(), adding.handle.as_str());
                let name = factors::name(name, &texts.passkey);
                let made = sign_in::enrol_passkey(call, user, ceremony, (&name, most), text);
                (made.await?, FormError::Passkey)
            }
            None => {
                let typed = body.get(CODE).unwrap_or_default();
                let name = factors::name(name, &texts.totp);
                let made = match NewSecret::parse(&adding.secret) {
                    Some(secret) => secret.enrol(call, user, (&name, most), typed).await?,
                    None => EnrolmentResult::Wrong,
                };
                (made, FormError::Code)
            }
        };
        let (shown, codes) = match enrolled {
            EnrolmentResult::Done(shown, codes) => (shown, codes),
            other => {
                let failed = match other {
                    EnrolmentResult::Locked => FormError::Tries,
                    EnrolmentResult::Full if is_first => FormError::Stale,
                    EnrolmentResult::Full => FormError::Full,
                    _ => wrong,
                };
                return self.add((session, user), Some(adding), Some(failed)).await;
            }
        };
        let mut response = match codes {
            Some(codes) => pages::recovery(&self.frame, &codes, &self.address()),
            None => self.back(),
        };
        // The factor was shown in this session just now.
        let mut proof = Proof::of(session);
        proof.methods.add(shown.words.into_iter().chain([SEVERAL]));
        if let Some(token) = sessions::begin(call, user, &proof).await? {
            sessions::set_cookie(call, &mut response, &token);
        }
        Ok(response)
    }

    async fn rename(
        &self,
        (_, user): SessionAndUser<'_>,
        body: &Form<'_>,
    ) -> Result<Response, OAuthError> {
        let id = body.get("id").and_then(|id| Uuid::parse_str(id).ok());
        let name = factors::name(body.get("doorward_name"), "");
        if let Some(id) = id.filter(|_| !name.is_empty()) {
            let store = &self.call.state.store;
            store.rename_factor(user.id, id, &name).await?;
        }
        Ok(self.back())
    }

    async fn remove(
        &self,
        (_, user): SessionAndUser<'_>,
        id: &str,
    ) -> Result<Response, OAuthError> {
        if let Ok(id) = Uuid::parse_str(id) {
            let state = &self.call.state;
            let write = async |audit: Option<&PendingAudit>| {
                state.store.delete_factor(user.id, id, audit).await
            };
            let of_factor = |event: doorward_core::model::audit::Event| {
                event
                    .user(user.id, &user.user_name)
                    .target(&format!("factors/{id}"))
            };
            let kind = Audited::FactorDelete;
            audit::with_if(state, kind, of_factor, write, |gone| *gone).await?;
        }
        Ok(self.back())
    }

    async fn codes(&self, at: SessionAndUser<'_>) -> Result<Response, OAuthError> {
        let (call, (_, user)) = (self.call, at);
        if call.state.store.factors(user.id).await?.is_empty() {
            return self.show(at, None).await;
        }
        let codes = factors::new_codes(call, user).await?;
        Ok(pages::recovery(&self.frame, &codes, &self.address()))
    }

    async fn password(
        &self,
        at: SessionAndUser<'_>,
        body: &Form<'_>,
    ) -> Result<Response, OAuthError> {
        let (call, (session, user)) = (self.call, at);
        // With the password alone, its owner must not be locked out.
        if !call.state.store.factors(user.id).await?.is_empty()
            && let Some(page) = self.confirm(at).await?
        {
            return Ok(page);
        }
        let field = |name| body.get(name).unwrap_or_default();
        let changed = change_password::change(call, user, field("current"), field("new")).await;
        let user = match changed {
            Ok(user) => user,
            Err(ChangeError::Wrong) => return self.show(at, Some(FormError::Credentials)).await,
            Err(ChangeError::Refused(wrong)) => {
                let told = self.frame.violations(&wrong);
                return self
                    .show_refused(at, Some(FormError::Password), &told)
                    .await;
            }
            Err(ChangeError::NotLocal) => return self.show(at, Some(FormError::Unmet)).await,
            Err(ChangeError::Fault(fault)) => return Err(fault.into()),
        };
        let mut response = self.back();
        // The old session has ended with the others.
        let mut proof = Proof::of(session);
        proof.methods.add([PASSWORD]);
        proof.auth_ms = call.now_ms;
        if let Some(token) = sessions::begin(call, &user, &proof).await? {
            sessions::set_cookie(call, &mut response, &token);
        }
        Ok(response)
    }
}
