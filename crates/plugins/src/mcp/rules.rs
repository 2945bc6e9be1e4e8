//! Who may call what: rules on methods and on what they call by name.

use std::borrow::Cow;

use doorward_core::model::schema::Type;
use doorward_core::model::token::AccessToken;
use doorward_expr::{Constants, Expression, Scope};
use doorward_plugin_api::filter::Exchange;
use doorward_plugin_api::{ConfigError, config, words};
use percent_encoding::percent_decode_str;
use pingora::http::RequestHeader;
use serde_json::{Value, json};
use url::Url;

use super::config::Fields;
use super::message::{Message, Subject};
use crate::settings::wrong;

/// What a session of the protocol can't do without, and what shows only what may be
/// called: a default of `deny` leaves it.
const ALWAYS: [&str; 7] = [
    "initialize",
    "ping",
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
];

config! {
    /// The fields of a rule.
    pub(super) struct RuleFields {
        /// Patterns of methods. Empty: all of them.
        #[field(kind(Type::array(Type::checked(check_pattern))), default(json!([])), required)]
        methods: Vec<String>,
        /// Patterns of tools that are called.
        #[field(kind(Type::array(Type::checked(check_pattern))), default(json!([])), required)]
        tools: Vec<String>,
        /// Patterns of prompts that are got.
        #[field(kind(Type::array(Type::checked(check_pattern))), default(json!([])), required)]
        prompts: Vec<String>,
        /// Patterns of resources that are read.
        #[field(kind(Type::array(Type::checked(check_pattern))), default(json!([])), required)]
        resources: Vec<String>,
        /// What becomes of calls that the rule is about.
        #[field(default("allow"), required)]
        action: Action,
        /// The scopes that the token must have.
        #[field(kind(Type::array(Type::checked(check_scope))), default(json!([])), required)]
        scopes_required: Vec<String>,
        /// The groups of which the user must have one. Empty: none is needed.
        #[field(kind(Type::array(Type::text())), default(json!([])), required)]
        groups_required: Vec<String>,
        /// An expression that must be true.
        #[field(kind(Type::text()))]
        when: Option<String>,
    }
}

words! {
    /// What becomes of a call.
    pub(super) enum Action {
        /// It goes on, if the caller has what it needs.
        Allow = "allow",
        /// It is denied.
        Deny = "deny",
    }
}

fn check_pattern(text: &str) -> Result<(), String> {
    if text.is_empty() || text.len() > 1024 {
        Err("must have 1 to 1024 bytes".to_owned())
    } else {
        Ok(())
    }
}

/// Whether a text can be a scope, and stand in a challenge.
pub(super) fn check_scope(text: &str) -> Result<(), String> {
    let allowed = |byte: u8| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
    if !text.is_empty() && text.bytes().all(allowed) {
        Ok(())
    } else {
        Err("has a character that no scope can have (RFC 6749 3.3)".to_owned())
    }
}

/// What becomes of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    Allowed,
    /// With these scopes it would be allowed.
    NeedsScopes(Vec<String>),
    Denied,
}

impl Decision {
    /// What holds where both have to.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Denied, _) | (_, Self::Denied) => Self::Denied,
            (Self::Allowed, decision) | (decision, Self::Allowed) => decision,
            (Self::NeedsScopes(mut all), Self::NeedsScopes(more)) => {
                for scope in more {
                    if !all.contains(&scope) {
                        all.push(scope);
                    }
                }
                Self::NeedsScopes(all)
            }
        }
    }
}

/// What is called by name, as one reader takes the name.
#[derive(Clone, Copy)]
enum Name<'a> {
    /// As it was sent.
    Sent(&'a str),
    /// As a reader of URIs takes it, and nothing is percent-encoded.
    Decoded(&'a str),
}

/// The address of a resource as readers of URIs take it (WHATWG URL): without dots,
/// tabs, capitals of the scheme and percent-encoding. `None`: they read no other.
fn decoded_uri(sent: &str) -> Option<String> {
    let uri = Url::parse(sent).map_or_else(|_| sent.trim().to_owned(), String::from);
    let decoded = percent_decoded(&uri);
    (decoded != sent).then(|| decoded.into_owned())
}

/// A text with `%XX` decoded wherever it stands for text.
fn percent_decoded(text: &str) -> Cow<'_, str> {
    percent_decode_str(text).decode_utf8_lossy()
}

/// All rules.
pub(super) struct Rules {
    rules: Vec<Rule>,
    denies_rest: bool,
    groups_claim: String,
}

struct Rule {
    methods: Patterns,
    tools: Patterns,
    prompts: Patterns,
    resources: Patterns,
    denies: bool,
    scopes: Vec<String>,
    groups: Vec<String>,
    when: Option<Expression>,
}

struct Patterns(Vec<String>);

impl Patterns {
    fn first(&self, text: &str) -> Option<&str> {
        let mut all = self.0.iter();
        all.find(|pattern| glob(pattern, text)).map(String::as_str)
    }

    /// Whether one fits a text in which nothing is percent-encoded.
    fn fit_decoded(&self, text: &str) -> bool {
        let mut all = self.0.iter();
        all.any(|pattern| glob(&percent_decoded(pattern), text))
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Whether `text` is what `pattern` says, in which `*` stands for any text.
pub(super) fn glob(pattern: &str, text: &str) -> bool {
    if pattern == text {
        return true;
    }
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut next) = (0, 0);
    // Where the last star is, and how much it stands for so far.
    let mut star = None;
    while next < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, next));
                at += 1;
            }
            Some(byte) if *byte == text[next] => {
                at += 1;
                next += 1;
            }
            _ => {
                let Some((place, taken)) = star else {
                    return false;
                };
                star = Some((place, taken + 1));
                at = place + 1;
                next = taken + 1;
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

impl Rule {
    fn read(fields: &RuleFields, constants: &Constants) -> Result<Self, ConfigError> {
        let when = fields.when.as_deref().map(|text| {
            let compiled = Expression::compile_with(text, constants);
            compiled.map_err(|error| wrong("rules.when", error.to_string()))
        });
        Ok(Self {
            methods: Patterns(fields.methods.clone()),
            tools: Patterns(fields.tools.clone()),
            prompts: Patterns(fields.prompts.clone()),
            resources: Patterns(fields.resources.clone()),
            denies: fields.action == Action::Deny,
            scopes: fields.scopes_required.clone(),
            groups: fields.groups_required.clone(),
            when: when.transpose()?,
        })
    }

    fn names(&self, subject: Subject) -> &Patterns {
        match subject {
            Subject::Tool => &self.tools,
            Subject::Prompt => &self.prompts,
            Subject::Resource => &self.resources,
        }
    }

    /// Whether it is about this call.
    fn is_about(&self, method: &str, call: Option<(Subject, Name<'_>)>) -> bool {
        if !self.methods.is_empty() && self.methods.first(method).is_none() {
            return false;
        }
        let names_nothing =
            self.tools.is_empty() && self.prompts.is_empty() && self.resources.is_empty();
        names_nothing
            || call.is_some_and(|(subject, name)| match name {
                Name::Sent(name) => self.names(subject).first(name).is_some(),
                Name::Decoded(name) => self.names(subject).fit_decoded(name),
            })
    }

    fn decide<'s>(
        &self,
        token: &AccessToken,
        groups_claim: &str,
        scope: impl FnOnce() -> Scope<'s>,
    ) -> Decision {
        let in_group =
            || groups(token, groups_claim).any(|group| self.groups.iter().any(|one| one == group));
        // What exceeds its bound holds for nobody.
        let is_true = |when: &Expression| when.is_true(&scope()).unwrap_or(false);
        let holds = self.when.as_ref().is_none_or(is_true);
        if self.denies || !(self.groups.is_empty() || in_group()) || !holds {
            return Decision::Denied;
        }
        if self.scopes.iter().all(|scope| token.scopes.contains(scope)) {
            return Decision::Allowed;
        }
        Decision::NeedsScopes(self.scopes.clone())
    }
}

impl Rules {
    /// Reads the rules of a configuration.
    pub(super) fn read(config: &Fields, constants: &Constants) -> Result<Self, ConfigError> {
        let rules = config.rules.iter();
        let rules = rules.map(|rule| Rule::read(rule, constants));
        Ok(Self {
            rules: rules.collect::<Result<_, _>>()?,
            denies_rest: config.default_action == Action::Deny,
            groups_claim: config.groups_claim.clone(),
        })
    }

    /// Whether they can refuse anything.
    pub(super) fn decide_anything(&self) -> bool {
        self.denies_rest || !self.rules.is_empty()
    }

    /// What the rules say of the caller of a request, who has this token.
    pub(super) fn of<'r>(
        &'r self,
        token: &'r AccessToken,
        request: &'r RequestHeader,
        exchange: &'r Exchange,
    ) -> Decided<'r> {
        Decided {
            rules: self,
            token,
            request,
            exchange,
        }
    }

    /// The patterns of methods, in the order of the rules.
    pub(super) fn methods(&self) -> impl Iterator<Item = &str> {
        let rules = self.rules.iter();
        rules.flat_map(|rule| &rule.methods.0).map(String::as_str)
    }

    /// The patterns of names, in the order of the rules.
    pub(super) fn names(&self) -> impl Iterator<Item = (Subject, &str)> {
        let subjects = [Subject::Tool, Subject::Prompt, Subject::Resource];
        self.rules.iter().flat_map(move |rule| {
            let all = subjects.into_iter();
            all.flat_map(|subject| {
                rule.names(subject)
                    .0
                    .iter()
                    .map(move |name| (subject, &**name))
            })
        })
    }

    fn rule_about(&self, method: &str, call: Option<(Subject, Name<'_>)>) -> Option<usize> {
        let mut rules = self.rules.iter();
        rules.position(|rule| rule.is_about(method, call))
    }

    fn default(&self, method: &str) -> Decision {
        let is_needed = ALWAYS.contains(&method) || method.starts_with("notifications/");
        if self.denies_rest && !is_needed {
            Decision::Denied
        } else {
            Decision::Allowed
        }
    }

    /// Decides by what each rule says of the caller. The address of a resource is judged
    /// as it was sent and as readers of URIs take it: servers do either, so both have
    /// to be allowed.
    pub(super) fn choose(
        &self,
        of_rule: impl Fn(usize) -> Decision,
        method: &str,
        call: Option<(Subject, &str)>,
    ) -> Decision {
        let choose = |name| {
            let rule = self.rule_about(method, name);
            rule.map_or_else(|| self.default(method), &of_rule)
        };
        let as_sent = choose(call.map(|(subject, name)| (subject, Name::Sent(name))));
        let Some((Subject::Resource, uri)) = call else {
            return as_sent;
        };
        match decoded_uri(uri) {
            Some(decoded) => {
                as_sent.and(choose(Some((Subject::Resource, Name::Decoded(&decoded)))))
            }
            None => as_sent,
        }
    }
}

/// The groups that a token names.
fn groups<'t>(token: &'t AccessToken, claim: &str) -> impl Iterator<Item = &'t str> {
    let (text, all) = match token.claims.get(claim) {
        Some(Value::String(text)) => (text.as_str(), &[][..]),
        Some(Value::Array(all)) => ("", all.as_slice()),
        _ => ("", &[][..]),
    };
    let several = all.iter().filter_map(Value::as_str);
    text.split_ascii_whitespace().chain(several)
}

/// What the rules say of the caller of a request.
pub(super) struct Decided<'r> {
    rules: &'r Rules,
    token: &'r AccessToken,
    request: &'r RequestHeader,
    exchange: &'r Exchange,
}

impl Decided<'_> {
    /// What becomes of a message.
    pub(super) fn decide(&self, message: &Message<'_>) -> Decision {
        match message.method.as_deref() {
            Some(method) => (self.rules).choose(|rule| self.of_rule(rule), method, message.call()),
            None => Decision::Allowed,
        }
    }

    /// What each rule says.
    pub(super) fn decisions(&self) -> Vec<Decision> {
        let rules = 0..self.rules.rules.len();
        rules.map(|rule| self.of_rule(rule)).collect()
    }

    fn of_rule(&self, rule: usize) -> Decision {
        match self.rules.rules.get(rule) {
            Some(rule) => rule.decide(self.token, &self.rules.groups_claim, || {
                self.exchange.scope(self.request)
            }),
            None => Decision::Denied,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::config::schema;

    fn rules(rules: Value, default: &str) -> Rules {
        let config = json!({
            "resource": "https://server.example/mcp", "issuer": "https://issuer.example",
            "rules": rules, "default_action": default,
        });
        let config = config.as_object().cloned().expect("an object");
        let config = schema().complete(config).expect("a configuration");
        let fields = Fields::read(&config).expect("a configuration");
        Rules::read(&fields, &Constants::default()).expect("rules")
    }

    fn reads(rules: &Rules, uri: &str) -> Decision {
        let of_rule = |rule: usize| {
            if rules.rules[rule].denies {
                Decision::Denied
            } else {
                Decision::Allowed
            }
        };
        rules.choose(of_rule, "resources/read", Some((Subject::Resource, uri)))
    }

    #[test]
    fn a_denied_resource_is_denied_in_every_spelling_that_a_server_may_mend() {
        let denied = rules(
            json!([{"resources": ["file:///pub/*"], "action": "deny"}]),
            "allow",
        );
        for uri in [
            "file:///pub/a",
            "file:///x/../pub/a",
            "file:///x/%2e%2e/pub/a",
            "FILE:///pub/a",
            "file:/pub/a",
            "file://localhost/pub/a",
            " file:///pub/a",
            "file:///p\tub/a",
            "file:///pub\\a",
            "file:///%70ub/a",
            "file:///x/..\\pub/a",
        ] {
            assert_eq!(reads(&denied, uri), Decision::Denied, "{uri}");
        }
        assert_eq!(reads(&denied, "file:///other/a"), Decision::Allowed);
    }

    #[test]
    fn an_allowed_folder_is_not_left_by_dots() {
        let allowed = rules(json!([{"resources": ["file:///pub/*", "x:a%20b"]}]), "deny");
        for uri in ["file:///pub/../etc/passwd", "file:///pub/%2e%2e/etc/passwd"] {
            assert_eq!(reads(&allowed, uri), Decision::Denied, "{uri}");
        }
        for uri in [
            "file:///pub/a b",
            "file:///pub/a%20b",
            "file:///pub/{x}",
            "x:a%20b",
        ] {
            assert_eq!(reads(&allowed, uri), Decision::Allowed, "{uri}");
        }
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text) in [
            ("*", ""),
            ("a*", "a"),
            ("*b*", "abc"),
            ("a*c*e", "abcde"),
            ("*ab", "aab"),
            ("file:///pub/*", "file:///pub/x/y"),
        ] {
            assert!(glob(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("", "a"),
            ("a", "A"),
            ("a*c", "ab"),
            ("*ab", "aba"),
            ("a", "ab"),
        ] {
            assert!(!glob(pattern, text), "{pattern} {text}");
        }
        assert!(!glob(&"*a".repeat(50), &"a".repeat(40)));
    }
}
