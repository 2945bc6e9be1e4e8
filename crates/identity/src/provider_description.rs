//! The provider in OpenAPI 3.1: what it serves at its own address.

use serde_json::{Value, json};

use super::endpoints::{ENDPOINTS, Surface};
use doorward_core::openapi::{Document, fields, open_parts, reference, text};

const ABOUT: &str = "Endpoints of the root realm. Those of another realm have its path behind \
    `/oauth2` or `/json`, such as `/oauth2/realms/root/realms/staff/access_token`; below `/v1` \
    the access token says which realm. `/scim/v2` is `/v1`.";

/// The description of a provider at this address.
pub(super) fn describe(base_url: &str) -> Value {
    let mut document = Document::new("Doorward identity provider", VERSION, ABOUT);
    document.server(base_url);
    document.security(
        json!({
            "client": {
                "type": "http",
                "scheme": "basic",
                "description": "Identifier and secret of a client. Both may stand in the \
                    form as well, and keys of the client's own sign assertions.",
            },
            "token": {"type": "http", "scheme": "bearer", "description": "An access token."},
        }),
        Value::Null,
    );
    document.tag("oauth2", "OAuth 2.0 and OpenID Connect.");
    document.tag("json", "Sessions for programs.");
    document.tag("scim", "Users and groups (RFC 7644).");
    let oauth = fields(
        [("error", text()), ("error_description", text())],
        &["error"],
    );
    document.schema("oauth-error", oauth);
    let scim = fields(
        [
            ("schemas", json!({"type": "array", "items": text()})),
            ("status", text()),
            ("detail", text()),
            ("scimType", text()),
        ],
        &["schemas", "status"],
    );
    document.schema("scim-error", scim);
    let mut json = fields(
        [
            ("code", json!({"type": "integer"})),
            ("reason", text()),
            ("message", text()),
            ("detail", json!({"type": "object"})),
            ("errorMessage", text()),
            ("failureUrl", text()),
        ],
        &[],
    );
    // Versions 1.x of `authenticate` answer in another shape.
    json["anyOf"] = json!([
        {"required": ["code", "reason", "message"]},
        {"required": ["errorMessage"]},
    ]);
    document.schema("json-error", json);
    document.refusal("5XX", UNABLE, &json!({"type": "object"}));
    for endpoint in ENDPOINTS {
        let (place, tag) = endpoint.surface.place();
        let path = format!("{place}/{}", endpoint.path);
        for method in endpoint.methods {
            let operation = (endpoint.describe)(method.as_str());
            let mut operation = operation.tag(tag).refuses(&["5XX"]);
            if matches!(endpoint.surface, Surface::OAuth2) {
                let says = "There is no such realm.";
                operation = operation.answers(404, says, &reference("oauth-error"));
            }
            if !open_parts(&path).is_empty() {
                // The gateway refuses paths that could be read in two ways.
                let object = json!({"type": "object"});
                operation = operation.answers(400, "The request makes no sense.", &object);
            }
            document.add(method.as_str(), &path, operation);
        }
    }
    let mut document = document.into_json();
    // Which type a refusal has depends on the endpoint and on who asks.
    let content = &mut document["components"]["responses"]["refusal-5XX"]["content"];
    content["text/html"] = json!({"schema": text()});
    content["application/scim+json"] =
        json!({"schema": {"$ref": "#/components/schemas/scim-error"}});
    document
}

const UNABLE: &str = "The provider can't answer now: its store does not, or too much is asked \
    of it at once.";

const VERSION: &str = env!("CARGO_PKG_VERSION");
