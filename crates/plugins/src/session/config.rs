//! The fields of `session`.

use std::sync::LazyLock;

use http::{HeaderName, Method};
use serde_json::{Map, Value, json};

use crate::settings::{Settings, wrong};
use doorward_core::model::schema::{Field, Schema, Type, Violations};
use doorward_net::session::cookie::{SameSite, Style};
use doorward_net::session::headers::SessionItem;
use doorward_net::session::seal::Sealer;
use doorward_net::session::timers::Timers;
use doorward_plugin_api::{ConfigError, identity};

/// Rewrites what older files say: when a session is renewed follows from its timeouts,
/// and cookies without `SameSite` are `Lax` to browsers.
fn shorthand(input: &mut Map<String, Value>, _: &mut Violations) {
    input.remove("cookie_renew");
    if let Some(same_site) = input.get_mut("cookie_samesite")
        && same_site == "off"
    {
        *same_site = "Lax".into();
    }
}

pub(super) fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let flag = |name, default: bool| Field::new(name, Type::Boolean).default(default);
        let text =
            |name, default: &'static str| Field::new(name, Type::some_text()).default(default);
        let seconds = |name, default: i64| Field::new(name, Type::Number).default(default);
        let items = |name| Field::new(name, Type::set(Type::word(SessionItem::NAMES)));
        Schema::new(vec![
            Field::new("secret", Type::some_text()).referenceable(),
            Field::new("storage", Type::word(&["cookie", "kong"])).default("cookie"),
            text("audience", "default"),
            seconds("idling_timeout", 900).aliases(&["cookie_idletime"]),
            seconds("rolling_timeout", 3600).aliases(&["cookie_lifetime"]),
            seconds("absolute_timeout", 86_400),
            seconds("stale_ttl", 10).aliases(&["cookie_discard"]),
            text("cookie_name", "session"),
            text("cookie_path", "/"),
            Field::new("cookie_domain", Type::some_text()),
            Field::new(
                "cookie_same_site",
                Type::word(&["Strict", "Lax", "None", "Default"]),
            )
            .default("Strict")
            .aliases(&["cookie_samesite"]),
            flag("cookie_http_only", true).aliases(&["cookie_httponly"]),
            flag("cookie_secure", true),
            flag("remember", false).aliases(&["cookie_persistent"]),
            text("remember_cookie_name", "remember"),
            seconds("remember_rolling_timeout", 604_800),
            seconds("remember_absolute_timeout", 2_592_000),
            items("response_headers"),
            items("request_headers"),
            flag("read_body_for_logout", false),
            Field::new(
                "logout_methods",
                Type::set(Type::word(&["GET", "POST", "DELETE"])),
            )
            .default(json!(["POST", "DELETE"])),
            text("logout_query_arg", "session_logout"),
            text("logout_post_arg", "session_logout"),
        ])
        .shorthand(shorthand)
    });
    &SCHEMA
}

/// The cookies of one kind, and what is in them.
pub(super) struct CookieKind {
    pub(super) style: Style,
    pub(super) timers: Timers,
    /// What they are sealed for: a cookie of one kind is none of another.
    pub(super) context: Box<[u8]>,
    /// Seconds that browsers keep them; `None`: as long as they run.
    pub(super) kept: Option<i64>,
}

/// The fields, read.
pub(super) struct Config {
    pub(super) sealer: Sealer,
    pub(super) session: CookieKind,
    /// The session that outlives the browser.
    pub(super) remember: Option<CookieKind>,
    pub(super) logout_methods: Box<[Method]>,
    pub(super) logout_query: Box<str>,
    pub(super) logout_body: Box<str>,
    pub(super) reads_body: bool,
    pub(super) audience: Box<str>,
    /// Whether the store keeps sessions.
    pub(super) is_stored: bool,
    /// What upstreams and clients are told of the session.
    pub(super) request_headers: Items,
    pub(super) response_headers: Items,
    /// Headers that come from this plugin alone.
    pub(super) owned_headers: Box<[HeaderName]>,
}

/// Facts of a session, and the headers that tell them.
pub(super) type Items = Box<[(HeaderName, SessionItem)]>;

impl Config {
    /// Reads the fields; `common` is the secret of the installation, which
    /// sessions are sealed with where none is configured.
    pub(super) fn read(config: Settings<'_>, common: &[u8]) -> Result<Self, ConfigError> {
        let secret = config.some_text("secret");
        let secret = secret.map_or(common, str::as_bytes);
        let sealer = Sealer::new("session plugin", [secret]);
        let text = |field, default| config.some_text(field).unwrap_or(default);
        let style = |field, default| {
            let path = text("cookie_path", "/");
            let style = Style::new(
                text(field, default),
                path,
                config.some_text("cookie_domain"),
            );
            style.map_err(|error| wrong(field, error.to_string()))
        };
        let same_site = match config.text("cookie_same_site") {
            Some("Lax") => SameSite::Lax,
            Some("None") => SameSite::None,
            Some("Default") => SameSite::Unsaid,
            _ => SameSite::Strict,
        };
        let flag = |field, default| config.get(field).map_or(default, |_| config.flag(field));
        let secure = flag("cookie_secure", true);
        let http_only = flag("cookie_http_only", true);
        let methods = config.texts("logout_methods");
        let audience = text("audience", "default");
        let session = CookieKind {
            style: style("cookie_name", "session")?.with(same_site, http_only, Some(secure)),
            timers: Timers {
                rolling: bound(config, "rolling_timeout"),
                idling: bound(config, "idling_timeout"),
                absolute: bound(config, "absolute_timeout"),
            },
            context: audience.as_bytes().into(),
            kept: None,
        };
        let remember = if config.flag("remember") {
            let style = style("remember_cookie_name", "remember")?;
            if style.is_own(session.style.name().as_bytes())
                || session.style.is_own(style.name().as_bytes())
            {
                let message = "the cookie of the session has this name";
                return Err(wrong("remember_cookie_name", message));
            }
            let timers = Timers {
                rolling: bound(config, "remember_rolling_timeout"),
                idling: None,
                absolute: bound(config, "remember_absolute_timeout"),
            };
            let bounds = [timers.rolling, timers.absolute];
            let kept = bounds.iter().flatten().min().map(|ms| ms / 1000);
            let style = style.with(same_site, http_only, Some(secure));
            Some(CookieKind {
                style: kept.into_iter().fold(style, Style::lasting),
                timers,
                context: format!("{audience}\nremember").into_bytes().into(),
                kept,
            })
        } else {
            None
        };
        let items = |field| config.texts(field).filter_map(SessionItem::named).collect();
        let request_headers: Items = items("request_headers");
        Ok(Self {
            sealer: sealer.map_err(|error| wrong("secret", error.to_string()))?,
            session,
            remember,
            logout_methods: methods.filter_map(|name| name.parse().ok()).collect(),
            logout_query: text("logout_query_arg", "session_logout").into(),
            logout_body: text("logout_post_arg", "session_logout").into(),
            reads_body: config.flag("read_body_for_logout"),
            audience: audience.into(),
            is_stored: config.text("storage") == Some("kong"),
            owned_headers: identity::HEADERS
                .iter()
                .chain(request_headers.iter().map(|(name, _)| name))
                .cloned()
                .collect(),
            request_headers,
            response_headers: items("response_headers"),
        })
    }
}

/// A bound in milliseconds; 0 is none.
fn bound(config: Settings<'_>, field: &str) -> Option<i64> {
    let seconds = config.number(field).filter(|seconds| *seconds > 0.0)?;
    #[expect(clippy::cast_possible_truncation, reason = "saturates")]
    let ms = (seconds * 1000.0) as i64;
    Some(ms)
}
