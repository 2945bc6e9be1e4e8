//! The flows of a proxy: which operation a request meets.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::condition::Condition;
use super::variable::{EXTERNAL_ACCESS_TOKEN, Facts, Variable};
use doorward_core::model::broker::{Attribute, TokenKind};

/// Most flows of a proxy.
const MAX_FLOWS: usize = 256;
/// Longest life of a token, in milliseconds: ten years.
pub(super) const MAX_LIFE_MS: i64 = 3650 * 86_400_000;
/// Access tokens live so long unless something else is said.
const LIFE_MS: i64 = 1_800_000;
/// Refresh tokens live so long unless something else is said: 30 days.
const REFRESH_LIFE_MS: i64 = 30 * 86_400_000;

/// Nobody refreshes for longer than this unless something else is said: 90 days.
const MOST_MS: i64 = 90 * 86_400_000;

/// The flows of a proxy of which nothing is said.
const USUAL: [(&str, Option<&str>, OperationName); 3] = [
    (
        "token",
        Some(r#"(proxy.pathsuffix MatchesPath "/access_token**") and (request.verb = "POST")"#),
        OperationName::GenerateAccessToken,
    ),
    (
        "refresh",
        Some(r#"(proxy.pathsuffix MatchesPath "/refresh_token**") and (request.verb = "POST")"#),
        OperationName::RefreshAccessToken,
    ),
    ("api", None, OperationName::VerifyAccessToken),
];

/// A flow as it is written. Names of the imitated policies' elements are read
/// too.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct FlowConfig {
    name: Option<String>,
    #[serde(alias = "Condition")]
    condition: Option<String>,
    #[serde(alias = "Operation")]
    operation: Option<OperationName>,
    #[serde(alias = "ExternalAuthorization", alias = "externalAuthorization")]
    external_authorization: Option<bool>,
    #[serde(alias = "ExternalAccessToken", alias = "externalAccessToken")]
    external_access_token: Option<String>,
    #[serde(alias = "ExternalRefreshToken", alias = "externalRefreshToken")]
    external_refresh_token: Option<String>,
    #[serde(alias = "StoreToken", alias = "storeToken")]
    store_token: Option<bool>,
    #[serde(alias = "ReuseRefreshToken", alias = "reuseRefreshToken")]
    reuse_refresh_token: bool,
    #[serde(alias = "SupportedGrantTypes", alias = "supportedGrantTypes")]
    supported_grant_types: Option<Vec<String>>,
    #[serde(alias = "GenerateResponse", alias = "generateResponse")]
    generate_response: Option<bool>,
    #[serde(alias = "GenerateErrorResponse", alias = "generateErrorResponse")]
    generate_error_response: Option<bool>,
    #[serde(alias = "Format", alias = "responseFormat")]
    response_format: Option<String>,
    #[serde(alias = "ExpiresIn", alias = "expiresIn")]
    expires_in: Option<i64>,
    #[serde(alias = "RefreshTokenExpiresIn", alias = "refreshTokenExpiresIn")]
    refresh_token_expires_in: Option<i64>,
    #[serde(alias = "refreshTokenMaxLifetime")]
    refresh_token_max_lifetime: Option<i64>,
    #[serde(alias = "Attributes")]
    attributes: BTreeMap<String, Attribute>,
    #[serde(alias = "Scope")]
    scope: Vec<String>,
    #[serde(alias = "AccessToken", alias = "accessToken")]
    access_token: Option<String>,
    #[serde(alias = "AccessTokenPrefix", alias = "accessTokenPrefix")]
    access_token_prefix: Option<String>,
    #[serde(alias = "Tokens")]
    tokens: Vec<EndedConfig>,
}

/// A token to be ended, as it is written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct EndedConfig {
    #[serde(rename = "type")]
    kind: TokenType,
    #[serde(default)]
    cascade: bool,
    variable: String,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TokenType {
    AccessToken,
    RefreshToken,
}

/// The name of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum OperationName {
    GenerateAccessToken,
    RefreshAccessToken,
    VerifyAccessToken,
    InvalidateToken,
    /// No operation: the request passes.
    #[serde(rename = "none")]
    None,
}

/// A flow.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) name: String,
    /// `None`: always.
    pub(super) condition: Option<Condition>,
    pub(super) operation: Operation,
}

/// What is done with a request.
#[derive(Debug)]
pub(super) enum Operation {
    Generate(Generate),
    Refresh(Refreshing),
    Verify(Verify),
    Invalidate(Vec<Ended>),
    Pass,
}

/// `GenerateAccessToken`.
#[derive(Debug)]
pub(super) struct Generate {
    /// Whether the provider says who may have tokens.
    pub(super) external: bool,
    /// The variable with the access token; `None`: one is made.
    pub(super) access_token: Option<Variable>,
    /// The variable with the refresh token; `None`: one is made.
    pub(super) refresh_token: Option<Variable>,
    pub(super) stored: bool,
    pub(super) grant_types: Vec<String>,
    pub(super) issue: Issue,
}

/// `RefreshAccessToken`.
#[derive(Debug)]
pub(super) struct Refreshing {
    /// Whether the refresh token stays the same until it expires.
    pub(super) reuse: bool,
    pub(super) issue: Issue,
}

/// How tokens are issued.
#[derive(Debug)]
pub(super) struct Issue {
    /// Whether the operation writes the response.
    pub(super) responds: bool,
    /// Whether refusals have the token endpoint's own shape.
    pub(super) short: bool,
    pub(super) life_ms: i64,
    refresh_life_ms: i64,
    /// So long after the sign-in the last refresh token ends.
    refresh_most_ms: i64,
    pub(super) attributes: BTreeMap<String, Attribute>,
}

impl Issue {
    /// When a refresh token ends that is issued now, of a sign-in at `begun_ms`;
    /// all in milliseconds since the epoch.
    pub(super) fn refresh_end(&self, begun_ms: i64, now_ms: i64) -> i64 {
        let last_ms = match self.refresh_most_ms {
            MAX_LIFE_MS => i64::MAX,
            most_ms => begun_ms.saturating_add(most_ms),
        };
        now_ms.saturating_add(self.refresh_life_ms).min(last_ms)
    }
}

/// `VerifyAccessToken`.
#[derive(Debug)]
pub(super) struct Verify {
    /// Scopes of which a token must have all.
    pub(super) scopes: Vec<String>,
    /// The variable with the token, and its name; `None`: the header.
    pub(super) token: Option<(Variable, String)>,
    /// In front of the token in the header, with a blank.
    pub(super) prefix: String,
}

impl Verify {
    /// Whether the token is in a body that was not read.
    pub(super) fn is_unread(&self, facts: &Facts<'_>) -> bool {
        let token = self.token.as_ref();
        token.is_some_and(|(variable, _)| facts.is_unread(variable))
    }

    /// Whether the token is in the query, where it must not be logged.
    pub(super) fn in_query(&self) -> bool {
        matches!(&self.token, Some((Variable::Query(_), _)))
    }
}

/// A token to be ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) which: TokenKind,
    pub(super) cascade: bool,
    pub(super) variable: Variable,
}

/// What is wrong with flows.
#[derive(Debug)]
pub(super) struct WrongFlow {
    /// Which one, counted from zero; `None`: all together.
    pub(super) flow: Option<usize>,
    pub(super) field: &'static str,
    pub(super) message: String,
}

/// The flows of a proxy; those of `written`, or the usual ones.
///
/// # Errors
/// What is wrong, and where.
pub(super) fn compile(written: Vec<FlowConfig>, provider: bool) -> Result<Vec<Flow>, WrongFlow> {
    let flows = if written.is_empty() {
        USUAL
            .into_iter()
            // Without a provider nobody checks passwords.
            .filter(|(_, _, word)| provider || *word == OperationName::VerifyAccessToken)
            .map(|(name, condition, word)| FlowConfig {
                name: Some(name.to_owned()),
                condition: condition.map(str::to_owned),
                operation: Some(word),
                ..FlowConfig::default()
            })
            .collect()
    } else {
        written
    };
    if flows.len() > MAX_FLOWS {
        let message = format!("must have {MAX_FLOWS} elements at most");
        return Err(WrongFlow {
            flow: None,
            field: "",
            message,
        });
    }
    let flows = flows.into_iter().enumerate();
    let compiled = flows.map(|(index, flow)| {
        flow.compile(index, provider)
            .map_err(|(field, message)| WrongFlow {
                flow: Some(index),
                field,
                message,
            })
    });
    compiled.collect()
}

type Wrong = (&'static str, String);

impl FlowConfig {
    fn compile(self, index: usize, provider: bool) -> Result<Flow, Wrong> {
        let wrong = |name: &'static str| move |message: String| (name, message);
        let condition = self.condition.as_deref().map(Condition::compile);
        let condition = condition.transpose().map_err(wrong("condition"))?;
        let operation = match self.operation {
            None => return Err(("operation", "is required".to_owned())),
            Some(OperationName::GenerateAccessToken) => {
                Operation::Generate(self.generate(provider)?)
            }
            Some(OperationName::RefreshAccessToken) => Operation::Refresh(Refreshing {
                reuse: self.reuse_refresh_token,
                issue: self.issue()?,
            }),
            Some(OperationName::VerifyAccessToken) => Operation::Verify(self.verify()?),
            Some(OperationName::InvalidateToken) => Operation::Invalidate(self.ended()?),
            Some(OperationName::None) => Operation::Pass,
        };
        Ok(Flow {
            name: self.name.unwrap_or_else(|| format!("flow-{}", index + 1)),
            condition,
            operation,
        })
    }

    fn generate(&self, provider: bool) -> Result<Generate, Wrong> {
        let named = |name: &'static str, variable: &str| {
            Variable::named(variable).map_err(|message| (name, message))
        };
        let external = self.external_authorization.unwrap_or(provider);
        if external && !provider {
            let message = "needs token_endpoint: somebody has to check the password";
            return Err(("external_authorization", message.to_owned()));
        }
        let usual = if external {
            "password"
        } else {
            "client_credentials"
        };
        let grant_types = self.supported_grant_types.clone();
        let grant_types = grant_types.unwrap_or_else(|| vec![usual.to_owned()]);
        for grant_type in &grant_types {
            // Nobody but the provider checks passwords, and it is asked for
            // nothing else.
            if grant_type != usual {
                let known = ["password", "client_credentials"];
                let message = if known.contains(&grant_type.as_str()) {
                    format!("'{grant_type}' does not go with external_authorization: {external}")
                } else {
                    format!("'{grant_type}' is not supported")
                };
                return Err(("supported_grant_types", message));
            }
        }
        let access_token = match (&self.external_access_token, external) {
            (Some(name), _) if name.is_empty() => None,
            (Some(name), _) => Some(named("external_access_token", name)?),
            (None, true) => Some(named("external_access_token", EXTERNAL_ACCESS_TOKEN)?),
            (None, false) => None,
        };
        let refresh_token = match self.external_refresh_token.as_deref() {
            None | Some("") => None,
            Some(name) => Some(named("external_refresh_token", name)?),
        };
        if let Some(format) = &self.response_format
            && format != "FORM_PARAM"
        {
            let message = "must be FORM_PARAM, which is answered with JSON";
            return Err(("response_format", message.to_owned()));
        }
        Ok(Generate {
            external,
            access_token,
            refresh_token,
            stored: self.store_token.unwrap_or(true),
            grant_types,
            issue: self.issue()?,
        })
    }

    fn issue(&self) -> Result<Issue, Wrong> {
        let life = |name: &'static str, given: Option<i64>, usual: i64| match given {
            None => Ok(usual),
            Some(-1) => Ok(MAX_LIFE_MS),
            Some(life) if (1000..=MAX_LIFE_MS).contains(&life) => Ok(life),
            Some(_) => {
                let message = format!("must be -1 or between 1000 and {MAX_LIFE_MS} milliseconds");
                Err((name, message))
            }
        };
        let responds = self.generate_response.unwrap_or(true);
        let refresh_life_ms = life(
            "refresh_token_expires_in",
            self.refresh_token_expires_in,
            REFRESH_LIFE_MS,
        )?;
        Ok(Issue {
            responds,
            short: self.generate_error_response.unwrap_or(responds),
            life_ms: life("expires_in", self.expires_in, LIFE_MS)?,
            refresh_life_ms,
            // Who lets a token live longer means it.
            refresh_most_ms: life(
                "refresh_token_max_lifetime",
                self.refresh_token_max_lifetime,
                MOST_MS.max(refresh_life_ms),
            )?,
            attributes: self.attributes.clone(),
        })
    }

    fn verify(&self) -> Result<Verify, Wrong> {
        let token = match &self.access_token {
            None => None,
            Some(name) => {
                let variable = Variable::named(name);
                let variable = variable.map_err(|message| ("access_token", message))?;
                Some((variable, name.clone()))
            }
        };
        let prefix = self.access_token_prefix.as_deref().unwrap_or("Bearer");
        let prefix = match prefix.trim() {
            "" => String::new(),
            word => format!("{word} "),
        };
        Ok(Verify {
            scopes: self.scope.clone(),
            token,
            prefix,
        })
    }

    fn ended(&self) -> Result<Vec<Ended>, Wrong> {
        if self.tokens.is_empty() {
            let ended = |which| Ended {
                which,
                cascade: true,
                variable: Variable::Form("token".to_owned()),
            };
            return Ok(vec![ended(TokenKind::Access), ended(TokenKind::Refresh)]);
        }
        let each = self.tokens.iter().map(|token| {
            let variable = Variable::named(&token.variable);
            Ok(Ended {
                which: match token.kind {
                    TokenType::AccessToken => TokenKind::Access,
                    TokenType::RefreshToken => TokenKind::Refresh,
                },
                cascade: token.cascade,
                variable: variable.map_err(|message| ("tokens", message))?,
            })
        });
        each.collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn compiled(flows: Value, provider: bool) -> Result<Vec<Flow>, WrongFlow> {
        let flows: Vec<FlowConfig> = serde_json::from_value(flows).expect("flows");
        compile(flows, provider)
    }

    #[test]
    fn the_usual_flows_are_those_of_the_interface() {
        let flows = compiled(json!([]), true).expect("flows");
        let names: Vec<_> = flows.iter().map(|flow| flow.name.as_str()).collect();
        assert_eq!(names, ["token", "refresh", "api"]);
        let Operation::Generate(token) = &flows[0].operation else {
            panic!("it generates")
        };
        assert!(token.external && token.stored && token.issue.responds && token.issue.short);
        assert_eq!(token.grant_types, ["password"]);
        assert_eq!(token.issue.life_ms, 1_800_000);
        assert_eq!(compiled(json!([]), false).expect("flows").len(), 1);
    }

    #[test]
    fn a_password_that_nobody_checks_gives_no_token() {
        for flow in [
            json!({"operation": "GenerateAccessToken", "external_authorization": false,
                   "supported_grant_types": ["password"]}),
            json!({"operation": "GenerateAccessToken", "SupportedGrantTypes": ["client_credentials"]}),
            json!({"operation": "GenerateAccessToken", "supported_grant_types": ["implicit"]}),
        ] {
            let wrong = compiled(json!([flow]), true).expect_err("refused");
            assert_eq!(
                (wrong.flow, wrong.field),
                (Some(0), "supported_grant_types")
            );
        }
        let alone = json!([{"operation": "GenerateAccessToken", "ExternalAuthorization": true}]);
        let wrong = compiled(alone, false).expect_err("refused");
        assert_eq!(wrong.field, "external_authorization");
    }

    #[test]
    fn what_is_wrong_with_a_flow_is_told_with_its_place() {
        for (flow, wanted) in [
            (json!({}), "operation"),
            (json!({"operation": "none", "condition": "("}), "condition"),
            (
                json!({"operation": "RefreshAccessToken", "expires_in": 1}),
                "expires_in",
            ),
            (
                json!({"operation": "GenerateAccessToken", "response_format": "XML"}),
                "response_format",
            ),
        ] {
            let wrong = compiled(json!([flow]), true).expect_err("refused");
            assert_eq!(wrong.field, wanted);
        }
        let typo = json!({"operation": "none", "conditon": "x"});
        assert!(serde_json::from_value::<FlowConfig>(typo).is_err());
    }
}
