//! Configuration tokens: `&{orders.secret}`, `&{a.b|default}`, `&{file:PATH}`
//! and `{vault://env/orders-secret}`.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::PathSegment;
use super::coerce;

/// Deepest nesting of tokens in defaults.
const MAX_NESTING: usize = 16;
/// Largest file that `&{file:…}` reads, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// Longest text that tokens make of a text, in bytes.
const MAX_TEXT: usize = 1 << 20;

/// Why a token has no value.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum TokenError {
    #[error(
        "configuration token '{name}' has no value: set {variable} in the environment, or give a default as &{{{name}|default}}"
    )]
    Unset { name: String, variable: String },
    #[error("configuration token '{0}' is not a name of letters, digits, '.', '-' and '_'")]
    Name(String),
    #[error(
        "configuration tokens are resolved in files only; write \\&{{ or \\{{vault:// for the text itself"
    )]
    Foreign,
    #[error("configuration token is not closed by '}}'")]
    Open,
    #[error("configuration tokens are nested deeper than {MAX_NESTING} levels")]
    Nesting,
    #[error("configuration tokens make a text of more than {MAX_TEXT} bytes")]
    Large,
    #[error("file {path}: {message}")]
    File { path: String, message: String },
    #[error("{0}")]
    Property(String),
    #[error("{0}")]
    Coercion(String),
    #[error(
        "vault reference '{0}' can't be resolved: only {{vault://env/NAME}} and {{vault://env/NAME/KEY}} are supported"
    )]
    Vault(String),
}

/// What a name stands for besides the environment.
pub(super) type Properties<'a> = &'a dyn Fn(&str) -> Result<Option<String>, String>;

/// Where tokens get their values from.
pub(super) struct Tokens<'a> {
    /// Asked first.
    pub(super) properties: Option<Properties<'a>>,
    /// `None`: there are none to be had.
    pub(super) environment: Option<&'a dyn Fn(&str) -> Option<String>>,
    /// What relative paths of `&{file:…}` start from.
    pub(super) directory: &'a Path,
    /// Whether references to vaults stay as they are: records may hold them.
    pub(super) keeps_vaults: bool,
    /// Whether `{"$int": "6"}` is the number.
    pub(super) coerces: bool,
    /// What was met on the way.
    pub(super) met: RefCell<Substitutions>,
}

/// What was met while tokens were resolved.
#[derive(Debug, Default)]
pub(super) struct Substitutions {
    /// Paths of the texts that had a token.
    pub(super) resolved: Vec<Vec<PathSegment>>,
    /// Texts that came from outside of the document, and may be secret.
    pub(super) secrets: Vec<String>,
    /// Files that were looked at.
    pub(super) files: Vec<PathBuf>,
}

impl Tokens<'_> {
    /// Resolves the tokens of every text in `value`; keys are left alone. Goes
    /// on after an error: the text at fault stays as it is.
    pub(super) fn resolve_all(
        &self,
        value: &mut Value,
        path: &mut Vec<PathSegment>,
        errors: &mut Vec<(Vec<PathSegment>, TokenError)>,
    ) {
        match value {
            Value::String(text) => match self.resolve(text) {
                Ok(None) => {}
                Ok(Some(new)) => {
                    *text = new;
                    self.met.borrow_mut().resolved.push(path.clone());
                }
                Err(error) => errors.push((path.clone(), error)),
            },
            Value::Array(list) => {
                for (index, item) in list.iter_mut().enumerate() {
                    path.push(index.into());
                    self.resolve_all(item, path, errors);
                    path.pop();
                }
            }
            Value::Object(map) => {
                let found = errors.len();
                for (key, item) in map.iter_mut() {
                    path.push(key.as_str().into());
                    self.resolve_all(item, path, errors);
                    path.pop();
                }
                if self.coerces && errors.len() == found {
                    match coerce::coerced(map) {
                        None => {}
                        Some(Ok(new)) => *value = new,
                        Some(Err(message)) => {
                            errors.push((path.clone(), TokenError::Coercion(message)));
                        }
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// The text with its tokens replaced, or `None` if it has none. What a
    /// token resolves to is not searched for tokens again.
    pub(super) fn resolve(&self, text: &str) -> Result<Option<String>, TokenError> {
        if let Some(reference) = text
            .strip_prefix("{vault://")
            .and_then(|rest| rest.strip_suffix('}'))
        {
            if self.keeps_vaults {
                return Ok(None);
            }
            return self.vault(reference).map(Some);
        }
        if let Some(plain) = text.strip_prefix('\\').filter(|_| is_vault(text)) {
            return Ok(Some(plain.to_owned()));
        }
        if !text.contains("&{") {
            return Ok(None);
        }
        self.substitute(text, 0).map(Some)
    }

    fn substitute(&self, text: &str, depth: usize) -> Result<String, TokenError> {
        if depth > MAX_NESTING {
            return Err(TokenError::Nesting);
        }
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find("&{") {
            let (before, token) = rest.split_at(at);
            if let Some(before) = before.strip_suffix('\\') {
                out.push_str(before);
                out.push_str("&{");
                rest = &token[2..];
                continue;
            }
            out.push_str(before);
            let end = closing(token).ok_or(TokenError::Open)?;
            out.push_str(&self.token(&token[2..end], depth)?);
            if out.len() > MAX_TEXT {
                return Err(TokenError::Large);
            }
            rest = &token[end + 1..];
        }
        out.push_str(rest);
        Ok(out)
    }

    /// The value of what stands between `&{` and `}`.
    fn token(&self, inner: &str, depth: usize) -> Result<String, TokenError> {
        if self.environment.is_none() {
            return Err(TokenError::Foreign);
        }
        let (name, default) = match inner.split_once('|') {
            Some((name, default)) => (name.trim(), Some(default)),
            None => (inner.trim(), None),
        };
        let found = match name.strip_prefix("file:") {
            Some(path) => self.file(path),
            None => self.variable(name),
        };
        match (found, default) {
            (Ok(value), _) => Ok(value),
            (Err(TokenError::Unset { .. } | TokenError::File { .. }), Some(default)) => {
                self.substitute(default, depth + 1)
            }
            (Err(error), _) => Err(error),
        }
    }

    fn variable(&self, name: &str) -> Result<String, TokenError> {
        let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if name.is_empty() || !name.chars().all(valid) {
            return Err(TokenError::Name(name.to_owned()));
        }
        if let Some(properties) = self.properties
            && let Some(text) = properties(name).map_err(TokenError::Property)?
        {
            return Ok(text);
        }
        let variable = name.replace(['.', '-'], "_").to_ascii_uppercase();
        let environment = self.environment.ok_or(TokenError::Foreign)?;
        let Some(text) = environment(&variable) else {
            return Err(TokenError::Unset {
                name: name.to_owned(),
                variable,
            });
        };
        self.keep_secret(&text);
        Ok(text)
    }

    fn keep_secret(&self, text: &str) {
        let secrets = &mut self.met.borrow_mut().secrets;
        if !secrets.iter().any(|known| known == text) {
            secrets.push(text.to_owned());
        }
    }

    /// A file's content, less the line break at its end.
    fn file(&self, path: &str) -> Result<String, TokenError> {
        let fail = |message: String| TokenError::File {
            path: path.to_owned(),
            message,
        };
        let full = self.directory.join(path);
        self.met.borrow_mut().files.push(full.clone());
        let size = std::fs::metadata(&full)
            .map_err(|error| fail(error.to_string()))?
            .len();
        if size > MAX_FILE {
            return Err(fail(format!("larger than {MAX_FILE} bytes")));
        }
        let text = std::fs::read_to_string(&full).map_err(|error| fail(error.to_string()))?;
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let text = text.strip_suffix('\r').unwrap_or(text);
        self.keep_secret(text);
        Ok(text.to_owned())
    }

    /// What a reference stands for.
    pub(super) fn reference(&self, text: &str) -> Result<String, TokenError> {
        let inside = text.strip_prefix("{vault://");
        let inside = inside.and_then(|rest| rest.strip_suffix('}'));
        self.vault(inside.unwrap_or(text))
    }

    /// `env/NAME`, or `env/NAME/KEY` of a variable that holds a JSON object.
    fn vault(&self, reference: &str) -> Result<String, TokenError> {
        if self.environment.is_none() {
            return Err(TokenError::Foreign);
        }
        let unsupported = || TokenError::Vault(reference.to_owned());
        let path = reference.strip_prefix("env/").ok_or_else(unsupported)?;
        let Some((name, key)) = path.split_once('/') else {
            return self.variable(path);
        };
        let object: Value =
            serde_json::from_str(&self.variable(name)?).map_err(|_| unsupported())?;
        match object.get(key) {
            Some(Value::String(text)) => {
                self.keep_secret(text);
                Ok(text.clone())
            }
            _ => Err(unsupported()),
        }
    }
}

/// Whether a text begins as a vault reference does, or one marked as none.
fn is_vault(text: &str) -> bool {
    text.trim_start_matches('\\').starts_with("{vault://")
}

/// Marks every text of `value` that would be read as a token as none.
pub(super) fn escape_all(value: &mut Value) {
    match value {
        Value::String(text) => {
            if is_vault(text) {
                text.insert(0, '\\');
            } else if text.contains("&{") {
                *text = text.replace("&{", "\\&{");
            }
        }
        Value::Array(list) => list.iter_mut().for_each(escape_all),
        Value::Object(map) => map.values_mut().for_each(escape_all),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Where the token that `text` begins with ends: the `}` that closes it.
fn closing(text: &str) -> Option<usize> {
    let mut open = 0_usize;
    let bytes = text.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'{' if at > 0 && bytes[at - 1] == b'&' => open += 1,
            b'}' => {
                open -= 1;
                if open == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}
