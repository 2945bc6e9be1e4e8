//! Whether what the configuration names answers: other providers, directories, mail.
//!
//! Only what is in force is asked. Tests are few, so that nobody learns by them what
//! else is in the network, or has letters sent in numbers.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use super::Call;
use super::error::ManageError;
use crate::probe::Finding;
use crate::{ldap, mail, probe, respond};
use doorward_core::model::user::schema::RecordError;

/// Longest name that a directory is searched for, in bytes.
const NAME_MAX: usize = 320;

/// `POST /identity/probes/federation`: `name` in the body is that of the provider.
pub(super) async fn provider(call: Call) -> Result<Response, ManageError> {
    let realm = call.realm()?;
    let name = only(&call, "name")?.unwrap_or_default();
    let mut providers = realm.providers().iter();
    let provider = providers.find(|provider| provider.name() == name);
    let provider = provider.ok_or(ManageError::NotFound)?;
    begin(&call, &format!("federation/{name}"))?;
    let outbound = &call.state.outbound;
    let findings = probe::provider(outbound, provider.written()).await;
    Ok(answer(&findings))
}

/// `POST /identity/probes/ldap`: `name` in the body is searched for.
pub(super) async fn directory(call: Call) -> Result<Response, ManageError> {
    let realm = call.realm()?;
    let name = only(&call, "name")?;
    if name.as_ref().is_some_and(|name| name.len() > NAME_MAX) {
        let text = format!("is longer than {NAME_MAX} bytes");
        return Err(RecordError::new("name", text).into());
    }
    let directory = realm.directory().ok_or(ManageError::NotFound)?;
    begin(&call, "ldap")?;
    let findings = ldap::probe(directory, name.as_deref()).await;
    Ok(answer(&findings))
}

/// `POST /identity/probes/mail`: a letter goes to the address `to` in the body.
pub(super) async fn letter(call: Call) -> Result<Response, ManageError> {
    let to = only(&call, "to")?.unwrap_or_default();
    if !mail::is_address(&to) {
        return Err(RecordError::new("to", "is no e-mail address").into());
    }
    let config = call.state.live().config.mail.clone();
    if !mail::is_set(&config) {
        return Err(ManageError::NotFound);
    }
    begin(&call, "mail")?;
    let mut findings = Vec::new();
    if let Some(smtp) = &config.smtp {
        let key = format!("relay {} port {}", smtp.host, smtp.port());
        findings.push(Finding {
            key,
            outcome: probe::relay(smtp).await,
        });
    }
    if findings.iter().all(|finding| finding.outcome.is_ok()) {
        findings.push(Finding {
            key: format!("letter to {to}"),
            outcome: mail::test(&call.state, &to).await,
        });
    }
    Ok(answer(&findings))
}

/// The only member that the body may have, a text; none if it is absent or empty.
fn only(call: &Call, name: &str) -> Result<Option<String>, ManageError> {
    let mut sent = call.object()?;
    let text = match sent.remove(name) {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.trim().to_owned()),
        Some(_) => return Err(RecordError::new(name, "expected a string").into()),
    };
    if let Some((name, _)) = sent.iter().next() {
        return Err(RecordError::new(name, "unknown field").into());
    }
    Ok(text.filter(|text| !text.is_empty()))
}

/// Lets a test of `what` begin, unless there were many just now.
fn begin(call: &Call, what: &str) -> Result<(), ManageError> {
    call.complete(|record| record.set_target(what));
    if call.state.probes.admits(call.now_ms) {
        Ok(())
    } else {
        let text = "enough tests were made; try again in some minutes";
        Err(ManageError::Conflict(text.to_owned()))
    }
}

fn answer(findings: &[Finding]) -> Response {
    let shown = findings.iter().map(|finding| {
        let (Ok(message) | Err(message)) = &finding.outcome;
        json!({"key": finding.key, "ok": finding.outcome.is_ok(), "message": message})
    });
    let ok = findings.iter().all(|finding| finding.outcome.is_ok());
    let body = json!({"ok": ok, "findings": shown.collect::<Vec<_>>()});
    respond::json(StatusCode::OK, &body)
}
