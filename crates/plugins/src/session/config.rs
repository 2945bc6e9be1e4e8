//! The fields of `session`.

use std::sync::LazyLock;

use http::{HeaderName, Method};
use serde_json::{Map, Value, json};

use crate::settings::wrong;
use doorward_core::model::schema::{Schema, Type, Violations};
use doorward_core::model::secret::Secret;
use doorward_net::session::cookie::{SameSite, Style};
use doorward_net::session::headers::SessionItem;
use doorward_net::session::seal::Sealer;
use doorward_net::session::timers::Timers;
use doorward_plugin_api::{ConfigError, config, identity, words};

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

config! {
    /// The fields of `config`.
    struct Fields {
        /// The secret that sessions are sealed with. Null: that of the installation.
        #[field(referenceable)]
        secret: Option<Secret>,
        /// Where sessions are: in the cookie itself, or in the store.
        #[field(default("cookie"))]
        storage: Storage,
        /// Whom sessions are for. One of another audience opens nothing.
        #[field(default("default"))]
        audience: String,
        /// How long a session may be idle, in seconds. 0: for ever.
        #[field(default(900), aliases(&["cookie_idletime"]))]
        idling_timeout: Option<f64>,
        /// How long a session lasts without being renewed, in seconds. 0: for ever.
        #[field(default(3600), aliases(&["cookie_lifetime"]))]
        rolling_timeout: Option<f64>,
        /// How long a session lasts at most, in seconds. 0: for ever.
        #[field(default(86_400))]
        absolute_timeout: Option<f64>,
        /// Has no effect: a renewed session is good at once, and so is the one before.
        #[field(default(10), aliases(&["cookie_discard"]))]
        _stale_ttl as "stale_ttl": Option<f64>,
        /// The name of the cookie.
        #[field(default("session"))]
        cookie_name: String,
        /// The path of the cookies.
        #[field(default("/"))]
        cookie_path: String,
        /// The domain of the cookies. Null: the host that has set them.
        cookie_domain: Option<String>,
        /// Whether other sites' requests carry the cookies.
        #[field(default("Strict"), aliases(&["cookie_samesite"]))]
        cookie_same_site: CookieSameSite,
        /// Whether scripts of pages do not see the cookies.
        #[field(default(true), aliases(&["cookie_httponly"]))]
        cookie_http_only: bool,
        /// Whether browsers send the cookies over TLS alone.
        #[field(default(true))]
        cookie_secure: bool,
        /// Whether a second cookie begins a new session behind the first.
        #[field(default(false), aliases(&["cookie_persistent"]))]
        remember: bool,
        /// The name of the second cookie.
        #[field(default("remember"))]
        remember_cookie_name: String,
        /// How long the second cookie lasts without being renewed, in seconds. 0: for ever.
        #[field(default(604_800))]
        remember_rolling_timeout: Option<f64>,
        /// How long the second cookie lasts at most, in seconds. 0: for ever.
        #[field(default(2_592_000))]
        remember_absolute_timeout: Option<f64>,
        /// What clients are told of their session.
        #[field(kind(Type::set(Type::word(SessionItem::NAMES))))]
        response_headers: Vec<String>,
        /// What upstreams are told of the session.
        #[field(kind(Type::set(Type::word(SessionItem::NAMES))))]
        request_headers: Vec<String>,
        /// Whether a form in the body may ask for the logout.
        #[field(default(false))]
        read_body_for_logout: bool,
        /// The methods of requests that may ask for the logout.
        #[field(
            kind(Type::set(Type::word(&["GET", "POST", "DELETE"]))),
            default(json!(["POST", "DELETE"]))
        )]
        logout_methods: Vec<String>,
        /// The parameter of the query that asks for the logout.
        #[field(default("session_logout"))]
        logout_query_arg: Box<str>,
        /// The parameter of the body that asks for the logout.
        #[field(default("session_logout"))]
        logout_post_arg: Box<str>,
    }
}

words! {
    /// Where sessions are.
    enum Storage {
        /// In the cookie, sealed.
        Cookie = "cookie",
        /// In the store.
        Store = "kong",
    }
}

words! {
    /// Whether other sites' requests carry cookies.
    enum CookieSameSite {
        /// None of them.
        Strict = "Strict",
        /// Those by which somebody comes from there.
        Lax = "Lax",
        /// All.
        None = "None",
        /// What browsers do where nothing is said.
        Unsaid = "Default",
    }
}

pub(super) fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> =
        LazyLock::new(|| Schema::new(Fields::fields()).shorthand(shorthand));
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
    pub(super) fn read(config: &Map<String, Value>, common: &[u8]) -> Result<Self, ConfigError> {
        let fields = Fields::read(config)?;
        let secret = fields.secret.as_ref();
        let secret = secret.map_or(common, |secret| secret.expose().as_bytes());
        let sealer = Sealer::new("session plugin", [secret]);
        let session = CookieKind {
            style: fields.style("cookie_name", &fields.cookie_name)?,
            timers: Timers {
                rolling: bound(fields.rolling_timeout),
                idling: bound(fields.idling_timeout),
                absolute: bound(fields.absolute_timeout),
            },
            context: fields.audience.as_bytes().into(),
            kept: None,
        };
        let remember = fields.remember.then(|| fields.remember(&session.style));
        let items = |names: &[String]| {
            let items = names.iter().filter_map(|name| SessionItem::named(name));
            items.collect()
        };
        let request_headers: Items = items(&fields.request_headers);
        let methods = fields.logout_methods.iter();
        Ok(Self {
            sealer: sealer.map_err(|error| wrong("secret", error.to_string()))?,
            session,
            remember: remember.transpose()?,
            logout_methods: methods.filter_map(|name| name.parse().ok()).collect(),
            response_headers: items(&fields.response_headers),
            logout_query: fields.logout_query_arg,
            logout_body: fields.logout_post_arg,
            reads_body: fields.read_body_for_logout,
            audience: fields.audience.into(),
            is_stored: fields.storage == Storage::Store,
            owned_headers: identity::HEADERS
                .iter()
                .chain(request_headers.iter().map(|(name, _)| name))
                .cloned()
                .collect(),
            request_headers,
        })
    }
}

impl Fields {
    /// How the cookie looks whose name is in the field `field`.
    fn style(&self, field: &str, name: &str) -> Result<Style, ConfigError> {
        let style = Style::new(name, &self.cookie_path, self.cookie_domain.as_deref());
        let style = style.map_err(|error| wrong(field, error.to_string()))?;
        let same_site = match self.cookie_same_site {
            CookieSameSite::Strict => SameSite::Strict,
            CookieSameSite::Lax => SameSite::Lax,
            CookieSameSite::None => SameSite::None,
            CookieSameSite::Unsaid => SameSite::Unsaid,
        };
        Ok(style.with(same_site, self.cookie_http_only, Some(self.cookie_secure)))
    }

    /// The second cookie, beside that of the session.
    fn remember(&self, session: &Style) -> Result<CookieKind, ConfigError> {
        let style = self.style("remember_cookie_name", &self.remember_cookie_name)?;
        if style.is_own(session.name().as_bytes()) || session.is_own(style.name().as_bytes()) {
            let message = "the cookie of the session has this name";
            return Err(wrong("remember_cookie_name", message));
        }
        let timers = Timers {
            rolling: bound(self.remember_rolling_timeout),
            idling: None,
            absolute: bound(self.remember_absolute_timeout),
        };
        let bounds = [timers.rolling, timers.absolute];
        let kept = bounds.iter().flatten().min().map(|ms| ms / 1000);
        Ok(CookieKind {
            style: kept.into_iter().fold(style, Style::lasting),
            timers,
            context: format!("{}\nremember", self.audience).into_bytes().into(),
            kept,
        })
    }
}

/// A bound in milliseconds; 0 is none.
fn bound(seconds: Option<f64>) -> Option<i64> {
    let seconds = seconds.filter(|seconds| *seconds > 0.0)?;
    #[expect(clippy::cast_possible_truncation, reason = "saturates")]
    let ms = (seconds * 1000.0) as i64;
    Some(ms)
}
