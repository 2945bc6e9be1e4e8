//! The ways in which a request can show who it comes from, in their fixed
//! order: the first credential that is found decides, whether it holds or not.

use serde::{Deserialize, Serialize};

use crate::config::fields::Fields;
use doorward_plugin_api::config::FieldWord;
use doorward_plugin_api::words;

words! {
    /// A way to authenticate.
    #[derive(Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub(crate) enum Method {
        /// A name and a password.
        Password = "password",
        /// A client's identifier and its secret.
        ClientCredentials = "client_credentials",
        /// None: the user has to sign in.
        AuthorizationCode = "authorization_code",
        /// A signed access token.
        Bearer = "bearer",
        /// A token that the provider is asked about.
        Introspection = "introspection",
        /// A token with which the provider is asked about its user.
        Userinfo = "userinfo",
        /// A token of another plugin.
        KongOauth2 = "kong_oauth2",
        /// A refresh token.
        RefreshToken = "refresh_token",
        /// The session of a user who has signed in.
        Session = "session",
    }
}

/// The methods that are on where nothing is said.
pub(crate) const ON_BY_DEFAULT: [Method; 8] = [
    Method::Password,
    Method::ClientCredentials,
    Method::AuthorizationCode,
    Method::Bearer,
    Method::Introspection,
    Method::KongOauth2,
    Method::RefreshToken,
    Method::Session,
];

impl Method {
    /// All of them, in the order in which they are tried.
    pub(crate) const ALL: [Self; 9] = [
        Self::Session,
        Self::Bearer,
        Self::KongOauth2,
        Self::Introspection,
        Self::Userinfo,
        Self::RefreshToken,
        Self::Password,
        Self::ClientCredentials,
        Self::AuthorizationCode,
    ];

    /// Its name in `auth_methods`.
    pub(crate) fn name(self) -> &'static str {
        self.word()
    }

    /// Whether an access token is shown itself.
    pub(crate) fn is_of_token(self) -> bool {
        matches!(
            self,
            Self::Bearer | Self::KongOauth2 | Self::Introspection | Self::Userinfo
        )
    }

    /// Whether the gateway asks the provider as a client of its own.
    fn needs_client(self) -> bool {
        !matches!(self, Self::Bearer | Self::KongOauth2)
    }
}

/// The methods that are on and can work.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Methods(u16);

impl Methods {
    /// The methods of a configuration, and what to say about those that are
    /// on and can't work.
    pub(crate) fn new(fields: &Fields) -> (Self, Vec<String>) {
        let named = &*fields.login.auth_methods;
        let chosen = !named.is_empty() && *named != ON_BY_DEFAULT;
        let client = !fields.provider.client_id.is_empty();
        let mut methods = Self::default();
        let mut lacking = Vec::new();
        for method in Method::ALL {
            if !named.contains(&method) {
                continue;
            }
            // Who brings the whole credential needs none of ours.
            let own = chosen
                && matches!(
                    method,
                    Method::ClientCredentials | Method::Userinfo | Method::Session
                );
            match method {
                Method::KongOauth2 => {}
                Method::RefreshToken if fields.client.refresh_token_param_name.is_none() => {
                    if chosen {
                        lacking.push("refresh_token (refresh_token_param_name is not set)");
                    }
                }
                _ if method.needs_client() && !client && !own => lacking.push(method.name()),
                _ => methods.0 |= 1 << method as u16,
            }
        }
        (methods, warnings(&lacking, named, chosen))
    }

    /// All but these.
    pub(crate) fn but(named: &[Method]) -> Self {
        let others = Method::ALL
            .into_iter()
            .filter(|method| !named.contains(method));
        Self(others.fold(0, |all, method| all | 1 << method as u16))
    }

    pub(crate) fn has(self, method: Method) -> bool {
        self.0 & 1 << method as u16 != 0
    }

    /// Whether a session is good here that was begun by a method: that of a login
    /// is, any other shows no more than what began it, and is taken where that is,
    /// or sessions alone. Access tokens are of one kind, whoever reads them.
    pub(crate) fn take_sessions_of(self, begun_by: Method) -> bool {
        let mut of_tokens = Method::ALL
            .into_iter()
            .filter(|method| method.is_of_token());
        let alone = self.0 == 1 << Method::Session as u16;
        begun_by == Method::AuthorizationCode
            || alone
            || self.has(begun_by)
            || (begun_by.is_of_token() && of_tokens.any(|method| self.has(method)))
    }
}

fn warnings(lacking: &[&str], named: &[Method], chosen: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    if !lacking.is_empty() {
        let lacking = lacking.join(", ");
        warnings.push(format!(
            "auth_methods without effect: {lacking} (they need a client_id)"
        ));
    }
    let local = Method::KongOauth2;
    if chosen && named.contains(&local) {
        warnings.push(format!(
            "auth_methods: {} finds nothing, no other plugin issues tokens here",
            local.name()
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn methods(config: Value) -> (Vec<&'static str>, String) {
        let (methods, warnings) = Methods::new(&Fields::of(&config).expect("valid"));
        let on = Method::ALL.into_iter().filter(|one| methods.has(*one));
        (on.map(Method::name).collect(), warnings.join("\n"))
    }

    #[test]
    fn without_a_client_only_tokens_of_the_issuer_are_checked() {
        assert_eq!(methods(json!({})).0, ["bearer"]);
        let (on, said) = methods(json!({"auth_methods": ["introspection", "client_credentials"]}));
        assert_eq!(on, ["client_credentials"]);
        assert!(said.contains("introspection"), "{said}");
    }

    #[test]
    fn with_a_client_the_provider_is_asked() {
        let (on, _) = methods(json!({"client_id": ["a"]}));
        let wanted = [
            "session",
            "bearer",
            "introspection",
            "password",
            "client_credentials",
            "authorization_code",
        ];
        assert_eq!(on, wanted);
        let config = json!({"client_id": ["a"], "refresh_token_param_name": "rt"});
        assert!(methods(config).0.contains(&"refresh_token"));
    }
}
