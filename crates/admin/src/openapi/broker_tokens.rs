//! `/openapi/token-broker.json`: what clients of the token broker send, and get.
//!
//! The plugin answers below the base path of its route. The paths are those of a
//! plugin without `flows`.

use serde_json::{Value, json};

use doorward_core::openapi::{Document, JSON, Operation, fields, text};

const ABOUT: &str = "What the plugin `token-broker` answers below its `base_path`, without \
    `flows` of its own. Flows may have other paths and leave out operations. Every other path \
    below the base path belongs to the API, which wants the access token in `Authorization`.";

const FORM: &str = "application/x-www-form-urlencoded";

/// The members of a response with tokens: each scalar is a text.
const MEMBERS: [&str; 16] = [
    "access_token",
    "token_type",
    "expires_in",
    "issued_at",
    "scope",
    "status",
    "client_id",
    "application_name",
    "organization_name",
    "developer.email",
    "api_product_list",
    "refresh_token",
    "refresh_token_expires_in",
    "refresh_token_issued_at",
    "refresh_token_status",
    "refresh_count",
];

/// The description.
pub(super) fn describe() -> Value {
    let name = "Doorward token broker";
    let mut document = Document::new(name, env!("CARGO_PKG_VERSION"), ABOUT);
    let client = json!({
        "type": "http",
        "scheme": "basic",
        "description": "Consumer key and secret of an application. Both may stand in the form.",
    });
    document.security(json!({"application": client}), Value::Null);
    let mut tokens = fields(
        MEMBERS.map(|name| (name, text())),
        &["access_token", "expires_in", "status"],
    );
    let names = json!({"type": "array", "items": text()});
    tokens["properties"]["api_product_list_json"] = names;
    // Attributes of the flow may be shown, too.
    tokens["additionalProperties"] = true.into();
    document.schema("tokens", tokens);
    document.schema("error", error());
    document.add("POST", "/access_token", grant());
    document.add("POST", "/refresh_token", refresh());
    let mut document = document.into_json();
    document["servers"] = json!([{
        "url": "https://{host}{base_path}",
        "variables": {
            "host": {"default": "gateway.example.com"},
            "base_path": {"default": "/weather", "description": "`base_path` of the plugin."},
        },
    }]);
    document
}

/// Either shape of a refusal: the second one where the flow says
/// `generate_error_response: false`.
fn error() -> Value {
    let short = fields(
        [("ErrorCode", text()), ("Error", text())],
        &["ErrorCode", "Error"],
    );
    let detail = fields([("errorcode", text())], &["errorcode"]);
    let fault = fields(
        [("faultstring", text()), ("detail", detail)],
        &["faultstring", "detail"],
    );
    json!({"anyOf": [short, fields([("fault", fault)], &["fault"])]})
}

fn operation(summary: &str, members: &[&str], required: &[&str]) -> Operation {
    let properties = members.iter().map(|name| ((*name).to_owned(), text()));
    let body = json!({
        "type": "object",
        "properties": properties.collect::<serde_json::Map<_, _>>(),
        "required": required,
    });
    let reference = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    let refusal = reference("error");
    Operation::new(summary)
        .tag("tokens")
        .body_as(FORM, &body)
        .body_required()
        .answers(200, "The tokens.", &reference("tokens"))
        .answers(400, "A field is missing, wrong or there twice.", &refusal)
        .answers(
            401,
            "The application is not proved, or the provider said no.",
            &refusal,
        )
        .answers(413, "The body is too large.", &json!({"type": "object"}))
        .answers_as(
            500,
            "The provider gave no answer that could be read.",
            JSON,
            &refusal,
        )
        .answers(503, "The store does not answer.", &refusal)
        .security(json!([{"application": []}, {}]))
}

fn grant() -> Operation {
    operation(
        "Gives tokens for the name and the password of a user.",
        &[
            "grant_type",
            "username",
            "password",
            "scope",
            "client_id",
            "client_secret",
        ],
        &["grant_type"],
    )
    .description(
        "`grant_type` is `password`. A plugin without `token_endpoint` takes \
         `client_credentials` instead.",
    )
}

fn refresh() -> Operation {
    operation(
        "Gives tokens for a refresh token, which is good once.",
        &[
            "grant_type",
            "refresh_token",
            "scope",
            "client_id",
            "client_secret",
        ],
        &["grant_type", "refresh_token"],
    )
}
