//! The fields of `jwt`, and where its tokens are looked for.

use std::borrow::Cow;
use std::sync::LazyLock;

use http::HeaderName;
use pingora::http::RequestHeader;
use serde_json::{Map, Value, json};
use url::form_urlencoded;

use crate::authentication::{self, after_scheme};
use crate::settings::{Settings, header_name, wrong};
use doorward_core::model::schema::{Field, Schema, Type, Violations};
use doorward_net::session::cookie;
use doorward_plugin_api::ConfigError;

/// Longest life of a token that can be asked for, in seconds.
const MAX_EXPIRATION: i64 = 31_536_000;
/// Parameters of a query that are looked at.
const PARAMETERS_MAX: usize = 100;

pub(super) fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let flag = |name, default: bool| {
            let field = Field::new(name, Type::Boolean);
            field.default(default).required()
        };
        let texts = |name| Field::new(name, Type::set(Type::some_text()));
        let mut fields = vec![
            texts("uri_param_names").default(json!(["jwt"])),
            texts("cookie_names").default(json!([])),
            Field::new("key_claim_name", Type::some_text()).default("iss"),
            flag("secret_is_base64", false),
            Field::new("claims_to_verify", Type::set(Type::word(&["exp", "nbf"]))),
            flag("run_on_preflight", true),
            Field::new("maximum_expiration", Type::Between(0, MAX_EXPIRATION)).default(0),
            Field::new("header_names", Type::set(Type::checked(header_name)))
                .default(json!(["authorization"])),
        ];
        fields.extend(authentication::fields());
        Schema::new(fields).check(expiration_is_verified)
    });
    &SCHEMA
}

fn expiration_is_verified(config: &Map<String, Value>, violations: &mut Violations) {
    let config = Settings(config);
    let limited = config.number("maximum_expiration").unwrap_or(0.0) > 0.0;
    if limited && !config.texts("claims_to_verify").any(|claim| claim == "exp") {
        violations.put("claims_to_verify", "expected to contain: exp");
    }
}

/// The fields, read.
pub(super) struct Config {
    pub(super) places: Places,
    pub(super) key_claim: Box<str>,
    pub(super) secret_is_base64: bool,
    pub(super) verifies_exp: bool,
    pub(super) verifies_nbf: bool,
    /// In seconds.
    pub(super) maximum_expiration: Option<f64>,
    pub(super) run_on_preflight: bool,
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
    pub(super) fn read(config: Settings<'_>) -> Result<Self, ConfigError> {
        let texts = |field| config.texts(field).map(Into::into).collect();
        let verifies = |claim| config.texts("claims_to_verify").any(|text| text == claim);
        let headers = config.texts("header_names").map(|text| {
            let name = HeaderName::try_from(text);
            name.map_err(|_| wrong("header_names", "expected names of headers"))
        });
        Ok(Self {
            places: Places {
                parameters: texts("uri_param_names"),
                cookies: texts("cookie_names"),
                headers: headers.collect::<Result<_, _>>()?,
            },
            key_claim: config.text("key_claim_name").unwrap_or("iss").into(),
            secret_is_base64: config.flag("secret_is_base64"),
            verifies_exp: verifies("exp"),
            verifies_nbf: verifies("nbf"),
            maximum_expiration: config
                .number("maximum_expiration")
                .filter(|longest| *longest > 0.0),
            run_on_preflight: config.flag("run_on_preflight"),
        })
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
