//! Orders against an authority in this process, which refuses what it is told to.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use doorward_net::http::challenges::HttpChallenges;
use http::StatusCode;
use rcgen::{CertificateParams, CertificateSigningRequestParams, CertifiedIssuer, KeyPair};
use serde_json::{Value, json};
use url::Url;

use super::*;

const BASE: &str = "https://authority.test";
const NOW: i64 = 1_800_000_000_000;

/// What the authority says to one kind of request, once.
#[derive(Clone)]
struct Scripted {
    path: &'static str,
    status: u16,
    kind: &'static str,
    retry_after: Option<&'static str>,
}

#[derive(Default)]
struct Book {
    refusals: Vec<Scripted>,
    /// Paths that were asked for.
    asked: Vec<String>,
    payloads: Vec<Value>,
    chain: Option<String>,
    authorized: bool,
    /// What the authorization of a name that can't be validated says.
    invalid: Option<&'static str>,
}

struct Authority {
    book: Arc<Mutex<Book>>,
    issuer: Arc<CertifiedIssuer<'static, KeyPair>>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("an authority");
        Self {
            book: Arc::default(),
            issuer: Arc::new(issuer),
        }
    }

    fn refuse(&self, path: &'static str, status: u16, kind: &'static str) {
        self.refuse_until(path, status, kind, None);
    }

    fn refuse_until(
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

    fn asked(&self, path: &str) -> usize {
        let book = self.book.lock();
        book.asked.iter().filter(|asked| *asked == path).count()
    }

    fn router(&self) -> Router {
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
        "/account" => reply(
            201,
            &[("location", "https://authority.test/account/1")],
            json!({"status": "valid"}).to_string(),
        ),
        "/order" => {
            book.authorized = false;
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
            let request = CertificateSigningRequestParams::from_der(&request).expect("a request");
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
            "type": "http-01", "url": format!("{BASE}/challenge"), "token": "dG9rZW4",
            "status": "pending", "error": error,
        }],
    })
    .to_string()
}

struct Fixture {
    authority: Authority,
    acme: Arc<Acme>,
    clock: Clock,
    store: Arc<Store>,
    _directory: tempfile::TempDir,
}

impl Fixture {
    async fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let url = format!("sqlite:{}", directory.path().join("db").display());
        let store = doorward_store::open(&url).await.expect("a store");
        let authority = Authority::new();
        let clock = Clock::manual(NOW);
        let config = AcmeConfig {
            directory: format!("{BASE}/directory"),
            terms_agreed: true,
            names: vec![Names::one("a.test")],
            ..AcmeConfig::default()
        };
        let parts = Parts {
            store: store.clone(),
            is_shared: false,
            vault: Vault::default(),
            clock: clock.clone(),
            metrics: AcmeMetrics::default(),
            routed: Box::new(|_| false),
        };
        let acme = Acme::open(config, parts).await.expect("opened");
        let base = Url::parse(BASE).expect("a URL");
        acme.client
            .outbound
            .register_local(&base, authority.router());
        Self {
            authority,
            acme,
            clock,
            store,
            _directory: directory,
        }
    }

    async fn round(&self) {
        let (_stop, stopped) = watch::channel(false);
        Box::pin(self.acme.round(&stopped)).await;
    }

    fn state(&self) -> AcmeState {
        let known = self.acme.known.lock();
        known.get("a.test").expect("known").row.state.clone()
    }

    fn problem(&self) -> String {
        let problem = self.state().problem.expect("a problem");
        format!(
            "{} {}",
            problem.step,
            problem.kind.unwrap_or(problem.detail)
        )
    }
}

#[tokio::test]
async fn a_certificate_is_ordered_kept_and_served() {
    let fixture = Fixture::new().await;
    fixture.round().await;
    assert!(fixture.acme.find("A.test.").is_some());
    assert!(fixture.acme.find("b.test").is_none());
    let status = fixture.acme.status();
    assert_eq!(status["certificates"][0]["state"], "valid", "{status}");
    let account = fixture
        .store
        .acme_account(&format!("{BASE}/directory"))
        .await;
    assert!(account.expect("read").is_some());
    // Another node finds it in the store, and orders nothing.
    let orders = fixture.authority.asked("/order");
    fixture.round().await;
    assert_eq!((orders, fixture.authority.asked("/order")), (1, 1));
}

#[tokio::test]
async fn each_refusal_is_told_and_waited_out() {
    for (path, status, kind, told, least_ms) in [
        (
            "/account",
            400,
            "badSignatureAlgorithm",
            "account badSignatureAlgorithm",
            3_600_000,
        ),
        (
            "/account",
            403,
            "externalAccountRequired",
            "account externalAccountRequired",
            3_600_000,
        ),
        (
            "/account",
            403,
            "userActionRequired",
            "account userActionRequired",
            3_600_000,
        ),
        (
            "/order",
            400,
            "rejectedIdentifier",
            "order rejectedIdentifier",
            3_600_000,
        ),
        ("/order", 429, "rateLimited", "order rateLimited", 3_600_000),
        (
            "/order",
            500,
            "serverInternal",
            "order serverInternal",
            60_000,
        ),
        ("/order", 403, "unauthorized", "order unauthorized", 60_000),
        (
            "/authorization",
            500,
            "serverInternal",
            "authorization serverInternal",
            60_000,
        ),
        (
            "/challenge",
            403,
            "unauthorized",
            "challenge unauthorized",
            60_000,
        ),
        (
            "/finalize",
            403,
            "orderNotReady",
            "finalization orderNotReady",
            60_000,
        ),
        ("/finalize", 400, "badCSR", "finalization badCSR", 3_600_000),
        (
            "/certificate",
            500,
            "serverInternal",
            "certificate serverInternal",
            60_000,
        ),
        ("/directory", 503, "serverInternal", "account", 60_000),
    ] {
        let fixture = Fixture::new().await;
        fixture.authority.refuse(path, status, kind);
        fixture.round().await;
        let problem = fixture.problem();
        assert!(problem.starts_with(told), "{path} {kind}: {problem}");
        let state = fixture.state();
        assert_eq!(state.failures, 1);
        assert!(state.retry_ms >= NOW + least_ms, "{path} {kind}");
        // No order before its time, and one after it.
        let asked = fixture.authority.book.lock().asked.len();
        fixture.round().await;
        assert_eq!(
            fixture.authority.book.lock().asked.len(),
            asked,
            "{path} {kind}"
        );
        fixture.clock.advance(2 * 3_600_000);
        fixture.round().await;
        assert_eq!(
            fixture.state().failures,
            0,
            "{path} {kind}: {}",
            fixture.acme.status()
        );
        assert!(fixture.acme.find("a.test").is_some());
    }
}

#[tokio::test]
async fn a_bad_nonce_is_replaced_at_once() {
    let fixture = Fixture::new().await;
    fixture.authority.refuse("/order", 400, "badNonce");
    fixture.round().await;
    assert!(fixture.acme.find("a.test").is_some());
    assert_eq!(fixture.authority.asked("/order"), 2);
}

#[tokio::test]
async fn retry_after_is_obeyed() {
    let fixture = Fixture::new().await;
    fixture
        .authority
        .refuse_until("/order", 429, "rateLimited", Some("90000"));
    fixture.round().await;
    assert!(fixture.state().retry_ms >= NOW + 90_000_000);
}

#[tokio::test]
async fn a_name_that_cannot_be_validated_is_told() {
    let fixture = Fixture::new().await;
    fixture.authority.book.lock().invalid = Some("connection");
    fixture.round().await;
    assert_eq!(fixture.problem(), "authorization connection");
    let detail = fixture.state().problem.expect("a problem").detail;
    assert_eq!(detail, "a.test: nobody answers");
    let answer = HttpChallenges::answer(fixture.acme.as_ref(), "dG9rZW4").await;
    assert_eq!(answer, None, "it was taken back");
}

#[tokio::test]
async fn a_failed_renewal_leaves_the_last_good_certificate() {
    let fixture = Fixture::new().await;
    fixture.round().await;
    let before = fixture.acme.find("a.test").expect("a certificate");
    let mut row = fixture
        .store
        .acme_certificate("a.test")
        .await
        .expect("read")
        .expect("a row");
    row.state.renew_ms = Some(0);
    row.updated_ms += 1;
    fixture
        .store
        .put_acme_certificate(&row)
        .await
        .expect("kept");
    fixture.authority.refuse("/order", 409, "alreadyReplaced");
    fixture.authority.refuse("/finalize", 500, "serverInternal");
    fixture.round().await;
    assert_eq!(fixture.problem(), "finalization serverInternal");
    let after = fixture.acme.find("a.test").expect("a certificate");
    assert_eq!(before.cert, after.cert);
    let status = fixture.acme.status();
    assert_eq!(
        status["certificates"][0]["state"], "renewal_failing",
        "{status}"
    );
    // The order that replaces was refused, and placed again as one that does not.
    let book = fixture.authority.book.lock();
    let orders: Vec<_> = book
        .payloads
        .iter()
        .filter(|it| it.get("identifiers").is_some())
        .collect();
    let replaces: Vec<_> = orders
        .iter()
        .map(|it| it.get("replaces").is_some())
        .collect();
    assert_eq!(replaces, [false, true, false]);
}

#[tokio::test]
async fn an_account_that_is_gone_is_made_again() {
    let fixture = Fixture::new().await;
    fixture
        .authority
        .refuse("/order", 400, "accountDoesNotExist");
    fixture.round().await;
    assert_eq!(fixture.problem(), "order accountDoesNotExist");
    fixture.clock.advance(2 * 3_600_000);
    fixture.round().await;
    assert_eq!(fixture.authority.asked("/account"), 2);
    assert!(fixture.acme.find("a.test").is_some());
}

#[tokio::test]
async fn a_node_without_the_lease_orders_nothing() {
    let fixture = Fixture::new().await;
    let taken = fixture
        .store
        .take_acme_lease(LEASE, "another", NOW, NOW + 60_000)
        .await;
    assert!(taken.expect("taken"));
    fixture.round().await;
    assert_eq!(fixture.authority.asked("/order"), 0);
    fixture.clock.advance(60_000);
    fixture.round().await;
    assert_eq!(fixture.authority.asked("/order"), 1);
}
