//! What people see: pages that need no script, load nothing from elsewhere and
//! stand in no other page's frame.
//!
//! Templates escape every value that they are given; the tests show each page
//! hostile ones.

mod device;
mod look;
mod signed_out;
mod texts;
mod theme;

use std::sync::{Arc, LazyLock};

use askama::Template;
use aws_lc_rs::digest::{SHA256, digest};
use axum::body::Body;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    ACCEPT_LANGUAGE, CONTENT_LANGUAGE, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
    RETRY_AFTER, STRICT_TRANSPORT_SECURITY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::respond;
use crate::model::client::ClientMetadata;
pub(super) use device::{Device, device_done, device_entry, device_question};
pub(super) use look::Look;
pub(super) use signed_out::{Farewell, signed_out};
use texts::Texts;
pub(super) use theme::files as theme_files;

const STYLE: &str = include_str!("../../../templates/page.css");

/// Posts the only form of the page; without scripts, its button does.
const SCRIPT: &str = "document.forms[0].submit()";

/// How the policy names inline content that it allows: by digest.
fn source(content: &str) -> String {
    format!(
        "'sha256-{}'",
        STANDARD.encode(digest(&SHA256, content.as_bytes()))
    )
}

static STYLE_SOURCE: LazyLock<String> = LazyLock::new(|| source(STYLE));
static SCRIPT_SOURCE: LazyLock<String> = LazyLock::new(|| source(SCRIPT));

/// What pages have no use for.
const PERMISSIONS: &str = "accelerometer=(), camera=(), display-capture=(), geolocation=(), \
                           gyroscope=(), magnetometer=(), microphone=(), payment=(), usb=()";

/// What all pages have in common: the look, the language, and where forms may
/// lead.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    look: Arc<Look>,
    texts: Arc<Texts>,
    /// The origin that a form may lead to beside this one, once answered.
    leads_to: Option<String>,
    /// The script of the page, as the policy names it.
    script: Option<&'static str>,
    /// The origins of frames that the page holds.
    frames: Vec<String>,
    /// The origin that the client's picture is shown from, if it is another.
    logo_from: Option<String>,
}

impl Frame {
    /// For whoever sent these headers, and `ui_locales` if any.
    pub(super) fn of(look: &Arc<Look>, headers: &HeaderMap, ui_locales: Option<&str>) -> Self {
        let accept = headers.get(ACCEPT_LANGUAGE);
        let accept = accept.and_then(|value| value.to_str().ok());
        Self {
            look: Arc::clone(look),
            texts: look.languages.choose(ui_locales, accept),
            leads_to: None,
            script: None,
            frames: Vec::new(),
            logo_from: None,
        }
    }

    /// Lets the page show the picture of this client, if it may be shown; gives
    /// its address.
    fn showing<'a>(&self, client: &Applicant<'a>) -> (Self, Option<&'a str>) {
        let mut frame = self.clone();
        let Some(logo) = client.logo else {
            return (frame, None);
        };
        let source = self.look.logo_source(logo);
        let shown = source.is_some();
        frame.logo_from = source.flatten();
        (frame, shown.then_some(logo))
    }

    /// Lets the answer to a form of the page lead to this address.
    ///
    /// Browsers hold redirects to `form-action` too, and a client's page may
    /// redirect further: so any https address will do, and the client's own.
    #[must_use]
    pub(super) fn leading_to(mut self, address: &str) -> Self {
        self.leads_to = url::Url::parse(address).ok().map(|url| {
            match (url.scheme(), url.origin().ascii_serialization()) {
                ("http" | "https", origin) => origin,
                (scheme, _) => format!("{scheme}:"),
            }
        });
        self
    }

    fn lang(&self) -> &str {
        &self.texts.lang
    }

    fn dir(&self) -> &str {
        &self.texts.dir
    }

    fn brand(&self) -> &str {
        &self.texts.brand
    }

    fn style(&self) -> &'static str {
        STYLE
    }

    fn theme(&self) -> Option<&theme::Theme> {
        self.look.theme()
    }

    fn script(&self) -> &'static str {
        SCRIPT
    }

    fn policy(&self) -> String {
        let script = self.script.unwrap_or("'none'");
        let action = match &self.leads_to {
            Some(origin) => format!("'self' https: {origin}"),
            None => "'self'".to_owned(),
        };
        let frames = match self.frames.is_empty() {
            true => "'none'".to_owned(),
            false => self.frames.join(" "),
        };
        let logo = self.logo_from.as_deref().unwrap_or_default();
        let (style, font) = match self.theme() {
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

/// Why a form is shown again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failed {
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
}

/// What is shown of it.
struct Alert<'a> {
    code: &'static str,
    text: &'a str,
}

impl Failed {
    fn alert(self, texts: &Texts) -> Alert<'_> {
        let (code, text) = match self {
            Self::Credentials => ("authentication_failed", texts.failed.as_str()),
            Self::Busy => ("temporarily_unavailable", texts.busy.as_str()),
            Self::Stale => ("bad_request", texts.stale.as_str()),
            Self::UserCode => ("invalid_user_code", texts.device_wrong.as_str()),
            Self::Guesses => ("slow_down", texts.device_guesses.as_str()),
        };
        Alert { code, text }
    }

    fn status(self) -> StatusCode {
        match self {
            Self::Credentials | Self::Stale | Self::UserCode => StatusCode::BAD_REQUEST,
            Self::Guesses => StatusCode::TOO_MANY_REQUESTS,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// A client as its users see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Applicant<'a> {
    pub(super) name: &'a str,
    /// Its picture; one that is elsewhere is shown only where that is allowed.
    pub(super) logo: Option<&'a str>,
    pub(super) policy: Option<&'a str>,
    pub(super) terms: Option<&'a str>,
}

impl<'a> Applicant<'a> {
    /// The client of this metadata.
    pub(super) fn of(metadata: &'a ClientMetadata) -> Self {
        let name = metadata.client_name.as_deref();
        Self {
            name: name.unwrap_or(&metadata.client_id),
            logo: metadata.logo_uri.as_deref(),
            policy: metadata.policy_uri.as_deref(),
            terms: metadata.tos_uri.as_deref(),
        }
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
}

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignIn<'a> {
    frame: &'a Frame,
    texts: &'a Texts,
    client: &'a str,
    logo: Option<&'a str>,
    alert: Option<Alert<'a>>,
    action: &'a str,
    csrf: &'a str,
    since: &'a str,
    user_name: &'a str,
}

/// The page that asks for name and password.
pub(super) fn sign_in(
    frame: &Frame,
    client: Applicant<'_>,
    form: &FormParts,
    user_name: &str,
    failed: Option<Failed>,
) -> Response {
    let (frame, logo) = &frame.showing(&client);
    let page = SignIn {
        frame,
        texts: &frame.texts,
        client: client.name,
        logo: *logo,
        alert: failed.map(|failed| failed.alert(&frame.texts)),
        action: &form.action,
        csrf: &form.csrf,
        since: &form.since,
        user_name,
    };
    let status = failed.map_or(StatusCode::OK, Failed::status);
    let mut response = show(frame, status, &page);
    if failed == Some(Failed::Busy) {
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
    logo: Option<&'a str>,
    policy: Option<&'a str>,
    terms: Option<&'a str>,
    alert: Option<Alert<'a>>,
    scopes: Vec<&'a str>,
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
    failed: Option<Failed>,
) -> Response {
    let (frame, logo) = &frame.showing(&client);
    let page = Consent {
        frame,
        texts: &frame.texts,
        client: client.name,
        logo: *logo,
        policy: link(client.policy),
        terms: link(client.terms),
        alert: failed.map(|failed| failed.alert(&frame.texts)),
        scopes: scopes.iter().map(|name| frame.texts.scope(name)).collect(),
        action: &form.action,
        csrf: &form.csrf,
        since: &form.since,
        user_name,
    };
    show(frame, failed.map_or(StatusCode::OK, Failed::status), &page)
}

#[derive(Template)]
#[template(path = "error.html")]
struct Error<'a> {
    frame: &'a Frame,
    texts: &'a Texts,
    code: &'a str,
    description: &'a str,
}

/// The page for what can't be told to the client.
pub(super) fn error(frame: &Frame, status: StatusCode, code: &str, description: &str) -> Response {
    let page = Error {
        frame,
        texts: &frame.texts,
        code,
        description,
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
    frame.script = Some(&SCRIPT_SOURCE);
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

fn show(frame: &Frame, status: StatusCode, page: &impl Template) -> Response {
    let (status, text) = match page.render() {
        Ok(text) => (status, text),
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
    if let Some(transport) = &frame.look.transport {
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

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use crate::identity::config::PagesConfig;

    const HOSTILE: &str = "\"><script>alert(1)</script><img src=x onerror=alert(1)>'`&";

    async fn html(response: Response) -> String {
        let body = response.into_body().collect().await.expect("a body");
        String::from_utf8(body.to_bytes().to_vec()).expect("UTF-8")
    }

    fn frame() -> Frame {
        let look = Look::compile(&PagesConfig::default(), "https://op.example", "");
        Frame::of(&Arc::new(look.expect("a look")), &HeaderMap::new(), None)
    }

    fn all_pages() -> Vec<Response> {
        let frame = frame().leading_to(HOSTILE);
        let text = || HOSTILE.to_owned();
        let client = Applicant {
            name: HOSTILE,
            logo: Some("data:image/png;base64,\"><script>alert(1)</script>"),
            policy: Some("https://x/\"><script>alert(1)</script>"),
            terms: Some("javascript:alert(1)"),
        };
        let form = FormParts {
            action: text(),
            csrf: text(),
            since: text(),
        };
        let fields = [("state", text())];
        let scopes = [text()];
        let failed = Some(Failed::Stale);
        let device = Device {
            client,
            user_name: HOSTILE,
            user_code: HOSTILE,
            scopes: &scopes,
        };
        vec![
            sign_in(&frame, client, &form, HOSTILE, failed),
            consent(&frame, client, &form, (HOSTILE, &scopes), failed),
            error(&frame, StatusCode::BAD_REQUEST, HOSTILE, HOSTILE),
            form_post(frame.clone(), HOSTILE, &fields),
            sign_out(&frame, HOSTILE, &fields, HOSTILE, HOSTILE),
            signed_out(
                &frame,
                &Farewell {
                    frames: vec![text()],
                    next: Some(text()),
                },
            ),
            device_entry(&frame, HOSTILE, HOSTILE, Some(Failed::UserCode)),
            device_question(&frame, &device, &form, failed),
            device_done(&frame, true),
        ]
    }

    #[tokio::test]
    async fn html_injection_is_shown_as_text_on_every_page() {
        for page in all_pages() {
            let text = html(page).await.replace(SCRIPT, "");
            for tag in ["<script>alert", "<img src=x", "javascript:"] {
                assert!(!text.contains(tag), "{tag}: {text}");
            }
        }
    }

    #[test]
    fn no_page_can_be_framed_cached_or_told_to_others() {
        for page in all_pages() {
            let header = |name| page.headers()[name].to_str().expect("text").to_owned();
            let policy = header("content-security-policy");
            assert!(policy.contains("default-src 'none'"), "{policy}");
            assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
            assert!(!policy.contains("unsafe"), "{policy}");
            assert_eq!(header("x-frame-options"), "DENY");
            assert_eq!(header("cache-control"), "no-store");
            assert_eq!(header("referrer-policy"), "no-referrer");
            assert_eq!(header("x-content-type-options"), "nosniff");
            assert_eq!(header("strict-transport-security"), "max-age=31536000");
            assert!(header("permissions-policy").contains("camera=()"));
        }
    }

    #[test]
    fn pictures_of_clients_come_from_elsewhere_only_where_allowed() {
        let config = PagesConfig {
            remote_logos: true,
            ..PagesConfig::default()
        };
        let look = Look::compile(&config, "https://op.example", "").expect("a look");
        let allowed = Frame::of(&Arc::new(look), &HeaderMap::new(), None);
        for (frame, logo, shown, source) in [
            (frame(), "https://app.example/l.png", false, ""),
            (frame(), "https://op.example/l.png", true, ""),
            (frame(), "data:image/png;base64,AA", true, ""),
            (
                allowed.clone(),
                "https://app.example/l.png",
                true,
                "https://app.example",
            ),
            (allowed.clone(), "http://app.example/l.png", false, ""),
            (allowed, "https://x.example; script-src *", false, ""),
        ] {
            let client = Applicant {
                name: "App",
                logo: Some(logo),
                policy: None,
                terms: None,
            };
            let (frame, address) = frame.showing(&client);
            assert_eq!(address.is_some(), shown, "{logo}");
            let wanted = format!("img-src 'self' data: {source};");
            assert!(frame.policy().contains(&wanted), "{}", frame.policy());
        }
    }

    #[test]
    fn forms_lead_to_the_client_and_its_scheme() {
        let frame = frame();
        for (address, source) in [
            (
                "http://127.0.0.1:9000/cb?x=1",
                "https: http://127.0.0.1:9000;",
            ),
            ("com.example.app:/cb", "https: com.example.app:;"),
        ] {
            let policy = frame.clone().leading_to(address).policy();
            assert!(policy.contains(source), "{policy}");
        }
    }
}
