//! What is known beside an access token, and the headers that tell it to the
//! upstream and to the client.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderName, HeaderValue};
use serde_json::{Map, Value};

use crate::config::fields::Fields;
use crate::headers::upstream_headers::TokenHeader;
use crate::provider::ProviderMetadata;
use crate::provider::token_cache::{Document, VerifiedToken};
use doorward_core::jose::verify::Unverified;
use doorward_plugin_api::ConfigError;
use doorward_plugin_api::consumers::header_value;
use doorward_plugin_api::filter::Exchange;

/// Settings about answers of the provider, which are kept for them alone.
const RESPONSE_HEADERS: [&str; 8] = [
    "upstream_introspection_header",
    "upstream_introspection_jwt_header",
    "downstream_introspection_header",
    "downstream_introspection_jwt_header",
    "upstream_user_info_header",
    "upstream_user_info_jwt_header",
    "downstream_user_info_header",
    "downstream_user_info_jwt_header",
];

/// Whether whole answers of the provider are shown to somebody.
pub(crate) fn shows_responses(fields: Fields<'_>) -> bool {
    let given = |name: &str| matches!(fields.text(name), Ok(Some(_)));
    let tokens = fields.texts("login_tokens").unwrap_or_default();
    RESPONSE_HEADERS.into_iter().any(given) || tokens.iter().any(|one| one == "introspection")
}

/// Whether userinfo is asked about every user.
pub(crate) fn needs_user_info(fields: Fields<'_>) -> Result<bool, ConfigError> {
    let mut names = RESPONSE_HEADERS
        .iter()
        .filter(|name| name.contains("user_info"));
    let told = names.any(|name| matches!(fields.text(name), Ok(Some(_))));
    Ok(told || fields.flag("search_user_info")?)
}

/// What came with an access token.
#[derive(Clone, Copy, Default)]
pub(crate) struct TokenSet<'a> {
    pub(crate) id_token: Option<&'a str>,
    pub(crate) refresh_token: Option<&'a str>,
    pub(crate) session_id: Option<&'a str>,
    /// Granted scopes, where the token endpoint names them.
    pub(crate) scope: Option<&'a str>,
    /// Headers of the token endpoint's answer that are for the client.
    pub(crate) replayed: &'a [(HeaderName, HeaderValue)],
}

/// A thing that a header may tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    AccessToken,
    AccessTokenJwk,
    IdToken,
    IdTokenJwk,
    RefreshToken,
    UserInfo,
    UserInfoJwt,
    Introspection,
    IntrospectionJwt,
    SessionId,
}

impl Item {
    const ALL: [(Self, &'static str); 10] = [
        (Self::AccessToken, "access_token"),
        (Self::AccessTokenJwk, "access_token_jwk"),
        (Self::IdToken, "id_token"),
        (Self::IdTokenJwk, "id_token_jwk"),
        (Self::RefreshToken, "refresh_token"),
        (Self::UserInfo, "user_info"),
        (Self::UserInfoJwt, "user_info_jwt"),
        (Self::Introspection, "introspection"),
        (Self::IntrospectionJwt, "introspection_jwt"),
        (Self::SessionId, "session_id"),
    ];
}

/// The headers that are configured.
#[derive(Debug, Default)]
pub(crate) struct TokenSetHeaders {
    upstream: Vec<(Item, TokenHeader)>,
    downstream: Vec<(Item, TokenHeader)>,
}

impl TokenSetHeaders {
    pub(crate) fn new(fields: Fields<'_>) -> Result<Self, ConfigError> {
        let read = |side: &str| {
            let mut headers = Vec::new();
            for (item, name) in Item::ALL {
                // The upstream's access token has a header of its own.
                if side == "upstream" && item == Item::AccessToken {
                    continue;
                }
                let field = format!("{side}_{name}_header");
                if let Some(text) = fields.text(&field)?.filter(|text| !text.is_empty()) {
                    headers.push((item, TokenHeader::new(&field, text)?));
                }
            }
            Ok::<_, ConfigError>(headers)
        };
        Ok(Self {
            upstream: read("upstream")?,
            downstream: read("downstream")?,
        })
    }

    /// Whether there are any.
    pub(crate) fn is_empty(&self) -> bool {
        self.upstream.is_empty() && self.downstream.is_empty()
    }

    /// Names of the client's.
    pub(crate) fn downstream(&self) -> impl Iterator<Item = &HeaderName> {
        self.downstream.iter().map(|(_, header)| &header.name)
    }

    /// Those of the upstream.
    pub(crate) fn upstream(&self) -> impl Iterator<Item = &TokenHeader> {
        self.upstream.iter().map(|(_, header)| header)
    }

    /// Notes the headers of a token that passes.
    pub(crate) fn write(
        &self,
        verified: &VerifiedToken,
        token_set: TokenSet<'_>,
        metadata: Option<&ProviderMetadata>,
        exchange: &mut Exchange,
    ) {
        for (all, headers) in [
            (&mut exchange.vouched, &self.upstream),
            (&mut exchange.response_headers, &self.downstream),
        ] {
            for (item, header) in headers {
                let text = text(*item, verified, token_set, metadata);
                if let Some(value) = text.and_then(|text| header.value(&text)) {
                    all.push((header.name.clone(), value));
                }
            }
        }
    }
}

fn text<'a>(
    item: Item,
    verified: &'a VerifiedToken,
    token_set: TokenSet<'a>,
    metadata: Option<&ProviderMetadata>,
) -> Option<Cow<'a, str>> {
    let said = &verified.responses;
    let claims = |document: &Option<std::sync::Arc<Document>>| {
        let document = document.as_ref()?;
        Some(Cow::Owned(encoded(&document.claims)))
    };
    match item {
        Item::AccessToken => Some(verified.token.token.as_str().into()),
        Item::AccessTokenJwk => jwk(&verified.token.token, metadata?),
        Item::IdToken => token_set.id_token.map(Cow::Borrowed),
        Item::IdTokenJwk => jwk(token_set.id_token?, metadata?),
        Item::RefreshToken => token_set.refresh_token.map(Cow::Borrowed),
        Item::UserInfo => claims(&said.user_info),
        Item::UserInfoJwt => said.user_info.as_ref()?.jwt.as_deref().map(Cow::Borrowed),
        Item::Introspection => claims(&said.introspection),
        Item::IntrospectionJwt => {
            let jwt = said.introspection.as_ref()?.jwt.as_deref();
            jwt.map(Cow::Borrowed)
        }
        Item::SessionId => token_set.session_id.map(Cow::Borrowed),
    }
}

/// The key that verified a token.
fn jwk(token: &str, metadata: &ProviderMetadata) -> Option<Cow<'static, str>> {
    let parsed = Unverified::parse(token).ok()?;
    let jwk = metadata.keys.jwk(parsed.kid(), parsed.algorithm())?;
    Some(Cow::Owned(encoded(jwk)))
}

/// Objects travel as Base64 of their JSON.
fn encoded(object: &Map<String, Value>) -> String {
    STANDARD.encode(serde_json::to_vec(object).unwrap_or_default())
}

/// Writes what was noted into the upstream's request, over any others.
pub(crate) fn write_token_headers(exchange: &Exchange, request: &mut pingora::http::RequestHeader) {
    for (name, value) in &exchange.vouched {
        let _ = request.insert_header(name.clone(), value.clone());
    }
}

/// As [`header_value`], of a token with or without its scheme.
impl TokenHeader {
    fn value(&self, text: &str) -> Option<HeaderValue> {
        if self.bearer {
            header_value(&format!("Bearer {text}"))
        } else {
            header_value(text)
        }
    }
}
