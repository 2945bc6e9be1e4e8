//! What the upstream and the client get to see of a verified token.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use pingora::http::{RequestHeader, ResponseHeader};
use serde_json::{Map, Value};

use crate::config::fields::types::ClaimHeader;
use crate::config::fields::{Fields, header_name, pairs};
use crate::credentials::bearer::is_token;
use crate::headers::token_set::TokenSetHeaders;
use doorward_core::jose::claims::{find, words};
use doorward_core::model::token::AccessToken;
use doorward_plugin_api::ConfigError;
use doorward_plugin_api::consumers::header_value;
use doorward_plugin_api::identity::{self, AUTHENTICATED_GROUPS};

/// As a text, which Pingora takes without a copy.
const CREDENTIAL: &str = "X-Credential-Identifier";

/// The headers made from a token.
#[derive(Debug)]
pub(crate) struct Headers {
    token: Option<TokenHeader>,
    credential_claim: Vec<String>,
    groups_claim: Vec<String>,
    upstream: Vec<(HeaderName, Vec<String>)>,
    downstream: Vec<(HeaderName, Vec<String>)>,
    /// Of what is known beside the token.
    pub(crate) token_set: TokenSetHeaders,
    owned: Vec<HeaderName>,
    /// What of `Authorization` is the gateway's.
    authorization: Authorization,
}

/// What the gateway writes into `Authorization`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Authorization {
    /// Something, but not with every verified token.
    at_times: bool,
    /// Something without a scheme, so that no value of a client is told from it.
    bare: bool,
}

impl Authorization {
    fn new(token: Option<&TokenHeader>, token_set: &TokenSetHeaders) -> Self {
        let here = |header: &&TokenHeader| header.name == AUTHORIZATION;
        let always = token.filter(here);
        let mut others = token_set.upstream().filter(here);
        Self {
            at_times: always.is_none() && others.next().is_some(),
            bare: (always.into_iter())
                .chain(token_set.upstream().filter(here))
                .any(|header| !header.bearer),
        }
    }
}

/// The header for the token itself.
#[derive(Debug)]
pub(crate) struct TokenHeader {
    pub(crate) name: HeaderName,
    pub(crate) bearer: bool,
}

impl Headers {
    pub(crate) fn new(fields: &Fields) -> Result<Self, ConfigError> {
        let token = fields.tokens.upstream_access_token_header.as_deref();
        let token = token
            .map(|text| TokenHeader::new("upstream_access_token_header", text))
            .transpose()?;
        let of = &fields.headers;
        let upstream = claim_headers(
            &of.upstream_headers,
            ("upstream_headers_claims", &of.upstream_headers_claims),
            ("upstream_headers_names", &of.upstream_headers_names),
            "upstream_headers",
        )?;
        let downstream = claim_headers(
            &of.downstream_headers,
            ("downstream_headers_claims", &of.downstream_headers_claims),
            ("downstream_headers_names", &of.downstream_headers_names),
            "downstream_headers",
        )?;
        let token_set = TokenSetHeaders::new(of)?;
        let mut owned = identity::HEADERS.to_vec();
        owned.extend(crate::session::owned(fields)?);
        owned.extend(upstream.iter().map(|(name, _)| name.clone()));
        // `Authorization` is not owned: with no token to put there (a
        // preflight, say) a password may be the upstream's own affair.
        let token_name = token.as_ref().map(|token| token.name.clone());
        owned.extend(token_name.filter(|name| *name != AUTHORIZATION));
        let names = token_set.upstream().map(|header| &header.name);
        owned.extend(names.filter(|name| **name != AUTHORIZATION).cloned());
        owned.sort_by(|one, other| one.as_str().cmp(other.as_str()));
        owned.dedup();
        Ok(Self {
            authorization: Authorization::new(token.as_ref(), &token_set),
            token,
            credential_claim: fields.subject.credential_claim.to_vec(),
            groups_claim: fields.claims.authenticated_groups_claim.to_vec(),
            upstream,
            downstream,
            token_set,
            owned,
        })
    }

    /// Names of the request headers that only the filter may set.
    pub(crate) fn owned(&self) -> &[HeaderName] {
        &self.owned
    }

    /// Takes out of `Authorization` what the upstream would take for the
    /// gateway's, of a request without a verified token, and what the filter
    /// `reads`, which has not let the request pass for it.
    pub(crate) fn strip(&self, reads: impl Fn(&HeaderValue) -> bool, request: &mut RequestHeader) {
        let bare = self.authorization.bare;
        let doomed = |value: &HeaderValue| bare || is_token(value) || reads(value);
        if request.headers.get_all(AUTHORIZATION).iter().any(doomed) {
            request.remove_header(&AUTHORIZATION);
        }
    }

    /// Writes the upstream's headers; `mapped`: those of a consumer besides.
    pub(crate) fn write_upstream(
        &self,
        token: &AccessToken,
        mapped: bool,
        request: &mut RequestHeader,
    ) {
        if self.authorization.at_times {
            request.remove_header(&AUTHORIZATION);
        }
        if let Some(header) = &self.token {
            header.write(&token.token, request);
        }
        if !mapped && let Some(value) = claim(&token.claims, &self.credential_claim) {
            let _ = request.insert_header(CREDENTIAL, value);
        }
        let mut set = |name: &HeaderName, value: Option<HeaderValue>| {
            if let Some(value) = value {
                let _ = request.insert_header(name.clone(), value);
            }
        };
        for (name, path) in &self.upstream {
            set(name, claim(&token.claims, path));
        }
        if let Some(groups) = self.groups(token) {
            set(&AUTHENTICATED_GROUPS, header_value(&groups.join(", ")));
        }
    }

    /// The groups that a token vouches for; `None`: it is not asked for any.
    pub(crate) fn groups(&self, token: &AccessToken) -> Option<Box<[Box<str>]>> {
        if self.groups_claim.is_empty() {
            return None;
        }
        let groups = find(&token.claims, &self.groups_claim).map(words);
        Some(groups.into_iter().flatten().map(Into::into).collect())
    }

    /// Whether clients get headers made of claims.
    pub(crate) fn tells_clients(&self) -> bool {
        !self.downstream.is_empty()
    }

    /// Writes the client's headers.
    pub(crate) fn write_downstream(&self, token: &AccessToken, response: &mut ResponseHeader) {
        for (name, path) in &self.downstream {
            if let Some(value) = claim(&token.claims, path) {
                let _ = response.insert_header(name.clone(), value);
            }
        }
    }
}

impl TokenHeader {
    /// `name:bearer`, or `name` for the bare token.
    pub(crate) fn new(field: &str, text: &str) -> Result<Self, ConfigError> {
        let (name, scheme) = match text.split_once(':') {
            Some((name, scheme)) => (name, Some(scheme)),
            None => (text, None),
        };
        let bearer = scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer"));
        if scheme.is_some() && !bearer {
            return Err(crate::config::fields::wrong(
                field,
                "expected a header's name, optionally followed by `:bearer`",
            ));
        }
        Ok(Self {
            name: header_name(field, name)?,
            bearer,
        })
    }

    fn write(&self, token: &str, request: &mut RequestHeader) {
        // Most clients sent it just so.
        let mut values = request.headers.get_all(&self.name).iter();
        let (first, second) = (values.next(), values.next());
        if second.is_none() && first.is_some_and(|value| self.is(value, token)) {
            return;
        }
        let value = if self.bearer {
            HeaderValue::try_from(format!("Bearer {token}"))
        } else {
            HeaderValue::from_str(token)
        };
        if let Ok(value) = value {
            let _ = request.insert_header(self.name.clone(), value);
        }
    }

    fn is(&self, value: &HeaderValue, token: &str) -> bool {
        let value = value.as_bytes();
        if self.bearer {
            value.strip_prefix(b"Bearer ") == Some(token.as_bytes())
        } else {
            value == token.as_bytes()
        }
    }
}

/// `<side>_headers_claims` with `<side>_headers_names`, and `<side>_headers`.
fn claim_headers(
    whole: &[ClaimHeader],
    claims: (&str, &[String]),
    names: (&str, &[String]),
    field: &str,
) -> Result<Vec<(HeaderName, Vec<String>)>, ConfigError> {
    let header = |one: &ClaimHeader| Ok((header_name(field, &one.header)?, one.path.to_vec()));
    let mut headers: Vec<_> = whole
        .iter()
        .map(header)
        .collect::<Result<_, ConfigError>>()?;
    for (claim, name) in pairs(claims, names)? {
        headers.push((header_name(names.0, &name)?, vec![claim]));
    }
    Ok(headers)
}

/// A claim as a header: scalars as they are, the rest as Base64 of its JSON.
fn claim(claims: &Map<String, Value>, path: &[String]) -> Option<HeaderValue> {
    match find(claims, path)? {
        Value::Null => None,
        Value::String(text) => header_value(text),
        scalar @ (Value::Bool(_) | Value::Number(_)) => header_value(&scalar.to_string()),
        nested => header_value(&STANDARD.encode(nested.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::fields::schema;

    fn written(config: Value, sent: &[(&str, &str)]) -> RequestHeader {
        let headers = Headers::new(&Fields::of(&config).expect("valid")).expect("it is valid");
        let mut request = RequestHeader::build("GET", b"/", None).expect("a request");
        for (name, value) in sent {
            let name = (*name).to_owned();
            request.append_header(name, *value).expect("a header");
        }
        let claims = json!({
            "sub": "anna", "n": 7, "groups": ["a", "b"], "o": {"x": 1},
            "evil": "a\r\nX-Admin: yes", "name": "Zoë",
        });
        let token = AccessToken {
            token: "t.o.k".into(),
            claims: claims.as_object().cloned().expect("an object"),
            scopes: Vec::new(),
            expires_at: None,
        };
        headers.write_upstream(&token, false, &mut request);
        request
    }

    fn header(request: &RequestHeader, name: &str) -> Option<String> {
        let value = request.headers.get(name)?;
        Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
    }

    #[test]
    fn the_token_goes_into_the_configured_header() {
        let basic = [("Authorization", "Basic eDp5"), ("Authorization", "x")];
        let request = written(json!({}), &basic);
        assert_eq!(
            header(&request, "authorization"),
            Some("Bearer t.o.k".into())
        );
        assert_eq!(request.headers.get_all("authorization").iter().count(), 1);
        assert_eq!(
            header(&request, "x-credential-identifier"),
            Some("anna".into())
        );
        let request = written(json!({"upstream_access_token_header": "x_token"}), &[]);
        assert_eq!(header(&request, "x-token"), Some("t.o.k".into()));
        assert_eq!(header(&request, "authorization"), None);
        let request = written(json!({"upstream_access_token_header": null}), &[]);
        assert_eq!(header(&request, "authorization"), None);
    }

    #[test]
    fn claims_go_into_headers_and_never_break_out_of_them() {
        let config = json!({
            "upstream_headers_claims": ["sub", "n", "o", "evil", "gone", "name"],
            "upstream_headers_names": ["X-Sub", "x_n", "X-O", "X-Evil", "X-Gone", "X-Name"],
            "upstream_headers": [{"header": "X-Deep", "path": ["groups", "2"]}],
            "authenticated_groups_claim": ["groups"],
        });
        let request = written(config, &[]);
        for (name, value) in [
            ("x-sub", Some("anna")),
            ("x-n", Some("7")),
            ("x-o", Some("eyJ4IjoxfQ==")),
            ("x-evil", None),
            ("x-admin", None),
            ("x-gone", None),
            ("x-name", Some("Zoë")),
            ("x-deep", Some("b")),
            ("x-authenticated-groups", Some("a, b")),
        ] {
            assert_eq!(header(&request, name).as_deref(), value, "{name}");
        }
    }

    #[test]
    fn every_header_that_is_set_is_owned() {
        let config = json!({
            "upstream_headers_claims": ["sub"],
            "upstream_headers_names": ["X_Sub"],
            "upstream_access_token_header": "x-token",
        });
        let headers = Headers::new(&Fields::of(&config).expect("valid")).expect("it is valid");
        for name in [
            "x-sub",
            "x-token",
            "x-credential-identifier",
            "x-consumer-username",
        ] {
            assert!(headers.owned().iter().any(|owned| owned == name), "{name}");
        }
    }

    #[test]
    fn headers_that_cannot_be_are_refused() {
        for config in [
            json!({"upstream_access_token_header": "a b"}),
            json!({"upstream_access_token_header": "authorization:basic"}),
            json!({"upstream_headers_claims": ["a"]}),
            json!({"upstream_headers_claims": ["a"], "upstream_headers_names": [""]}),
        ] {
            let headers = Fields::of(&config).and_then(|fields| Headers::new(&fields));
            assert!(headers.is_err(), "{config}");
        }
        let config = json!({"issuer": "https://id", "downstream_headers": [{"header": "x"}]});
        let complete = schema().complete(config.as_object().cloned().expect("an object"));
        let violations = complete.expect_err("there is no path");
        assert!(
            violations.has("downstream_headers"),
            "{}",
            violations.message()
        );
    }
}
