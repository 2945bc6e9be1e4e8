//! The answer to requests that are refused before the router.

use http::{HeaderValue, StatusCode, header};
use serde_json::json;

use super::reply::JSON;
use super::{REQUEST_ID, cors, info};
use doorward_core::clock::random_uuid;

/// The answer to a request that does not reach the router: as all others it has
/// an identifier of its own.
pub fn refusal(status: StatusCode, message: &str) -> http::Response<String> {
    let id = random_uuid().simple().to_string();
    let body = json!({"message": message});
    let mut response = http::Response::new(body.to_string());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, JSON);
    cors::insert(headers, REQUEST_ID, &id);
    headers.insert(header::SERVER, HeaderValue::from_static(info::SERVER));
    response
}
