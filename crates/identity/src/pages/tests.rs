use std::sync::Arc;

use http::HeaderMap;
use http_body_util::BodyExt;

use super::frame::SCRIPT;
use super::*;
use crate::config::PagesConfig;

const HOSTILE: &str = "\"><script>alert(1)</script><img src=x onerror=alert(1)>'`&";

async fn html(response: Response) -> String {
    let body = response.into_body().collect().await.expect("a body");
    String::from_utf8(body.to_bytes().to_vec()).expect("UTF-8")
}

fn frame() -> Frame {
    let appearance = Appearance::compile(&PagesConfig::default(), "https://op.example", "");
    Frame::of(
        &Arc::new(appearance.expect("a look")),
        &HeaderMap::new(),
        None,
    )
}

fn all_pages() -> Vec<Response> {
    let frame = frame().leading_to(HOSTILE);
    let text = || HOSTILE.to_owned();
    let client = Applicant {
        host: Some(HOSTILE),
        name: HOSTILE,
        logo: Some("data:image/png;base64,\"><script>alert(1)</script>"),
        policy: Some("https://x/\"><script>alert(1)</script>"),
        terms: Some("javascript:alert(1)"),
    };
    let form = FormParts {
        action: text(),
        csrf: text(),
        since: text(),
        forgot: Some(HOSTILE.to_owned()),
        provider_links: vec![provider_link()],
    };
    let fields = [("state", text())];
    let scopes = [text()];
    let failed = Some(FormError::Stale);
    let device = Device {
        client,
        user_name: HOSTILE,
        user_code: HOSTILE,
        scopes: &scopes,
    };
    let ceremony = Ceremony {
        creates: true,
        options: text(),
        step: text(),
    };
    let shown = Factors {
        user_name: HOSTILE,
        step: HOSTILE,
        code: true,
        recovery: true,
        ceremony: Some(&ceremony),
        remember: 1,
        again: HOSTILE,
    };
    let totp = NewTotp {
        address: text(),
        key: text(),
        step: text(),
    };
    let enrolment = Enrolment {
        user_name: HOSTILE,
        totp: Some(&totp),
        ceremony: Some(&ceremony),
        again: HOSTILE,
        of_account: false,
    };
    vec![
        sign_in(&frame, client, &form, (HOSTILE, None), failed),
        consent(&frame, client, &form, (HOSTILE, &scopes), failed),
        error(&frame, StatusCode::BAD_REQUEST, HOSTILE, HOSTILE),
        form_post(frame.clone(), HOSTILE, &fields),
        sign_out(&frame, HOSTILE, &fields, HOSTILE, HOSTILE),
        signed_out(
            &frame,
            &AfterLogout {
                frames: vec![text()],
                next: Some(text()),
            },
        ),
        device_entry(&frame, HOSTILE, HOSTILE, Some(FormError::UserCode)),
        device_question(&frame, &device, &form, failed),
        device_done(&frame, true),
        sign_in(&frame, client, &form, (HOSTILE, Some(&ceremony)), None),
        factor(&frame, client, &form, &shown, Some(FormError::Code)),
        enrol(&frame, client, &form, &enrolment, None),
        recovery(&frame, &[text()], HOSTILE),
        forgot(&frame, false),
        forgot(&frame, true),
        choose_password(&frame, HOSTILE, Some(&ResetFailed::Differ)),
        link_gone(&frame, HOSTILE),
        password_chosen(&frame),
        account(&frame, &form, hostile_account(), failed),
    ]
}

fn provider_link() -> ProviderLink {
    let text = || HOSTILE.to_owned();
    ProviderLink {
        name: text(),
        title: text(),
        logo: Some(text()),
        href: text(),
    }
}

fn hostile_account() -> AccountPage<'static> {
    let text = || HOSTILE.to_owned();
    let moment = || Moment {
        text: text(),
        exact: text(),
        machine: text(),
    };
    AccountPage {
        user_name: HOSTILE,
        sessions: vec![AccountSession {
            id: text(),
            own: false,
            agent: text(),
            address: text(),
            since: moment(),
            used: moment(),
            clients: text(),
        }],
        consents: vec![AccountConsent {
            client_id: text(),
            name: text(),
            scopes: vec![text()],
        }],
        factors: vec![AccountFactor {
            id: text(),
            name: text(),
            is_passkey: true,
            copied: true,
            added: moment(),
            used: None,
        }],
        codes_left: Some(1),
        may_add: true,
        may_change_password: true,
        links: vec![AccountLink {
            id: text(),
            title: text(),
            email: text(),
            since: moment(),
            used: moment(),
        }],
        provider_links: vec![provider_link()],
        refused: HOSTILE,
    }
}

#[test]
fn policy_injection_by_the_host_of_a_clients_address() {
    for host in [
        "x;sandbox",
        "*",
        "x,y",
        "x;upgrade-insecure-requests",
        &"x".repeat(2000),
    ] {
        let address = format!("https://{host}/out");
        let farewell = AfterLogout {
            frames: vec![address.clone(), "https://app.example/out".to_owned()],
            next: None,
        };
        let page = signed_out(&frame().leading_to(&address), &farewell);
        let policy = page.headers()["content-security-policy"].to_str();
        let policy = policy.expect("text");
        assert!(
            policy.contains("frame-src https://app.example;"),
            "{policy}"
        );
        assert!(!policy.contains(host), "{policy}");
    }
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
    let appearance = Appearance::compile(&config, "https://op.example", "").expect("a look");
    let allowed = Frame::of(&Arc::new(appearance), &HeaderMap::new(), None);
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
            host: None,
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

#[tokio::test]
async fn many_sessions_unfold_below_the_way_to_end_them() {
    let page = |count: usize| {
        let mut page = hostile_account();
        let one = || hostile_account().sessions.remove(0);
        page.sessions = (0..count).map(|_| one()).collect();
        let form = FormParts {
            action: "/oauth2/account".to_owned(),
            csrf: String::new(),
            since: String::new(),
            provider_links: Vec::new(),
            forgot: None,
        };
        html(account(&frame(), &form, page, None))
    };
    let one = page(1).await;
    assert!(!one.contains("end-others") && !one.contains("more-sessions"));
    let few = page(10).await;
    assert!(few.contains("end-others") && !few.contains("more-sessions"));
    let many = page(100).await;
    let at = |part: &str| many.find(part).unwrap_or_else(|| panic!("no {part}"));
    assert!(at("id=\"end-others\"") < at("id=\"more-sessions\""));
    assert!(many.contains("Show the other sessions (90)"), "{many}");
    let open = many.matches("<ul").count() + many.matches("<details").count();
    let closed = many.matches("</ul>").count() + many.matches("</details>").count();
    assert_eq!(open, closed);
}

#[test]
fn moments_are_told_in_the_language_of_the_page() {
    let appearance = Appearance::compile(&PagesConfig::default(), "https://op.example", "");
    let appearance = Arc::new(appearance.expect("a look"));
    let told = |lang: &'static str, ago_s: i64| {
        let mut headers = HeaderMap::new();
        headers.insert("accept-language", http::HeaderValue::from_static(lang));
        let now_ms = 1_800_000_000_500;
        let frame = Frame::of(&appearance, &headers, None);
        frame.texts.moment(now_ms - ago_s * 1000, now_ms)
    };
    for (lang, ago_s, text) in [
        ("en", -5, "just now"),
        ("en", 59, "just now"),
        ("en", 60, "1 min ago"),
        ("en", 7_300, "2 h ago"),
        ("en", 86_400, "on 2027-01-14"),
        ("de", 0, "gerade eben"),
        ("de", 300, "vor 5 Min."),
        ("de", 86_400, "am 14.01.2027"),
    ] {
        assert_eq!(told(lang, ago_s).text, text);
    }
    let exact = told("en", 86_400);
    assert_eq!(exact.exact, "2027-01-14 08:00 UTC");
    assert_eq!(exact.machine, "2027-01-14T08:00:00Z");
}

#[tokio::test]
async fn an_unknown_client_is_told_in_the_language_of_the_page() {
    let appearance = Appearance::compile(&PagesConfig::default(), "https://op.example", "");
    let mut headers = HeaderMap::new();
    headers.insert("accept-language", http::HeaderValue::from_static("de"));
    let frame = Frame::of(&Arc::new(appearance.expect("a look")), &headers, None);
    let status = StatusCode::BAD_REQUEST;
    let page = html(error(
        &frame,
        status,
        "invalid_client",
        "The client is unknown",
    ))
    .await;
    assert!(page.contains("ist hier nicht bekannt"), "{page}");
    assert!(!page.contains("The client is unknown"), "{page}");
    // What is for developers stays as it is.
    let page = html(error(
        &frame,
        status,
        "invalid_request",
        "Missing parameter",
    ))
    .await;
    assert!(page.contains("lang=\"en\">Missing parameter"), "{page}");
}

#[tokio::test]
async fn a_page_that_leads_on_names_nothing_but_its_address() {
    let hostile = "https://app.example/cb?a=\"><script>alert(1)</script>&x=1";
    let page = going_on(&frame(), hostile);
    let policy = page.headers()["content-security-policy"].to_str();
    let policy = policy.expect("text");
    assert!(policy.contains("form-action 'self';"), "{policy}");
    let text = html(page).await;
    assert!(!text.contains("<script"), "{text}");
    let refresh = "http-equiv=\"refresh\" content=\"0; url=https://app.example/cb?a=";
    assert!(text.contains(refresh), "{text}");
}

/// The page that asks for consent to a client.
async fn consent_to(host: Option<&str>, name: &str) -> String {
    let client = Applicant {
        host,
        name,
        logo: None,
        policy: None,
        terms: None,
    };
    let form = FormParts {
        action: "/oauth2/authorize".to_owned(),
        csrf: String::new(),
        since: String::new(),
        provider_links: Vec::new(),
        forgot: None,
    };
    html(consent(&frame(), client, &form, ("anna", &[]), None)).await
}

#[tokio::test]
async fn consent_names_the_host_that_speaks_for_a_client() {
    let page = consent_to(Some("app.example"), "Bank").await;
    let host = page.find("<strong>app.example</strong>").expect("the host");
    assert!(
        host < page.find("<strong>Bank</strong>").expect("the name"),
        "{page}"
    );
}

#[tokio::test]
async fn names_turn_no_text_behind_them() {
    let page = consent_to(None, "Bank\u{202e}knaB\u{2066}").await;
    assert!(page.contains("BankknaB"), "{page}");
    assert!(!page.contains(['\u{202e}', '\u{2066}']), "{page}");
}

#[test]
fn forms_lead_to_the_client_and_its_scheme() {
    let frame = frame();
    for (address, source) in [
        (
            "http://127.0.0.1:9000/cb?x=1",
            "form-action 'self' http://127.0.0.1:9000;",
        ),
        (
            "https://app.example/cb?x=1",
            "form-action 'self' https://app.example;",
        ),
        (
            "com.example.app:/cb",
            "form-action 'self' com.example.app:;",
        ),
    ] {
        let policy = frame.clone().leading_to(address).policy();
        assert!(policy.contains(source), "{policy}");
    }
}
