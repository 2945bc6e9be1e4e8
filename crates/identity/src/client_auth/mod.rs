//! Who sends a request: the one place where clients authenticate (RFC 6749
//! §2.3, RFC 7521, RFC 7523).
//!
//! A failure is judged by the store and never by what is in memory: it takes
//! as long for a client that exists as for one that does not, and a secret
//! that was changed a moment ago counts.

mod assertion;
mod guesses;
mod keys;

use std::sync::Arc;

use http::header::AUTHORIZATION;

use super::audit;
use super::clients::LiveClient;
use super::error::OAuthError;
use super::form::Form;
use super::{Call, State};
use doorward_core::model::client::{AuthMethod, ClientSecret};
use doorward_net::http::basic::{self, BrokenBasic};

use assertion::Assertion;
pub(super) use assertion::{
    LIFE_MAX as ASSERTION_LIFE_MAX, identity as assertion_identity, is_assertion, is_for_us,
};
pub(super) use keys::ClientKeys;

/// What a client is told whose half of a Basic header is not form-encoded.
const BAD_ESCAPE: &str = "URLDecoder: Illegal hex characters in escape (%) pattern";

const FAILED: &str = "Client authentication failed";

/// What a request says about who sends it.
struct ClientCredentials<'a> {
    id: String,
    proof: ClientProof<'a>,
}

/// What it proves that with.
enum ClientProof<'a> {
    Basic(String),
    Post(&'a str),
    Assertion(Assertion<'a>),
    /// Nothing: a public client.
    None,
}

impl ClientProof<'_> {
    /// Whether this is one of the ways that the client registered.
    fn is_by(&self, registered: Option<AuthMethod>) -> bool {
        match self {
            Self::Basic(_) => matches!(registered, None | Some(AuthMethod::ClientSecretBasic)),
            Self::Post(_) => matches!(registered, None | Some(AuthMethod::ClientSecretPost)),
            Self::Assertion(assertion) => registered == Some(assertion.method()),
            Self::None => registered == Some(AuthMethod::None),
        }
    }
}

/// The client that sent the request, having proven it in the way that is
/// registered for it.
///
/// # Errors
/// The responses of RFC 6749 §5.2.
pub(super) async fn authenticate(
    call: &Call,
    form: &Form<'_>,
) -> Result<Arc<LiveClient>, OAuthError> {
    let realm = &call.realm;
    let failed = || OAuthError::invalid_client(&realm.path, FAILED);
    let credentials = credentials(call, form)?;
    if credentials.id.len() > 255 {
        return Err(failed());
    }
    let look = guesses::look(call, &credentials)?;
    let State { clients, store, .. } = &*call.state;
    let known = clients.find(store, realm, &credentials.id).await?;
    let is_new = known.is_none() && begins_sign_in(call);
    let known = if is_new {
        // A pushed request may be the first that a client of a document sends.
        Box::pin(call.client(&credentials.id)).await?
    } else {
        known
    };
    if let Some(client) = &known {
        audit::client(client, false);
    }
    let mut proven = match &known {
        Some(client) => prove(call, client, &credentials.proof)
            .await?
            .then_some(client),
        None => None,
    }
    .cloned();
    if proven.is_none() && known.is_some() {
        let fresh = Box::pin(clients.read(store, realm, &credentials.id)).await?;
        if let Some(client) = fresh
            && prove(call, &client, &credentials.proof).await?
        {
            proven = Some(client);
        }
    } else if known.is_none() {
        disprove(call, &credentials.proof);
    }
    let Some(client) = proven else {
        let braked = Box::pin(guesses::wrong(call, look, &credentials, known.is_some())).await;
        return Err(braked.unwrap_or_else(|| match credentials.proof {
            ClientProof::Assertion(_) => assertion::not_valid(call),
            _ => failed(),
        }));
    };
    look.right();
    if !credentials
        .proof
        .is_by(client.client.metadata.token_endpoint_auth_method)
    {
        let text = "Invalid authentication method for accessing this endpoint.";
        return Err(OAuthError::invalid_client(&realm.path, text));
    }
    // Last, so that nothing but a good assertion is ever remembered.
    if let ClientProof::Assertion(assertion) = &credentials.proof {
        Box::pin(assertion.spend(call)).await?;
    }
    audit::client(&client, true);
    Ok(client)
}

/// Whether a sign-in begins with the request: only then is a client's document looked
/// for that nobody has seen before.
fn begins_sign_in(call: &Call) -> bool {
    call.parts.uri.path().ends_with("/par")
}

async fn prove(
    call: &Call,
    client: &LiveClient,
    proof: &ClientProof<'_>,
) -> Result<bool, OAuthError> {
    Ok(match proof {
        ClientProof::Basic(secret) => client.knows(secret),
        ClientProof::Post(secret) => client.knows(secret),
        ClientProof::Assertion(assertion) => Box::pin(assertion.is_signed_by(call, client)).await?,
        ClientProof::None => client.client.is_public(),
    })
}

/// What [`prove`] costs, for a client that does not exist.
fn disprove(call: &Call, proof: &ClientProof<'_>) {
    match proof {
        ClientProof::Basic(secret) => ClientSecret::matches_nobody(secret),
        ClientProof::Post(secret) => ClientSecret::matches_nobody(secret),
        ClientProof::Assertion(assertion) => assertion.is_signed_by_nobody(call),
        ClientProof::None => {}
    }
}

fn credentials<'a>(call: &Call, form: &'a Form<'_>) -> Result<ClientCredentials<'a>, OAuthError> {
    let failed = || OAuthError::invalid_client(&call.realm.path, FAILED);
    let two_ways = || OAuthError::bad("invalid_request", FAILED);
    let mut authorizations = call.headers().get_all(AUTHORIZATION).iter();
    let header = authorizations.next();
    let ways = [
        header.is_some(),
        authorizations.next().is_some(),
        form.get("client_secret").is_some(),
        form.get("client_assertion").is_some() || form.get("client_assertion_type").is_some(),
    ];
    if ways.into_iter().filter(|used| *used).count() > 1 {
        return Err(two_ways());
    }
    let named = form.get("client_id");
    let (id, proof) = if let Some(header) = header {
        let (id, secret) = basic::parse(header).map_err(|broken| match broken {
            BrokenBasic::Scheme | BrokenBasic::Header => failed(),
            BrokenBasic::Escape => OAuthError::bad("invalid_request", BAD_ESCAPE),
        })?;
        (id, ClientProof::Basic(secret))
    } else if ways[3] {
        let assertion = Assertion::read(call, form)?;
        (
            assertion.client_id().to_owned(),
            ClientProof::Assertion(assertion),
        )
    } else {
        let id = named.ok_or_else(failed)?.to_owned();
        let proof = form
            .get("client_secret")
            .map_or(ClientProof::None, ClientProof::Post);
        (id, proof)
    };
    if named.is_some_and(|other| other != id) {
        // An assertion about another client is one that is not valid (RFC 7521 §4.2).
        return Err(match proof {
            ClientProof::Assertion(_) => failed(),
            _ => two_ways(),
        });
    }
    Ok(ClientCredentials { id, proof })
}
