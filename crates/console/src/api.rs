//! The Admin API, as pages call it: in the process, on behalf of the visitor.

use axum::body::Body;
use http::{HeaderValue, Method, Request, StatusCode, header};
use serde_json::Value;

use doorward_admin::AdminService;
use doorward_core::model::audit::Operator;
use doorward_net::http::ClientInfo;

use super::error::PageError;

/// Longest answer that a page is made of, in bytes.
const ANSWER_MAX: usize = 8 << 20;

/// The Admin API on behalf of somebody.
pub(crate) struct Api {
    service: AdminService,
    operator: Operator,
    client: Option<ClientInfo>,
}

/// What the Admin API answered.
#[derive(Debug)]
pub(crate) struct ApiAnswer {
    pub(crate) status: StatusCode,
    /// Null if there is none.
    pub(crate) body: Value,
}

impl Api {
    pub(crate) fn new(
        service: AdminService,
        operator: Operator,
        client: Option<ClientInfo>,
    ) -> Self {
        Self {
            service,
            operator,
            client,
        }
    }

    /// Reads what is at `target`, a path with its query.
    ///
    /// # Errors
    /// The Admin API's refusal.
    pub(crate) async fn get(&self, target: &str) -> Result<Value, PageError> {
        let answer = self.send(Method::GET, target, None).await?;
        if answer.status.is_success() {
            Ok(answer.body)
        } else {
            Err(PageError::Api(answer))
        }
    }

    /// Passes on what is at `target`, however long it is.
    ///
    /// # Errors
    /// If `target` is no path, or the Admin API refuses.
    pub(crate) async fn stream(&self, target: &str) -> Result<Body, PageError> {
        let request = Request::builder().uri(target).body(Body::empty());
        let mut request = request.map_err(|_| PageError::NotFound)?;
        if let Some(client) = self.client {
            request.extensions_mut().insert(client);
        }
        let response = self.service.call(self.operator.clone(), request).await;
        if response.status().is_success() {
            Ok(response.into_body())
        } else {
            Err(PageError::Form)
        }
    }

    /// Sends a request and reads the answer, whatever it is.
    ///
    /// # Errors
    /// If `target` is no path, or the answer is no JSON.
    pub(crate) async fn send(
        &self,
        method: Method,
        target: &str,
        body: Option<&Value>,
    ) -> Result<ApiAnswer, PageError> {
        let content = body.map_or_else(String::new, Value::to_string);
        let request = Request::builder().method(method).uri(target);
        let mut request = request
            .body(Body::from(content))
            .map_err(|_| PageError::NotFound)?;
        let headers = request.headers_mut();
        if body.is_some() {
            let json = HeaderValue::from_static("application/json");
            headers.insert(header::CONTENT_TYPE, json);
        }
        if let Some(client) = self.client {
            request.extensions_mut().insert(client);
        }
        let response = self.service.call(self.operator.clone(), request).await;
        let status = response.status();
        let bytes = axum::body::to_bytes(response.into_body(), ANSWER_MAX).await;
        let bytes = bytes.map_err(|_| PageError::Unreadable)?;
        let body = if bytes.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&bytes).map_err(|_| PageError::Unreadable)?
        };
        Ok(ApiAnswer { status, body })
    }
}

impl ApiAnswer {
    /// What is said of a refusal.
    pub(crate) fn message(&self) -> &str {
        let message = self.body.get("message").and_then(Value::as_str);
        message.unwrap_or_else(|| self.status.canonical_reason().unwrap_or_default())
    }

    /// The fields that a refusal complains about, by their dotted names.
    pub(crate) fn violations(&self) -> Vec<(String, String)> {
        let mut all = Vec::new();
        if let Some(fields) = self.body.get("fields") {
            collect(fields, "", &mut all);
        }
        all
    }
}

fn collect(value: &Value, path: &str, all: &mut Vec<(String, String)>) {
    let below = |key: &str| {
        if path.is_empty() {
            key.to_owned()
        } else {
            format!("{path}.{key}")
        }
    };
    match value {
        Value::String(message) => all.push((path.to_owned(), message.clone())),
        Value::Object(map) => map
            .iter()
            .for_each(|(key, value)| collect(value, &below(key), all)),
        // Of elements before the wrong one there is nothing to say. Positions count
        // from one.
        Value::Array(list) => list
            .iter()
            .enumerate()
            .for_each(|(index, value)| collect(value, &below(&(index + 1).to_string()), all)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn violations_have_the_names_of_their_fields() {
        let answer = ApiAnswer {
            status: StatusCode::BAD_REQUEST,
            body: json!({"message": "m", "fields": {
                "host": "required field missing",
                "config": {"rates": [null, {"duration": "expected a number"}]},
                "@entity": ["at least one of these"],
            }}),
        };
        let mut violations = answer.violations();
        violations.sort();
        let names: Vec<_> = violations.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["@entity.1", "config.rates.2.duration", "host"]);
        assert_eq!(answer.message(), "m");
    }
}
