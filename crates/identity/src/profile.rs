//! Profiles: sets of rules that a client obeys as a whole.
//!
//! `fapi2` is the FAPI 2.0 Security Profile (with DPoP and `private_key_jwt`).
//! What the rules ask of a record is checked when it is made; what they ask of
//! requests is asked of [`LiveClient`] where the requests are answered.

use url::Url;

use super::clients::LiveClient;
use super::realm::Realm;
use super::records::is_safe_source;
use doorward_core::model::client::{AuthMethod, ClientMetadata, Profile, RequestAlg, SignAlg};
use doorward_core::model::user::schema::RecordError;

/// The longest life of an authorization code, in seconds (§5.3.2.1).
const CODE_LIFE: u32 = 60;

impl LiveClient {
    /// Whether it obeys the FAPI 2.0 Security Profile.
    pub(super) fn is_fapi2(&self) -> bool {
        self.client.metadata.profile == Some(Profile::Fapi2)
    }

    /// Whether what it signs may be signed with this algorithm.
    pub(super) fn may_sign_by(&self, alg: SignAlg) -> bool {
        !self.is_fapi2() || SignAlg::FAPI2.contains(&alg)
    }

    /// Whether its authorization requests count only if it pushed them.
    pub(super) fn must_push(&self, realm: &Realm) -> bool {
        self.client.metadata.require_pushed_authorization_requests
            || realm.settings.require_pushed_authorization_requests
            || self.is_fapi2()
    }

    /// Whether its authorization requests count only as signed objects.
    pub(super) fn needs_signed_requests(&self) -> bool {
        self.client.metadata.require_signed_request_object
    }

    /// Whether its request objects count without a signature. A client that
    /// registered itself and named no algorithm may use any that is offered there
    /// (OpenID Connect Dynamic Client Registration §2), and `none` is.
    pub(super) fn may_leave_objects_unsigned(&self, realm: &Realm) -> bool {
        let open = realm.settings.unsigned_request_objects || self.client.registration.is_some();
        match self.client.metadata.request_object_signing_alg {
            _ if self.needs_signed_requests() || self.is_fapi2() => false,
            Some(alg) => alg == RequestAlg::None,
            None => open,
        }
    }

    /// Whether all its access tokens are bound to keys.
    pub(super) fn must_prove_possession(&self) -> bool {
        self.client.metadata.dpop_bound_access_tokens || self.is_fapi2()
    }

    /// Whether it must send a code challenge.
    pub(super) fn must_challenge(&self) -> bool {
        let wanted = self.client.metadata.require_pkce.unwrap_or(false);
        self.client.is_public() || wanted || self.is_fapi2()
    }

    /// Whether its code challenges may be the verifiers themselves.
    pub(super) fn may_challenge_plainly(&self, realm: &Realm) -> bool {
        realm.settings.plain_pkce && !self.is_fapi2()
    }

    /// How long its codes live, in seconds.
    pub(super) fn code_life(&self, realm: &Realm) -> u32 {
        if self.is_fapi2() {
            realm.settings.code_lifetime.min(CODE_LIFE)
        } else {
            realm.settings.code_lifetime
        }
    }

    /// Whether each use of a refresh token of its gives another one. Bound ones
    /// are of no use to thieves, and a lost answer would end the grant: the
    /// profile has them stay (§5.3.2.1).
    pub(super) fn rotates(&self, realm: &Realm) -> bool {
        let own = self.client.metadata.refresh_token_rotation;
        let other = realm.settings.refresh_token_rotation && !self.is_fapi2();
        self.client.is_public() || own.unwrap_or(other)
    }

    /// Whether its ID tokens and authorization answers say what OpenID Connect does
    /// not name.
    pub(super) fn has_proprietary_claims(&self, realm: &Realm) -> bool {
        realm.settings.proprietary_claims && !self.is_fapi2()
    }

    /// Whether its ID tokens name the session (`sid`). Those of the profile say
    /// what was asked for alone, unless the client takes part in sign-outs
    /// (OpenID Connect Back-Channel Logout §2.1 leaves it open).
    pub(super) fn hears_of_sessions(&self) -> bool {
        let metadata = &self.client.metadata;
        !self.is_fapi2()
            || metadata.backchannel_logout_uri.is_some()
            || metadata.frontchannel_logout_uri.is_some()
            || !metadata.post_logout_redirect_uris.is_empty()
    }

    /// How its ID tokens are signed.
    pub(super) fn id_token_alg(&self, realm: &Realm) -> SignAlg {
        let own = self.client.metadata.id_token_signed_response_alg;
        own.unwrap_or_else(|| self.fit(realm.settings.id_token_signed_response_alg))
    }

    /// How its JWT access tokens are signed.
    pub(super) fn access_token_alg(&self, realm: &Realm) -> SignAlg {
        let own = self.client.metadata.access_token_signed_response_alg;
        own.unwrap_or_else(|| self.fit(realm.settings.access_token_signed_response_alg))
    }

    fn fit(&self, alg: SignAlg) -> SignAlg {
        if self.may_sign_by(alg) {
            alg
        } else {
            SignAlg::ES256
        }
    }
}

/// Checks the record of a client against the rules of its profile.
///
/// # Errors
/// The first member that breaks one.
pub(super) fn check(metadata: &ClientMetadata) -> Result<(), RecordError> {
    match metadata.profile {
        Some(Profile::Fapi2) => check_fapi2(metadata),
        None => Ok(()),
    }
}

fn check_fapi2(metadata: &ClientMetadata) -> Result<(), RecordError> {
    let wrong = |path: &str, message: &str| {
        let message = format!("{message} with profile fapi2");
        Err(RecordError::new(path, message))
    };
    if metadata.token_endpoint_auth_method != Some(AuthMethod::PrivateKeyJwt) {
        let text = "must be private_key_jwt";
        return wrong("token_endpoint_auth_method", text);
    }
    let forbidden = |grant: &String| grant == "password" || grant == "implicit";
    if metadata.grant_types.iter().any(forbidden) {
        let text = "can't have password or implicit";
        return wrong("grant_types", text);
    }
    if metadata.response_types.iter().any(|kind| kind != "code") {
        return wrong("response_types", "can only be code");
    }
    if metadata.require_pkce == Some(false) {
        return wrong("require_pkce", "can't be false");
    }
    let safe = |uri: &String| Url::parse(uri).is_ok_and(|url| is_safe_source(&url));
    if let Some(index) = metadata.redirect_uris.iter().position(|uri| !safe(uri)) {
        let text = "must be https, or http on this machine,";
        return wrong(&format!("redirect_uris[{index}]"), text);
    }
    let request_alg = match metadata.request_object_signing_alg {
        Some(RequestAlg::None) => {
            return wrong("request_object_signing_alg", "can't be none");
        }
        Some(RequestAlg::Signed(alg)) => Some(alg),
        None => None,
    };
    for (name, alg) in [
        (
            "token_endpoint_auth_signing_alg",
            metadata.token_endpoint_auth_signing_alg,
        ),
        (
            "id_token_signed_response_alg",
            metadata.id_token_signed_response_alg,
        ),
        (
            "userinfo_signed_response_alg",
            metadata.userinfo_signed_response_alg,
        ),
        (
            "access_token_signed_response_alg",
            metadata.access_token_signed_response_alg,
        ),
        ("request_object_signing_alg", request_alg),
    ] {
        if alg.is_some_and(|alg| !SignAlg::FAPI2.contains(&alg)) {
            return wrong(name, "must be PS256, ES256 or EdDSA");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn outcome(member: &str, value: Value) -> Option<String> {
        let mut record = json!({
            "client_id": "bank", "profile": "fapi2",
            "token_endpoint_auth_method": "private_key_jwt",
            "jwks_uri": "https://bank.example/keys",
            "redirect_uris": ["https://bank.example/cb", "http://127.0.0.1/cb"],
        });
        record[member] = value;
        let metadata = serde_json::from_value(record).expect("metadata");
        check(&metadata).err().map(|error| error.path)
    }

    #[test]
    fn a_record_that_breaks_a_rule_of_its_profile_is_refused() {
        assert_eq!(outcome("client_name", json!("Bank")), None);
        for (member, bad) in [
            ("token_endpoint_auth_method", json!("client_secret_jwt")),
            ("token_endpoint_auth_method", json!("none")),
            ("token_endpoint_auth_signing_alg", json!("RS256")),
            ("id_token_signed_response_alg", json!("RS256")),
            ("userinfo_signed_response_alg", json!("HS256")),
            ("access_token_signed_response_alg", json!("ES384")),
            ("request_object_signing_alg", json!("none")),
            ("request_object_signing_alg", json!("RS256")),
            ("grant_types", json!(["authorization_code", "password"])),
            ("grant_types", json!(["implicit"])),
            ("response_types", json!(["code id_token"])),
            ("require_pkce", json!(false)),
        ] {
            assert_eq!(outcome(member, bad).as_deref(), Some(member));
        }
        let plain = json!(["https://bank.example/cb", "http://bank.example/cb"]);
        let path = outcome("redirect_uris", plain);
        assert_eq!(path.as_deref(), Some("redirect_uris[1]"));
    }

    #[tokio::test]
    async fn id_tokens_of_the_profile_name_sessions_where_the_client_hears_of_sign_outs() {
        let address = "https://bank.example/out";
        let mut config = crate::testing::config();
        let mut expected = vec![("app".to_owned(), true)];
        for (place, (member, value)) in [
            ("client_name", json!("Bank")),
            ("backchannel_logout_uri", json!(address)),
            ("frontchannel_logout_uri", json!(address)),
            ("post_logout_redirect_uris", json!([address])),
        ]
        .into_iter()
        .enumerate()
        {
            let client_id = format!("bank-{place}");
            let record = json!({
                "client_id": client_id, "profile": "fapi2",
                "token_endpoint_auth_method": "private_key_jwt",
                "jwks_uri": "https://bank.example/keys",
                "redirect_uris": ["https://bank.example/cb"], (member): value,
            });
            let clients = config["realms"]["/"]["clients"].as_array_mut();
            clients.expect("a list").push(record);
            expected.push((client_id, member != "client_name"));
        }
        let provider = crate::testing::Provider::with(config).await;
        let state = &provider.identity.state;
        let realm = state.live().realm("/").cloned().expect("the realm");
        for (client_id, hears) in expected {
            let client = state.clients.find(&state.store, &realm, &client_id).await;
            let client = client.expect("a store").expect("a client");
            assert_eq!(client.hears_of_sessions(), hears, "{client_id}");
        }
    }
}
