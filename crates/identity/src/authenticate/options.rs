//! What a request to `authenticate` asks for besides signing in.

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::super::error::JsonError;
use super::super::{Call, goto_url, rest};
use doorward_core::model::user::name_place::{NamePlace, SignInName};

/// The parameters of the address. The first request of a sign-in by callbacks
/// says them for those that follow.
#[derive(Debug, Default)]
pub(super) struct Options {
    /// Whether the password is only to be checked (`noSession`).
    pub(super) no_session: bool,
    /// Whether a session that is there does not count (`ForceAuth`).
    pub(super) force: bool,
    /// Where the user goes, as asked for.
    goto: Option<String>,
    goto_on_fail: Option<String>,
    /// The token of the session that the new one takes the place of
    /// (`sessionUpgradeSSOTokenId`).
    pub(super) upgrade: Option<String>,
    /// The user who is to sign in, and nobody else (`authIndexType=user`).
    pub(super) user: Option<SignInName>,
}

impl Options {
    pub(super) fn of(call: &Call) -> Result<Self, JsonError> {
        let query = rest::query(call)?;
        let text = |name: &str| query.get(name).map(str::to_owned);
        let is = |name: &str| query.get(name) == Some("true");
        let value = query.get(NamePlace::IndexValue.name());
        check_index(call, query.get("authIndexType"), value)?;
        let user = (query.get("authIndexType") == Some("user"))
            .then(|| value.map(|name| NamePlace::IndexValue.says(name)))
            .flatten();
        Ok(Self {
            no_session: is("noSession"),
            force: is("ForceAuth"),
            goto: text("goto"),
            goto_on_fail: text("gotoOnFail"),
            upgrade: text("sessionUpgradeSSOTokenId"),
            user,
        })
    }

    /// Puts what has to be remembered into the claims of an `authId`.
    pub(super) fn remember(&self, claims: &mut Value) {
        if self.no_session {
            claims["noSession"] = json!(true);
        }
        if let Some(user) = &self.user {
            claims["onlyUser"] = json!(user.as_str());
        }
        for (name, value) in [("goto", &self.goto), ("gotoOnFail", &self.goto_on_fail)] {
            // What is too long to be followed is not carried around.
            if let Some(value) = value.as_ref().filter(|value| value.len() <= 2000) {
                claims[name] = json!(value);
            }
        }
    }

    /// Adds what the first request said, unless this one says otherwise.
    pub(super) fn recall(&mut self, claims: &Map<String, Value>) {
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        let or = |own: &mut Option<String>, name| {
            if own.is_none() {
                *own = text(name).map(str::to_owned);
            }
        };
        or(&mut self.goto, "goto");
        or(&mut self.goto_on_fail, "gotoOnFail");
        if let Some(user) = text("onlyUser") {
            self.user = Some(SignInName::signed(user));
        }
        self.no_session |= claims.get("noSession") == Some(&Value::Bool(true));
    }

    /// Where the user goes next. An address that the realm does not allow is as
    /// good as none.
    pub(super) fn success_url<'a>(&'a self, call: &'a Call) -> &'a str {
        let goto = self.goto.as_deref();
        let goto = goto.filter(|address| goto_url::is_allowed(call, address));
        goto.unwrap_or(&call.realm.settings.success_url)
    }

    /// Where a user goes who could not sign in.
    pub(super) fn failure_url(&self, call: &Call) -> Option<String> {
        let goto = self.goto_on_fail.as_ref();
        goto.filter(|address| goto_url::is_allowed(call, address))
            .cloned()
    }
}

/// There is one way to sign in, under the names that the realm gives it; what
/// asks for no more than that has it, too.
fn check_index(call: &Call, kind: Option<&str>, value: Option<&str>) -> Result<(), JsonError> {
    let fail = |status, text: &str| Err(JsonError::new(status, text));
    let value = value.unwrap_or_default();
    let known = match kind {
        None => true,
        Some("service") => call.realm.has_login_service(value),
        Some("user") => !value.is_empty(),
        // Every session has level 0.
        Some("level") => value.parse::<i64>().is_ok_and(|level| level <= 0),
        Some("module") if value == "DataStore" => true,
        Some("module") => {
            return fail(StatusCode::NOT_FOUND, "Authentication Module Not Found.");
        }
        Some("role" | "resource" | "composite") => false,
        Some(_) => return fail(StatusCode::BAD_REQUEST, "Unknown Authentication Index Type"),
    };
    if known {
        Ok(())
    } else {
        fail(StatusCode::BAD_REQUEST, "No Configuration found")
    }
}
