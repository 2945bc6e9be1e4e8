//! `/oauth2/token`: applications get tokens.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::StatusCode;
use serde_json::{Map, Value};
use std::sync::Arc;

use super::authorize::{check_user, wrong_redirect_uri};
use super::client::Client;
use super::config::Pkce;
use super::fault::{Fault, answer};
use super::parameters::Parameters;
use super::token_store::IssuedToken;
use super::{OAuth2, Request};
use crate::authentication::{Entry, after_scheme};
use doorward_core::model::oauth2::{OAuth2Facts, StoredOAuth2Code};
use doorward_net::http::reply::Reply;

/// Letters of a code verifier (RFC 7636 §4.1).
const VERIFIER: std::ops::RangeInclusive<usize> = 43..=128;

/// The members of an answer, in the order of the imitated gateway: clients compare
/// whole bodies.
const MEMBERS: [&str; 5] = [
    "refresh_token",
    "token_type",
    "state",
    "access_token",
    "expires_in",
];

/// Who an application says that it is.
struct ClientCredentials {
    client_id: Option<String>,
    secret: Option<String>,
    in_header: bool,
}

impl IssuedToken {
    /// The members of the answer.
    pub(super) fn members(self) -> Map<String, Value> {
        let mut members = Map::new();
        let mut put = |name: &str, value: Value| members.insert(name.to_owned(), value);
        put("access_token", self.access.into());
        put("token_type", "bearer".into());
        if self.expires_in > 0 {
            put("expires_in", self.expires_in.into());
        }
        if let Some(refresh) = self.refresh {
            put("refresh_token", refresh.into());
        }
        members
    }
}

/// An object of JSON with its members in the order of [`MEMBERS`].
fn in_order(members: &Map<String, Value>) -> String {
    let told: Vec<String> = MEMBERS
        .iter()
        .filter_map(|name| Some(format!("\"{name}\":{}", members.get(*name)?)))
        .collect();
    format!("{{{}}}", told.join(","))
}

impl OAuth2 {
    /// Answers an application.
    pub(super) async fn issue(&self, request: &Request<'_>) -> (Reply, Option<Fault>) {
        let state = request.parameters.get("state");
        match self.granted(request).await {
            Ok(issued) => {
                self.issued.inc();
                let mut members = issued.members();
                members.extend(state.map(|state| ("state".to_owned(), state.into())));
                (answer(StatusCode::OK, &in_order(&members)), None)
            }
            Err(fault) => (fault.reply(state), Some(fault)),
        }
    }

    async fn granted(&self, request: &Request<'_>) -> Result<IssuedToken, Fault> {
        self.check_transport(request)?;
        let parameters = &request.parameters;
        let grant = parameters.get("grant_type").unwrap_or_default();
        let enabled = match grant {
            "authorization_code" => self.config.enable_authorization_code,
            "client_credentials" => self.config.enable_client_credentials,
            "password" => self.config.enable_password_grant,
            "refresh_token" => true,
            _ => false,
        };
        let entry = self.client(request, grant)?;
        if !enabled {
            return Err(Fault::new("unsupported_grant_type", "Invalid grant_type"));
        }
        match grant {
            "authorization_code" => self.redeem(request, &entry).await,
            "client_credentials" => {
                if parameters.has("authenticated_userid") {
                    self.check_provision_key(request)?;
                }
                self.give_to(request, &entry, false).await
            }
            "password" => {
                self.check_provision_key(request)?;
                check_user(parameters)?;
                self.give_to(request, &entry, true).await
            }
            _ => self.refresh(request, &entry).await,
        }
    }

    /// The client that asks, if it is who it says.
    fn client(&self, request: &Request<'_>, grant: &str) -> Result<Arc<Entry<Client>>, Fault> {
        let credentials = self.credentials(request);
        let refused = || Fault::client(credentials.in_header);
        let name = credentials.client_id.as_deref().unwrap_or_default();
        let address = request.exchange.client.ip();
        let now = self.authentication.clock.now_secs();
        if self.brake.holds(address, name.as_bytes(), now) {
            return Err(Fault::guessing());
        }
        let directory = self.authentication.credentials.load();
        let entry = directory.clients.get(name.as_bytes()).cloned();
        let Some(entry) = entry else {
            self.brake.note(address, name.as_bytes(), now);
            return Err(refused());
        };
        let client = &entry.material;
        let by_itself = grant == "client_credentials";
        if client.is_public {
            if credentials.secret.is_some() {
                let description = "client_secret is disallowed for public clients";
                return Err(Fault::new("invalid_request", description));
            }
            // It has nothing to prove itself by.
            if by_itself {
                return Err(refused());
            }
        } else if !client.fits(credentials.secret.as_deref()) {
            self.brake.note(address, name.as_bytes(), now);
            return Err(refused());
        }
        if !by_itself {
            let uris = client
                .redirect_uris
                .as_deref()
                .filter(|uris| !uris.is_empty());
            let uris = uris.ok_or_else(refused)?;
            match request.parameters.get("redirect_uri") {
                None if !request.parameters.has("redirect_uri") => {}
                Some(uri) if uris.iter().any(|known| **known == *uri) => {}
                _ => return Err(wrong_redirect_uri()),
            }
        }
        Ok(entry)
    }

    fn credentials(&self, request: &Request<'_>) -> ClientCredentials {
        let parameters = &request.parameters;
        let text = |name| parameters.get(name).map(str::to_owned);
        let header = request.head.headers.get(&self.config.auth_header_name);
        let from_header = || {
            let encoded = after_scheme(header?, "basic")?.trim();
            let decoded = String::from_utf8(STANDARD.decode(encoded).ok()?).ok()?;
            let (id, secret) = decoded.split_once(':')?;
            Some((id.to_owned(), secret.to_owned()))
        };
        let shown = parameters.has("client_id") && parameters.has("client_secret");
        if shown || header.is_none() {
            return ClientCredentials {
                client_id: text("client_id"),
                secret: text("client_secret"),
                in_header: false,
            };
        }
        let (client_id, secret) = from_header().unzip();
        ClientCredentials {
            client_id,
            secret,
            in_header: true,
        }
    }

    async fn give_to(
        &self,
        request: &Request<'_>,
        entry: &Entry<Client>,
        refreshes: bool,
    ) -> Result<IssuedToken, Fault> {
        let scope = self.scope(&request.parameters)?;
        let facts = self.facts(request, &entry.material, scope)?;
        self.give(entry.credential.id, facts, refreshes).await
    }

    async fn redeem(
        &self,
        request: &Request<'_>,
        entry: &Entry<Client>,
    ) -> Result<IssuedToken, Fault> {
        let tokens = self.tokens()?;
        let now_ms = self.authentication.clock.now_ms();
        let shown = request.parameters.get("code").unwrap_or_default();
        let code = tokens.code(shown, now_ms).await?;
        let (service, plugin) = (self.service(request)?, self.plugin());
        let code = code
            .filter(|code| code.credential == entry.credential.id)
            .filter(|code| code.facts.service == service && code.facts.plugin == plugin)
            .ok_or_else(Fault::code)?;
        self.check_verifier(&request.parameters, &code, entry.material.is_public)?;
        let facts = OAuth2Facts {
            plugin: None,
            challenge: None,
            expires_in: self.config.token_expiration.whole(),
            ..code.facts
        };
        let wish = self.wish(entry.credential.id, facts, true);
        let issued = tokens.redeem(code.hash, wish, now_ms).await?;
        issued.ok_or_else(Fault::code)
    }

    fn check_verifier(
        &self,
        parameters: &Parameters,
        code: &StoredOAuth2Code,
        is_public: bool,
    ) -> Result<(), Fault> {
        let refused = |description: &str| Err(Fault::new("invalid_request", description));
        let needed = match self.config.pkce {
            Pkce::None => false,
            Pkce::Lax => is_public,
            Pkce::Strict => true,
        };
        let challenge = code.facts.challenge.as_deref();
        if !needed && challenge.is_none() {
            return Ok(());
        }
        let Some(verifier) = parameters.get("code_verifier") else {
            if parameters.has("code_verifier") {
                return refused("code_verifier is not a string");
            }
            return refused("code_verifier is required for PKCE authorization requests");
        };
        if !VERIFIER.contains(&verifier.len()) {
            return refused("code_verifier must be between 43 and 128 characters");
        }
        let proof = URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()));
        let wanted = challenge.unwrap_or_default();
        verify_slices_are_equal(proof.as_bytes(), wanted.as_bytes())
            .map_err(|_| Fault::new("invalid_grant", "Invalid code"))
    }

    async fn refresh(
        &self,
        request: &Request<'_>,
        entry: &Entry<Client>,
    ) -> Result<IssuedToken, Fault> {
        let tokens = self.tokens()?;
        let now_ms = self.authentication.clock.now_ms();
        let refused = || Fault::new("invalid_request", "Invalid refresh_token");
        let shown = request.parameters.get("refresh_token").unwrap_or_default();
        let old = tokens.by_refresh(shown, now_ms).await?;
        let service = self.service(request)?;
        let old = old
            .filter(|token| token.facts.service == service)
            .ok_or_else(refused)?;
        if old.credential != entry.credential.id {
            return Err(Fault::client(false));
        }
        let given = old.facts.scope.as_deref().unwrap_or_default();
        let known = self.config.scopes.as_deref().unwrap_or_default();
        if !given
            .split_whitespace()
            .all(|scope| known.iter().any(|known| **known == *scope))
        {
            return Err(Fault::new("invalid_scope", "Scope mismatch"));
        }
        let facts = OAuth2Facts {
            client_id: entry.material.client_id.to_string(),
            expires_in: self.config.token_expiration.whole(),
            ..old.facts.clone()
        };
        let wish = self.wish(entry.credential.id, facts, true);
        let keeps = self.config.reuse_refresh_token;
        let issued = tokens.refresh(&old, shown, wish, keeps, now_ms).await?;
        issued.ok_or_else(refused)
    }
}
