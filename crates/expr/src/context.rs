//! The context of a request: roots and their members.

use super::slot::{Part, Slot, Which};

/// A part of the context that has members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Object {
    /// `request`
    Request,
    /// `response`
    Response,
    /// `response.status`
    Status,
    /// `request.uri`, `contexts.router.originalUri`
    Uri(Which),
    /// `request.headers`, `response.headers`
    Headers(Side),
    /// `request.cookies`, `response.cookies`
    Cookies(Side),
    /// One cookie.
    Cookie,
    /// `request.queryParams`, `request.form`, `request.entity.form`
    Fields(Fields),
    /// `request.entity`
    Entity,
    /// `contexts`
    Contexts,
    /// `contexts.client`
    Client,
    /// `contexts.client.certificates`
    Certificates,
    /// `contexts.client.certificate`
    Certificate,
    /// `contexts.router`
    Router,
    /// `contexts.transactionId`
    Transaction,
    /// `contexts.oauth2`
    OAuth2,
    /// `contexts.oauth2.accessToken`
    AccessToken,
    /// `contexts.oauth2Info`
    OAuth2Info,
    /// `contexts.oauth2Failure`
    OAuth2Failure,
    /// `contexts.attributes`
    AttributesContext,
    /// `attributes`
    Attributes,
    /// `attributes.openid`
    OpenId,
    /// `env`
    Env,
    /// `system`
    System,
}

/// Which message of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The request.
    Request,
    /// The answer.
    Response,
}

/// Where fields of a form come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fields {
    /// The query.
    Query,
    /// The body, if it is a form.
    Body,
    /// The query, then the body if it is a form.
    Both,
}

/// A member of an object: a plain value, or an object again.
#[derive(Debug, Clone, Copy)]
pub(super) enum Member {
    Slot(Slot),
    Object(Object),
}

use Member::{Object as O, Slot as S};

/// The names an expression may begin with.
pub(super) const ROOTS: &[(&str, Member)] = &[
    ("request", O(Object::Request)),
    ("response", O(Object::Response)),
    ("contexts", O(Object::Contexts)),
    ("attributes", O(Object::Attributes)),
    ("session", S(Slot::Absent)),
    ("env", O(Object::Env)),
    ("system", O(Object::System)),
];

const MESSAGE_URI: &[(&str, Part)] = &[
    ("scheme", Part::Scheme),
    ("rawScheme", Part::Scheme),
    ("host", Part::Host),
    ("rawHost", Part::Host),
    ("port", Part::Port),
    ("rawPort", Part::Port),
    ("path", Part::Path),
    ("rawPath", Part::RawPath),
    ("query", Part::Query),
    ("rawQuery", Part::RawQuery),
    ("authority", Part::Authority),
    ("rawAuthority", Part::Authority),
    ("userInfo", Part::UserInfo),
    ("rawUserInfo", Part::RawUserInfo),
    ("fragment", Part::Nothing),
    ("rawFragment", Part::Nothing),
    ("pathElements", Part::Elements),
];

const REQUEST: &[(&str, Member)] = &[
    ("method", S(Slot::Method)),
    ("uri", O(Object::Uri(Which::Current))),
    ("version", S(Slot::Version)),
    ("headers", O(Object::Headers(Side::Request))),
    ("cookies", O(Object::Cookies(Side::Request))),
    ("queryParams", O(Object::Fields(Fields::Query))),
    ("form", O(Object::Fields(Fields::Both))),
    ("entity", O(Object::Entity)),
];

const RESPONSE: &[(&str, Member)] = &[
    ("status", O(Object::Status)),
    ("headers", O(Object::Headers(Side::Response))),
    ("cookies", O(Object::Cookies(Side::Response))),
];

const STATUS: &[(&str, Member)] = &[
    ("code", S(Slot::StatusCode)),
    ("reasonPhrase", S(Slot::Reason)),
    ("informational", S(Slot::StatusFamily(1))),
    ("successful", S(Slot::StatusFamily(2))),
    ("redirection", S(Slot::StatusFamily(3))),
    ("clientError", S(Slot::StatusFamily(4))),
    ("serverError", S(Slot::StatusFamily(5))),
];

const ENTITY: &[(&str, Member)] = &[
    ("string", S(Slot::EntityText)),
    ("json", S(Slot::EntityJson)),
    ("bytes", S(Slot::EntityBytes)),
    ("form", O(Object::Fields(Fields::Body))),
    ("empty", S(Slot::EntityEmpty)),
    ("rawContentEmpty", S(Slot::EntityEmpty)),
];

const CONTEXTS: &[(&str, Member)] = &[
    ("client", O(Object::Client)),
    ("router", O(Object::Router)),
    ("oauth2", O(Object::OAuth2)),
    ("openid", O(Object::OpenId)),
    ("oauth2Info", O(Object::OAuth2Info)),
    ("oauth2Failure", O(Object::OAuth2Failure)),
    ("attributes", O(Object::AttributesContext)),
    ("session", S(Slot::Absent)),
    ("transactionId", O(Object::Transaction)),
];

const CLIENT: &[(&str, Member)] = &[
    ("remoteAddress", S(Slot::ClientAddress)),
    ("remotePort", S(Slot::ClientPort)),
    ("localAddress", S(Slot::LocalAddress)),
    ("localPort", S(Slot::LocalPort)),
    ("remoteUser", S(Slot::Nothing)),
    ("userAgent", S(Slot::UserAgent)),
    ("isSecure", S(Slot::ClientSecure)),
    ("secure", S(Slot::ClientSecure)),
    ("isExternal", S(Slot::ClientExternal)),
    ("external", S(Slot::ClientExternal)),
    ("certificate", O(Object::Certificate)),
    ("certificates", O(Object::Certificates)),
];

const CERTIFICATE: &[(&str, Member)] = &[
    ("subject", S(Slot::CertificateSubject)),
    ("names", S(Slot::CertificateNames)),
    ("serial", S(Slot::CertificateSerial)),
    ("fingerprint", S(Slot::CertificateFingerprint)),
    ("thumbprint", S(Slot::CertificateThumbprint)),
];

const ROUTER: &[(&str, Member)] = &[
    ("originalUri", O(Object::Uri(Which::Original))),
    ("baseUri", S(Slot::Uri(Which::Original, Part::Base))),
    ("matchedUri", S(Slot::Empty)),
    ("remainingUri", S(Slot::Uri(Which::Original, Part::RawPath))),
    ("uriTemplateVariables", S(Slot::NoMembers)),
];

const ACCESS_TOKEN: &[(&str, Member)] = &[
    ("token", S(Slot::Token)),
    ("scopes", S(Slot::Scopes)),
    ("info", S(Slot::Claims)),
    ("expiresAt", S(Slot::ExpiresAt)),
];

const OPENID: &[(&str, Member)] = &[
    ("user_info", S(Slot::Claims)),
    ("id_token_claims", S(Slot::Claims)),
    ("access_token", S(Slot::Token)),
    ("scope", S(Slot::Scopes)),
    ("id_token", S(Slot::Login("id_token"))),
    ("refresh_token", S(Slot::Login("refresh_token"))),
    ("token_type", S(Slot::Login("token_type"))),
    ("expires_in", S(Slot::Login("expires_in"))),
    ("client_endpoint", S(Slot::Login("client_endpoint"))),
    ("client_registration", S(Slot::Login("client_registration"))),
];

const OAUTH2_INFO: &[(&str, Member)] = &[
    ("accessToken", S(Slot::Token)),
    ("accessTokenExpiresIn", S(Slot::LoginSeconds)),
    ("clientEndpoint", S(Slot::Login("client_endpoint"))),
    (
        "clientRegistrationId",
        S(Slot::Login("client_registration")),
    ),
    ("idToken", S(Slot::Login("id_token"))),
    ("idTokenClaims", S(Slot::Claims)),
    ("refreshToken", S(Slot::Login("refresh_token"))),
    ("scopes", S(Slot::Scopes)),
    ("userInfo", S(Slot::Claims)),
];

const OAUTH2_FAILURE: &[(&str, Member)] = &[
    ("error", S(Slot::LoginFailure("error"))),
    ("description", S(Slot::LoginFailure("description"))),
    ("exception", S(Slot::Absent)),
];

/// Why there is no response body.
const RESPONSE_ENTITY: &str =
    "the body of an answer passes through the gateway and is not there to look at";

/// Contexts that filters of the imitated gateway set, and those filters.
const FOREIGN: &[(&str, &str)] = &[
    ("amSession", "SessionInfoFilter"),
    ("capturedUserPassword", "CapturedUserPasswordFilter"),
    ("cdsso", "CrossDomainSingleSignOnFilter"),
    ("cdSsoFailure", "CrossDomainSingleSignOnFilter"),
    ("idpSelectionLogin", "AuthorizationCodeOAuth2ClientFilter"),
    ("jwtBuilder", "JwtBuilderFilter"),
    ("jwtValidation", "JwtValidationFilter"),
    ("jwtValidationError", "JwtValidationFilter"),
    ("oauth2TokenExchange", "OAuth2TokenExchangeFilter"),
    ("policyDecision", "PolicyEnforcementFilter"),
    ("ssoToken", "SingleSignOnFilter"),
    ("sts", "TokenTransformationFilter"),
    ("userProfile", "UserProfileFilter"),
];

impl Object {
    /// The member with this name, if it is a fixed one.
    pub(super) fn member(self, name: &str) -> Option<Member> {
        if let Self::Uri(which) = self {
            let part = find(MESSAGE_URI, name)?;
            return Some(S(Slot::Uri(which, part)));
        }
        find(self.members(), name)
    }

    /// The names of its members, as far as they are fixed.
    pub(super) fn names(self) -> Vec<&'static str> {
        match self {
            Self::Uri(_) => MESSAGE_URI.iter().map(|(name, _)| *name).collect(),
            _ => self.members().iter().map(|(name, _)| *name).collect(),
        }
    }

    /// Why there is no member of this name although the imitated gateway has
    /// one.
    pub(super) fn refusal(self, name: &str) -> Option<String> {
        match self {
            Self::Response if name == "entity" => Some(RESPONSE_ENTITY.to_owned()),
            Self::Contexts => find(FOREIGN, name).map(|filter| {
                format!(
                    "`contexts.{name}` is set by `{filter}`, which is not served here; what is \
                     known of a verified token is in `contexts.oauth2` and `attributes.openid`"
                )
            }),
            Self::Attributes => Some(format!(
                "nothing sets `attributes.{name}` here, only `attributes.openid` is ever set"
            )),
            _ => None,
        }
    }

    fn members(self) -> &'static [(&'static str, Member)] {
        match self {
            Self::Request => REQUEST,
            Self::Response => RESPONSE,
            Self::Status => STATUS,
            Self::Entity => ENTITY,
            Self::Contexts => CONTEXTS,
            Self::Client => CLIENT,
            Self::Certificate => CERTIFICATE,
            Self::Router => ROUTER,
            Self::Transaction => &[("transactionId", S(Slot::Transaction))],
            Self::OAuth2 => &[("accessToken", O(Self::AccessToken))],
            Self::AccessToken => ACCESS_TOKEN,
            Self::OAuth2Info => OAUTH2_INFO,
            Self::OAuth2Failure => OAUTH2_FAILURE,
            Self::AttributesContext => &[("attributes", O(Self::Attributes))],
            Self::Attributes => &[("openid", O(Self::OpenId))],
            Self::OpenId => OPENID,
            // Their members are named by the request or the environment.
            Self::Uri(_)
            | Self::Headers(_)
            | Self::Cookies(_)
            | Self::Cookie
            | Self::Fields(_)
            | Self::Certificates
            | Self::Env
            | Self::System => &[],
        }
    }
}

fn find<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    let found = table.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| *value)
}
