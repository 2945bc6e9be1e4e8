//! What tokens must say, and how that is checked.

use serde_json::json;

use crate::config::fields::types::{Bounded, Seconds, Set, SigningAlg, Texts};
use doorward_plugin_api::config::{AnyText, FieldWord};
use doorward_plugin_api::{config, words};

words! {
    /// What a claim says of a consumer.
    pub(crate) enum ConsumerField {
        /// Its identifier.
        Id = "id",
        /// Its name.
        Username = "username",
        /// The identifier that others have given it.
        CustomId = "custom_id",
    }
}

config! {
    /// Where tokens say what counts.
    pub(crate) struct SubjectFields {
        /// The path to the claim that holds scopes.
        #[field(default(json!(["scope"])))]
        pub(crate) scopes_claim: Texts,
        /// The path to the claim that the upstream is told as `X-Credential-Identifier`.
        #[field(default(json!(["sub"])))]
        pub(crate) credential_claim: Texts,
        /// The path to the claim that holds audiences.
        #[field(default(json!(["aud"])))]
        pub(crate) audience_claim: Texts,
        /// What the claims of `consumer_claim` say of a consumer.
        #[field(default(json!([ConsumerField::Username.word(), ConsumerField::CustomId.word()])))]
        pub(crate) consumer_by: Set<ConsumerField>,
        /// Whether tokens pass that name no consumer.
        #[field(default(false))]
        pub(crate) consumer_optional: bool,
        /// The claim whose value `jwt_session_cookie` must have.
        #[field(default("sid"))]
        pub(crate) jwt_session_claim: AnyText,
    }
}

config! {
    /// How tokens are asked about and passed on.
    pub(crate) struct TokenFields {
        /// What introspection requests call the kind of their token (`token_type_hint`).
        #[field(default("access_token"))]
        pub(crate) introspection_hint: Option<AnyText>,
        /// Whether signed tokens are introspected, too.
        #[field(default(false))]
        pub(crate) introspect_jwt_tokens: bool,
        /// The header in which the upstream gets the access token. Null: none.
        #[field(default("authorization:bearer"))]
        pub(crate) upstream_access_token_header: Option<AnyText>,
        /// Whether the upstream does not see the credential.
        #[field(default(false))]
        pub(crate) hide_credentials: bool,
    }
}

config! {
    /// What tokens are checked for.
    pub(crate) struct CheckFields {
        /// Whether the log names what is configured and the provider's metadata lack.
        #[field(default(true))]
        pub(crate) verify_parameters: bool,
        /// Whether ID tokens must have the nonce of their login.
        #[field(default(true))]
        pub(crate) verify_nonce: bool,
        /// Whether signatures are verified.
        #[field(default(true))]
        pub(crate) verify_signature: bool,
        /// Whether issuers and times of tokens are checked.
        #[field(default(true))]
        pub(crate) verify_claims: bool,
        /// Without effect: the tokens of sessions are verified with every request.
        #[field(default(false))]
        pub(crate) reverify: bool,
        /// The seconds by which clocks may differ.
        #[field(default(0))]
        pub(crate) leeway: Bounded<0, 86_400>,
        /// Whether requests of the method OPTIONS have to show a credential.
        #[field(default(true))]
        pub(crate) run_on_preflight: bool,
    }
}

config! {
    /// What tokens must say.
    pub(crate) struct ClaimFields {
        /// The scopes of which a token must have those of one item.
        pub(crate) scopes_required: Texts,
        /// The audiences of which a token must have those of one item.
        pub(crate) audience_required: Texts,
        /// The path to the claim that holds groups.
        #[field(default(json!(["groups"])))]
        pub(crate) groups_claim: Texts,
        /// The groups of which a token must have those of one item.
        pub(crate) groups_required: Texts,
        /// The path to the claim that holds roles.
        #[field(default(json!(["roles"])))]
        pub(crate) roles_claim: Texts,
        /// The roles of which a token must have those of one item.
        pub(crate) roles_required: Texts,
        /// Claims that a token must not have.
        pub(crate) claims_forbidden: Texts,
        /// The issuers whose tokens count. None: the provider alone.
        pub(crate) issuers_allowed: Texts,
        /// The domains (`hd`) of which users must be.
        pub(crate) domains: Texts,
        /// The most seconds since the user has signed in.
        pub(crate) max_age: Option<Seconds>,
        /// The path to the claim with the groups that the upstream is told.
        pub(crate) authenticated_groups_claim: Texts,
        /// The path to the claim that names the consumer.
        pub(crate) consumer_claim: Texts,
        /// Paths to claims that name the consumer; the first that leads to one counts.
        pub(crate) consumer_claims: Vec<Texts>,
        /// Whether names of consumers are the same in capitals and in small letters.
        #[field(default(false))]
        pub(crate) by_username_ignore_case: bool,
        /// Refuses every token, unless `consumer_groups_optional`: consumers have the groups
        /// of their records, and tokens name none.
        pub(crate) consumer_groups_claim: Texts,
        /// Whether tokens pass although `consumer_groups_claim` is set.
        #[field(default(false))]
        pub(crate) consumer_groups_optional: bool,
        /// The consumer that requests without a good credential count as, by identifier or
        /// name. Null: they are refused.
        pub(crate) anonymous: Option<AnyText>,
        /// Whether userinfo is asked about every user.
        #[field(default(false))]
        pub(crate) search_user_info: bool,
        /// Methods whose tokens need no good signature.
        #[field(default(json!([])))]
        pub(crate) ignore_signature: Texts,
        /// Whether signatures with a client's secret count.
        #[field(default(false))]
        pub(crate) enable_hs_signatures: bool,
        /// The only algorithm of ID tokens, logout tokens, signed userinfo and signed
        /// answers. Null: those of `security_profile`, or else any for which the provider
        /// has a key.
        pub(crate) id_token_signed_response_alg: Option<SigningAlg>,
        /// The cookie that must have the value of `jwt_session_claim`.
        pub(crate) jwt_session_cookie: Option<AnyText>,
        /// Whether claims are asked for that are told elsewhere.
        #[field(default(false))]
        pub(crate) resolve_distributed_claims: bool,
    }
}
