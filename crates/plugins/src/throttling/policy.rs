//! Which rates a request is held to.

use std::collections::HashMap;

use super::rates::Rates;
use doorward_expr::{Exceeded, Expression, Scope, Value};

/// Chooses rates, by their numbers among the filter's.
#[derive(Debug)]
pub(super) enum Policy {
    /// Always these.
    Fixed(Limit),
    /// Those that the value of an expression is mapped to.
    Mapped {
        mapper: Expression,
        limits: HashMap<Box<str>, Limit>,
        default: Option<Limit>,
    },
    /// The one that an expression names, as `6/10 s`.
    Expression(Expression),
    /// What another policy chooses, or these where that chooses none.
    WithDefault(Box<Policy>, Limit),
}

/// Rates that hold together.
pub(super) type Limit = Box<[u16]>;

/// What a policy chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice<'a> {
    /// The request is not throttled.
    Nothing,
    /// All of these hold.
    Limit(&'a [u16]),
    /// This one holds.
    One([u16; 1]),
    /// What should be a rate is none: an error of the configuration, or the
    /// expression exceeds a limit.
    Broken,
}

impl Choice<'_> {
    /// The numbers of the rates.
    pub(super) fn rates(&self) -> &[u16] {
        match self {
            Self::Limit(rates) => rates,
            Self::One(rates) => rates,
            Self::Nothing | Self::Broken => &[],
        }
    }
}

impl Policy {
    /// What its expression names that there is not.
    pub(super) fn unknown(&self) -> &[String] {
        match self {
            Self::Fixed(_) => &[],
            Self::Mapped { mapper, .. } => mapper.unknown(),
            Self::Expression(expression) => expression.unknown(),
            Self::WithDefault(policy, _) => policy.unknown(),
        }
    }

    /// The rates for a request.
    pub(super) fn choose<'a>(&'a self, scope: &Scope<'_>, rates: &Rates) -> Choice<'a> {
        let some = |limit: Option<&'a Limit>| limit.map_or(Choice::Nothing, |l| Choice::Limit(l));
        match self {
            Self::Fixed(limit) => Choice::Limit(limit),
            Self::Mapped {
                mapper,
                limits,
                default,
            } => {
                let mapped = match mapper.value(scope) {
                    Ok(Value::Text(key)) => limits.get(&*key),
                    Ok(_) => None,
                    // Nobody gets another rate by making it too costly.
                    Err(Exceeded) => return Choice::Broken,
                };
                some(mapped.or(default.as_ref()))
            }
            Self::Expression(expression) => match expression.value(scope) {
                Ok(Value::Null) => Choice::Nothing,
                Ok(Value::Text(text)) => rates
                    .named(&text)
                    .map_or(Choice::Broken, |number| Choice::One([number])),
                _ => Choice::Broken,
            },
            Self::WithDefault(delegate, default) => match delegate.choose(scope, rates) {
                Choice::Nothing => Choice::Limit(default),
                chosen => chosen,
            },
        }
    }

    /// Whether it can never choose a rate.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Mapped {
                limits, default, ..
            } => limits.is_empty() && default.is_none(),
            Self::Expression(expression) => matches!(expression.constant(), Some(Value::Null)),
            Self::Fixed(_) | Self::WithDefault(..) => false,
        }
    }

    /// Whether it looks at the body of the request.
    pub(super) fn needs_body(&self) -> bool {
        match self {
            Self::Fixed(_) => false,
            Self::Mapped { mapper, .. } => mapper.needs_body(),
            Self::Expression(expression) => expression.needs_body(),
            Self::WithDefault(delegate, _) => delegate.needs_body(),
        }
    }

    /// Whether requests may bring up rates of their own.
    pub(super) fn is_open(&self) -> bool {
        match self {
            Self::Expression(_) => true,
            Self::WithDefault(delegate, _) => delegate.is_open(),
            Self::Fixed(_) | Self::Mapped { .. } => false,
        }
    }
}
