//! The pages on which people show, or get, something besides the password.

use askama::Template;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use qrcode::QrCode;
use qrcode::render::svg;

use super::frame::show;
use super::texts::Texts;
use super::{Alert, Applicant, FormError, FormParts, Frame};

/// A ceremony with a passkey that a page offers.
#[derive(Clone, Debug)]
pub(crate) struct Ceremony {
    /// Whether a passkey is made, and not used.
    pub(crate) creates: bool,
    /// What the browser is to do, as JSON.
    pub(crate) options: String,
    /// What the answer is checked against.
    pub(crate) step: String,
}

/// That, as the templates need it.
pub(super) struct Passkey<'a> {
    pub(super) does: &'static str,
    pub(super) options: &'a str,
    pub(super) step: &'a str,
    pub(super) label: &'a str,
    /// Whether it stands beside the form for name and password, and is sent by
    /// that; browsers then offer passkeys where the name is typed.
    pub(super) alone: bool,
    /// Whether there is another way on the page.
    pub(super) or: bool,
    pub(super) named: bool,
    pub(super) remember: u32,
}

impl<'a> Passkey<'a> {
    /// For the page that asks for name and password.
    pub(super) fn alone(ceremony: &'a Ceremony, texts: &'a Texts) -> Self {
        Self {
            alone: true,
            or: true,
            ..Self::of(ceremony, &texts.passkey_sign_in)
        }
    }

    fn of(ceremony: &'a Ceremony, label: &'a str) -> Self {
        Self {
            does: if ceremony.creates { "create" } else { "get" },
            options: &ceremony.options,
            step: &ceremony.step,
            label,
            alone: false,
            or: false,
            named: ceremony.creates,
            remember: 0,
        }
    }
}

/// What a user may show.
#[derive(Debug)]
pub(crate) struct Factors<'a> {
    pub(crate) user_name: &'a str,
    /// What forms with a code carry.
    pub(crate) step: &'a str,
    /// Whether an app may make the code.
    pub(crate) code: bool,
    /// Whether a recovery code will do.
    pub(crate) recovery: bool,
    pub(crate) ceremony: Option<&'a Ceremony>,
    /// Days for which the browser may be remembered.
    pub(crate) remember: u32,
    /// Where somebody else signs in.
    pub(crate) again: &'a str,
}

#[derive(Template)]
#[template(path = "factor.html")]
struct FactorPage<'a> {
    frame: &'a Frame,
    texts: &'a Texts,
    logo: Option<&'a str>,
    initial: String,
    alert: Option<Alert<'a>>,
    action: &'a str,
    csrf: &'a str,
    since: &'a str,
    step: &'a str,
    code: bool,
    recovery: bool,
    passkey: Option<Passkey<'a>>,
    remember: u32,
    user_name: &'a str,
    again: &'a str,
    of_account: bool,
}

/// The page that asks for a second factor.
pub(crate) fn factor(
    frame: &Frame,
    client: Applicant<'_>,
    form: &FormParts,
    factors: &Factors<'_>,
    failed: Option<FormError>,
) -> Response {
    let (frame, logo) = frame.showing(&client);
    let frame = &frame.with_passkeys(factors.ceremony.is_some());
    let texts = &*frame.texts;
    let passkey = factors.ceremony.map(|ceremony| Passkey {
        or: factors.code,
        remember: if factors.code { 0 } else { factors.remember },
        ..Passkey::of(ceremony, &texts.passkey_use)
    });
    let page = FactorPage {
        frame,
        texts,
        logo,
        initial: client.initial(),
        alert: failed.map(|failed| failed.alert(texts)),
        action: &form.action,
        csrf: &form.csrf,
        since: &form.since,
        step: factors.step,
        code: factors.code,
        recovery: factors.recovery,
        passkey,
        remember: factors.remember,
        user_name: factors.user_name,
        again: factors.again,
        of_account: false,
    };
    show(
        frame,
        failed.map_or(StatusCode::OK, FormError::status),
        &page,
    )
}

/// A key for codes that its user may take over into an app.
#[derive(Clone, Debug)]
pub(crate) struct NewTotp {
    /// What the picture holds.
    pub(crate) address: String,
    /// The key, in base32.
    pub(crate) key: String,
    /// What the form that confirms it carries.
    pub(crate) step: String,
}

/// That, as the templates need it.
pub(super) struct Totp<'a> {
    picture: String,
    key: String,
    step: &'a str,
}

impl<'a> Totp<'a> {
    fn of(new: &'a NewTotp) -> Self {
        let groups = new.key.as_bytes().chunks(4);
        let groups: Vec<_> = groups.map(String::from_utf8_lossy).collect();
        Self {
            picture: picture(&new.address),
            key: groups.join(" "),
            step: &new.step,
        }
    }
}

/// A QR code as an address of itself: nothing is loaded, and no script draws.
fn picture(text: &str) -> String {
    let Ok(code) = QrCode::new(text) else {
        // The key stands below as text, too.
        return "data:,".to_owned();
    };
    let drawn = code
        .render::<svg::Color<'_>>()
        .min_dimensions(200, 200)
        .build();
    format!("data:image/svg+xml;base64,{}", STANDARD.encode(drawn))
}

/// What a user may get.
#[derive(Debug)]
pub(crate) struct Enrolment<'a> {
    pub(crate) user_name: &'a str,
    pub(crate) totp: Option<&'a NewTotp>,
    pub(crate) ceremony: Option<&'a Ceremony>,
    /// Where somebody else signs in, or the account's page.
    pub(crate) again: &'a str,
    /// Whether the user wants it, and no sign-in asks for it.
    pub(crate) of_account: bool,
}

#[derive(Template)]
#[template(path = "enrol.html")]
struct EnrolPage<'a> {
    frame: &'a Frame,
    texts: &'a Texts,
    logo: Option<&'a str>,
    initial: String,
    alert: Option<Alert<'a>>,
    action: &'a str,
    csrf: &'a str,
    since: &'a str,
    totp: Option<Totp<'a>>,
    passkey: Option<Passkey<'a>>,
    user_name: &'a str,
    again: &'a str,
    of_account: bool,
}

/// The page that leads a user to a second factor.
pub(crate) fn enrol(
    frame: &Frame,
    client: Applicant<'_>,
    form: &FormParts,
    enrolment: &Enrolment<'_>,
    failed: Option<FormError>,
) -> Response {
    let (frame, logo) = frame.showing(&client);
    let frame = &frame.with_passkeys(enrolment.ceremony.is_some());
    let texts = &*frame.texts;
    let passkey = enrolment.ceremony.map(|ceremony| Passkey {
        or: enrolment.totp.is_some(),
        ..Passkey::of(ceremony, &texts.passkey_add)
    });
    let page = EnrolPage {
        frame,
        texts,
        logo,
        initial: client.initial(),
        alert: failed.map(|failed| failed.alert(texts)),
        action: &form.action,
        csrf: &form.csrf,
        since: &form.since,
        totp: enrolment.totp.map(Totp::of),
        passkey,
        user_name: enrolment.user_name,
        again: enrolment.again,
        of_account: enrolment.of_account,
    };
    show(
        frame,
        failed.map_or(StatusCode::OK, FormError::status),
        &page,
    )
}

#[derive(Template)]
#[template(path = "recovery.html")]
struct RecoveryPage<'a> {
    frame: &'a Frame,
    texts: &'a Texts,
    codes: &'a [String],
    next: &'a str,
}

/// The page that shows recovery codes, once; it leads to `next`.
pub(crate) fn recovery(frame: &Frame, codes: &[String], next: &str) -> Response {
    let page = RecoveryPage {
        frame,
        texts: &frame.texts,
        codes,
        next,
    };
    show(frame, StatusCode::OK, &page)
}
