//! The parameters of an authorization request, of its address and its body.

use http::Method;
use url::form_urlencoded;

use crate::Call;
use crate::federation::FAILED;
use crate::form::{self, Form, FormError};
use crate::sign_in::{Fields, RESUME};

/// Longest request that is carried on through sign-in, in bytes: it becomes part
/// of addresses, which whoever is on the way must take.
pub(super) const CARRIED_MAX: usize = 4 * 1024;

/// The same where it may be carried through another provider, which takes less.
pub(super) const CARRIED_TO_OTHERS_MAX: usize = 1024;

/// Parameters of ours, which are not part of the client's request.
const OWN: [&str; 9] = [
    RESUME,
    SINCE,
    SWITCH,
    FAILED,
    "approve",
    "deny",
    "decision",
    "save_consent",
    "login",
];

/// When this browser was first shown the request.
pub(super) const SINCE: &str = "doorward_since";

/// The user wants to be somebody else.
pub(crate) const SWITCH: &str = "doorward_switch";

/// Why the parameters can't be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ParamsError {
    #[error(transparent)]
    Form(#[from] FormError),
    #[error("Invalid Content Type")]
    Type,
    /// Addresses end up in logs and histories.
    #[error("Parameter password belongs into the body")]
    Password,
}

/// The parameters of a request, and apart from them what our own pages added:
/// nothing that a client sends is taken for an answer of its user.
#[derive(Clone, Debug)]
pub(super) struct Params {
    request: Vec<(String, String)>,
    own: Vec<(String, String)>,
    /// The client's request, as an address carries it.
    carried: String,
}

impl Params {
    /// Those of the address and, of a POST, of the body.
    pub(super) fn of(call: &Call) -> Result<Self, ParamsError> {
        let query = call.parts.uri.query().unwrap_or_default();
        if Form::parse(query.as_bytes())?.get("password").is_some() {
            return Err(ParamsError::Password);
        }
        let mut text = query.as_bytes().to_vec();
        if call.parts.method == Method::POST {
            if !form::is_form(call.headers()) {
                return Err(ParamsError::Type);
            }
            text.push(b'&');
            text.extend_from_slice(&call.body);
        }
        let form = Form::parse(&text)?;
        let pairs = form.pairs().filter(|(_, value)| !value.is_empty());
        let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let (own, request): (Vec<_>, Vec<_>) = pairs.partition(|(name, _)| is_own(name));
        Ok(Self {
            carried: spelt(&request),
            request,
            own,
        })
    }

    /// Those that a client pushed: nobody answered them yet.
    pub(super) fn pushed(request: Vec<(String, String)>) -> Self {
        Self {
            carried: String::new(),
            request,
            own: Vec::new(),
        }
    }

    /// These, with another request in the place of the client's; it is carried
    /// as before.
    pub(super) fn with_request(&self, mut request: Vec<(String, String)>) -> Self {
        request.retain(|(_, value)| !value.is_empty());
        Self {
            request,
            own: self.own.clone(),
            carried: self.carried.clone(),
        }
    }

    /// These, carried in another way.
    pub(super) fn carried_as(self, carried: String) -> Self {
        Self { carried, ..self }
    }

    /// The client's parameter of this name, unless it is absent or empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        value(&self.request, name)
    }

    /// Every value of a parameter that may be sent several times.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let pairs = self.request.iter().filter(move |(known, _)| known == name);
        pairs.map(|(_, value)| value.as_str())
    }

    /// The client's parameters.
    pub(super) fn request(&self) -> &[(String, String)] {
        &self.request
    }

    /// The parameter of this name that our own pages added.
    pub(super) fn own(&self, name: &str) -> Option<&str> {
        value(&self.own, name)
    }

    /// The client's request as addresses of our pages carry it, in one
    /// canonical spelling.
    pub(super) fn carried(&self) -> &str {
        &self.carried
    }
}

fn is_own(name: &str) -> bool {
    OWN.contains(&name) || Fields::NAMES.contains(&name)
}

fn value<'p>(pairs: &'p [(String, String)], name: &str) -> Option<&'p str> {
    let pair = pairs.iter().find(|(known, _)| known == name);
    pair.map(|(_, value)| value.as_str())
}

fn spelt(pairs: &[(String, String)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(pairs);
    query.finish()
}
