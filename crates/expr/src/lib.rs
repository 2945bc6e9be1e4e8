//! Run-time expressions `${…}`: compiled once, evaluated per request.
//!
//! A text is compiled when its configuration is loaded ([`Expression`]); what
//! can't exist (an unknown function, root or member, a bad pattern) is refused
//! then, with its column. Evaluation borrows from the request ([`Scope`]),
//! mostly without allocating, never reads files or the network, has no loops,
//! and turns whatever fails into null. What exceeds a bound is no value at all
//! ([`Exceeded`]): a condition is then neither true nor false.
//!
//! Start with [`Expression::compile`]; `lex` → `parse` → `compile` make the
//! tree of `node`, whose leaves are the context values of `slot`.

mod address;
mod calls;
mod compile;
mod constants;
mod context;
pub mod duration;
mod encoding;
mod files;
mod function;
mod lex;
mod lookup;
mod message;
mod method;
mod node;
mod parse;
mod pattern;
mod resolve;
mod run;
mod scan;
mod slot;
mod target;
#[cfg(test)]
mod tests;
mod text_form;
mod value;

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use http::request::Parts;
use http::{HeaderMap, StatusCode, Uri};

pub use constants::Constants;
use doorward_core::model::token::AccessToken;
use doorward_core::x509::ClientCertificate;
use node::Node;
use run::Run;
pub use value::Value;

/// Longest text that compiles, in bytes.
pub const MAX_SOURCE: usize = 8 * 1024;
/// Deepest nesting of brackets, calls and prefixes: how far parsing recurses.
const MAX_DEPTH: u16 = 64;
/// Longest way from the whole to a value, counted in operators, calls and
/// members: how far evaluation recurses. `a || b || c` has one more for each.
const MAX_HEIGHT: u16 = 256;
/// Most values and operators in one `${…}`: each is looked at once at most, so
/// this bounds the steps of an evaluation.
const MAX_NODES: usize = 1000;
/// Longest text that evaluation produces, in bytes; beyond it evaluation fails.
/// A body of 64 KiB that is not UTF-8 becomes a text of twice as many.
const MAX_TEXT: usize = 128 * 1024;
/// Longest list that evaluation produces; beyond it evaluation fails.
/// The attribute in which a filter notes what is known of the login of a user;
/// expressions see it as `contexts.oauth2Info` and in `attributes.openid`.
pub const LOGIN_ATTRIBUTE: &str = "contexts.oauth2Info";
/// The attribute in which a filter notes why a login has failed: `error` and
/// `description` of `contexts.oauth2Failure`.
pub const FAILURE_ATTRIBUTE: &str = "contexts.oauth2Failure";
const MAX_LIST: usize = 1024;

/// An evaluation did not come to a value because it exceeded a bound: of the
/// lengths of texts and lists, of the steps of patterns, of what is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the expression exceeds a limit for this request")]
pub struct Exceeded;

/// Why a text is not an expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {message}")]
pub struct ExprError {
    /// Where, in characters from 1, in the whole text.
    pub column: usize,
    /// What is wrong and what is allowed.
    pub message: String,
}

/// A position (byte offset) and what is wrong there, before columns are known.
#[derive(Debug)]
struct Fault {
    at: usize,
    message: String,
}

impl Fault {
    fn new(at: usize, message: impl Into<String>) -> Self {
        Self {
            at,
            message: message.into(),
        }
    }
}

/// What an expression may look at: one exchange, as far as it is known.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    /// Method, target, version and headers, as filters left them.
    pub request: &'a Parts,
    /// The names of its headers that were not sent in lower case, as they were sent;
    /// none where no expression asks for them ([`asks_for_spelling`]).
    pub sent: &'a [Box<str>],
    /// The client's address.
    pub client: SocketAddr,
    /// The address that the client's connection came in by.
    pub local: Option<SocketAddr>,
    /// Whether the client used TLS.
    pub secure: bool,
    /// The client's verified certificate, if it showed one.
    pub certificate: Option<&'a ClientCertificate>,
    /// The verified access token, if there is one.
    pub token: Option<&'a AccessToken>,
    /// The target as the client sent it, where a filter has changed it.
    pub original: Option<&'a Uri>,
    /// The body of the request, where it was read
    /// ([`Expression::needs_body`]).
    pub body: Option<&'a [u8]>,
    /// The id of the exchange, if it has one.
    pub transaction: Option<&'a str>,
    /// The answer, once there is one.
    pub response: Option<Response<'a>>,
    /// Values that filters have given names to.
    pub attributes: &'a [(Box<str>, Value<'static>)],
}

impl<'a> Scope<'a> {
    /// A request of a client, without anything else that may be known.
    pub fn new(request: &'a Parts, client: SocketAddr) -> Self {
        Self {
            request,
            sent: &[],
            client,
            local: None,
            secure: false,
            certificate: None,
            token: None,
            original: None,
            body: None,
            transaction: None,
            response: None,
            attributes: &[],
        }
    }
}

/// Whether an expression of this process asks for names of request headers.
static SPELLING: AtomicBool = AtomicBool::new(false);

/// Whether an expression that was compiled asks for names of request headers:
/// they are given as they were sent, which the data path else forgets.
pub fn asks_for_spelling() -> bool {
    SPELLING.load(Ordering::Relaxed)
}

/// The head of an answer.
#[derive(Debug, Clone, Copy)]
pub struct Response<'a> {
    /// Its status.
    pub status: StatusCode,
    /// The reason phrase, if it is not the usual one of the status.
    pub reason: Option<&'a str>,
    /// Its headers.
    pub headers: &'a HeaderMap,
}

/// A compiled text with expressions.
#[derive(Debug)]
pub struct Expression {
    root: Node,
    needs: compile::Needs,
    /// See [`Expression::path_prefix`].
    path_prefix: Option<Box<str>>,
    unknown: Box<[String]>,
}

impl Expression {
    /// Compiles `text`: literal text, `${…}`, or both mixed. A literal `${` is
    /// written `\${`.
    ///
    /// # Errors
    /// [`ExprError`] where the text is not an expression, names what does not
    /// exist, or is longer or deeper than allowed.
    pub fn compile(text: &str) -> Result<Self, ExprError> {
        Self::compile_with(text, &Constants::default())
    }

    /// Compiles `text`, in which `constants` may be used by their names.
    ///
    /// # Errors
    /// As [`Self::compile`].
    pub fn compile_with(text: &str, constants: &Constants) -> Result<Self, ExprError> {
        let (root, needs, unknown) =
            compile::template(text, constants).map_err(|fault| ExprError {
                column: column(text, fault.at),
                message: fault.message,
            })?;
        let path_prefix = scan::path_prefix(&root).map(Box::from);
        Ok(Self {
            root,
            needs,
            path_prefix,
            unknown: unknown.into(),
        })
    }

    /// What it names that there is not, in words, where that is null and no
    /// error ([`Constants::leniently`]).
    pub fn unknown(&self) -> &[String] {
        &self.unknown
    }

    /// Whether it looks at the body of the request, which must then be read
    /// before it is evaluated; without the body, what it looks at is null.
    pub fn needs_body(&self) -> bool {
        self.needs.body || self.needs.form
    }

    /// Whether it looks at the body of this request: fields of a form are only
    /// there if the body is one.
    pub fn needs_body_of(&self, request: &Parts) -> bool {
        self.needs.body || (self.needs.form && message::is_form(request))
    }

    /// Whether it looks at the answer; before there is one, what it looks at
    /// is null.
    pub fn needs_response(&self) -> bool {
        self.needs.response
    }

    /// The value for this request; null where evaluation fails.
    ///
    /// # Errors
    /// [`Exceeded`] where it exceeds a bound.
    pub fn value<'a>(&'a self, scope: &Scope<'a>) -> Result<Value<'a>, Exceeded> {
        let run = Run::new(scope);
        let value = self.root.evaluate(&run);
        if run.is_over() {
            Err(Exceeded)
        } else {
            Ok(value)
        }
    }

    /// The value for this request; null where evaluation fails, for whatever
    /// reason. Not for what decides whether something is allowed: see
    /// [`Self::value`].
    pub fn evaluate<'a>(&'a self, scope: &Scope<'a>) -> Value<'a> {
        self.value(scope).unwrap_or(Value::Null)
    }

    /// The value where a text is expected: a value of any other type counts as
    /// null, it is not converted.
    pub fn text<'a>(&'a self, scope: &Scope<'a>) -> Option<Cow<'a, str>> {
        match self.evaluate(scope) {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Whether the value is the boolean true; anything else, the text `true`
    /// included, is not.
    ///
    /// # Errors
    /// [`Exceeded`] where it exceeds a bound. The condition then guards nothing,
    /// and the request goes neither way.
    pub fn is_true(&self, scope: &Scope<'_>) -> Result<bool, Exceeded> {
        if self.is_ruled_out(scope) {
            return Ok(false);
        }
        Ok(self.value(scope)? == Value::Bool(true))
    }

    /// As [`Self::is_true`] while the body has not been read; `None` if it
    /// can't be said without.
    ///
    /// # Errors
    /// As [`Self::is_true`].
    pub fn is_true_before_body(&self, scope: &Scope<'_>) -> Result<Option<bool>, Exceeded> {
        if self.is_ruled_out(scope) {
            return Ok(Some(false));
        }
        let run = Run::before_body(scope);
        let value = self.root.evaluate(&run);
        match run.is_over() {
            false => Ok(Some(value == Value::Bool(true))),
            true if run.lacks_body() => Ok(None),
            true => Err(Exceeded),
        }
    }

    /// Whether the path alone says that it is not true: most conditions of most
    /// routes end here, without a search.
    fn is_ruled_out(&self, scope: &Scope<'_>) -> bool {
        let path = scope.request.uri.path();
        let prefix = self.path_prefix.as_deref();
        prefix.is_some_and(|prefix| !path.starts_with(prefix) && !path.contains('%'))
    }

    /// The value, if it is the same for every request.
    pub fn constant(&self) -> Option<Value<'_>> {
        self.root.constant()
    }

    /// A text that the path begins with where the expression is true, if that
    /// can be seen without evaluating it: a request whose path as it was sent
    /// has no `%` and does not begin with it need not be asked.
    pub fn path_prefix(&self) -> Option<&str> {
        self.path_prefix.as_deref()
    }

    /// The host, in any case, of every request for which the expression is
    /// true, if that can be seen without evaluating it.
    pub fn host(&self) -> Option<&str> {
        scan::host(&self.root)
    }

    /// Whether the expression is the client's address and nothing else: it can
    /// then be used without making a text of it.
    pub fn is_client_address(&self) -> bool {
        matches!(self.root, Node::Slot(slot::Slot::ClientAddress))
    }
}

/// The value of a configuration text at load time, when there is no request.
///
/// # Errors
/// [`ExprError`] where the text does not compile or depends on a request.
pub fn at_load(text: &str) -> Result<Value<'static>, ExprError> {
    at_load_with(text, &Constants::default())
}

/// The value of a configuration text at load time, in which `constants` may be
/// used by their names.
///
/// # Errors
/// As [`at_load`].
pub fn at_load_with(text: &str, constants: &Constants) -> Result<Value<'static>, ExprError> {
    let expression = Expression::compile_with(text, constants)?;
    let value = expression.constant().ok_or_else(|| ExprError {
        column: 1,
        message: match expression.unknown.first() {
            Some(unknown) => unknown.clone(),
            None => {
                "depends on a request, and there is none when the configuration is loaded".into()
            }
        },
    })?;
    Ok(value.into_owned())
}

fn column(text: &str, at: usize) -> usize {
    text.char_indices().take_while(|(i, _)| *i < at).count() + 1
}
