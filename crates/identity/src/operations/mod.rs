//! What the endpoints of the provider take and give, for its description in OpenAPI
//! 3.1: each row of the table of endpoints names its function here.

pub(super) mod json;
pub(super) mod oauth;
pub(super) mod pages;
pub(super) mod scim;

use doorward_core::openapi::Operation;
use serde_json::{Value, json};

/// The media type of forms.
const FORM: &str = "application/x-www-form-urlencoded";

/// What proves a client: by Basic, or by members of the form.
fn of_client(operation: Operation) -> Operation {
    operation.security(json!([{"client": []}, {}]))
}

/// What proves who asks: an access token.
fn of_token(operation: Operation) -> Operation {
    operation.security(json!([{"token": []}]))
}

/// With refusals of one shape: their statuses, and what each says.
fn refused(operation: Operation, media: &str, schema: &Value, why: &[(u16, &str)]) -> Operation {
    why.iter().fold(operation, |operation, (status, says)| {
        operation.answers_as(*status, says, media, schema)
    })
}

fn object() -> Value {
    json!({"type": "object"})
}
