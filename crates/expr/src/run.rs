//! One evaluation: what it looks at, and how much it may still do.
//!
//! Whoever sends a request must not be able to choose what a condition comes
//! to by making it too costly. So what exceeds a bound is not null, from which
//! `not` or `empty` make true: it fails the whole evaluation.

use std::cell::Cell;
use std::ops::Deref;

use super::value::Value;
use super::{MAX_LIST, MAX_TEXT, Scope};

/// Most bytes of bodies and queries that one evaluation reads as JSON or as
/// fields of a form.
const MAX_READ: usize = 1 << 20;
/// Most steps back of all patterns of one evaluation.
const MAX_STEPS: usize = 200_000;

/// Why an evaluation has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// It exceeded a bound.
    Exceeded,
    /// It looked at a body that nobody has read.
    NoBody,
}

/// An evaluation.
pub(super) struct Run<'a> {
    scope: Scope<'a>,
    /// Whether to stop where a body is missing, which is null otherwise.
    waits: bool,
    stop: Cell<Option<Stop>>,
    /// Bytes that may still be read.
    bytes: Cell<usize>,
    /// Steps back that patterns may still make.
    steps: Cell<usize>,
}

impl<'a> Deref for Run<'a> {
    type Target = Scope<'a>;

    fn deref(&self) -> &Scope<'a> {
        &self.scope
    }
}

impl<'a> Run<'a> {
    pub(super) fn new(scope: &Scope<'a>) -> Self {
        Self {
            scope: *scope,
            waits: false,
            stop: Cell::new(None),
            bytes: Cell::new(MAX_READ),
            steps: Cell::new(MAX_STEPS),
        }
    }

    /// An evaluation that stops where it looks at a body that is not there.
    pub(super) fn before_body(scope: &Scope<'a>) -> Self {
        Self {
            waits: true,
            ..Self::new(scope)
        }
    }

    /// Whether it has no value, so that nothing more needs to be looked at.
    pub(super) fn is_over(&self) -> bool {
        self.stop.get().is_some()
    }

    /// Whether it looked at a body that nobody has read.
    pub(super) fn lacks_body(&self) -> bool {
        self.stop.get() == Some(Stop::NoBody)
    }

    /// Notes that a bound was exceeded; always `None`.
    pub(super) fn exceeded<T>(&self) -> Option<T> {
        self.stop.set(Some(Stop::Exceeded));
        None
    }

    /// The body, where something looks at it.
    pub(super) fn body(&self) -> Option<&'a [u8]> {
        if self.scope.body.is_none() && self.waits && !self.is_over() {
            self.stop.set(Some(Stop::NoBody));
        }
        self.scope.body
    }

    /// The claim `name` of the verified token.
    pub(super) fn claim(&self, name: &str) -> Value<'a> {
        let claims = self.scope.token.map(|token| &token.claims);
        let claim = claims.and_then(|claims| claims.get(name));
        claim.map_or(Value::Null, Value::of_json)
    }

    /// Allows `bytes` more to be read, if they are not too many by now.
    pub(super) fn read(&self, bytes: usize) -> Option<()> {
        self.spend(&self.bytes, bytes)
    }

    /// Allows `steps` more of patterns, if they are not too many by now.
    pub(super) fn step(&self, steps: usize) -> Option<()> {
        self.spend(&self.steps, steps)
    }

    fn spend(&self, purse: &Cell<usize>, amount: usize) -> Option<()> {
        match purse.get().checked_sub(amount) {
            Some(left) => {
                purse.set(left);
                Some(())
            }
            None => self.exceeded(),
        }
    }

    /// Whether a text of `length` bytes may be made.
    pub(super) fn allows(&self, length: usize) -> Option<()> {
        if length <= MAX_TEXT {
            Some(())
        } else {
            self.exceeded()
        }
    }

    /// `value`, if it is not too large.
    pub(super) fn bounded(&self, value: Value<'a>) -> Value<'a> {
        let too_large = match &value {
            Value::Text(text) => text.len() > MAX_TEXT,
            Value::List(list) => list.len() > MAX_LIST,
            _ => false,
        };
        if too_large {
            self.exceeded::<()>();
            return Value::Null;
        }
        value
    }
}
