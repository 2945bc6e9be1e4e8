//! What all pages have in common: their head, their language and what browsers
//! are told about them.

use std::sync::{Arc, LazyLock};

use askama::Template;
use aws_lc_rs::digest::{SHA256, digest};
use axum::body::Body;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::header::{
    ACCEPT_LANGUAGE, CONTENT_LANGUAGE, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
    STRICT_TRANSPORT_SECURITY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::texts::Texts;
use super::{Appearance, Applicant};
use crate::respond;
use doorward_core::clock::random_bytes;
use doorward_core::model::visible;

const STYLE: &str = include_str!("../../templates/page.css");

/// Posts the only form of the page; without scripts, its button does.
pub(super) const SCRIPT: &str = "document.forms[0].submit()";

/// How the policy names inline content that it allows: by digest.
pub(super) fn source(content: &str) -> String {
    format!(
        "'sha256-{}'",
        STANDARD.encode(digest(&SHA256, content.as_bytes()))
    )
}

/// Longest name of a host.
const HOST_MAX: usize = 255;

/// The origin of a web address, as the policy names it. What parses addresses
/// lets hosts hold characters that end a directive, or mean any host.
pub(super) fn origin(url: &url::Url) -> Option<String> {
    let host = url.host_str()?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    let usable = host.len() <= HOST_MAX && host.bytes().all(plain);
    usable.then(|| url.origin().ascii_serialization())
}

static STYLE_SOURCE: LazyLock<String> = LazyLock::new(|| source(STYLE));
pub(super) static SCRIPT_SOURCE: LazyLock<String> = LazyLock::new(|| source(SCRIPT));

/// What pages have no use for.
const PERMISSIONS: &str = "accelerometer=(), camera=(), display-capture=(), geolocation=(), \
                           gyroscope=(), magnetometer=(), microphone=(), payment=(), usb=()";

/// What all pages have in common: the look, the language, and where forms may
/// lead.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    appearance: Arc<Appearance>,
    pub(super) texts: Arc<Texts>,
    /// The origin that a form may lead to beside this one, once answered.
    leads_to: Option<String>,
    /// The script of the page, as the policy names it.
    pub(super) script: Option<String>,
    /// What the page's script and its policy have in common.
    nonce: String,
    /// The origins of frames that the page holds.
    pub(super) frames: Vec<String>,
    /// The origin that the client's picture is shown from, if it is another.
    logo_from: Option<String>,
}

impl Frame {
    /// For whoever sent these headers, and `ui_locales` if any.
    pub(crate) fn of(
        appearance: &Arc<Appearance>,
        headers: &HeaderMap,
        ui_locales: Option<&str>,
    ) -> Self {
        let accept = headers.get(ACCEPT_LANGUAGE);
        let accept = accept.and_then(|value| value.to_str().ok());
        Self {
            appearance: Arc::clone(appearance),
            texts: appearance.languages.choose(ui_locales, accept),
            leads_to: None,
            script: None,
            nonce: String::new(),
            frames: Vec::new(),
            logo_from: None,
        }
    }

    /// Lets the page show the picture of this client, if it may be shown; gives
    /// its address.
    pub(super) fn showing<'a>(&self, client: &Applicant<'a>) -> (Self, Option<&'a str>) {
        let mut frame = self.clone();
        let Some(logo) = client.logo else {
            return (frame, None);
        };
        let source = self.appearance.logo_source(logo);
        let shown = source.is_some();
        frame.logo_from = source.flatten();
        (frame, shown.then_some(logo))
    }

    /// Lets the answer to a form of the page lead to this address.
    ///
    /// Browsers hold redirects to `form-action` too. The chain ends with the
    /// answer to a form, so nothing but the origin of this address is named.
    #[must_use]
    pub(crate) fn leading_to(mut self, address: &str) -> Self {
        let url = url::Url::parse(address).ok();
        self.leads_to = url.and_then(|url| match url.scheme() {
            "http" | "https" => origin(&url),
            scheme => Some(format!("{scheme}:")),
        });
        self
    }

    /// Lets the page run the script for passkeys, if `wanted`.
    #[must_use]
    pub(super) fn with_passkeys(mut self, wanted: bool) -> Self {
        if wanted {
            self.nonce = URL_SAFE_NO_PAD.encode(random_bytes::<18>());
            self.script = Some(format!("'nonce-{}'", self.nonce));
        }
        self
    }

    pub(super) fn nonce(&self) -> &str {
        &self.nonce
    }

    /// The address of the script for passkeys.
    pub(super) fn passkey_script(&self) -> &str {
        &self.appearance.passkey_script
    }

    /// What it says, in its language.
    pub(crate) fn texts(&self) -> &Texts {
        &self.texts
    }

    pub(super) fn lang(&self) -> &str {
        &self.texts.lang
    }

    pub(super) fn dir(&self) -> &str {
        &self.texts.dir
    }

    pub(super) fn brand(&self) -> &str {
        &self.texts.brand
    }

    pub(super) fn style(&self) -> &'static str {
        STYLE
    }

    /// The theme's stylesheet, picture and icon: their addresses.
    pub(super) fn stylesheet(&self) -> Option<&str> {
        self.appearance.theme()?.stylesheet.as_deref()
    }

    pub(super) fn logo(&self) -> Option<&str> {
        self.appearance.theme()?.logo.as_deref()
    }

    pub(super) fn icon(&self) -> Option<&str> {
        self.appearance.theme()?.icon.as_deref()
    }

    /// Where the answer to the form leads, as people name it.
    pub(super) fn place(&self) -> Option<&str> {
        let place = self.leads_to.as_deref()?;
        Some(place.strip_prefix("https://").unwrap_or(place))
    }

    pub(super) fn script(&self) -> &'static str {
        SCRIPT
    }

    pub(super) fn policy(&self) -> String {
        let script = self.script.as_deref().unwrap_or("'none'");
        let action = match &self.leads_to {
            Some(origin) => format!("'self' {origin}"),
            None => "'self'".to_owned(),
        };
        let frames = if self.frames.is_empty() {
            "'none'".to_owned()
        } else {
            self.frames.join(" ")
        };
        let logo = self.logo_from.as_deref().unwrap_or_default();
        let (style, font) = match self.appearance.theme() {
            Some(_) => (" 'self'", "'self'"),
            None => ("", "'none'"),
        };
        format!(
            "default-src 'none'; style-src {}{style}; script-src {script}; font-src {font}; \
             img-src 'self' data: {logo}; frame-src {frames}; form-action {action}; \
             base-uri 'none'; frame-ancestors 'none'",
            *STYLE_SOURCE
        )
    }
}

/// A page as browsers get it: never kept, framed, or told to others.
pub(super) fn show(frame: &Frame, status: StatusCode, page: &impl Template) -> Response {
    let (status, text) = match page.render() {
        // Names are strangers' words: none of them turns the text behind it.
        Ok(text) => (status, visible::without_overrides(&text).into_owned()),
        Err(error) => {
            tracing::error!(%error, "a page could not be written");
            (StatusCode::INTERNAL_SERVER_ERROR, String::new())
        }
    };
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    respond::never_stored(&mut response);
    let headers = response.headers_mut();
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    headers.insert(CONTENT_TYPE, html);
    if let Ok(lang) = HeaderValue::from_str(frame.lang()) {
        headers.insert(CONTENT_LANGUAGE, lang);
    }
    let permissions = HeaderValue::from_static(PERMISSIONS);
    headers.insert(HeaderName::from_static("permissions-policy"), permissions);
    if let Some(transport) = &frame.appearance.transport {
        headers.insert(STRICT_TRANSPORT_SECURITY, transport.clone());
    }
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    let policy = HeaderValue::from_str(&frame.policy());
    // Never without a policy: should it not be writable, nothing is shown.
    let nothing = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
    headers.insert(CONTENT_SECURITY_POLICY, policy.unwrap_or(nothing));
    response
}
