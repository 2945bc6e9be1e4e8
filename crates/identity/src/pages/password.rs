//! The pages for people who forgot their passwords, and what is written to them.

use std::sync::Arc;

use askama::Template;
use axum::response::Response;
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};

use super::frame::show;
use super::texts::Texts;
use super::{Alert, Appearance, Frame};
use crate::password_policy::Violation;

/// Why a new password was not taken.
#[derive(Debug)]
pub(crate) enum ResetFailed {
    /// The rules of the realm don't allow it.
    Refused(Vec<Violation>),
    /// The two that were typed are not the same.
    Differ,
    /// Too many passwords are being hashed.
    Busy,
}

impl Texts {
    /// What people are told of a password that they can't have.
    pub(crate) fn violation(&self, violation: Violation) -> String {
        let with = |text: &str, number: u32| text.replace("{number}", &number.to_string());
        match violation {
            Violation::TooShort(least) => with(&self.password_short, least),
            Violation::TooLong(most) => with(&self.password_long, most),
            Violation::Control => self.password_control.clone(),
            Violation::Own => self.password_own.clone(),
            Violation::Breached => self.password_breached.clone(),
            Violation::Guessable => self.password_guessable.clone(),
            Violation::Unchecked => self.busy.clone(),
        }
    }

    fn reset_failed(&self, failed: &ResetFailed) -> (StatusCode, &'static str, String) {
        match failed {
            ResetFailed::Refused(wrong) => {
                let texts: Vec<_> = wrong.iter().map(|one| self.violation(*one)).collect();
                (StatusCode::BAD_REQUEST, "invalid_password", texts.join(" "))
            }
            ResetFailed::Differ => {
                let text = self.reset_differ.clone();
                (StatusCode::BAD_REQUEST, "invalid_password", text)
            }
            ResetFailed::Busy => {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                (status, "temporarily_unavailable", self.busy.clone())
            }
        }
    }
}

#[derive(Template)]
#[template(path = "password_forgot.html")]
struct ForgotPasswordPage<'a> {
    frame: &'a Frame,
    texts: &'a Texts,
}

#[derive(Template)]
#[template(path = "password_reset.html")]
struct ChoosePasswordPage<'a> {
    frame: &'a Frame,
    texts: &'a Texts,
    alert: Option<Alert<'a>>,
    token: &'a str,
}

#[derive(Template)]
#[template(path = "password_said.html")]
struct PasswordMessagePage<'a> {
    frame: &'a Frame,
    texts: &'a Texts,
    title: &'a str,
    text: &'a str,
    good: bool,
    again: Option<&'a str>,
}

/// The page that asks who forgot, or says that a link is on its way: to
/// everybody, whoever was named.
pub(crate) fn forgot(frame: &Frame, asked: bool) -> Response {
    let texts = &*frame.texts;
    if !asked {
        return show(frame, StatusCode::OK, &ForgotPasswordPage { frame, texts });
    }
    let page = PasswordMessagePage {
        frame,
        texts,
        title: &texts.forgot_sent,
        text: &texts.forgot_sent_hint,
        good: true,
        again: None,
    };
    show(frame, StatusCode::OK, &page)
}

/// The page on which the holder of a link chooses a password.
pub(crate) fn choose_password(
    frame: &Frame,
    token: &str,
    failed: Option<&ResetFailed>,
) -> Response {
    let failed = failed.map(|failed| frame.texts.reset_failed(failed));
    let (status, alert) = match &failed {
        None => (StatusCode::OK, None),
        Some((status, code, text)) => (*status, Some(Alert { code, text })),
    };
    let page = ChoosePasswordPage {
        frame,
        texts: &frame.texts,
        alert,
        token,
    };
    let mut response = show(frame, status, &page);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        let soon = HeaderValue::from_static("1");
        response.headers_mut().insert(RETRY_AFTER, soon);
    }
    response
}

/// The page that says that a link is good no more.
pub(crate) fn link_gone(frame: &Frame, again: &str) -> Response {
    let page = PasswordMessagePage {
        frame,
        texts: &frame.texts,
        title: &frame.texts.reset_gone,
        text: &frame.texts.reset_gone_hint,
        good: false,
        again: Some(again),
    };
    show(frame, StatusCode::BAD_REQUEST, &page)
}

/// The page that says that the password is another one now.
pub(crate) fn password_chosen(frame: &Frame) -> Response {
    let page = PasswordMessagePage {
        frame,
        texts: &frame.texts,
        title: &frame.texts.reset_done,
        text: &frame.texts.reset_done_hint,
        good: true,
        again: None,
    };
    show(frame, StatusCode::OK, &page)
}

/// What letters say, in the language of whoever asked.
#[derive(Debug)]
pub(crate) struct LetterTexts(Arc<Texts>);

impl Frame {
    /// What people are told of a password that they can't have.
    pub(crate) fn violations(&self, wrong: &[Violation]) -> String {
        let texts: Vec<_> = wrong.iter().map(|one| self.texts.violation(*one)).collect();
        texts.join(" ")
    }

    /// What letters say to whoever is shown this page.
    pub(crate) fn letter_texts(&self) -> LetterTexts {
        LetterTexts(Arc::clone(&self.texts))
    }
}

impl LetterTexts {
    /// What letters say that their reader did not ask for in a browser.
    pub(crate) fn unasked(appearance: &Appearance) -> Self {
        Self(appearance.languages.choose(None, None))
    }

    /// Subject, text and language of the letter with a link: in the language of
    /// its reader, if that is known.
    pub(crate) fn reset(
        self,
        appearance: &Appearance,
        lang: Option<&str>,
        user_name: &str,
        link: &str,
        minutes: i64,
    ) -> (String, String, String) {
        let texts = match lang {
            Some(lang) => appearance.languages.choose(Some(lang), Some(&self.0.lang)),
            None => self.0,
        };
        let place = if texts.brand.is_empty() {
            link_host(link)
        } else {
            &texts.brand
        };
        let fill = |text: &str| {
            text.replace("{brand}", place)
                .replace("{minutes}", &minutes.to_string())
                .replace("{user}", user_name)
                .replace("{link}", link)
        };
        let subject = fill(&texts.mail_reset_subject);
        (subject, fill(&texts.mail_reset_text), texts.lang.clone())
    }
}

/// The host of a link, for who has no name.
fn link_host(link: &str) -> &str {
    let rest = link.split_once("://").map_or(link, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest)
}
