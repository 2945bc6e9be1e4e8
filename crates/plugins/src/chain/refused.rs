//! Types of route files that are known and not served: why, and what to use
//! instead.

/// Why objects of this `type` are not served, and what to use instead; `None`
/// for a type that is served or unknown.
pub fn refused(type_name: &str) -> Option<&'static str> {
    let found = REFUSED.iter().find(|(types, _)| types.contains(&type_name));
    found.map(|(_, reason)| *reason)
}

const SCRIPT: &str = "scripts are not run: write what it decides as expressions \
    (ConditionEnforcementFilter, SwitchFilter, HeaderFilter, DispatchHandler)";
const SIGN_IN: &str = "signs users in at an external access manager: use \
    AuthorizationCodeOAuth2ClientFilter with an OpenID provider, or declare the route as an \
    entity with the openid-connect plugin";
const CLIENT: &str = "is a part of signing in that is not served by itself: \
    AuthorizationCodeOAuth2ClientFilter validates ID tokens, and the openid-connect plugin of an \
    entity takes logouts of the provider, too";
const MANAGER: &str = "asks an external access manager: check claims of the access token with \
    OAuth2ResourceServerFilter and ConditionEnforcementFilter";
const CLIENT_TOKENS: &str = "gets tokens for the gateway's own requests, which it does not: let \
    the application get them at the identity provider's token endpoint";
const AUTHENTICATES: &str = "authenticates the gateway to an endpoint: it can be in the \
    providerHandler of a TokenIntrospectionAccessTokenResolver, not in a route's chain";
const RESOLVER: &str = "is an access token resolver: name it as the accessTokenResolver of an \
    OAuth2ResourceServerFilter";
const DATA: &str = "reads external data for each request, which filters do not: use claims of the \
    access token or properties of the route";
const CRYPTO: &str = "makes or changes tokens: let the identity provider issue what the \
    application needs";
const UMA: &str = "user-managed access is not supported";
const PING: &str = "calls a service of another vendor, which the gateway does not";
const LOGIN_FORM: &str = "replays passwords into login forms, which the gateway does not: let the \
    application sign in at the identity provider";
const POLICY: &str = "is a throttling policy: name it as the throttlingRatePolicy of a \
    ThrottlingFilter";

/// By reason. The order is that of the messages, not of the names.
static REFUSED: &[(&[&str], &str)] = &[
    (
        &[
            "ScriptableFilter",
            "ScriptableHandler",
            "ScriptableAccessTokenResolver",
            "ScriptableResourceAccess",
            "ScriptableResourceUriProvider",
            "ScriptableIdentityAssertionPlugin",
        ],
        SCRIPT,
    ),
    (
        &["ScriptableThrottlingPolicy"],
        "scripts are not run: MappedThrottlingPolicy chooses the rate with an expression",
    ),
    (
        &[
            "CrossDomainSingleSignOnFilter",
            "SingleSignOnFilter",
            "FragmentFilter",
            "DataPreservationFilter",
        ],
        SIGN_IN,
    ),
    (
        &["BackChannelLogoutFilter", "IdTokenValidationFilter"],
        CLIENT,
    ),
    (
        &[
            "PolicyEnforcementFilter",
            "SessionInfoFilter",
            "UserProfileFilter",
            "AmSessionIdleTimeoutFilter",
            "AMSessionIdleTimeoutFilter",
            "TransactionIdOutboundFilter",
        ],
        MANAGER,
    ),
    (
        &[
            "ClientCredentialsOAuth2ClientFilter",
            "ResourceOwnerOAuth2ClientFilter",
            "GrantSwapJwtAssertionOAuth2ClientFilter",
            "OAuth2TokenExchangeFilter",
        ],
        CLIENT_TOKENS,
    ),
    (
        &[
            "ClientSecretBasicAuthenticationFilter",
            "ClientSecretPostAuthenticationFilter",
            "HttpBasicAuthenticationClientFilter",
        ],
        AUTHENTICATES,
    ),
    (
        &[
            "PrivateKeyJwtClientAuthenticationFilter",
            "EncryptedPrivateKeyJwtClientAuthenticationFilter",
        ],
        "signs with keys from a key store, which is not read: authenticate with a client secret",
    ),
    (
        &[
            "StatelessAccessTokenResolver",
            "TokenIntrospectionAccessTokenResolver",
            "OpenAmAccessTokenResolver",
            "CacheAccessTokenResolver",
            "ConfirmationKeyVerifierAccessTokenResolver",
        ],
        RESOLVER,
    ),
    (
        &[
            "ThrottlingPolicy",
            "MappedThrottlingPolicy",
            "DefaultRateThrottlingPolicy",
        ],
        POLICY,
    ),
    (
        &[
            "SqlAttributesFilter",
            "FileAttributesFilter",
            "EntityExtractFilter",
        ],
        DATA,
    ),
    (
        &[
            "JwtBuilderFilter",
            "TokenTransformationFilter",
            "CryptoHeaderFilter",
            "JwkSetHandler",
            "DesKeyGenHandler",
        ],
        CRYPTO,
    ),
    (
        &["JwtValidationFilter"],
        "checks a token from anywhere: use OAuth2ResourceServerFilter with a \
         StatelessAccessTokenResolver for a bearer token",
    ),
    (
        &["CertificateThumbprintFilter"],
        "reads a certificate from a header: the client's own certificate is verified by the \
         listener and seen as contexts.client.certificates",
    ),
    (&["UmaFilter", "UmaResourceServerFilter", "UmaService"], UMA),
    (
        &[
            "PingOneApiAccessManagementFilter",
            "PingOneProtectEvaluationFilter",
            "PingOneProtectFeedbackSuccessFilter",
            "PingOneProtectFeedbackFailureFilter",
            "PingOneProtectThreatLevelRoutingHandler",
            "IdentityAssertionHandler",
            "IdentityAssertionHandlerTechPreview",
        ],
        PING,
    ),
    (
        &["PasswordReplayFilter", "CapturedUserPasswordFilter"],
        LOGIN_FORM,
    ),
    (
        &["SamlFederationHandler"],
        "SAML is not supported: use OpenID Connect",
    ),
    (
        &["SequenceHandler"],
        "sends several requests for one, which the gateway does not: DispatchHandler and \
         SwitchFilter choose one handler",
    ),
    (
        &["ResourceHandler"],
        "serves files, which the gateway does not: proxy to a file server, or give a small \
         answer with StaticResponseHandler",
    ),
    (
        &["WelcomeHandler"],
        "shows a welcome page: use StaticResponseHandler",
    ),
    (
        &["MonitorEndpointHandler"],
        "metrics are on the status listener at /metrics",
    ),
    (
        &["CsrfFilter"],
        "ties a token to a session of the gateway, which keeps none: let the application do it, \
         or refuse cross-site requests with ConditionEnforcementFilter on Sec-Fetch-Site",
    ),
    (
        &["CircuitBreakerFilter"],
        "is not a filter here: an upstream entity with health checks takes targets that fail out",
    ),
    (
        &["AllowOnlyFilter"],
        "use ConditionEnforcementFilter with ipMatch on contexts.client.remoteAddress",
    ),
    (
        &["DateHeaderFilter"],
        "is not needed: every answer has a Date",
    ),
    (
        &["ForwardedRequestFilter"],
        "is not a filter here: forwarding headers of trusted proxies are taken into account for \
         every route",
    ),
    (
        &["FapiInteractionIdFilter"],
        "copy the header with a HeaderFilter",
    ),
    (
        &["SetCookieUpdateFilter"],
        "change the header with HeaderFilter where its value can be written as an expression",
    ),
    (
        &["CorsFilter"],
        "answers preflight requests: DispatchHandler with a StaticResponseHandler for OPTIONS, \
         and a HeaderFilter on RESPONSE, do the same",
    ),
    (
        &["SessionFilter", "JwtSession", "JwtSessionManager"],
        "the gateway keeps no sessions of its own",
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_refused_type_has_one_reason() {
        let mut seen = HashSet::new();
        for (types, reason) in REFUSED {
            assert!(!reason.ends_with('.') && !reason.contains("  "), "{reason}");
            for name in *types {
                assert!(seen.insert(*name), "{name} is there twice");
                assert_eq!(refused(name), Some(*reason));
            }
        }
    }

    #[test]
    fn unknown_types_are_not_refused_but_unknown() {
        assert_eq!(refused("Chain"), None);
        assert_eq!(refused("NoSuchFilter"), None);
    }
}
