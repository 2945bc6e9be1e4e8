//! Whom an authorization request is for, where it says so.

use super::authorization_response::AuthorizationError;
use super::claims::ClaimsRequest;
use super::params::Params;
use crate::clients::LiveClient;
use crate::{Call, id_token_hint};
use doorward_core::model::user::User;

/// The users that a request will have no other than.
#[derive(Clone, Debug)]
pub(super) struct WantedUsers {
    /// The names of those who will do; absent: anyone.
    names: Option<Vec<String>>,
    /// The one who will do, as far as the request says the name itself. A client that
    /// knows its user by another name must not learn this one from the form.
    said: Option<String>,
}

/// Most users that a list may name: each is looked up.
const USERS_MAX: usize = 10;

impl WantedUsers {
    /// Whether the request may be answered for this user.
    pub(super) fn include(&self, user: &User) -> bool {
        let names = self.names.as_ref();
        names.is_none_or(|names| names.contains(&user.user_name))
    }

    /// The name that the form may show.
    pub(super) fn said(&self) -> Option<&str> {
        self.said.as_deref()
    }

    /// Those whom the hint and the claims name: the user has to be in all places
    /// (OpenID Connect Core §3.1.2.2, §5.5.1).
    pub(super) async fn of(
        call: &Call,
        params: &Params,
        client: &LiveClient,
        wanted: &ClaimsRequest,
    ) -> Result<Self, AuthorizationError> {
        let mut names: Option<Vec<String>> = None;
        let mut said = None;
        if let Some(token) = params.get("id_token_hint") {
            let wrong = || {
                AuthorizationError::new("invalid_request", "The id_token_hint is not one of ours")
            };
            let hint = id_token_hint::read(call, token).await.ok_or_else(wrong)?;
            said = hint.is_subject_claim.then(|| hint.subject.clone());
            names = Some(vec![hint.subject]);
        }
        for subjects in wanted.subjects() {
            if subjects.len() > USERS_MAX {
                let text = "The parameter claims names too many users";
                return Err(AuthorizationError::new("invalid_request", text));
            }
            let mut called = Vec::new();
            for subject in subjects {
                let name = call.state.name_called(&call.realm, client, subject).await;
                let name = name.map_err(|error| {
                    tracing::error!(%error, "the user that a client asks for can't be looked up");
                    AuthorizationError::new("server_error", "The request can't be answered now")
                })?;
                if name == subject {
                    said = said.or(Some(name.clone()));
                }
                called.push(name);
            }
            match &mut names {
                Some(names) => names.retain(|name| called.contains(name)),
                None => names = Some(called),
            }
        }
        let is_only = |said: &String| names.as_deref() == Some(std::slice::from_ref(said));
        Ok(Self {
            said: said.filter(is_only),
            names,
        })
    }
}
