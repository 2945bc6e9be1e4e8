//! The fields of `jwt`, and where its tokens are looked for.

use std::borrow::Cow;
use std::sync::LazyLock;

use http::HeaderName;
use pingora::http::RequestHeader;
use serde_json::{Map, Value, json};
use url::form_urlencoded;

use crate::authentication::{self, after_scheme};
use crate::settings::header_name;
use doorward_core::model::schema::{Schema, Type, Violations};
use doorward_net::session::cookie;
use doorward_plugin_api::config::{FieldValue, read_for_check};
use doorward_plugin_api::{config, words};

/// Longest life of a token that can be asked for, in seconds.
const MAX_EXPIRATION: i64 = 31_536_000;
/// Parameters of a query that are looked at.
const PARAMETERS_MAX: usize = 100;

config! {
    /// The fields of `config`.
    pub(super) struct Config {
        /// Parameters of the query that may carry the token.
        #[field(kind(Type::set(Type::some_text())), default(json!(["jwt"])))]
        uri_param_names: Vec<Box<str>>,
        /// Cookies that may carry the token.
        #[field(kind(Type::set(Type::some_text())), default(json!([])))]
        cookie_names: Vec<Box<str>>,
        /// The claim that names the credential.
        #[field(default("iss"))]
        pub(super) key_claim_name: Box<str>,
        /// Whether secrets of credentials are written in Base64.
        #[field(default(false), required)]
        pub(super) secret_is_base64: bool,
        /// Claims whose times are checked.
        #[field(kind(Type::set(TimeClaim::kind())))]
        pub(super) claims_to_verify: Vec<TimeClaim>,
        /// Whether preflights of browsers need a token, too.
        #[field(default(true), required)]
        pub(super) run_on_preflight: bool,
        /// How far away the end of a token may be, in seconds. 0: as far as it likes.
        #[field(kind(Type::Between(0, MAX_EXPIRATION)), default(0))]
        pub(super) maximum_expiration: f64,
        /// Headers that may carry the token, behind Bearer.
        #[field(kind(Type::set(Type::checked(header_name))), default(json!(["authorization"])))]
        header_names: Vec<HeaderName>,
    }
}

words! {
    /// A claim that is a time.
    pub(super) enum TimeClaim {
        /// When the token ends.
        Exp = "exp",
        /// When the token begins.
        Nbf = "nbf",
    }
}

pub(super) fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let mut fields = Config::fields();
        fields.extend(authentication::Config::fields());
        Schema::new(fields).check(expiration_is_verified)
    });
    &SCHEMA
}

fn expiration_is_verified(config: &Map<String, Value>, violations: &mut Violations) {
    let is_verified = |config: Config| {
        config.maximum_expiration <= 0.0 || config.claims_to_verify.contains(&TimeClaim::Exp)
    };
    if read_for_check::<Config>(config).is_some_and(|config| !is_verified(config)) {
        violations.put("claims_to_verify", "expected to contain: exp");
    }
}

/// Where tokens are looked for.
pub(super) struct Places {
    parameters: Box<[Box<str>]>,
    cookies: Box<[Box<str>]>,
    headers: Box<[HeaderName]>,
}

/// There are different tokens: which one counts is anyone's guess.
#[derive(Debug)]
pub(super) struct Ambiguous;

impl Config {
    /// Where tokens are looked for.
    pub(super) fn places(&self) -> Places {
        Places {
            parameters: self.uri_param_names.clone().into(),
            cookies: self.cookie_names.clone().into(),
            headers: self.header_names.clone().into(),
        }
    }
}

impl Places {
    /// The names of all of them.
    pub(super) fn names(&self) -> Vec<&str> {
        let texts = self.parameters.iter().chain(&self.cookies);
        let headers = self.headers.iter().map(HeaderName::as_str);
        texts.map(|name| &**name).chain(headers).collect()
    }

    /// The one token of a request; the same one may be in several places.
    ///
    /// # Errors
    /// [`Ambiguous`].
    pub(super) fn token<'a>(
        &self,
        request: &'a RequestHeader,
    ) -> Result<Option<Cow<'a, str>>, Ambiguous> {
        let mut token: Option<Cow<'a, str>> = None;
        for other in self.all(request).filter(|text| !text.is_empty()) {
            match &token {
                Some(token) if *token != other => return Err(Ambiguous),
                Some(_) => {}
                None => token = Some(other),
            }
        }
        Ok(token)
    }

    fn all<'a>(&self, request: &'a RequestHeader) -> impl Iterator<Item = Cow<'a, str>> {
        let query = request.uri.query().filter(|_| !self.parameters.is_empty());
        let pairs = query
            .into_iter()
            .flat_map(|query| form_urlencoded::parse(query.as_bytes()).take(PARAMETERS_MAX));
        let named = |name: &str| self.parameters.iter().any(|own| **own == *name);
        let in_query = pairs.filter_map(move |(name, value)| named(&name).then_some(value));
        let in_cookies = (self.cookies.iter())
            .filter_map(|name| cookie::value(&request.headers, name))
            .map(Cow::Borrowed);
        let in_headers = self.headers.iter().filter_map(|name| {
            let value = request.headers.get(name)?;
            let rest = after_scheme(value, "bearer")?;
            rest.starts_with([' ', '\t'])
                .then(|| Cow::Borrowed(rest.trim()))
        });
        in_query.chain(in_cookies).chain(in_headers)
    }
}
