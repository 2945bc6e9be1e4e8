//! What people see: pages that need no script but for passkeys, load nothing from elsewhere and
//! stand in no other page's frame.
//!
//! Templates escape every value that they are given; the tests show each page
//! hostile ones.

mod account;
mod appearance;
mod device;
mod factors;
mod frame;
mod password;
mod script;
mod signed_out;
mod texts;
mod theme;

use std::borrow::Cow;

use askama::Template;
use axum::response::Response;
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};

use super::client_address::{self, UNUSABLE_DOCUMENT};
use super::federation::ProviderLink;
pub(super) use account::{
    AccountConsent, AccountFactor, AccountLink, AccountPage, AccountSession, account,
};
pub(super) use appearance::Appearance;
pub(super) use device::{Device, device_done, device_entry, device_question};
use doorward_core::model::client::ClientMetadata;
use factors::Passkey;
pub(super) use factors::{Ceremony, Enrolment, Factors, NewTotp, enrol, factor, recovery};
pub(super) use frame::Frame;
use frame::{SCRIPT_SOURCE, show};
pub(super) use password::{
    LetterTexts, ResetFailed, choose_password, forgot, link_gone, password_chosen,
};
pub(super) use script::passkey as passkey_script;
pub(super) use signed_out::{AfterLogout, signed_out};
pub(super) use texts::Moment;
use texts::Texts;
pub(super) use theme::files as theme_files;

/// Why a form is shown again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FormError {
    /// Name or password are not right; nobody is told which.
    Credentials,
    /// Too many passwords are being checked.
    Busy,
    /// The form is not one that this browser was given for this request.
    Stale,
    /// No device waits with this code.
    UserCode,
    /// Too many codes were wrong.
    Guesses,
    /// Signing in through another provider came to nothing.
    Federation(FederationFailure),
    /// The code of the second factor is not right.
    Code,
    /// The passkey was not accepted.
    Passkey,
    /// There were too many wrong tries of a second factor.
    Tries,
    /// The user has as many factors as there can be.
    Full,
    /// What is demanded can't be had by this user.
    Unmet,
    /// What the user wants to do asks for a recent sign-in.
    Recent,
    /// The new password can't be chosen.
    Password,
    /// There is no other way into the account.
    LastWay,
}

/// Why signing in through another provider came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FederationFailure {
    /// The user said no there.
    Cancelled,
    /// The provider is not to be reached.
    Silent,
    /// Its answer is not taken.
    Refused,
    /// It leads to no account.
    Nobody,
    /// It can't be linked to the account.
    Unlinkable,
}

/// What is shown of it.
struct Alert<'a> {
    code: &'static str,
    text: &'a str,
}

impl FormError {
    fn alert(self, texts: &Texts) -> Alert<'_> {
        let (code, text) = match self {
            Self::Credentials => ("authentication_failed", texts.failed.as_str()),
            Self::Busy => ("temporarily_unavailable", texts.busy.as_str()),
            Self::Stale => ("bad_request", texts.stale.as_str()),
            Self::UserCode => ("invalid_user_code", texts.device_wrong.as_str()),
            Self::Guesses => ("slow_down", texts.device_guesses.as_str()),
            Self::Federation(FederationFailure::Cancelled) => {
                ("federation_cancelled", texts.federation_cancelled.as_str())
            }
            Self::Federation(FederationFailure::Silent) => {
                ("federation_unavailable", texts.federation_silent.as_str())
            }
            Self::Federation(FederationFailure::Refused) => {
                ("federation_failed", texts.federation_failed.as_str())
            }
            Self::Federation(FederationFailure::Nobody) => {
                ("federation_no_account", texts.federation_nobody.as_str())
            }
            Self::Federation(FederationFailure::Unlinkable) => (
                "federation_not_linked",
                texts.federation_unlinkable.as_str(),
            ),
            Self::LastWay => ("last_way", texts.account_last_way.as_str()),
            Self::Code => ("invalid_code", texts.factor_wrong.as_str()),
            Self::Passkey => ("invalid_passkey", texts.passkey_wrong.as_str()),
            Self::Tries => ("slow_down", texts.factor_tries.as_str()),
            Self::Full => ("too_many_factors", texts.factor_full.as_str()),
            Self::Unmet => ("unmet_requirements", texts.factor_missing.as_str()),
            Self::Recent => ("login_required", texts.recent.as_str()),
            Self::Password => ("invalid_password", texts.password_refused.as_str()),
        };
        Alert { code, text }
    }

    /// What failed, as an address of ours carries it to the page.
    pub(super) fn code(self) -> &'static str {
        match self {
            Self::Federation(FederationFailure::Cancelled) => "cancelled",
            Self::Federation(FederationFailure::Silent) => "unavailable",
            Self::Federation(FederationFailure::Nobody) => "no_account",
            Self::Federation(FederationFailure::Unlinkable) => "not_linked",
            Self::Recent => "recent",
            Self::Stale => "stale",
            Self::Busy => "busy",
            _ => "failed",
        }
    }

    /// What an address says that failed elsewhere.
    pub(super) fn elsewhere(code: &str) -> Option<Self> {
        Some(match code {
            "cancelled" => Self::Federation(FederationFailure::Cancelled),
            "unavailable" => Self::Federation(FederationFailure::Silent),
            "no_account" => Self::Federation(FederationFailure::Nobody),
            "not_linked" => Self::Federation(FederationFailure::Unlinkable),
            "failed" => Self::Federation(FederationFailure::Refused),
            "recent" => Self::Recent,
            "stale" => Self::Stale,
            "busy" => Self::Busy,
            _ => return None,
        })
    }

    fn status(self) -> StatusCode {
        match self {
            // The request is as good as before.
            Self::Federation(FederationFailure::Silent) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Federation(_) => StatusCode::BAD_REQUEST,
            Self::Credentials
            | Self::Stale
            | Self::UserCode
            | Self::Code
            | Self::Passkey
            | Self::Full
            | Self::Unmet
            | Self::LastWay
            | Self::Password => StatusCode::BAD_REQUEST,
            Self::Recent => StatusCode::OK,
            Self::Guesses | Self::Tries => StatusCode::TOO_MANY_REQUESTS,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// A client as its users see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Applicant<'a> {
    pub(super) name: &'a str,
    /// The host that vouches for all else, where that is all that is known.
    pub(super) host: Option<&'a str>,
    /// Its picture; one that is elsewhere is shown only where that is allowed.
    pub(super) logo: Option<&'a str>,
    pub(super) policy: Option<&'a str>,
    pub(super) terms: Option<&'a str>,
}

impl<'a> Applicant<'a> {
    /// The client of this metadata, as the page's language has it.
    pub(super) fn of(metadata: &'a ClientMetadata, frame: &Frame) -> Self {
        let own = |name| metadata.in_language(name, frame.lang());
        Self {
            name: own("client_name").unwrap_or(&metadata.client_id),
            host: client_address::host(&metadata.client_id),
            logo: own("logo_uri"),
            policy: own("policy_uri"),
            terms: own("tos_uri"),
        }
    }
}

impl<'a> Applicant<'a> {
    /// The provider itself, where people see to their account.
    pub(super) fn ours(frame: &'a Frame) -> Self {
        Self {
            name: &frame.texts.account,
            host: None,
            logo: None,
            policy: None,
            terms: None,
        }
    }
}

impl Applicant<'_> {
    /// What stands for the client that has no picture: the first letter of its
    /// name.
    fn initial(&self) -> String {
        let letter = self.name.chars().find(|letter| letter.is_alphanumeric());
        letter.map_or_else(String::new, |letter| letter.to_uppercase().collect())
    }
}

/// A link that is safe to follow from a page of ours.
fn link(address: Option<&str>) -> Option<&str> {
    let safe = |address: &&str| address.starts_with("https://") || address.starts_with("http://");
    address.filter(safe)
}

/// What a form needs besides its fields.
#[derive(Clone, Debug)]
pub(super) struct FormParts {
    pub(super) action: String,
    pub(super) csrf: String,
    pub(super) since: String,
    /// What may be done instead of filling it in.
    pub(super) provider_links: Vec<ProviderLink>,
    /// Where people go who forgot their passwords.
    pub(super) forgot: Option<String>,
}

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignIn<'a> {
    frame: &'a Frame,
    texts: &'a Texts,
    client: &'a str,
    logo: Option<&'a str>,
    initial: String,
    policy: Option<&'a str>,
    terms: Option<&'a str>,
    alert: Option<Alert<'a>>,
    action: &'a str,
    csrf: &'a str,
    since: &'a str,
    user_name: &'a str,
    provider_links: &'a [ProviderLink],
    passkey: Option<Passkey<'a>>,
    of_account: bool,
    forgot: Option<&'a str>,
}

/// The page that asks for name and password; or, with a ceremony, for a passkey.
pub(super) fn sign_in(
    frame: &Frame,
    client: Applicant<'_>,
    form: &FormParts,
    (user_name, ceremony): (&str, Option<&Ceremony>),
    failed: Option<FormError>,
) -> Response {
    let (frame, logo) = frame.showing(&client);
    let frame = &frame.with_passkeys(ceremony.is_some());
    let page = SignIn {
        frame,
        texts: &frame.texts,
        client: client.name,
        logo,
        initial: client.initial(),
        policy: link(client.policy),
        terms: link(client.terms),
        alert: failed.map(|failed| failed.alert(&frame.texts)),
        action: &form.action,
        csrf: &form.csrf,
        since: &form.since,
        user_name,
        provider_links: &form.provider_links,
        passkey: ceremony.map(|ceremony| Passkey::alone(ceremony, &frame.texts)),
        of_account: false,
        forgot: form.forgot.as_deref(),
    };
    let status = failed.map_or(StatusCode::OK, FormError::status);
    let mut response = show(frame, status, &page);
    if failed == Some(FormError::Busy) {
        let soon = HeaderValue::from_static("1");
        response.headers_mut().insert(RETRY_AFTER, soon);
    }
    response
}

#[derive(Template)]
#[template(path = "consent.html")]
struct Consent<'a> {
    frame: &'a Frame,
    texts: &'a Texts,
    client: &'a str,
    host: Option<&'a str>,
    logo: Option<&'a str>,
    initial: String,
    /// Where the user goes on to.
    place: Option<&'a str>,
    policy: Option<&'a str>,
    terms: Option<&'a str>,
    alert: Option<Alert<'a>>,
    scopes: Vec<Cow<'a, str>>,
    action: &'a str,
    csrf: &'a str,
    since: &'a str,
    user_name: &'a str,
}

/// The page that asks whether a client may have what it asks for.
pub(super) fn consent(
    frame: &Frame,
    client: Applicant<'_>,
    form: &FormParts,
    (user_name, scopes): (&str, &[String]),
    failed: Option<FormError>,
) -> Response {
    let (frame, logo) = &frame.showing(&client);
    let page = Consent {
        frame,
        texts: &frame.texts,
        client: client.name,
        host: client.host,
        logo: *logo,
        initial: client.initial(),
        place: frame.place(),
        policy: link(client.policy),
        terms: link(client.terms),
        alert: failed.map(|failed| failed.alert(&frame.texts)),
        scopes: scopes.iter().map(|name| frame.texts.scope(name)).collect(),
        action: &form.action,
        csrf: &form.csrf,
        since: &form.since,
        user_name,
    };
    show(
        frame,
        failed.map_or(StatusCode::OK, FormError::status),
        &page,
    )
}

#[derive(Template)]
#[template(path = "error.html")]
struct Error<'a> {
    frame: &'a Frame,
    texts: &'a Texts,
    code: &'a str,
    description: &'a str,
    /// What it means, in the language of the page.
    known: Option<&'a String>,
}

/// The page for what can't be told to the client.
pub(super) fn error(frame: &Frame, status: StatusCode, code: &str, description: &str) -> Response {
    // Who has written a document about a client reads what is wrong with it.
    let is_unknown = code == "invalid_client" && !description.starts_with(UNUSABLE_DOCUMENT);
    let page = Error {
        frame,
        texts: &frame.texts,
        code,
        description,
        known: is_unknown.then_some(&frame.texts.error_client),
    };
    show(frame, status, &page)
}

#[derive(Template)]
#[template(path = "form_post.html")]
struct FormPost<'a> {
    frame: &'a Frame,
    texts: &'a Texts,
    action: &'a str,
    fields: &'a [(&'static str, String)],
}

/// The page that posts `fields` to `action` (OAuth 2.0 Form Post Response Mode
/// §2).
pub(super) fn form_post(
    mut frame: Frame,
    action: &str,
    fields: &[(&'static str, String)],
) -> Response {
    frame.script = Some(SCRIPT_SOURCE.clone());
    let frame = frame.leading_to(action);
    let page = FormPost {
        frame: &frame,
        texts: &frame.texts,
        action,
        fields,
    };
    show(&frame, StatusCode::OK, &page)
}

#[derive(Template)]
#[template(path = "going_on.html")]
struct RedirectPage<'a> {
    frame: &'a Frame,
    texts: &'a Texts,
    to: &'a str,
}

/// The page that leads a browser on from a form. The form's policy ends with it:
/// what comes then may redirect wherever it likes.
pub(super) fn going_on(frame: &Frame, to: &str) -> Response {
    let page = RedirectPage {
        frame,
        texts: &frame.texts,
        to,
    };
    show(frame, StatusCode::OK, &page)
}

#[derive(Template)]
#[template(path = "sign_out.html")]
struct SignOut<'a> {
    frame: &'a Frame,
    texts: &'a Texts,
    action: &'a str,
    fields: &'a [(&'static str, String)],
    csrf: &'a str,
    user_name: &'a str,
}

/// The page that asks whether to sign out.
pub(super) fn sign_out(
    frame: &Frame,
    action: &str,
    fields: &[(&'static str, String)],
    csrf: &str,
    user_name: &str,
) -> Response {
    let page = SignOut {
        frame,
        texts: &frame.texts,
        action,
        fields,
        csrf,
        user_name,
    };
    show(frame, StatusCode::OK, &page)
}

#[cfg(test)]
mod tests;
