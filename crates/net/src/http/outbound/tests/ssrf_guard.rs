//! What strangers can't make the process fetch.

use super::*;

fn allowing(entries: &[&str]) -> GuardedClient {
    let allow = Allow::parse(entries).unwrap();
    GuardedClient::new(allow, Authorities::default())
}

async fn fetch(guarded: &GuardedClient, url: &Url, by: ChosenBy) -> Result<Answer, OutboundError> {
    let bounds = Bounds::default();
    guarded.get(url, HeaderMap::new(), by, bounds).await
}

/// As an address by name.
fn by_name(url: &Url) -> Url {
    let mut named = url.clone();
    named.set_host(Some("localhost")).unwrap();
    named
}

#[tokio::test]
async fn ssrf_to_an_address_that_is_not_public_is_not_even_tried() {
    let (url, hits) = server(http("200 OK", b"{}")).await;
    let mut encrypted = url.clone();
    encrypted.set_scheme("https").unwrap();
    let guarded = allowing(&[]);
    for url in [&url, &encrypted, &by_name(&url)] {
        let outcome = fetch(&guarded, url, ChosenBy::Stranger).await;
        assert!(matches!(outcome, Err(OutboundError::Forbidden)), "{url}");
    }
    assert_eq!(hits.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn ssrf_by_a_name_that_leads_to_loopback_makes_no_connection() {
    let (url, hits) = server(http("200 OK", b"{}")).await;
    let mut named = by_name(&url);
    named.set_scheme("https").unwrap();
    // The name looks like any other; only its addresses tell. Plain http is
    // not refused before they are known once some network is allowed.
    for (guarded, url) in [
        (allowing(&[]), named),
        (allowing(&["10.0.0.0/8"]), by_name(&url)),
    ] {
        let outcome = fetch(&guarded, &url, ChosenBy::Stranger).await;
        let Err(OutboundError::Unreachable(reason) | OutboundError::Client(reason)) = outcome
        else {
            panic!("{url}: {outcome:?}");
        };
        let told = reason.contains("identity.outbound.allow");
        // A machine without root certificates has no client for https.
        assert!(told || url.scheme() == "https", "{reason}");
    }
    assert_eq!(hits.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn what_the_operator_allows_or_chose_is_fetched() {
    let (url, _) = server(http("200 OK", b"{}")).await;
    let named = by_name(&url);
    for (entries, url, by) in [
        (&["127.0.0.1"][..], &url, ChosenBy::Stranger),
        (&["127.0.0.0/8"], &named, ChosenBy::Stranger),
        (&["localhost"], &named, ChosenBy::Stranger),
        (&[], &url, ChosenBy::Operator),
        (&[], &named, ChosenBy::Operator),
    ] {
        let answer = fetch(&allowing(entries), url, by).await;
        assert_eq!(answer.unwrap().body, "{}", "{entries:?} {url}");
    }
    // A host that is allowed by name is not allowed by its address.
    let outcome = fetch(&allowing(&["localhost"]), &url, ChosenBy::Stranger).await;
    assert!(matches!(outcome, Err(OutboundError::Forbidden)));
}

#[tokio::test]
async fn rules_can_be_replaced() {
    let (url, _) = server(http("200 OK", b"{}")).await;
    let guarded = allowing(&[]);
    assert!(!guarded.admits(&url));
    let allow = Allow::parse(&["127.0.0.1"]).unwrap();
    guarded.replace(allow, Authorities::default());
    assert!(guarded.admits(&url));
    assert!(fetch(&guarded, &url, ChosenBy::Stranger).await.is_ok());
}

#[tokio::test]
async fn redirects_of_a_strangers_address_are_not_followed() {
    let (target, hits) = server(http("200 OK", b"{}")).await;
    let (url, _) = server(http(&format!("302 Found\r\nLocation: {target}"), b"")).await;
    let guarded = allowing(&["127.0.0.1"]);
    let outcome = guarded.document(&url, ChosenBy::Stranger, Bounds::default());
    assert!(matches!(
        outcome.await,
        Err(OutboundError::Status(StatusCode::FOUND))
    ));
    assert_eq!(hits.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn endless_and_silent_answers_are_given_up() {
    let guarded = allowing(&["127.0.0.1"]);
    let within = |timeout| Bounds {
        timeout,
        body: 1000,
    };
    let patient = within(Duration::from_secs(60));
    let long = vec![b' '; 1001];
    let announced = http("200 OK\r\nContent-Length: 1001", &long);
    for answer in [announced, http("200 OK", &long)] {
        let (url, _) = server(answer).await;
        let outcome = guarded.document(&url, ChosenBy::Stranger, patient).await;
        assert!(
            matches!(outcome, Err(OutboundError::TooLong)),
            "{outcome:?}"
        );
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = url(&format!("http://{}/", listener.local_addr().unwrap()));
    let hasty = within(Duration::from_millis(200));
    let outcome = guarded.document(&silent, ChosenBy::Stranger, hasty).await;
    assert!(matches!(outcome, Err(OutboundError::Timeout(_))));
}

#[tokio::test]
async fn strangers_that_never_answer_leave_turns_for_the_operator() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = url(&format!("http://{}/", listener.local_addr().unwrap()));
    let guarded = Arc::new(allowing(&["127.0.0.1"]));
    let mut strangers = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let (guarded, silent) = (Arc::clone(&guarded), silent.clone());
        strangers.spawn(async move { fetch(&guarded, &silent, ChosenBy::Stranger).await });
    }
    let mut held = Vec::new();
    while held.len() < 64 {
        held.push(listener.accept().await.unwrap());
    }
    let (url, _) = server(http("200 OK", b"{}")).await;
    assert!(fetch(&guarded, &url, ChosenBy::Operator).await.is_ok());
}

#[test]
fn a_file_without_certificates_is_no_list_of_authorities() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ca.pem");
    assert!(Authorities::read(&file).is_err());
    std::fs::write(&file, "nothing\n").unwrap();
    assert!(Authorities::read(&file).is_err());
}
