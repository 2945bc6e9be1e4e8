//! Resource indicators (RFC 8707): whom an access token is for.

use url::Url;

use super::clients::LiveClient;
use super::error::OAuthError;
use super::form::Form;

/// Most resources of one request.
const MAX: usize = 16;

fn invalid_target(text: &str) -> OAuthError {
    OAuthError::bad("invalid_target", text)
}

/// The resources that the request names, all of them registered for the
/// client; none: the token is for the client.
pub(super) fn requested(form: &Form<'_>, client: &LiveClient) -> Result<Vec<String>, OAuthError> {
    registered(form.all("resource"), client)
}

/// These resources, if all of them are registered for the client.
pub(super) fn registered<'f>(
    requested: impl Iterator<Item = &'f str>,
    client: &LiveClient,
) -> Result<Vec<String>, OAuthError> {
    let allowed = &client.client.metadata.resources;
    let mut all = Vec::new();
    for resource in requested {
        let absolute = Url::parse(resource).is_ok_and(|url| url.fragment().is_none());
        if !absolute {
            let text = "A resource is an absolute URI without fragment";
            return Err(invalid_target(text));
        }
        add(resource, allowed, &mut all)?;
    }
    Ok(all)
}

/// As [`requested`], also by the logical names of `audience` (RFC 8693 §2.1).
pub(super) fn targets(form: &Form<'_>, client: &LiveClient) -> Result<Vec<String>, OAuthError> {
    let mut all = requested(form, client)?;
    for audience in form.all("audience") {
        // It may always ask for itself, and then only for itself.
        if audience == client.id() && all.is_empty() {
            continue;
        }
        add(audience, &client.client.metadata.resources, &mut all)?;
    }
    Ok(all)
}

/// The resources of a refreshed token: those of the grant, or fewer.
pub(super) fn narrowed(form: &Form<'_>, granted: &[String]) -> Result<Vec<String>, OAuthError> {
    among(form.all("resource"), granted)
}

/// As [`narrowed`], also by the names of `audience` (RFC 8693 §2.1).
pub(super) fn narrowed_targets(
    form: &Form<'_>,
    granted: &[String],
) -> Result<Vec<String>, OAuthError> {
    among(form.all("resource").chain(form.all("audience")), granted)
}

fn among<'f>(
    requested: impl Iterator<Item = &'f str>,
    granted: &[String],
) -> Result<Vec<String>, OAuthError> {
    let mut all = Vec::new();
    for one in requested {
        add(one, granted, &mut all)?;
    }
    Ok(if all.is_empty() {
        granted.to_vec()
    } else {
        all
    })
}

fn add(one: &str, allowed: &[String], all: &mut Vec<String>) -> Result<(), OAuthError> {
    if !allowed.iter().any(|known| known == one) {
        return Err(invalid_target(
            "The requested resource is invalid or unknown",
        ));
    }
    if !all.iter().any(|known| known == one) {
        all.push(one.to_owned());
    }
    if all.len() > MAX {
        Err(invalid_target("Too many resources"))
    } else {
        Ok(())
    }
}
