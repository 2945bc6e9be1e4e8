//! The pages on which people let their devices in.

use std::borrow::Cow;

use askama::Template;
use axum::response::Response;
use http::StatusCode;

use super::frame::show;
use super::texts::Texts;
use super::{Alert, Applicant, FormError, FormParts, Frame, link};

#[derive(Template)]
#[template(path = "device_entry.html")]
struct DeviceEntry<'a> {
    frame: &'a Frame,
    texts: &'a Texts,
    alert: Option<Alert<'a>>,
    action: &'a str,
    user_code: &'a str,
}

/// The page that asks for the code that a device shows.
pub(crate) fn device_entry(
    frame: &Frame,
    action: &str,
    user_code: &str,
    failed: Option<FormError>,
) -> Response {
    let page = DeviceEntry {
        frame,
        texts: &frame.texts,
        alert: failed.map(|failed| failed.alert(&frame.texts)),
        action,
        user_code: if user_code.len() <= 64 { user_code } else { "" },
    };
    show(
        frame,
        failed.map_or(StatusCode::OK, FormError::status),
        &page,
    )
}

/// What people are told of a device that waits for them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Device<'a> {
    pub(crate) client: Applicant<'a>,
    pub(crate) user_name: &'a str,
    pub(crate) user_code: &'a str,
    pub(crate) scopes: &'a [String],
}

#[derive(Template)]
#[template(path = "device.html")]
struct DeviceQuestion<'a> {
    frame: &'a Frame,
    texts: &'a Texts,
    client: &'a str,
    logo: Option<&'a str>,
    initial: String,
    policy: Option<&'a str>,
    terms: Option<&'a str>,
    alert: Option<Alert<'a>>,
    scopes: Vec<Cow<'a, str>>,
    action: &'a str,
    csrf: &'a str,
    user_name: &'a str,
    user_code: &'a str,
}

/// The page that asks whether a device is the user's, and may have what it asks
/// for.
pub(crate) fn device_question(
    frame: &Frame,
    device: &Device<'_>,
    form: &FormParts,
    failed: Option<FormError>,
) -> Response {
    let Device { client, scopes, .. } = device;
    let (frame, logo) = &frame.showing(client);
    let page = DeviceQuestion {
        frame,
        texts: &frame.texts,
        client: client.name,
        logo: *logo,
        initial: client.initial(),
        policy: link(client.policy),
        terms: link(client.terms),
        alert: failed.map(|failed| failed.alert(&frame.texts)),
        scopes: scopes.iter().map(|name| frame.texts.scope(name)).collect(),
        action: &form.action,
        csrf: &form.csrf,
        user_name: device.user_name,
        user_code: device.user_code,
    };
    show(
        frame,
        failed.map_or(StatusCode::OK, FormError::status),
        &page,
    )
}

#[derive(Template)]
#[template(path = "device_done.html")]
struct DeviceDonePage<'a> {
    frame: &'a Frame,
    approved: bool,
    title: &'a str,
    hint: &'a str,
}

/// The page that says what became of the device.
pub(crate) fn device_done(frame: &Frame, approved: bool) -> Response {
    let texts = &frame.texts;
    let (title, hint) = if approved {
        (&texts.device_approved, &texts.device_approved_hint)
    } else {
        (&texts.device_denied, &texts.device_denied_hint)
    };
    let page = DeviceDonePage {
        frame,
        approved,
        title,
        hint,
    };
    show(frame, StatusCode::OK, &page)
}
