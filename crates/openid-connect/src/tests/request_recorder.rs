//! A provider that notes every word that it is sent.

use std::collections::HashMap;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use http::HeaderMap;
use url::form_urlencoded::parse;

use super::*;

/// A question to the provider.
#[derive(Clone, Debug)]
pub(super) struct Noted {
    pub(super) path: String,
    pub(super) query: HashMap<String, String>,
    pub(super) headers: HeaderMap,
    form: Vec<(String, String)>,
}

impl Noted {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub(super) fn form(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    /// Every value of a parameter of the form.
    pub(super) fn all(&self, name: &str) -> Vec<&str> {
        let all = self.form.iter().filter(|(one, _)| one == name);
        all.map(|(_, value)| value.as_str()).collect()
    }
}

/// What was asked, and what is answered at each path.
#[derive(Clone, Default)]
pub(super) struct Recorder {
    noted: Arc<Mutex<Vec<Noted>>>,
    /// By path: a JSON, or a text that is a token.
    answers: Arc<Mutex<HashMap<&'static str, Value>>>,
}

impl Recorder {
    /// The questions at a path.
    pub(super) fn at(&self, path: &str) -> Vec<Noted> {
        let noted = self.noted.lock().unwrap();
        let at = noted.iter().filter(|one| one.path.ends_with(path));
        at.cloned().collect()
    }

    pub(super) fn answer(&self, path: &'static str, answer: Value) {
        self.answers.lock().unwrap().insert(path, answer);
    }
}

async fn note(State(recorder): State<Recorder>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 64 * 1024).await.unwrap();
    recorder.noted.lock().unwrap().push(Noted {
        path: parts.uri.path().to_owned(),
        query: parse(parts.uri.query().unwrap_or_default().as_bytes())
            .into_owned()
            .collect(),
        headers: parts.headers.clone(),
        form: parse(&body).into_owned().collect(),
    });
    next.run(Request::from_parts(parts, Body::from(body))).await
}

async fn answer(State(recorder): State<Recorder>, request: Request) -> Response {
    let answers = recorder.answers.lock().unwrap();
    let mut found = answers.iter();
    let found = found.find(|(path, _)| request.uri().path().ends_with(**path));
    match found.map(|(_, answer)| answer.clone()) {
        None => StatusCode::NOT_FOUND.into_response(),
        Some(Value::String(token)) => {
            ([("content-type", "application/jwt")], token).into_response()
        }
        Some(answer) => Json(answer).into_response(),
    }
}

/// A filter that is the client `gateway` of such a provider.
pub(super) fn world(mut config: Value) -> (World, Recorder) {
    for (name, path) in [
        ("token_endpoint", "token"),
        ("introspection_endpoint", "introspect"),
        ("userinfo_endpoint", "userinfo"),
        ("revocation_endpoint", "revoke"),
        ("authorization_endpoint", "authorize"),
    ] {
        if config.get(name).is_none() {
            config[name] = json!(format!("http://id.test/oauth2/{path}"));
        }
    }
    if config.get("client_id").is_none() {
        config["client_id"] = json!(["gateway"]);
        config["client_secret"] = json!(["g-secret"]);
    }
    let world = World::new(config);
    let recorder = Recorder::default();
    let token = world.key.token(&claims(json!({})));
    recorder.answer("/token", json!({"access_token": token, "expires_in": 600}));
    recorder.answer("/userinfo", json!({"sub": "anna"}));
    recorder.answer("/introspect", json!({"active": true, "sub": "anna"}));
    recorder.answer("/revoke", json!({}));
    let router = world.issuer.router();
    let router = router
        .merge(
            Router::new()
                .fallback(any(answer))
                .with_state(recorder.clone()),
        )
        .layer(from_fn_with_state(recorder.clone(), note));
    let base = Url::parse("http://id.test").unwrap();
    world.parts.outbound.register_local(&base, router);
    (world, recorder)
}
