//! Which rate a request is held to.

use std::collections::HashMap;

use crate::expr::{Expression, Scope};

/// Chooses one of a filter's rates, by its place among them.
#[derive(Debug)]
pub(super) enum Policy {
    /// Always this one.
    Fixed(usize),
    /// The one that the value of an expression is mapped to.
    Mapped {
        mapper: Expression,
        rates: HashMap<Box<str>, usize>,
        default: Option<usize>,
    },
    /// What another policy chooses, or this one where that chooses none.
    WithDefault(Box<Policy>, usize),
}

impl Policy {
    /// The rate for a request; `None`: it is not throttled.
    pub(super) fn choose(&self, scope: &Scope<'_>) -> Option<usize> {
        match self {
            Self::Fixed(rate) => Some(*rate),
            Self::Mapped {
                mapper,
                rates,
                default,
            } => mapper
                .text(scope)
                .and_then(|key| rates.get(&*key).copied())
                .or(*default),
            Self::WithDefault(delegate, default) => delegate.choose(scope).or(Some(*default)),
        }
    }

    /// Whether it can never choose a rate.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Mapped { rates, default: None, .. } if rates.is_empty())
    }
}
