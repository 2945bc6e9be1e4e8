//! Every refusal of the broker, and what the client sees of it (interface 7).
//!
//! Protected paths answer with `{"fault": …}`; the token endpoint with
//! `{"ErrorCode": …, "Error": …}` where the operation writes responses. Texts
//! never hold what the provider said, nor a secret.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Serialize;

use doorward_net::http::reply::{Reply, ReplyBody};

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) status: StatusCode,
    /// `errorcode` of the fault.
    pub(super) code: &'static str,
    /// `faultstring`.
    pub(super) text: Cow<'static, str>,
    /// What the token endpoint answers in its own shape.
    short: Option<(&'static str, Cow<'static, str>)>,
    /// Whether it is the client that has not proven who it is, or whom it
    /// speaks for: no token is at fault.
    of_client: bool,
    /// Seconds after which to try again.
    retry_after: Option<u64>,
    /// For log and metrics.
    pub(super) label: &'static str,
}

impl Fault {
    fn new(status: u16, label: &'static str, code: &'static str, text: &'static str) -> Self {
        Self {
            status: StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            code,
            text: text.into(),
            short: None,
            of_client: false,
            retry_after: None,
            label,
        }
    }

    /// In the token endpoint's own shape, with a status of its own.
    fn short(
        mut self,
        status: StatusCode,
        code: &'static str,
        text: impl Into<Cow<'static, str>>,
        enabled: bool,
    ) -> Self {
        if enabled {
            self.status = status;
            self.short = Some((code, text.into()));
        }
        self
    }

    fn of_client(mut self) -> Self {
        self.of_client = true;
        self
    }

    fn saying(mut self, text: impl Into<Cow<'static, str>>) -> Self {
        self.text = text.into();
        self
    }
}

/// Refusals of protected paths.
impl Fault {
    /// No token, or nothing that can be one.
    pub(super) fn invalid_token() -> Self {
        let code = "oauth.v2.InvalidAccessToken";
        Self::new(401, "invalid_token", code, "Invalid access token")
    }

    /// A token that the broker does not know.
    pub(super) fn unknown_token(split: bool) -> Self {
        if !split {
            return Self::invalid_token();
        }
        let code = "keymanagement.service.invalid_access_token";
        Self::new(401, "invalid_token", code, "Invalid Access Token")
    }

    pub(super) fn expired() -> Self {
        let code = "keymanagement.service.access_token_expired";
        Self::new(401, "token_expired", code, "Access Token expired")
    }

    pub(super) fn revoked() -> Self {
        let code = "keymanagement.service.access_token_not_approved";
        Self::new(401, "token_revoked", code, "Access Token not approved")
    }

    pub(super) fn application() -> Self {
        let code = "keymanagement.service.invalid_client-app_not_approved";
        let text = "Invalid API call as app not approved";
        Self::new(401, "application_not_approved", code, text)
    }

    pub(super) fn no_product() -> Self {
        let code = "keymanagement.service.apiproduct_doesnot_exist";
        Self::new(401, "no_product", code, "API Product does not exist")
    }

    pub(super) fn elsewhere() -> Self {
        let code = "keymanagement.service.InvalidAPICallAsNoApiProductMatchFound";
        let text = "Invalid API call as no apiproduct match found";
        Self::new(401, "wrong_product", code, text)
    }

    pub(super) fn no_resource(suffix: &str) -> Self {
        let code = "keymanagement.service.apiresource_doesnot_exist";
        let text = format!("APIResource {suffix} does not exist");
        Self::new(401, "wrong_path", code, "").saying(text)
    }

    pub(super) fn scope(wanted: &[String]) -> Self {
        let text = format!("Required scope(s): {}", wanted.join(" "));
        Self::new(403, "missing_scope", "steps.oauth.v2.InsufficientScope", "").saying(text)
    }

    pub(super) fn unresolved_token(variable: &str) -> Self {
        let text = format!("Failed to resolve access token variable {variable}");
        let code = "steps.oauth.v2.FailedToResolveAccessToken";
        Self::new(500, "no_token_variable", code, "").saying(text)
    }

    pub(super) fn quota(partition: &str, seconds: u64) -> Self {
        let text =
            format!("Rate limit quota violation. Quota limit  exceeded. Identifier : {partition}");
        let code = "policies.ratelimit.QuotaViolation";
        let mut fault = Self::new(429, "quota", code, "").saying(text);
        fault.retry_after = Some(seconds);
        fault
    }

    /// Wrong secrets came too often; whether this one was looked at is not said.
    pub(super) fn too_many_secrets() -> Self {
        let text = "Too many wrong secrets of this client came from this address";
        let code = "oauth.v2.TooManyInvalidClientSecrets";
        let mut fault = Self::new(429, "client_secrets", code, text);
        fault.retry_after = Some(1);
        fault
    }

    pub(super) fn no_flow(host: &str, path: &str) -> Self {
        let text = format!("Unable to identify proxy for host: {host} and url: {path}");
        let code = "messaging.adaptors.http.flow.ApplicationNotFound";
        Self::new(404, "no_flow", code, "").saying(text)
    }

    pub(super) fn body(status: StatusCode) -> Self {
        let code = "protocol.http.BadFormData";
        let text = "The request body can't be read";
        let mut fault = Self::new(400, "unreadable_body", code, text);
        fault.status = status;
        fault
    }

    /// The store does not answer, or gave what can't be.
    pub(super) fn store() -> Self {
        let code = "keymanagement.service.unavailable";
        Self::new(503, "store", code, "The token service is unavailable")
    }
}

/// Refusals of the token endpoint; `short` says in which shape.
impl Fault {
    pub(super) fn unknown_client(short: bool) -> Self {
        let code = "oauth.v2.InvalidClientIdentifier";
        let text = "Invalid client identifier {0}";
        Self::new(401, "invalid_client", code, text)
            .of_client()
            .short(
                StatusCode::UNAUTHORIZED,
                "invalid_client",
                "ClientId is Invalid",
                short,
            )
    }

    pub(super) fn client_not_approved(short: bool) -> Self {
        Self::application().of_client().short(
            StatusCode::UNAUTHORIZED,
            "invalid_client",
            "Invalid API call as app not approved",
            short,
        )
    }

    pub(super) fn no_client(short: bool) -> Self {
        let code = "steps.oauth.v2.FailedToResolveClientId";
        let text = "Failed to resolve client id";
        Self::new(500, "invalid_request", code, text).short(
            StatusCode::BAD_REQUEST,
            "invalid_request",
            "The request is missing a required parameter : client_id",
            short,
        )
    }

    pub(super) fn no_grant_type(short: bool) -> Self {
        let code = "steps.oauth.v2.FailedToResolveGrantType";
        let text = "Failed to resolve grant type";
        Self::new(500, "invalid_request", code, text).short(
            StatusCode::BAD_REQUEST,
            "invalid_request",
            "Required param : grant_type",
            short,
        )
    }

    pub(super) fn grant_type(given: &str, short: bool) -> Self {
        let given: String = given.chars().take(64).collect();
        let text = format!("Unsupported grant type : {given}");
        let code = "steps.oauth.v2.UnSupportedGrantType";
        let fault = Self::new(500, "unsupported_grant_type", code, "").saying(text.clone());
        fault.short(StatusCode::BAD_REQUEST, "invalid_request", text, short)
    }

    pub(super) fn missing(parameter: &'static str, short: bool) -> Self {
        let text = format!("Required param : {parameter}");
        let code = "steps.oauth.v2.invalid_request";
        let fault = Self::new(400, "invalid_request", code, "").saying(text.clone());
        fault.short(StatusCode::BAD_REQUEST, "invalid_request", text, short)
    }

    pub(super) fn malformed(text: impl Into<Cow<'static, str>>, short: bool) -> Self {
        let text = text.into();
        let code = "steps.oauth.v2.invalid_request";
        let fault = Self::new(400, "invalid_request", code, "").saying(text.clone());
        fault.short(StatusCode::BAD_REQUEST, "invalid_request", text, short)
    }

    pub(super) fn bad_scope(short: bool) -> Self {
        let code = "steps.oauth.v2.InvalidScope";
        Self::new(400, "invalid_scope", code, "Invalid Scope").short(
            StatusCode::BAD_REQUEST,
            "invalid_scope",
            "Invalid Scope",
            short,
        )
    }

    /// The provider has not let the user in.
    pub(super) fn not_authorized(short: bool) -> Self {
        let code = "oauth.v2.ExternalAuthorizationFailed";
        let text = "External authorization failed";
        Self::new(401, "external_authorization", code, text)
            .of_client()
            .short(StatusCode::UNAUTHORIZED, "invalid_request", text, short)
    }

    /// The provider gave no answer that can be used; `reason` is ours.
    pub(super) fn callout(reason: impl std::fmt::Display) -> Self {
        let text = format!("Execution of ServiceCallout provider failed. Reason: {reason}");
        let code = "steps.servicecallout.ExecutionFailed";
        Self::new(500, "provider", code, "").saying(text)
    }

    /// The provider's answer has no access token that can be used.
    pub(super) fn extraction() -> Self {
        let code = "steps.extractvariables.SourceMessageNotAvailable";
        let text = "access_token is not available in the response of the provider";
        Self::new(500, "provider", code, text)
    }

    pub(super) fn bad_refresh_token(short: bool) -> Self {
        let code = "keymanagement.service.invalid_refresh_token";
        let text = "Invalid Refresh Token";
        Self::new(400, "invalid_refresh_token", code, text).short(
            StatusCode::BAD_REQUEST,
            "invalid_request",
            text,
            short,
        )
    }

    pub(super) fn refresh_token_expired(short: bool) -> Self {
        let code = "keymanagement.service.refresh_token_expired";
        let text = "Refresh Token expired";
        Self::new(400, "refresh_token_expired", code, text).short(
            StatusCode::BAD_REQUEST,
            "invalid_request",
            text,
            short,
        )
    }
}

#[derive(Serialize)]
struct Body<'a> {
    fault: Inside<'a>,
}

#[derive(Serialize)]
struct Inside<'a> {
    faultstring: &'a str,
    detail: Detail<'a>,
}

#[derive(Serialize)]
struct Detail<'a> {
    errorcode: &'a str,
}

#[derive(Serialize)]
struct Short<'a> {
    #[serde(rename = "ErrorCode")]
    code: &'a str,
    #[serde(rename = "Error")]
    text: &'a str,
}

impl Fault {
    /// The answer to a request with these headers; a challenge names `realm`.
    pub(super) fn reply(&self, headers: &HeaderMap, realm: &str) -> Reply {
        let (kind, body) = self.body_for(headers);
        let mut reply = Reply::empty(self.status);
        reply.body = ReplyBody::Raw(kind, body);
        if self.status == StatusCode::UNAUTHORIZED {
            let text = format!("{}: {}", self.code, self.text);
            // Nothing of a path can end the quoted text, or the field.
            let text: String = text.chars().filter(|c| is_quotable(*c)).collect();
            let challenge = if self.of_client {
                // How clients may prove who they are (RFC 6749 §5.2).
                format!("Basic realm=\"{realm}\"")
            } else {
                format!(
                    "Bearer realm=\"{realm}\",error=\"invalid_token\",error_description=\"{text}\""
                )
            };
            if let Ok(value) = HeaderValue::try_from(challenge) {
                reply = reply.header(WWW_AUTHENTICATE, value);
            }
        }
        if let Some(seconds) = self.retry_after {
            reply = reply.header(RETRY_AFTER, HeaderValue::from(seconds));
        }
        reply.header(CACHE_CONTROL, HeaderValue::from_static("no-store"))
    }

    fn body_for(&self, headers: &HeaderMap) -> (&'static str, Bytes) {
        if let Some((code, text)) = &self.short {
            return ("application/json", json(&Short { code, text }));
        }
        if !wants_xml(headers) {
            let detail = Detail {
                errorcode: self.code,
            };
            let fault = Inside {
                faultstring: &self.text,
                detail,
            };
            return ("application/json", json(&Body { fault }));
        }
        let xml = format!(
            "<fault><faultstring>{}</faultstring><detail><errorcode>{}</errorcode></detail></fault>",
            escaped(&self.text),
            escaped(self.code)
        );
        ("application/xml", xml.into())
    }
}

/// `body` as JSON.
pub(super) fn json(body: &impl Serialize) -> Bytes {
    serde_json::to_vec(body).unwrap_or_default().into()
}

fn is_quotable(c: char) -> bool {
    matches!(c, ' '..='~') && !matches!(c, '"' | '\\')
}

fn wants_xml(headers: &HeaderMap) -> bool {
    [CONTENT_TYPE, ACCEPT].into_iter().any(|name| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        let kind = value.unwrap_or_default().split([';', ',']).next();
        let kind = kind.unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("application/xml") || kind.eq_ignore_ascii_case("text/xml")
    })
}

fn escaped(text: &str) -> String {
    // XML 1.0 has no way to write the others.
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(reply: &Reply) -> String {
        match &reply.body {
            ReplyBody::Raw(_, bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_fault_has_the_documented_shape() {
        let reply = Fault::invalid_token().reply(&HeaderMap::new(), "null");
        assert_eq!(reply.status, 401);
        assert_eq!(
            body(&reply),
            r#"{"fault":{"faultstring":"Invalid access token","detail":{"errorcode":"oauth.v2.InvalidAccessToken"}}}"#
        );
        let challenge = reply
            .headers
            .iter()
            .find(|(name, _)| name == WWW_AUTHENTICATE);
        assert_eq!(
            challenge.map(|(_, value)| value.as_bytes()),
            Some(
                &br#"Bearer realm="null",error="invalid_token",error_description="oauth.v2.InvalidAccessToken: Invalid access token""#[..]
            )
        );
    }

    #[test]
    fn a_client_of_xml_gets_xml_and_a_path_can_inject_nothing() {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/xml"));
        let fault = Fault::no_resource("/<a>\"\\\u{1}\r\n");
        let reply = fault.reply(&headers, "null");
        assert!(body(&reply).starts_with("<fault><faultstring>APIResource /&lt;a&gt;"));
        let challenge = reply
            .headers
            .iter()
            .find(|(name, _)| name == WWW_AUTHENTICATE);
        let challenge = challenge.map(|(_, value)| value.to_str().expect("text"));
        assert!(challenge.is_some_and(|text| text.ends_with("APIResource /<a> does not exist\"")));
    }

    #[test]
    fn the_token_endpoint_has_a_shape_of_its_own() {
        let reply = Fault::unknown_client(true).reply(&HeaderMap::new(), "null");
        assert_eq!(
            body(&reply),
            r#"{"ErrorCode":"invalid_client","Error":"ClientId is Invalid"}"#
        );
        assert_eq!(Fault::no_client(true).status, 400);
        assert_eq!(Fault::no_client(false).status, 500);
    }
}
