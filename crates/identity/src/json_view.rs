//! `_fields` and `_prettyPrint`: how much of an answer of `/json` is sent, and
//! how it is written.

use axum::response::Response;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{StatusCode, Uri};
use http_body_util::BodyExt;
use serde_json::{Map, Value};

use super::form::Form;

/// Most members that `_fields` may name; the rest counts for nothing.
const FIELDS_MAX: usize = 100;

/// What the query says of the form of the answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct JsonView {
    /// JSON pointers (RFC 6901), with or without the slash in front; none: all.
    fields: Vec<String>,
    /// Whether the answer is written on several lines.
    pretty: bool,
}

impl JsonView {
    /// The view that a request to `/json` asks for; `None`: the usual one.
    /// `takes_fields`: the endpoint lets `_fields` cut its answers down.
    pub(super) fn of(takes_fields: bool, uri: &Uri) -> Option<Self> {
        let query = uri.query().filter(|query| query.contains('_'))?;
        let form = Form::parse(query.as_bytes()).ok()?;
        let fields = form.get("_fields").filter(|_| takes_fields);
        let fields = fields.unwrap_or_default().split(',').map(str::trim);
        let fields = fields.filter(|field| !field.is_empty()).take(FIELDS_MAX);
        let view = Self {
            fields: fields.map(str::to_owned).collect(),
            pretty: form.get("_prettyPrint") == Some("true"),
        };
        (view != Self::default()).then_some(view)
    }

    /// The answer in this view. Errors keep all their members.
    pub(super) async fn apply(&self, response: Response) -> Response {
        let kind = response.headers().get(CONTENT_TYPE);
        if !kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json")) {
            return response;
        }
        let (mut parts, body) = response.into_parts();
        let Ok(body) = body.collect().await else {
            return Response::from_parts(parts, axum::body::Body::empty());
        };
        let bytes = body.to_bytes();
        let text = serde_json::from_slice(&bytes).ok();
        let text = text.and_then(|body| self.write(parts.status, body));
        let body = text.map_or_else(|| bytes.into(), axum::body::Body::from);
        parts.headers.remove(CONTENT_LENGTH);
        Response::from_parts(parts, body)
    }

    fn write(&self, status: StatusCode, body: Value) -> Option<String> {
        let body = match body {
            Value::Object(members) if status.is_success() && !self.fields.is_empty() => {
                Value::Object(self.chosen(&members))
            }
            body => body,
        };
        if self.pretty {
            serde_json::to_string_pretty(&body).ok()
        } else {
            serde_json::to_string(&body).ok()
        }
    }

    /// The members that are named and there, each by the last part of its
    /// pointer.
    fn chosen(&self, members: &Map<String, Value>) -> Map<String, Value> {
        let mut chosen = Map::new();
        for field in &self.fields {
            let mut parts = field.trim_start_matches('/').split('/').map(unescaped);
            let Some(first) = parts.next() else { continue };
            let mut found = members.get(&first);
            let mut name = first;
            for part in parts {
                found = found.and_then(|value| match value {
                    Value::Array(items) => items.get(part.parse::<usize>().ok()?),
                    value => value.get(&part),
                });
                name = part;
            }
            if let Some(value) = found {
                chosen.insert(name, value.clone());
            }
        }
        chosen
    }
}

/// A part of a pointer as the member is called (RFC 6901 §4).
fn unescaped(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view(uri: &'static str) -> Option<JsonView> {
        let uri = Uri::from_static(uri);
        JsonView::of(true, &uri)
    }

    fn written(uri: &'static str, body: Value) -> Option<String> {
        view(uri)?.write(StatusCode::OK, body)
    }

    #[test]
    fn fields_are_pointers_and_missing_ones_are_left_out() {
        let body = json!({"a": 1, "b": {"c": 2, "d/e": 3}, "f": [4, 5]});
        for (uri, wanted) in [
            ("/x?_fields=a", json!({"a": 1})),
            ("/x?_fields=/a,%20b/c", json!({"a": 1, "c": 2})),
            ("/x?_fields=b/d~1e", json!({"d/e": 3})),
            ("/x?_fields=f/1,g,a/b/c", json!({"1": 5})),
        ] {
            let text = written(uri, body.clone()).expect("JSON");
            assert_eq!(
                serde_json::from_str::<Value>(&text).ok(),
                Some(wanted),
                "{uri}"
            );
        }
    }

    #[test]
    fn the_usual_view_costs_nothing_and_errors_are_whole() {
        for uri in ["/x", "/x?a=b", "/x?_action=validate", "/x?_fields=,"] {
            assert_eq!(view(uri), None, "{uri}");
        }
        let view = view("/x?_fields=code&_prettyPrint=true").expect("a view");
        let error = json!({"code": 401, "message": "Access Denied"});
        let text = view.write(StatusCode::UNAUTHORIZED, error).expect("JSON");
        assert!(
            text.contains("\n  \"message\": \"Access Denied\""),
            "{text}"
        );
    }
}
