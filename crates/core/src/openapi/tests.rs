use serde_json::json;

use super::*;

#[test]
fn operations_are_named_by_what_they_are_about() {
    for (method, path, id) in [
        ("GET", "/", "getRoot"),
        ("GET", "/services", "getServices"),
        ("PATCH", "/services/{services}", "patchService"),
        ("POST", "/services/{services}/routes", "postServiceRoutes"),
        (
            "GET",
            "/consumers/{consumers}/key-auth",
            "getConsumerKeyAuth",
        ),
        (
            "GET",
            "/consumers/{consumers}/key-auth/{id}",
            "getConsumerKeyAuthById",
        ),
        (
            "GET",
            "/oauth2/{id}/oauth2_tokens",
            "getOauth2ByIdOauth2Tokens",
        ),
        (
            "POST",
            "/upstreams/{upstreams}/targets/{targets}/{address}/healthy",
            "postUpstreamTargetByAddressHealthy",
        ),
        (
            "DELETE",
            "/users/{id}/identities/{id}",
            "deleteUserIdentity",
        ),
    ] {
        assert_eq!(
            names::operation_id(method, &names::template(path), false),
            id,
            "{path}"
        );
    }
}

#[test]
fn no_two_operations_have_the_same_name() {
    let mut document = Document::new("Keys", "1", "All of them.");
    for path in ["/key-sets/{key_sets}", "/keys/{keys}/set"] {
        document.add("GET", path, Operation::new("Shows one."));
    }
    let shown = document.into_json();
    let id = |path: &str| shown["paths"][path]["get"]["operationId"].clone();
    assert_eq!(id("/key-sets/{key_sets}"), "getKeySet");
    assert_eq!(id("/keys/{keys}/set"), "getKeyByKeysSet");
}

#[test]
fn open_parts_have_a_name_each() {
    let template = names::template("/users/{id}/identities/{id}");
    assert_eq!(template, "/users/{id}/identities/{id2}");
    assert_eq!(names::open_parts(&template), ["id", "id2"]);
    assert_eq!(names::template("/realms/{*}"), "/realms/{path}");
}

#[test]
fn an_operation_has_its_parameters_body_answers_and_refusals() {
    let mut document = Document::new("Things", "1", "All of them.");
    document.refusal("404", "There is no such thing.", &text());
    let operation = Operation::new("Changes a thing.")
        .tag("things")
        .names("id", "Its number.")
        .takes([Parameter::query("dry", json!({"type": "boolean"}), "Only looks.").required()])
        .body(&reference("thing"))
        .answers(200, "The thing.", &reference("thing"))
        .answers_as(200, "", "text/plain", &text())
        .refuses(&["200", "404"]);
    document.add("PUT", "/things/{id}", operation);
    let shown = document.into_json();
    assert_eq!(
        shown["paths"]["/things/{id}"]["put"],
        json!({
            "operationId": "putThing",
            "summary": "Changes a thing.",
            "tags": ["things"],
            "parameters": [
                {
                    "name": "id", "in": "path", "required": true, "description": "Its number.",
                    "schema": {"type": "string", "minLength": 1},
                },
                {
                    "name": "dry", "in": "query", "required": true, "description": "Only looks.",
                    "schema": {"type": "boolean"},
                },
            ],
            "requestBody": {
                "required": true,
                "content": {
                    "application/json": {"schema": {"$ref": "#/components/schemas/thing"}},
                },
            },
            "responses": {
                "200": {
                    "description": "The thing.",
                    "content": {
                        "application/json": {"schema": {"$ref": "#/components/schemas/thing"}},
                        "text/plain": {"schema": {"type": "string"}},
                    },
                },
                "404": {"$ref": "#/components/responses/refusal-404"},
            },
        })
    );
    let refusal = &shown["components"]["responses"]["refusal-404"];
    assert_eq!(refusal["description"], "There is no such thing.");
}
