//! Request bodies: JSON, forms and multipart forms to one nested object.

use bytes::Bytes;
use http::{HeaderMap, header};
use serde_json::{Map, Value};

use super::error::ApiError;
use super::form::{self, Node};
use doorward_core::model::schema::Source;
use doorward_net::http::multipart::{self, MultipartError};

/// Most arguments of a form or a query.
pub(super) const MAX_ARGUMENTS: usize = 1000;

/// The arguments in a body, and how loosely they are typed.
///
/// # Errors
/// 415 for a type that is not read, 400 for what is not of its type.
pub(super) fn arguments(
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<(Map<String, Value>, Source), ApiError> {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let (first, second) = (types.next(), types.next());
    if second.is_some() {
        return Err(ApiError::ContentTypes);
    }
    if body.is_empty() {
        // An empty text is no JSON; without a type there is just no body.
        let json = first.and_then(|value| value.to_str().ok());
        return if json.is_some_and(|value| essence(value) == "application/json") {
            Err(ApiError::Json)
        } else {
            Ok((Map::new(), Source::Json))
        };
    }
    let content_type = first
        .ok_or(ApiError::MediaType)?
        .to_str()
        .map_err(|_| ApiError::ContentTypes)?;
    match essence(content_type).as_str() {
        "application/json" => json(body).map(|map| (map, Source::Json)),
        "application/x-www-form-urlencoded" => urlencoded(body).map(|map| (map, Source::Form)),
        "multipart/form-data" => in_parts(content_type, body).map(|map| (map, Source::Form)),
        _ => Err(ApiError::MediaType),
    }
}

/// The media type without its parameters, in lower case.
pub(super) fn essence(content_type: &str) -> String {
    let essence = content_type.split(';').next().unwrap_or_default();
    essence.trim().to_ascii_lowercase()
}

fn json(body: &[u8]) -> Result<Map<String, Value>, ApiError> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(map)) => Ok(map),
        _ => Err(ApiError::Json),
    }
}

fn urlencoded(body: &[u8]) -> Result<Map<String, Value>, ApiError> {
    let text = std::str::from_utf8(body).map_err(|_| ApiError::Form("not UTF-8".to_owned()))?;
    let mut root = Node::default();
    for (key, value) in pairs(text)? {
        form::insert(&mut root, &key, Node::Text(value)).map_err(ApiError::Form)?;
    }
    Ok(root.into_map())
}

/// The decoded pairs of a form or a query, in their order.
///
/// # Errors
/// For broken percent-encodings and for more pairs than are read.
pub(super) fn pairs(text: &str) -> Result<Vec<(String, String)>, ApiError> {
    let mut out = Vec::new();
    for pair in text
        .trim_end_matches(['\r', '\n'])
        .split('&')
        .filter(|pair| !pair.is_empty())
    {
        if out.len() >= MAX_ARGUMENTS {
            return Err(ApiError::Arguments);
        }
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        out.push((form::decoded(key, true)?, form::decoded(value, true)?));
    }
    Ok(out)
}

/// RFC 7578: a part of JSON type is parsed.
fn in_parts(content_type: &str, body: &[u8]) -> Result<Map<String, Value>, ApiError> {
    let broken = |error| match error {
        MultipartError::Parts => ApiError::Arguments,
        other => ApiError::Form(other.to_string()),
    };
    let boundary = multipart::boundary(content_type).map_err(broken)?;
    let parts = multipart::parts(boundary, body).map_err(broken)?;
    let mut root = Node::default();
    for part in parts {
        let value = std::str::from_utf8(part.value);
        let value = value.map_err(|_| ApiError::Form("not UTF-8".to_owned()))?;
        let kind = part.field("content-type");
        let value = if kind.is_some_and(|kind| essence(kind) == "application/json") {
            Node::Typed(serde_json::from_str(value).map_err(|_| ApiError::Json)?)
        } else {
            Node::Text(value.to_owned())
        };
        form::insert(&mut root, part.name, value).map_err(ApiError::Form)?;
    }
    Ok(root.into_map())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use serde_json::json;

    use super::*;

    fn read(content_type: &str, body: &str) -> Result<Value, String> {
        let mut headers = HeaderMap::new();
        if !content_type.is_empty() {
            let value = HeaderValue::from_str(content_type).expect("a value");
            headers.insert(header::CONTENT_TYPE, value);
        }
        arguments(&headers, &Bytes::copy_from_slice(body.as_bytes()))
            .map(|(map, _)| Value::Object(map))
            .map_err(|error| error.to_string())
    }

    fn form(body: &str) -> Value {
        read("application/x-www-form-urlencoded", body).expect("is read")
    }

    #[test]
    fn dots_and_brackets_nest() {
        assert_eq!(
            form("name=x&config.a.b=1&config.c=2&m[k]=v&e=&f"),
            json!({"name":"x","config":{"a":{"b":"1"},"c":"2"},"m":{"k":"v"},"e":"","f":""})
        );
    }

    #[test]
    fn repetition_and_indices_make_lists() {
        for body in [
            "x=1&x=2",
            "x[]=1&x[]=2",
            "x[1]=1&x[2]=2",
            "x%5B2%5D=2&x%5B1%5D=1",
        ] {
            assert_eq!(form(body), json!({"x":["1","2"]}), "{body}");
        }
        assert_eq!(
            form("a.b[1].c=v&a.b[1].d=w&a.b[2].c=x"),
            json!({"a":{"b":[{"c":"v","d":"w"},{"c":"x"}]}})
        );
    }

    #[test]
    fn encoded_values_are_decoded() {
        assert_eq!(
            form("a=x+y%20z%C3%A9%2C&b=%26"),
            json!({"a":"x y zé,","b":"&"})
        );
    }

    #[test]
    fn malformed_forms_are_refused() {
        let refused =
            |body: &str| read("application/x-www-form-urlencoded", body).expect_err("is refused");
        assert!(refused("a=%zz").contains("percent"));
        assert!(refused("a=%ff").contains("UTF-8"));
        assert!(refused("a=1&a.b=2").contains("'a.b'"));
        assert!(refused(&format!("a{}=1", ".b".repeat(40))).contains("deep"));
        assert_eq!(refused(&"a=1&".repeat(1001)), "Too many arguments");
    }

    #[test]
    fn json_bodies_are_objects() {
        assert_eq!(
            read("application/json; charset=utf-8", "{\"a\":1}"),
            Ok(json!({"a":1}))
        );
        for body in ["[1]", "\"x\"", "{", "{\"a\":1}x", &"[".repeat(100_000)] {
            assert_eq!(
                read("application/json", body),
                Err("Cannot parse JSON body".to_owned())
            );
        }
    }

    #[test]
    fn the_type_must_be_known_unless_there_is_no_body() {
        assert_eq!(read("", ""), Ok(json!({})));
        assert_eq!(read("text/plain", ""), Ok(json!({})));
        assert!(read("", "a=1").is_err());
        assert!(read("text/plain", "a=1").is_err());
    }

    #[test]
    fn multipart_forms_are_read() {
        let body = "preamble\r\n--xyz\r\nContent-Disposition: form-data; name=\"name\"\r\n\r\n\
                    a\r\nb\r\n--xyz\r\nContent-Disposition: form-data; name=config.x\r\n\
                    Content-Type: application/json\r\n\r\n[1]\r\n--xyz--\r\n";
        assert_eq!(
            read("multipart/form-data; boundary=\"xyz\"", body),
            Ok(json!({"name":"a\r\nb","config":{"x":[1]}}))
        );
    }

    #[test]
    fn malformed_multipart_forms_are_refused() {
        for body in [
            "",
            "--xyz",
            "--xyz\r\n",
            "--xyz\r\n\r\nx\r\n--xyz--",
            "--xyz\r\nContent-Disposition: form-data\r\n\r\nx\r\n--xyz--",
            "--xyzzz\r\n\r\n",
        ] {
            let read = read("multipart/form-data; boundary=xyz", body);
            assert!(body.is_empty() || read.is_err(), "{body:?}: {read:?}");
        }
        assert!(read("multipart/form-data", "x").is_err());
    }
}
