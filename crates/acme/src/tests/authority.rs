//! An authority in this process.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use parking_lot::Mutex;
use rcgen::{CertificateParams, CertificateSigningRequestParams, CertifiedIssuer, KeyPair};
use serde_json::{Value, json};

pub(super) const BASE: &str = "https://authority.test";

/// What the authority says to one kind of request, once.
#[derive(Clone)]
struct Scripted {
    path: &'static str,
    status: u16,
    kind: &'static str,
    retry_after: Option<&'static str>,
}

pub(super) struct Book {
    refusals: Vec<Scripted>,
    /// Paths that were asked for.
    pub(super) asked: Vec<String>,
    pub(super) payloads: Vec<Value>,
    chain: Option<String>,
    authorized: bool,
    /// The challenge that authorizations offer.
    pub(super) offers: &'static str,
    /// What the authorization of a name that can't be validated says.
    pub(super) invalid: Option<&'static str>,
}

impl Default for Book {
    fn default() -> Self {
        Self {
            refusals: Vec::new(),
            asked: Vec::new(),
            payloads: Vec::new(),
            chain: None,
            authorized: false,
            offers: "http-01",
            invalid: None,
        }
    }
}

pub(super) struct Authority {
    pub(super) book: Arc<Mutex<Book>>,
    issuer: Arc<CertifiedIssuer<'static, KeyPair>>,
}

impl Authority {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("an authority");
        Self {
            book: Arc::default(),
            issuer: Arc::new(issuer),
        }
    }

    pub(super) fn refuse(&self, path: &'static str, status: u16, kind: &'static str) {
        self.refuse_until(path, status, kind, None);
    }

    pub(super) fn refuse_until(
        &self,
        path: &'static str,
        status: u16,
        kind: &'static str,
        retry_after: Option<&'static str>,
    ) {
        self.book.lock().refusals.push(Scripted {
            path,
            status,
            kind,
            retry_after,
        });
    }

    pub(super) fn asked(&self, path: &str) -> usize {
        let book = self.book.lock();
        book.asked.iter().filter(|asked| *asked == path).count()
    }

    pub(super) fn router(&self) -> Router {
        let (book, issuer) = (self.book.clone(), self.issuer.clone());
        Router::new().fallback(move |request: Request| {
            let (book, issuer) = (book.clone(), issuer.clone());
            async move {
                let path = request.uri().path().to_owned();
                let body = axum::body::to_bytes(request.into_body(), 1 << 16).await;
                answer(&mut book.lock(), &issuer, &path, &body.expect("a body"))
            }
        })
    }
}

fn reply(status: u16, headers: &[(&str, &str)], body: String) -> Response {
    let mut response = Response::builder()
        .status(StatusCode::from_u16(status).expect("a status"))
        .header("replay-nonce", "bm9uY2U");
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(Body::from(body)).expect("a response")
}

fn answer(
    book: &mut Book,
    issuer: &CertifiedIssuer<'static, KeyPair>,
    path: &str,
    body: &[u8],
) -> Response {
    book.asked.push(path.to_owned());
    let jws: Value = serde_json::from_slice(body).unwrap_or_default();
    let payload = jws["payload"].as_str().unwrap_or_default();
    let payload = URL_SAFE_NO_PAD.decode(payload).unwrap_or_default();
    let payload: Value = serde_json::from_slice(&payload).unwrap_or_default();
    book.payloads.push(payload.clone());
    if let Some(place) = book.refusals.iter().position(|one| one.path == path) {
        let one = book.refusals.remove(place);
        let problem = json!({
            "type": format!("urn:ietf:params:acme:error:{}", one.kind),
            "detail": format!("refused at {path}"),
        });
        let wait: Vec<_> = one
            .retry_after
            .map(|it| ("retry-after", it))
            .into_iter()
            .collect();
        return reply(one.status, &wait, problem.to_string());
    }
    match path {
        "/directory" => {
            let at = |path: &str| format!("{BASE}{path}");
            let directory = json!({
                "newNonce": at("/nonce"), "newAccount": at("/account"), "newOrder": at("/order"),
                "renewalInfo": at("/renewal"),
            });
            reply(200, &[], directory.to_string())
        }
        "/nonce" => reply(200, &[], String::new()),
        "/account" | "/account/1" => reply(
            if path == "/account" { 201 } else { 200 },
            &[("location", "https://authority.test/account/1")],
            json!({"status": "valid"}).to_string(),
        ),
        "/order" => {
            (book.authorized, book.chain) = (false, None);
            let order = order_state(book, payload.get("replaces"));
            reply(
                201,
                &[("location", "https://authority.test/order/1")],
                order,
            )
        }
        "/order/1" => reply(200, &[], order_state(book, None)),
        "/authorization" => reply(200, &[], authorization(book)),
        "/challenge" => {
            book.authorized = book.invalid.is_none();
            let challenge = json!({"type": "http-01", "url": format!("{BASE}/challenge"), "token": "dG9rZW4", "status": "processing"});
            reply(200, &[], challenge.to_string())
        }
        "/finalize" => {
            let request = payload["csr"]
                .as_str()
                .and_then(|csr| URL_SAFE_NO_PAD.decode(csr).ok());
            let request = request.expect("a request").into();
            let mut request =
                CertificateSigningRequestParams::from_der(&request).expect("a request");
            request.params.use_authority_key_identifier_extension = true;
            book.chain = Some(request.signed_by(issuer).expect("a certificate").pem());
            reply(200, &[], order_state(book, None))
        }
        "/certificate" => reply(200, &[], book.chain.clone().unwrap_or_default()),
        _ => reply(404, &[], "nothing".to_owned()),
    }
}

fn order_state(book: &Book, replaces: Option<&Value>) -> String {
    let status = match (&book.chain, book.authorized, book.invalid) {
        (_, _, Some(_)) if book.asked.iter().any(|path| path == "/challenge") => "invalid",
        (_, false, _) => "pending",
        (Some(_), true, _) if book.asked.iter().any(|path| path == "/finalize") => "valid",
        _ => "ready",
    };
    let mut order = json!({
        "status": status, "authorizations": [format!("{BASE}/authorization")],
        "finalize": format!("{BASE}/finalize"), "certificate": format!("{BASE}/certificate"),
    });
    if let Some(replaces) = replaces {
        order["replaces"] = replaces.clone();
    }
    order.to_string()
}

fn authorization(book: &Book) -> String {
    let error = book.invalid.map(|kind| {
        json!({"type": format!("urn:ietf:params:acme:error:{kind}"), "detail": "nobody answers"})
    });
    json!({
        "identifier": {"type": "dns", "value": "a.test"},
        "status": if book.authorized { "valid" } else { "pending" },
        "challenges": [{
            "type": book.offers, "url": format!("{BASE}/challenge"), "token": "dG9rZW4",
            "status": "pending", "error": error,
        }],
    })
    .to_string()
}
