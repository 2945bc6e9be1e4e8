//! What is known beside an access token, and the headers that tell it to the
//! upstream and to the client.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderName, HeaderValue};
use serde_json::{Map, Value};

use crate::config::fields::Fields;
use crate::config::fields::connection::HeaderFields;
use crate::config::fields::login::LoginToken;
use crate::headers::upstream_headers::TokenHeader;
use crate::provider::ProviderMetadata;
use crate::provider::token_cache::{Document, VerifiedToken};
use doorward_core::jose::verify::Unverified;
use doorward_plugin_api::ConfigError;
use doorward_plugin_api::config::AnyText;
use doorward_plugin_api::consumers::header_value;
use doorward_plugin_api::filter::Exchange;

/// Whether whole answers of the provider are shown to somebody.
pub(crate) fn shows_responses(fields: &Fields) -> bool {
    let of = &fields.headers;
    let introspection = [
        &of.upstream_introspection_header,
        &of.upstream_introspection_jwt_header,
        &of.downstream_introspection_header,
        &of.downstream_introspection_jwt_header,
    ];
    introspection.into_iter().any(Option::is_some)
        || shows_user_info(of)
        || fields
            .login
            .login_tokens
            .contains(&LoginToken::Introspection)
}

/// Whether userinfo is asked about every user.
pub(crate) fn needs_user_info(fields: &Fields) -> bool {
    shows_user_info(&fields.headers) || fields.claims.search_user_info
}

fn shows_user_info(of: &HeaderFields) -> bool {
    let headers = [
        &of.upstream_user_info_header,
        &of.upstream_user_info_jwt_header,
        &of.downstream_user_info_header,
        &of.downstream_user_info_jwt_header,
    ];
    headers.into_iter().any(Option::is_some)
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

/// An item, and the field that names its header.
type HeaderField<'a> = (Item, &'static str, &'a Option<AnyText>);

/// The upstream's access token has a header of its own.
fn upstream(of: &HeaderFields) -> [HeaderField<'_>; 9] {
    use Item::*;
    [
        (
            AccessTokenJwk,
            "upstream_access_token_jwk_header",
            &of.upstream_access_token_jwk_header,
        ),
        (
            IdToken,
            "upstream_id_token_header",
            &of.upstream_id_token_header,
        ),
        (
            IdTokenJwk,
            "upstream_id_token_jwk_header",
            &of.upstream_id_token_jwk_header,
        ),
        (
            RefreshToken,
            "upstream_refresh_token_header",
            &of.upstream_refresh_token_header,
        ),
        (
            UserInfo,
            "upstream_user_info_header",
            &of.upstream_user_info_header,
        ),
        (
            UserInfoJwt,
            "upstream_user_info_jwt_header",
            &of.upstream_user_info_jwt_header,
        ),
        (
            Introspection,
            "upstream_introspection_header",
            &of.upstream_introspection_header,
        ),
        (
            IntrospectionJwt,
            "upstream_introspection_jwt_header",
            &of.upstream_introspection_jwt_header,
        ),
        (
            SessionId,
            "upstream_session_id_header",
            &of.upstream_session_id_header,
        ),
    ]
}

fn downstream(of: &HeaderFields) -> [HeaderField<'_>; 10] {
    use Item::*;
    [
        (
            AccessToken,
            "downstream_access_token_header",
            &of.downstream_access_token_header,
        ),
        (
            AccessTokenJwk,
            "downstream_access_token_jwk_header",
            &of.downstream_access_token_jwk_header,
        ),
        (
            IdToken,
            "downstream_id_token_header",
            &of.downstream_id_token_header,
        ),
        (
            IdTokenJwk,
            "downstream_id_token_jwk_header",
            &of.downstream_id_token_jwk_header,
        ),
        (
            RefreshToken,
            "downstream_refresh_token_header",
            &of.downstream_refresh_token_header,
        ),
        (
            UserInfo,
            "downstream_user_info_header",
            &of.downstream_user_info_header,
        ),
        (
            UserInfoJwt,
            "downstream_user_info_jwt_header",
            &of.downstream_user_info_jwt_header,
        ),
        (
            Introspection,
            "downstream_introspection_header",
            &of.downstream_introspection_header,
        ),
        (
            IntrospectionJwt,
            "downstream_introspection_jwt_header",
            &of.downstream_introspection_jwt_header,
        ),
        (
            SessionId,
            "downstream_session_id_header",
            &of.downstream_session_id_header,
        ),
    ]
}

fn read<'a>(
    fields: impl IntoIterator<Item = HeaderField<'a>>,
) -> Result<Vec<(Item, TokenHeader)>, ConfigError> {
    let some = fields.into_iter().filter_map(|(item, field, text)| {
        let text = text.as_deref().filter(|text| !text.is_empty())?;
        Some(TokenHeader::new(field, text).map(|header| (item, header)))
    });
    some.collect()
}

/// The headers that are configured.
#[derive(Debug, Default)]
pub(crate) struct TokenSetHeaders {
    upstream: Vec<(Item, TokenHeader)>,
    downstream: Vec<(Item, TokenHeader)>,
}

impl TokenSetHeaders {
    pub(crate) fn new(of: &HeaderFields) -> Result<Self, ConfigError> {
        Ok(Self {
            upstream: read(upstream(of))?,
            downstream: read(downstream(of))?,
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
