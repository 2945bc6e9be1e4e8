//! Credentials in a request: bearer tokens, refresh tokens, names with passwords
//! and clients with secrets; and how they are stripped from what the upstream gets.

pub(crate) mod arguments;
mod basic;
pub mod bearer;
pub(crate) mod strip_credentials;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use pingora::http::RequestHeader;

use crate::config::fields::client::Place;
use crate::config::fields::{Fields, header_names};
use crate::config::methods::{Method, Methods};
use crate::credentials::arguments::{Arguments, Where, retarget};
use crate::decide::refusal::Refusal;
use crate::session::creation::CredentialPlace;
use doorward_core::model::secret::Secret;
use doorward_net::http::form::without;
use doorward_plugin_api::ConfigError;

/// What a request shows.
#[derive(Debug)]
pub(crate) enum Credential {
    RefreshToken(Secret),
    Pair(Pair),
}

/// A name and its secret; tried as whatever is true.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) name: String,
    pub(crate) secret: Secret,
    /// Those of a user.
    pub(crate) user: bool,
    /// Those of a client.
    pub(crate) client: bool,
    /// Those of a client that has encoded them, as it should (RFC 6749 §2.3.1).
    pub(crate) decoded: Option<(String, Secret)>,
}

/// A credential and where it was.
#[derive(Debug)]
pub(crate) struct PresentedCredential {
    pub(crate) credential: Credential,
    /// The header that it was in.
    header: Option<HeaderName>,
    /// Parameters that it was in otherwise.
    parameters: Vec<String>,
}

/// Where credentials are looked for.
#[derive(Debug)]
pub(crate) struct Search {
    password: Option<Where>,
    client: Option<Where>,
    refresh: Option<TokenPlace>,
    /// The ID token that may come beside an access token.
    id_token: Option<TokenPlace>,
}

/// Where a token is that has a name of its own.
#[derive(Debug)]
struct TokenPlace {
    places: Where,
    parameter: String,
    /// The name with `-` for `_`, and the name as it is written.
    headers: Vec<HeaderName>,
}

impl Search {
    pub(crate) fn new(fields: &Fields, methods: Methods) -> Result<Self, ConfigError> {
        let refresh = || {
            TokenPlace::new(
                "refresh_token_param_name",
                fields.client.refresh_token_param_name.as_deref(),
                &fields.client.refresh_token_param_type,
            )
        };
        let refresh = methods.has(Method::RefreshToken).then(refresh);
        let password = methods.has(Method::Password);
        let client = methods.has(Method::ClientCredentials);
        Ok(Self {
            id_token: TokenPlace::new(
                "id_token_param_name",
                fields.client.id_token_param_name.as_deref(),
                &fields.places.id_token_param_type,
            )?,
            password: password.then(|| Where::of(&fields.places.password_param_type)),
            client: client.then(|| Where::of(&fields.places.client_credentials_param_type)),
            refresh: refresh.transpose()?.flatten(),
        })
    }

    fn all(&self) -> impl Iterator<Item = Where> {
        let refresh = self.refresh.as_ref().map(|refresh| refresh.places);
        [self.password, self.client, refresh].into_iter().flatten()
    }

    /// Whether the head shows that there may be a credential: of a request
    /// that brings none, nothing more is looked at.
    pub(crate) fn may_be_in_head(&self, request: &RequestHeader) -> bool {
        let in_header = self.all().any(|places| places.header)
            && (request.headers.contains_key(AUTHORIZATION)
                || (self.refresh.iter()).any(|one| one.is_in_header(&request.headers)));
        in_header || (request.uri.query().is_some() && self.all().any(|places| places.query))
    }

    /// Whether a value of `Authorization` is a credential that is looked for.
    pub(crate) fn reads(&self, authorization: &HeaderValue) -> bool {
        let pairs = [self.password, self.client].into_iter().flatten();
        pairs.into_iter().any(|places| places.header) && basic::is_basic(authorization)
    }

    /// Whether bodies are searched.
    pub(crate) fn looks_into_bodies(&self) -> bool {
        self.all().any(|places| places.body)
    }

    /// Whether an ID token may come with this request.
    pub(crate) fn may_bring_id_token(&self, request: &RequestHeader) -> bool {
        self.id_token.as_ref().is_some_and(|place| {
            (place.places.header && place.is_in_header(&request.headers))
                || (place.places.query && request.uri.query().is_some())
                || self.may_bring_id_token_in_body(request)
        })
    }

    /// Whether it may be in the body.
    pub(crate) fn may_bring_id_token_in_body(&self, request: &RequestHeader) -> bool {
        let in_body = self
            .id_token
            .as_ref()
            .is_some_and(|place| place.places.body);
        in_body && crate::credentials::bearer::body::is_read_ahead(request)
    }

    /// The ID token that comes beside an access token.
    ///
    /// # Errors
    /// When it is there twice or can't be read.
    pub(crate) fn id_token(
        &self,
        headers: &HeaderMap,
        arguments: &Arguments,
    ) -> Result<Option<PresentedCredential>, Refusal> {
        match &self.id_token {
            Some(place) => place.find(headers, arguments),
            None => Ok(None),
        }
    }

    /// The credential of a request: the first in the order of the methods.
    ///
    /// # Errors
    /// When one is there twice or can't be read.
    pub(crate) fn find(
        &self,
        headers: &HeaderMap,
        arguments: &Arguments,
    ) -> Result<Option<PresentedCredential>, Refusal> {
        if let Some(refresh) = &self.refresh
            && let Some(shown) = refresh.find(headers, arguments)?
        {
            return Ok(Some(shown));
        }
        let in_header = |places: Option<Where>| places.is_some_and(|places| places.header);
        let (user, client) = (in_header(self.password), in_header(self.client));
        if (user || client)
            && let Some((name, secret)) = basic::basic_credentials(headers)?
        {
            let decoded = basic::decoded(&name, &secret).filter(|_| client);
            return Ok(Some(PresentedCredential {
                credential: Credential::Pair(Pair {
                    name,
                    secret,
                    user,
                    client,
                    decoded,
                }),
                header: Some(AUTHORIZATION),
                parameters: Vec::new(),
            }));
        }
        for (places, name, secret, user) in [
            (self.password, "username", "password", true),
            (self.client, "client_id", "client_secret", false),
        ] {
            // Without the other, either is a parameter like any.
            let is_pair =
                |places: &Where| arguments.has(name, *places) && arguments.has(secret, *places);
            let Some(places) = places.filter(is_pair) else {
                continue;
            };
            let named = arguments.only(name, places)?;
            let (Some(named), Some(proof)) = (named, arguments.only(secret, places)?) else {
                continue;
            };
            return Ok(Some(PresentedCredential {
                credential: Credential::Pair(Pair {
                    name: named.to_owned(),
                    secret: Secret::new(proof),
                    user,
                    client: !user,
                    decoded: None,
                }),
                header: None,
                parameters: vec![name.to_owned(), secret.to_owned()],
            }));
        }
        Ok(None)
    }
}

impl TokenPlace {
    /// Of a name, which `field` says; `None`: it is not looked for.
    fn new(field: &str, name: Option<&str>, places: &[Place]) -> Result<Option<Self>, ConfigError> {
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        Ok(Some(Self {
            places: Where::of(places),
            parameter: name.to_owned(),
            headers: header_names(field, name)?,
        }))
    }

    fn is_in_header(&self, headers: &HeaderMap) -> bool {
        self.headers.iter().any(|name| headers.contains_key(name))
    }

    fn find(
        &self,
        headers: &HeaderMap,
        arguments: &Arguments,
    ) -> Result<Option<PresentedCredential>, Refusal> {
        let named = |name| headers.get_all(name).iter().map(move |value| (name, value));
        let mut values = self.headers.iter().flat_map(named);
        if let Some((name, value)) = values.next().filter(|_| self.places.header) {
            if values.next().is_some() {
                return Err(Refusal::RepeatedCredentials);
            }
            let text = value.to_str().map_err(|_| Refusal::MalformedCredentials)?;
            let token = match text.split_at_checked("bearer ".len()) {
                Some((scheme, rest)) if scheme.eq_ignore_ascii_case("bearer ") => rest,
                _ => text,
            };
            if !token.trim().is_empty() {
                return Ok(Some(PresentedCredential {
                    credential: Credential::RefreshToken(Secret::new(token.trim())),
                    header: Some(name.clone()),
                    parameters: Vec::new(),
                }));
            }
        }
        let token = arguments.only(&self.parameter, self.places)?;
        Ok(token.map(|token| PresentedCredential {
            credential: Credential::RefreshToken(Secret::new(token)),
            header: None,
            parameters: vec![self.parameter.clone()],
        }))
    }
}

impl PresentedCredential {
    /// Where it was.
    pub(crate) fn place(&self, request: &RequestHeader) -> CredentialPlace {
        if self.header.is_some() {
            return CredentialPlace::Head;
        }
        let query = Arguments::new(request.uri.query(), Vec::new());
        let in_query = |name: &String| query.first(name).is_some();
        if self.parameters.iter().any(in_query) {
            CredentialPlace::Query
        } else {
            CredentialPlace::Body
        }
    }

    /// The token that it is, if it is one.
    pub(crate) fn token(&self) -> Option<&str> {
        match &self.credential {
            Credential::RefreshToken(token) => Some(token.expose()),
            Credential::Pair(_) => None,
        }
    }

    /// Takes the credential out of a request: its head, and the form that is
    /// its `body`, of which the rest is returned.
    pub(crate) fn strip(&self, request: &mut RequestHeader, body: Option<&[u8]>) -> Option<String> {
        if let Some(name) = &self.header {
            request.remove_header(name);
        }
        let names: Vec<&str> = self.parameters.iter().map(String::as_str).collect();
        if names.is_empty() {
            return None;
        }
        let left = request.uri.query().and_then(|query| without(query, &names));
        if let Some(left) = left {
            let path = request.uri.path();
            let target = if left.is_empty() {
                path.to_owned()
            } else {
                format!("{path}?{left}")
            };
            // A part of a target that was accepted is accepted.
            let _ = retarget(request, &target);
        }
        without(std::str::from_utf8(body?).ok()?, &names)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn find(mut config: Value, headers: &[(&str, &str)], query: &str) -> Result<String, Refusal> {
        config["client_id"] = json!(["gateway"]);
        let fields = &Fields::of(&config).expect("valid");
        let (methods, _) = Methods::new(fields);
        let search = Search::new(fields, methods).expect("valid");
        let mut request = RequestHeader::build("GET", b"/", None).expect("a request");
        for (name, value) in headers {
            request
                .append_header((*name).to_owned(), *value)
                .expect("a field");
        }
        let arguments = Arguments::new(Some(query), Vec::new());
        let found = search.find(&request.headers, &arguments)?;
        Ok(match found.map(|shown| shown.credential) {
            None => "nothing".into(),
            Some(Credential::RefreshToken(token)) => format!("refresh {}", token.expose()),
            Some(Credential::Pair(pair)) => {
                let Pair { name, secret, .. } = &pair;
                let (user, client) = (pair.user, pair.client);
                format!("{name} {} {user} {client}", secret.expose())
            }
        })
    }

    #[test]
    fn basic_credentials_may_be_those_of_a_user_and_of_a_client() {
        for (sent, wanted) in [
            ("Basic YW5uYTpzOmM=", Ok("anna s:c true true")),
            ("Basic YW5uYTpzOmM", Ok("anna s:c true true")),
            ("basic anna:secret", Ok("anna secret true true")),
            ("Basic !!!", Err(Refusal::MalformedCredentials)),
            ("Basic OnNlY3JldA==", Err(Refusal::MalformedCredentials)),
            ("Digest x", Ok("nothing")),
        ] {
            let found = find(json!({}), &[("authorization", sent)], "");
            assert_eq!(found, wanted.map(str::to_owned), "{sent}");
        }
        let twice = [
            ("authorization", "Basic YTpi"),
            ("authorization", "Basic Yzpk"),
        ];
        assert_eq!(
            find(json!({}), &twice, ""),
            Err(Refusal::RepeatedCredentials)
        );
    }

    #[test]
    fn the_first_in_the_order_of_the_methods_counts() {
        let config = json!({"refresh_token_param_name": "refresh_token"});
        let basic = [
            ("authorization", "Basic YTpi"),
            ("refresh-token", "bearer r1"),
        ];
        assert_eq!(find(config.clone(), &basic, ""), Ok("refresh r1".into()));
        let query = "client_id=c&client_secret=s&username=u&password=p";
        assert_eq!(find(json!({}), &[], query), Ok("u p true false".into()));
        let config = json!({"password_param_type": ["header"]});
        assert_eq!(find(config, &[], query), Ok("c s false true".into()));
        assert_eq!(
            find(json!({}), &[], "username=u&password="),
            Ok("nothing".into())
        );
    }

    #[test]
    fn a_parameter_is_a_repeated_credential_only_beside_its_other_half() {
        for query in [
            "username=a&username=b",
            "username=a&username=b&password=",
            "client_id=a&client_id=b",
            "client_id=a&client_id=b&password=p",
            "password=a&password=b",
        ] {
            assert_eq!(find(json!({}), &[], query), Ok("nothing".into()), "{query}");
        }
        for query in [
            "username=a&username=b&password=p",
            "username=a&password=p&password=q",
            "client_id=a&client_id=b&client_secret=s",
        ] {
            let found = find(json!({}), &[], query);
            assert_eq!(found, Err(Refusal::RepeatedCredentials), "{query}");
        }
    }

    #[test]
    fn what_was_shown_is_hidden_and_the_rest_stays() {
        let shown = PresentedCredential {
            credential: Credential::RefreshToken(Secret::new("x")),
            header: None,
            parameters: vec!["rt".into()],
        };
        let mut request = RequestHeader::build("POST", b"/a?b=1&rt=x", None).expect("a request");
        let left = shown.strip(&mut request, Some(b"rt=x&c=%20"));
        assert_eq!(left.as_deref(), Some("c=%20"));
        assert_eq!(request.uri.to_string(), "/a?b=1");
        // As it comes over HTTP/2.
        request.set_uri("https://api.test/a?rt=x".parse().expect("an address"));
        shown.strip(&mut request, None);
        assert_eq!(request.uri.to_string(), "https://api.test/a");
    }
}
