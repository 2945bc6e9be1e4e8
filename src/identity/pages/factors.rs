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
use super::{Alert, Applicant, Failed, FormParts, Frame};

/// A ceremony with a passkey that a page offers.
#[derive(Clone, Debug)]
pub(in crate::identity) struct Ceremony {
    /// Whether a passkey is made, and not used.
    pub(in crate::identity) creates: bool,
    /// What the browser is to do, as JSON.
    pub(in crate::identity) options: String,
    /// What the answer is checked against.
    pub(in crate::identity) step: String,
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
            does: match ceremony.creates {
                true => "create",
                false => "get",
            },
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
pub(in crate::identity) struct Factors<'a> {
    pub(in crate::identity) user_name: &'a str,
    /// What forms with a code carry.
    pub(in crate::identity) step: &'a str,
    /// Whether an app may make the code.
    pub(in crate::identity) code: bool,
    /// Whether a recovery code will do.
    pub(in crate::identity) recovery: bool,
    pub(in crate::identity) ceremony: Option<&'a Ceremony>,
    /// Days for which the browser may be remembered.
    pub(in crate::identity) remember: u32,
    /// Where somebody else signs in.
    pub(in crate::identity) again: &'a str,
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
pub(in crate::identity) fn factor(
    frame: &Frame,
    client: Applicant<'_>,
    form: &FormParts,
    factors: &Factors<'_>,
    failed: Option<Failed>,
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
    show(frame, failed.map_or(StatusCode::OK, Failed::status), &page)
}

/// A key for codes that its user may take over into an app.
#[derive(Clone, Debug)]
pub(in crate::identity) struct NewTotp {
    /// What the picture holds.
    pub(in crate::identity) address: String,
    /// The key, in base32.
    pub(in crate::identity) key: String,
    /// What the form that confirms it carries.
    pub(in crate::identity) step: String,
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
pub(in crate::identity) struct Enrolment<'a> {
    pub(in crate::identity) user_name: &'a str,
    pub(in crate::identity) totp: Option<&'a NewTotp>,
    pub(in crate::identity) ceremony: Option<&'a Ceremony>,
    /// Where somebody else signs in, or the account's page.
    pub(in crate::identity) again: &'a str,
    /// Whether the user wants it, and no sign-in asks for it.
    pub(in crate::identity) of_account: bool,
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
pub(in crate::identity) fn enrol(
    frame: &Frame,
    client: Applicant<'_>,
    form: &FormParts,
    enrolment: &Enrolment<'_>,
    failed: Option<Failed>,
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
    show(frame, failed.map_or(StatusCode::OK, Failed::status), &page)
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
pub(in crate::identity) fn recovery(frame: &Frame, codes: &[String], next: &str) -> Response {
    let page = RecoveryPage {
        frame,
        texts: &frame.texts,
        codes,
        next,
    };
    show(frame, StatusCode::OK, &page)
}
