//! Why a request is refused: one code each, for log, metrics and tests.

use http::StatusCode;

use doorward_core::jose::claims::TimeError;
use doorward_core::jose::verify::VerifyError;
use doorward_oidc_client::id_token::ClaimError;

/// A refusal a row: its class, its code, and a sentence for people in the
/// characters that a `WWW-Authenticate` parameter may hold.
macro_rules! refusals {
    ($($name:ident: $class:ident, $code:literal, $sentence:literal;)+) => {
        /// Why a request does not pass.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Refusal {
            $(#[doc = $sentence] $name,)+
        }

        impl Refusal {
            /// Every refusal, in the order of its discriminant.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Its code and a sentence for people.
            pub fn describe(self) -> (&'static str, &'static str) {
                match self {
                    $(Self::$name => ($code, $sentence),)+
                }
            }

            /// How it is answered.
            pub fn class(self) -> Class {
                match self {
                    $(Self::$name => Class::$class,)+
                }
            }
        }
    };
}

refusals! {
    NoToken: NoCredential, "no_token", "no access token was sent";
    RepeatedToken: BadRequest, "repeated_token", "more than one access token was sent";
    MalformedRequest: BadRequest, "malformed_request", "the request is malformed";
    BodyTimeout: Slow, "body_timeout", "the request body did not come in time";
    BodyTooLong: TooLong, "body_too_long", "the request body is too long to be searched";
    MalformedToken: BadToken, "malformed_token", "the access token is malformed";
    TokenTooLong: BadToken, "token_too_long", "the access token is too long";
    EncryptedToken: BadToken, "encrypted_token", "the access token is encrypted";
    UnsupportedAlg: BadToken, "unsupported_alg", "the signature algorithm is not allowed";
    UnknownExtension: BadToken, "unknown_extension", "an unknown extension is demanded";
    UnknownKey: BadToken, "unknown_key", "the signing key is not known";
    BadSignature: BadToken, "bad_signature", "the signature is wrong";
    TokenExpired: BadToken, "token_expired", "the access token has expired";
    TokenNotYetValid: BadToken, "token_not_yet_valid", "the access token is not valid yet";
    MalformedTimes: BadToken, "malformed_times", "a time is missing or malformed";
    WrongType: BadToken, "wrong_type", "this is no access token";
    WrongIssuer: BadToken, "wrong_issuer", "the issuer is not allowed";
    LoginTooOld: BadToken, "login_too_old", "the login is too long ago";
    WrongSession: BadToken, "wrong_session", "the session is another one";
    UnprovenToken: BadToken, "unproven_token", "possession of the token is not proven";
    WrongDomain: Forbidden, "wrong_domain", "the domain is not allowed";
    WrongAudience: Forbidden, "wrong_audience", "the audience is not allowed";
    MissingScope: Forbidden, "missing_scope", "a required scope is missing";
    MissingGroup: Forbidden, "missing_group", "a required group is missing";
    MissingRole: Forbidden, "missing_role", "a required role is missing";
    ForbiddenClaim: Forbidden, "forbidden_claim", "a forbidden claim is present";
    NoConsumer: Forbidden, "no_consumer", "no consumer belongs to the token";
    NoAnonymous: NoCredential, "no_anonymous", "there is no such anonymous consumer";
    ProviderUnavailable: Broken, "provider_unavailable", "the provider does not answer";
    InactiveToken: BadToken, "inactive_token", "the access token is not active";
    InsecureRequest: Broken, "https_required", "the request did not come by https";
    NoScopes: Broken, "no_scopes", "the required scopes are not known";
    MalformedCredentials: BadRequest, "malformed_credentials", "the credentials are malformed";
    RepeatedCredentials: BadRequest, "repeated_credentials", "credentials were sent more than once";
    WrongCredentials: BadToken, "wrong_credentials", "the provider does not take the credentials";
    ProviderRefuses: Broken, "provider_refuses", "the provider refuses the gateway";
    NoEndpoint: Broken, "no_endpoint", "the provider has no endpoint for this";
    CodeRefused: BadToken, "code_refused", "the provider does not take the code";
    ForgedState: BadToken, "forged_state", "the state is not of a login of the gateway";
    ForeignLogin: BadToken, "foreign_login", "the login was not begun in this browser";
    LoginExpired: BadToken, "login_expired", "the login took too long";
    LoginRepeated: BadToken, "login_repeated", "the login is over already";
    LoginRefused: BadToken, "login_refused", "the provider did not let the user in";
    MixedUp: BadToken, "mixed_up_issuer", "the answer is of another provider";
    MalformedCallback: BadRequest, "malformed_callback", "the answer of the provider is malformed";
    NoIdToken: BadToken, "no_id_token", "the provider gave no ID token";
    WrongIdToken: BadToken, "wrong_id_token", "the ID token is not valid";
    WrongNonce: BadToken, "wrong_nonce", "the ID token is of another login";
    WrongHash: BadToken, "wrong_at_hash", "the ID token is of another access token";
    BrokenSession: NoCredential, "broken_session", "the session can not be read";
    SessionOver: BadToken, "session_over", "the session is over";
    SessionTooBig: Broken, "session_too_big", "the session does not fit into cookies";
    WrongUserInfo: BadToken, "wrong_user_info", "userinfo speaks of another user";
    MissingProof: BadToken, "no_proof", "the proof of possession is missing";
    WrongProof: BadToken, "wrong_proof", "the proof of possession is not valid";
    ProofRepeated: BadToken, "proof_repeated", "the proof of possession was used before";
    TooManyProofs: BadToken, "too_many_proofs", "more proofs of possession were used than can be remembered";
    ProofsUnavailable: Broken, "proofs_unavailable", "whether the proof of possession was used before can not be told now";
    ProofNonce: BadToken, "proof_nonce_wanted", "the proof of possession lacks the nonce";
    WrongCertificate: BadToken, "wrong_certificate", "the token is bound to another certificate";
    UnsignedAnswer: BadToken, "unsigned_answer", "the answer of the provider is not signed";
    WrongAnswer: BadToken, "wrong_answer", "the signed answer of the provider is not valid";
    SessionStoreUnavailable: Broken, "session_store_unavailable", "the storage of sessions does not answer";
    ProviderTimeout: Broken, "provider_timeout", "the provider does not answer in time";
    ProviderError: Broken, "provider_error", "the provider answers with an error of its own";
    ProviderRedirects: Broken, "provider_redirects", "the provider answers with a redirect";
    ProviderMalformed: Broken, "provider_malformed", "the answer of the provider can not be read";
    ProviderTooLong: Broken, "provider_answer_too_long", "the answer of the provider is too long";
    ExchangeRefused: BadToken, "exchange_refused", "the provider does not exchange the token";
    ExchangeBeyond: Forbidden, "exchange_beyond", "the provider gives no token for this audience or scope";
    ClaimsElsewhere: Broken, "claims_elsewhere", "claims that are told elsewhere can not be had";
    SessionElsewhere: BadToken, "session_elsewhere", "the session is bound to another client";
    ClientRefused: Broken, "client_refused", "the provider refuses the gateway as its client";
    SessionUnfit: BadToken, "session_unfit", "the session was begun in a way that is not taken here";
    IdTokenExpired: BadToken, "id_token_expired", "the ID token has expired";
    IdTokenNotYetValid: BadToken, "id_token_not_yet_valid", "the ID token is not valid yet";
    IdTokenMalformed: BadToken, "malformed_id_token", "the ID token is malformed";
    IdTokenTooLong: BadToken, "id_token_too_long", "the ID token is too long";
    IdTokenEncrypted: BadToken, "encrypted_id_token", "the ID token is encrypted, and the gateway has no key for it";
    IdTokenUnsigned: BadToken, "id_token_alg", "the ID token is not signed, or by an algorithm that is not allowed";
}

use Refusal::*;

/// The group of answers that a refusal belongs to (RFC 6750 §3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// 401 without an error code: nothing was presented.
    NoCredential,
    /// 400 `invalid_request`.
    BadRequest,
    /// 401 `invalid_token`.
    BadToken,
    /// 403 `insufficient_scope`.
    Forbidden,
    /// 408: the body with the token did not come.
    Slow,
    /// 413: the body in which the token may be is too long.
    TooLong,
    /// 500: the provider's keys can't be had, or the configuration is wrong.
    Broken,
}

impl Refusal {
    /// The refusal with this code.
    pub fn named(code: &str) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|refusal| refusal.describe().0 == code)
    }

    /// The same of an ID token: what is said of access tokens is not said of it.
    pub fn of_id_token(self) -> Self {
        match self {
            TokenExpired => IdTokenExpired,
            TokenNotYetValid => IdTokenNotYetValid,
            MalformedToken => IdTokenMalformed,
            TokenTooLong => IdTokenTooLong,
            EncryptedToken => IdTokenEncrypted,
            UnsupportedAlg => IdTokenUnsigned,
            other => other,
        }
    }

    /// Whether a proof of possession is what is wrong or missing.
    pub fn is_of_proof(self) -> bool {
        matches!(
            self,
            UnprovenToken | MissingProof | WrongProof | ProofRepeated | TooManyProofs | ProofNonce
        )
    }

    /// The error code for challenges (RFC 6750 §3.1, RFC 9449 §7.1).
    pub fn error(self) -> Option<&'static str> {
        match self {
            MissingProof | WrongProof | ProofRepeated | TooManyProofs => Some("invalid_dpop_proof"),
            ProofNonce => Some("use_dpop_nonce"),
            other => other.class().error(),
        }
    }

    /// Whether the client has not shown what it takes, as opposed to a request
    /// that can't be understood and to what went wrong on this side.
    pub fn is_of_client(self) -> bool {
        let class = self.class();
        matches!(
            class,
            Class::NoCredential | Class::BadToken | Class::Forbidden
        )
    }

    /// Whether the provider has said nothing, which it may do the next time.
    pub fn is_silence(self) -> bool {
        matches!(self, ProviderUnavailable | ProviderTimeout | ProviderError)
    }

    /// Whether the token is none that can be read here: its provider may know.
    pub fn is_unread(self) -> bool {
        matches!(self, MalformedToken | EncryptedToken)
    }
}

impl Class {
    /// The status of the answer.
    pub fn status(self) -> StatusCode {
        match self {
            Self::NoCredential | Self::BadToken => StatusCode::UNAUTHORIZED,
            Self::BadRequest => StatusCode::BAD_REQUEST,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::Slow => StatusCode::REQUEST_TIMEOUT,
            Self::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Broken => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The error code of RFC 6750 §3.1.
    pub fn error(self) -> Option<&'static str> {
        match self {
            Self::BadRequest => Some("invalid_request"),
            Self::BadToken => Some("invalid_token"),
            Self::Forbidden => Some("insufficient_scope"),
            Self::NoCredential | Self::Slow | Self::TooLong | Self::Broken => None,
        }
    }
}

impl From<VerifyError> for Refusal {
    fn from(error: VerifyError) -> Self {
        match error {
            VerifyError::TooLong => TokenTooLong,
            VerifyError::Malformed => MalformedToken,
            VerifyError::Encrypted => EncryptedToken,
            VerifyError::Critical => UnknownExtension,
            VerifyError::UnsupportedAlgorithm => UnsupportedAlg,
            VerifyError::UnknownKey => UnknownKey,
            VerifyError::BadSignature => BadSignature,
        }
    }
}

impl From<TimeError> for Refusal {
    fn from(error: TimeError) -> Self {
        match error {
            TimeError::Expired => TokenExpired,
            TimeError::NotYet => TokenNotYetValid,
            TimeError::Malformed => MalformedTimes,
        }
    }
}

impl From<ClaimError> for Refusal {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::Issuer => WrongIssuer,
            ClaimError::Times(error) | ClaimError::AuthTime(error) => error.into(),
            ClaimError::Subject | ClaimError::Context => WrongIdToken,
            ClaimError::Audience => WrongAudience,
            ClaimError::Nonce => WrongNonce,
            ClaimError::Age => LoginTooOld,
            ClaimError::AccessToken => WrongHash,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_refusal_has_a_code_of_its_own() {
        let codes: HashSet<_> = Refusal::ALL.iter().map(|r| r.describe().0).collect();
        assert_eq!(codes.len(), Refusal::ALL.len());
        for (index, refusal) in Refusal::ALL.iter().enumerate() {
            assert_eq!(*refusal as usize, index);
        }
    }
}
