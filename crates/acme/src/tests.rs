//! Orders against an authority in this process, which refuses what it is told to.

mod authority;

use serde_json::json;
use tokio::sync::watch;
use url::Url;

use super::*;
use crate::rounds::LEASE;
use authority::{Authority, BASE};
use doorward_audit::AuditConfig;
use doorward_core::model::acme::AcmeState;
use doorward_core::model::audit::{AuditQuery, Kind};
use doorward_net::http::challenges::HttpChallenges;
use doorward_net::telemetry::Metrics;

const NOW: i64 = 1_800_000_000_000;

fn config() -> AcmeConfig {
    AcmeConfig {
        directory: format!("{BASE}/directory"),
        terms_agreed: true,
        names: vec![Names::one("a.test")],
        ..AcmeConfig::default()
    }
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
        let acme = open(config(), &store, &clock, &authority).await;
        Self {
            authority,
            acme,
            clock,
            store,
            _directory: directory,
        }
    }

    /// Another start, with another section.
    async fn restart(&mut self, config: AcmeConfig) {
        self.acme = open(config, &self.store, &self.clock, &self.authority).await;
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

async fn open(
    config: AcmeConfig,
    store: &Arc<Store>,
    clock: &Clock,
    authority: &Authority,
) -> Arc<Acme> {
    let (rules, metrics) = (AuditConfig::default(), Metrics::default());
    let audit = Audit::open(rules, store.clone(), clock.clone(), &metrics).expect("a log");
    let parts = Parts {
        store: store.clone(),
        is_shared: false,
        vault: Vault::default(),
        clock: clock.clone(),
        metrics: AcmeMetrics::default(),
        audit,
        routed: Box::new(|_| false),
    };
    let acme = Acme::open(config, parts).await.expect("opened");
    let base = Url::parse(BASE).expect("a URL");
    let router = authority.router();
    acme.client.outbound.register_local(&base, router);
    acme
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

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;

/// Where the authority refuses, with which status and type, what is told of it, and for
/// how long no order follows at least.
const REFUSALS: &[(&str, u16, &str, &str, i64)] = &[
    (
        "/account",
        400,
        "badSignatureAlgorithm",
        "account badSignatureAlgorithm",
        HOUR,
    ),
    (
        "/account",
        400,
        "badPublicKey",
        "account badPublicKey",
        HOUR,
    ),
    (
        "/account",
        403,
        "externalAccountRequired",
        "account externalAccountRequired",
        HOUR,
    ),
    (
        "/account",
        403,
        "userActionRequired",
        "account userActionRequired",
        HOUR,
    ),
    (
        "/account",
        400,
        "invalidContact",
        "account invalidContact",
        HOUR,
    ),
    (
        "/account",
        400,
        "unsupportedContact",
        "account unsupportedContact",
        HOUR,
    ),
    (
        "/account",
        403,
        "unauthorized",
        "account unauthorized",
        MINUTE,
    ),
    ("/order", 400, "malformed", "order malformed", MINUTE),
    (
        "/order",
        400,
        "rejectedIdentifier",
        "order rejectedIdentifier",
        HOUR,
    ),
    (
        "/order",
        400,
        "unsupportedIdentifier",
        "order unsupportedIdentifier",
        HOUR,
    ),
    (
        "/order",
        400,
        "invalidProfile",
        "order invalidProfile",
        HOUR,
    ),
    ("/order", 403, "caa", "order caa", HOUR),
    ("/order", 429, "rateLimited", "order rateLimited", HOUR),
    (
        "/order",
        500,
        "serverInternal",
        "order serverInternal",
        MINUTE,
    ),
    ("/order", 403, "unauthorized", "order unauthorized", MINUTE),
    (
        "/authorization",
        500,
        "serverInternal",
        "authorization serverInternal",
        MINUTE,
    ),
    (
        "/challenge",
        403,
        "unauthorized",
        "challenge unauthorized",
        MINUTE,
    ),
    (
        "/finalize",
        403,
        "orderNotReady",
        "finalization orderNotReady",
        MINUTE,
    ),
    ("/finalize", 400, "badCSR", "finalization badCSR", HOUR),
    (
        "/certificate",
        500,
        "serverInternal",
        "certificate serverInternal",
        MINUTE,
    ),
    ("/directory", 503, "serverInternal", "account", MINUTE),
];

#[tokio::test]
async fn each_refusal_is_told_and_waited_out() {
    for &(path, status, kind, told, least_ms) in REFUSALS {
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
async fn a_refused_account_is_not_tried_for_each_name() {
    let mut fixture = Fixture::new().await;
    let config = AcmeConfig {
        names: vec![Names::one("a.test"), Names::one("b.test")],
        ..config()
    };
    fixture.restart(config).await;
    let kind = "externalAccountRequired";
    fixture.authority.refuse("/account", 403, kind);
    fixture.round().await;
    fixture.round().await;
    assert_eq!(fixture.authority.asked("/account"), 1);
    fixture.clock.advance(2 * 3_600_000);
    fixture.round().await;
    assert_eq!(fixture.authority.asked("/account"), 2);
    for name in ["a.test", "b.test"] {
        assert!(fixture.acme.find(name).is_some(), "{name}");
    }
}

#[tokio::test]
async fn a_bad_nonce_is_replaced_at_once() {
    let fixture = Fixture::new().await;
    fixture.authority.refuse("/order", 400, "badNonce");
    fixture.round().await;
    assert!(fixture.acme.find("a.test").is_some());
    assert_eq!(fixture.authority.asked("/order"), 2);
    // Not for ever.
    let fixture = Fixture::new().await;
    for _ in 0..100 {
        fixture.authority.refuse("/order", 400, "badNonce");
    }
    fixture.round().await;
    assert_eq!(fixture.problem(), "order badNonce");
    assert!(fixture.authority.asked("/order") < 10);
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
    for kind in [
        "connection",
        "dns",
        "tls",
        "incorrectResponse",
        "unauthorized",
        "caa",
    ] {
        let fixture = Fixture::new().await;
        fixture.authority.book.lock().invalid = Some(kind);
        fixture.round().await;
        assert_eq!(fixture.problem(), format!("authorization {kind}"));
        let detail = fixture.state().problem.expect("a problem").detail;
        assert_eq!(detail, "a.test: nobody answers");
        let answer = HttpChallenges::answer(fixture.acme.as_ref(), "dG9rZW4").await;
        assert_eq!(answer, None, "it was taken back");
    }
}

#[tokio::test]
async fn a_failed_renewal_leaves_the_last_good_certificate() {
    let mut fixture = Fixture::new().await;
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
        .put_acme_certificate(&row, None)
        .await
        .expect("kept");
    fixture.restart(config()).await;
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
    assert_eq!(fixture.authority.asked("/account"), 2);
    assert!(fixture.acme.find("a.test").is_some());
    // One that is gone again at once is told of.
    let fixture = Fixture::new().await;
    for _ in 0..2 {
        let kind = "accountDoesNotExist";
        fixture.authority.refuse("/order", 400, kind);
    }
    fixture.round().await;
    assert_eq!(fixture.problem(), "order accountDoesNotExist");
    assert_eq!(fixture.authority.asked("/account"), 2);
}

#[tokio::test]
async fn other_contacts_are_told_to_the_authority() {
    let mut fixture = Fixture::new().await;
    fixture.round().await;
    let config = AcmeConfig {
        contact: vec!["ops@a.test".to_owned()],
        ..config()
    };
    fixture.restart(config.clone()).await;
    fixture
        .authority
        .refuse("/account/1", 400, "invalidContact");
    fixture.round().await;
    fixture.round().await;
    assert_eq!(
        fixture.authority.asked("/account/1"),
        1,
        "not in a hot loop"
    );
    fixture.clock.advance(7 * 3_600_000);
    fixture.round().await;
    let payload = json!({"contact": ["mailto:ops@a.test"]});
    let told = |fixture: &Fixture| {
        let book = fixture.authority.book.lock();
        book.payloads.iter().filter(|it| **it == payload).count()
    };
    assert_eq!(told(&fixture), 2);
    // Another start has nothing to tell.
    fixture.restart(config).await;
    fixture.round().await;
    assert_eq!(told(&fixture), 2);
    assert_eq!(fixture.authority.asked("/order"), 1);
}

#[tokio::test]
async fn each_order_has_a_record_in_the_audit_log() {
    let fixture = Fixture::new().await;
    fixture
        .authority
        .refuse("/order", 400, "rejectedIdentifier");
    fixture.round().await;
    fixture.clock.advance(2 * 3_600_000);
    fixture.round().await;
    let query = AuditQuery {
        kinds: vec![Kind::CertificateOrder],
        limit: 10,
        ..AuditQuery::default()
    };
    let records = fixture.store.audit(&query).await.expect("read");
    let told = records.iter().map(|record| {
        let reason = record["reason"].as_str().unwrap_or("success");
        (record["target"].as_str().unwrap_or_default(), reason)
    });
    let told: Vec<_> = told.collect();
    assert_eq!(
        told,
        [
            ("acme/a.test", "rejectedIdentifier"),
            ("acme/a.test", "success")
        ]
    );
}

#[tokio::test]
async fn an_edited_section_is_tried_at_once() {
    let mut fixture = Fixture::new().await;
    fixture
        .authority
        .refuse("/account", 403, "externalAccountRequired");
    fixture.round().await;
    fixture.restart(config()).await;
    fixture.round().await;
    assert!(fixture.acme.find("a.test").is_none());
    let eab = "{kid: k, hmac_key: c2VjcmV0}";
    let eab = serde_yaml::from_str(eab).expect("an account");
    let edited = AcmeConfig { eab, ..config() };
    fixture.restart(edited).await;
    fixture.round().await;
    assert!(fixture.acme.find("a.test").is_some());
}

#[tokio::test]
async fn an_order_is_given_up_when_the_process_ends() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("log");
    let script = format!(
        "echo $1 >> {}; test $1 = cleanup || sleep 60",
        log.display()
    );
    let mut fixture = Fixture::new().await;
    let hook = ["/bin/sh", "-c", &script, "hook"].map(str::to_owned);
    let config = AcmeConfig {
        challenge: ChallengeKind::Dns01,
        dns_hook: Some(DnsHook {
            command: hook.to_vec(),
            ..DnsHook::default()
        }),
        ..config()
    };
    fixture.restart(config).await;
    fixture.authority.book.lock().offers = "dns-01";
    let (stop, stopped) = watch::channel(false);
    let acme = fixture.acme.clone();
    let running = tokio::spawn(acme.run(stopped));
    while std::fs::read_to_string(&log).unwrap_or_default().is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    stop.send(true).expect("it listens");
    running.await.expect("it ends");
    let log = std::fs::read_to_string(&log).expect("a log");
    assert_eq!(log, "present\ncleanup\n");
    let lease = fixture
        .store
        .take_acme_lease(LEASE, "another", NOW, NOW + 1)
        .await;
    assert!(lease.expect("an answer"), "it was given back");
    assert!(fixture.acme.known.lock().is_empty(), "nothing has failed");
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
