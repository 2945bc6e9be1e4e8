//! Why an order failed: the authority's word, or what came between.

use std::error::Error;
use std::fmt;

use instant_acme::Problem;

use crate::schedule::Refusal;
use doorward_core::model::acme::AcmeProblem;

/// How the types of RFC 8555 begin.
const TYPES: &str = "urn:ietf:params:acme:error:";
/// The step before all orders: the directory and the account.
pub(crate) const ACCOUNT: &str = "account";
/// Longest detail that is kept, in characters.
const DETAIL_MAX: usize = 600;
/// Refusals that last until the operator, the authority or the DNS changes.
const LASTING: &[&str] = &[
    "accountDoesNotExist",
    "badCSR",
    "badPublicKey",
    "badSignatureAlgorithm",
    "caa",
    "externalAccountRequired",
    "invalidContact",
    "invalidProfile",
    "rateLimited",
    "rejectedIdentifier",
    "unsupportedContact",
    "unsupportedIdentifier",
    "userActionRequired",
];

/// Why an order failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OrderError {
    /// What was being done.
    pub(crate) step: &'static str,
    /// The type of RFC 8555 §6.7 without its prefix, if the authority has spoken.
    pub(crate) kind: Option<String>,
    /// What is wrong.
    pub(crate) detail: String,
    /// When the authority wants to be asked again, in milliseconds.
    pub(crate) retry_after_ms: Option<i64>,
}

impl OrderError {
    /// Not the authority's word.
    pub(crate) fn own(step: &'static str, detail: impl fmt::Display) -> Self {
        Self {
            step,
            kind: None,
            detail: bounded(&detail.to_string()),
            retry_after_ms: None,
        }
    }

    /// The authority's word.
    pub(crate) fn problem(step: &'static str, problem: &Problem) -> Self {
        let mut detail = problem.detail.clone().unwrap_or_default();
        for one in &problem.subproblems {
            detail.push_str(&format!("; {one}"));
        }
        let kind = problem.r#type.as_deref().map(|kind| {
            let kind = kind.strip_prefix(TYPES).unwrap_or(kind);
            bounded(kind)
        });
        Self {
            step,
            kind,
            detail: bounded(&detail),
            retry_after_ms: None,
        }
    }

    /// What the client library says.
    pub(crate) fn of(step: &'static str, error: &instant_acme::Error) -> Self {
        if let instant_acme::Error::Api(problem) = error {
            return Self::problem(step, problem);
        }
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            if !text.contains(&cause_text) {
                text.push_str(": ");
                text.push_str(&cause_text);
            }
            source = cause.source();
        }
        Self::own(step, text)
    }

    /// Whether the authority names this problem.
    pub(crate) fn is(&self, kind: &str) -> bool {
        self.kind.as_deref() == Some(kind)
    }

    /// Whether it has nothing to do with the names of the order.
    pub(crate) fn is_of_account(&self) -> bool {
        self.step == ACCOUNT
    }

    /// The authority's type, or that it was not the authority's word.
    pub(crate) fn code(&self) -> String {
        self.kind.clone().unwrap_or_else(|| "no_answer".to_owned())
    }

    /// What the next order depends on.
    pub(crate) fn refusal(&self) -> Refusal {
        let kind = self.kind.as_deref();
        Refusal {
            retry_after_ms: self.retry_after_ms,
            is_lasting: kind.is_some_and(|kind| LASTING.contains(&kind)),
        }
    }

    /// As the store keeps it.
    pub(crate) fn record(&self, at_ms: i64) -> AcmeProblem {
        AcmeProblem {
            kind: self.kind.clone(),
            step: self.step.to_owned(),
            detail: self.detail.clone(),
            at_ms,
        }
    }
}

impl fmt::Display for OrderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.step)?;
        if let Some(kind) = &self.kind {
            write!(f, "{kind}: ")?;
        }
        f.write_str(&self.detail)
    }
}

/// One line of bounded length: authorities' texts are strangers'.
pub(crate) fn bounded(text: &str) -> String {
    let line = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    line.take(DETAIL_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(json: &str) -> OrderError {
        let problem = serde_json::from_str(json).expect("a problem");
        OrderError::problem("order", &problem)
    }

    #[test]
    fn the_authoritys_type_and_detail_are_told() {
        let error = problem(
            r#"{"type":"urn:ietf:params:acme:error:rejectedIdentifier","detail":"no\nway",
                "subproblems":[{"type":"urn:ietf:params:acme:error:caa","detail":"CAA",
                "identifier":{"type":"dns","value":"a.test"}}]}"#,
        );
        let text = error.to_string();
        assert!(
            text.starts_with("order: rejectedIdentifier: no way; for \"a.test\""),
            "{text}"
        );
        assert!(error.refusal().is_lasting);
    }

    #[test]
    fn what_passes_by_itself_is_tried_again_soon() {
        for kind in [
            "badNonce",
            "serverInternal",
            "connection",
            "dns",
            "unauthorized",
            "orderNotReady",
        ] {
            let error = problem(&format!(
                r#"{{"type":"urn:ietf:params:acme:error:{kind}"}}"#
            ));
            assert!(!error.refusal().is_lasting, "{kind}");
            assert!(error.is(kind));
        }
    }
}
