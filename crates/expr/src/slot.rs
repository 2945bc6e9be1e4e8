//! Plain values of the context.

/// A plain value of the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    Method,
    Version,
    Uri(Which, Part),
    EntityText,
    EntityJson,
    EntityBytes,
    EntityEmpty,
    StatusCode,
    /// The reason phrase of the status.
    Reason,
    /// Whether the status begins with this digit.
    StatusFamily(u16),
    ClientAddress,
    ClientPort,
    LocalAddress,
    LocalPort,
    ClientSecure,
    ClientExternal,
    CertificateSubject,
    CertificateNames,
    CertificateSerial,
    CertificateFingerprint,
    CertificateThumbprint,
    UserAgent,
    Transaction,
    Token,
    Scopes,
    ExpiresAt,
    Claims,
    /// What is known of the login of a user besides the access token, by its name in
    /// `attributes.openid`.
    Login(&'static str),
    /// The seconds until the access token of a login ends.
    LoginSeconds,
    /// What is known of a login that has failed.
    LoginFailure(&'static str),
    /// What is not there, whatever is asked of it: the session of a user who
    /// signed in, for instance.
    Absent,
    /// A map without members.
    NoMembers,
    /// The empty text.
    Empty,
    /// What a request never has here.
    Nothing,
}

/// Which target of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The one it has.
    Current,
    /// The one it had when it came.
    Original,
}

/// A part of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Scheme,
    Host,
    Port,
    Path,
    RawPath,
    /// The segments of the path.
    Elements,
    Query,
    RawQuery,
    Authority,
    UserInfo,
    RawUserInfo,
    /// Scheme, host and port.
    Base,
    Nothing,
}

impl Slot {
    /// What the value is called when something is asked of it that it can't
    /// have; `None` for what has members.
    pub(super) fn plain(self) -> Option<&'static str> {
        match self {
            Self::Claims
            | Self::Scopes
            | Self::CertificateNames
            | Self::EntityJson
            | Self::EntityBytes
            | Self::Absent
            | Self::NoMembers
            | Self::Uri(_, Part::Elements) => None,
            Self::Uri(_, Part::Port)
            | Self::ClientPort
            | Self::LocalPort
            | Self::StatusCode
            | Self::Login("expires_in")
            | Self::LoginSeconds
            | Self::ExpiresAt => Some("a number"),
            Self::ClientSecure
            | Self::ClientExternal
            | Self::EntityEmpty
            | Self::StatusFamily(_) => Some("true or false"),
            _ => Some("a text"),
        }
    }

    /// Whether it looks at the body of the request.
    pub(super) fn is_of_body(self) -> bool {
        matches!(
            self,
            Self::EntityText | Self::EntityJson | Self::EntityBytes | Self::EntityEmpty
        )
    }

    /// Whether it looks at the answer.
    pub(super) fn is_of_response(self) -> bool {
        matches!(
            self,
            Self::StatusCode | Self::Reason | Self::StatusFamily(_)
        )
    }
}
