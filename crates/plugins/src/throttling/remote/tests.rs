//! Against a real server: the same decisions as in this process.

use std::time::Duration;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use super::*;
use crate::throttling::partitions::{Keys, Partitions};
use doorward_net::shared::testing::Server;
use doorward_net::telemetry::Metrics;
use doorward_net::telemetry::metrics::Gauge;

const SECOND: u64 = 1_000_000_000;

/// The script at a time that the test gives.
const TAKE_AT: &str = concat!(
    "local now_s, now_n = tonumber(ARGV[#ARGV - 1]), tonumber(ARGV[#ARGV])\n",
    include_str!("../take.lua")
);

fn rate(requests: u64, millis: u64) -> Rate {
    Rate::new(requests, Duration::from_millis(millis)).expect("a rate")
}

fn rates(rates: &[(u64, u64)]) -> Rates {
    Rates::new(rates.iter().map(|(n, ms)| rate(*n, *ms)).collect(), false)
}

fn remote(server: &Server, scope: &str) -> Remote {
    let metrics = Metrics::default();
    Remote::new(server.connect(&metrics), scope, metrics.throttle_alone())
}

/// A decision at `now`.
async fn take_at(remote: &Remote, text: &str, rates: &Rates, limit: &[u16], now: u64) -> Outcome {
    let script = remote.redis.script(TAKE_AT);
    let limit = || limit.iter().map(|number| rates.get(*number));
    let keys = remote.keys(text, limit());
    let mut given: Vec<u64> = limit().flat_map(arguments).collect();
    given.extend([now / SECOND, now % SECOND]);
    let answer = remote.redis.run(&script, &keys, &given).await;
    outcome(&answer.expect("an answer")).expect("an outcome")
}

type Schedule = (Vec<(u64, u64)>, Vec<u64>);

/// Rates, and the nanoseconds between requests.
fn any_schedule() -> impl Strategy<Value = Schedule> {
    use proptest::prelude::*;
    // Long enough that the server, whose own clock forgets, never does.
    let rates = prop::collection::btree_set((1_u64..9, 600_000_u64..9_000_000), 1..=3);
    let gaps = (any::<u8>(), 0_u64..4_000_000_000_000);
    let gap = gaps.prop_map(|(kind, gap)| if kind % 3 == 0 { 0 } else { gap });
    (rates, prop::collection::vec(gap, 1..60))
        .prop_map(|(rates, gaps)| (rates.into_iter().collect(), gaps))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_script_decides_as_this_process_does() {
    let server = Server::start();
    let remote = remote(&server, "filter");
    let mut runner = TestRunner::deterministic();
    let keys = Keys::random();
    for case in 0..150 {
        let schedule = any_schedule().new_tree(&mut runner).expect("a schedule");
        let (written, gaps) = schedule.current();
        let local = Partitions::new(rates(&written), 10, Gauge::default(), Counter::default());
        let limit: Vec<u16> = (0..).take(written.len()).collect();
        let text = format!("case {case}");
        // Any start: a real one, so that numbers have their real size.
        let mut now = 1_795_000_000 * SECOND;
        for gap in &gaps {
            now += gap;
            let expected = local.take_all(Some(keys.key(&text)), &limit, now);
            let decided = take_at(&remote, &text, local.rates(), &limit, now).await;
            assert_eq!(decided, expected, "{written:?} {gaps:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_take_from_one_bucket_and_never_more_than_there_is() {
    let server = Server::start();
    let nodes = [remote(&server, "filter"), remote(&server, "filter")];
    let other = remote(&server, "another filter");
    let rates = rates(&[(40, 86_400_000), (30, 90_000_000)]);
    let mut passed = 0;
    for _ in 0..5 {
        let takes = (0..20).map(|n| nodes[n % 2].take_all("ada", &rates, &[0, 1]));
        for outcome in futures_util::future::join_all(takes).await {
            passed += usize::from(outcome.expect("an answer").passes());
        }
    }
    assert_eq!(passed, 30);
    let refused = nodes[0]
        .take_all("ada", &rates, &[0, 1])
        .await
        .expect("an answer");
    // The server's clock runs on: in whole tokens it is the same.
    assert_eq!(rates.get(0).tokens(refused.levels[0]), 10);
    assert!(refused.delay <= rates.get(1).step());
    assert!(
        other
            .take_all("ada", &rates, &[0, 1])
            .await
            .expect("an answer")
            .passes()
    );
    assert!(nodes[1].reset("ada", &rates).await);
    assert!(!nodes[1].reset("ada", &rates).await);
    assert!(
        nodes[0]
            .take_all("ada", &rates, &[0, 1])
            .await
            .expect("an answer")
            .passes()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_goes_back_refuses_nobody_for_longer_than_a_step() {
    let server = Server::start();
    let remote = remote(&server, "filter");
    let rates = rates(&[(2, 7_200_000)]);
    let now = 1_795_000_000 * SECOND;
    for _ in 0..2 {
        assert!(take_at(&remote, "ada", &rates, &[0], now).await.passes());
    }
    let day_before = now - 86_400 * SECOND;
    let refused = take_at(&remote, "ada", &rates, &[0], day_before).await;
    assert_eq!(refused.delay, rates.get(0).step());
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_share_a_slot_and_name_nobody() {
    let server = Server::start();
    let remote = remote(&server, "filter");
    let rates = rates(&[(6, 10_000), (1000, 86_400_000)]);
    let keys = remote.keys("ada@example.com", rates.fixed().iter());
    let tag = |key: &str| key.split(['{', '}']).nth(1).map(str::to_owned);
    assert_eq!(tag(&keys[0]), tag(&keys[1]));
    assert!(
        keys[0].ends_with("}:6/10s") && keys[1].ends_with("}:1000/1d"),
        "{keys:?}"
    );
    assert!(!keys[0].contains("ada"));
    assert_ne!(keys, remote.keys("bob@example.com", rates.fixed().iter()));
}

#[test]
fn an_empty_partition_is_asked_about_once_a_second() {
    let server = Server::start();
    let remote = remote(&server, "filter");
    let key = Some(Keys::random().key("a"));
    assert!(!remote.may_refuse(key, 5 * SECOND));
    assert!(remote.may_refuse(key, 5 * SECOND + 1));
    assert!(remote.may_refuse(key, 6 * SECOND - 1));
    assert!(!remote.may_refuse(key, 6 * SECOND));
}

/// How often the server was asked for a decision.
async fn asked(server: &Server) -> usize {
    let client = redis::Client::open(format!("redis://127.0.0.1:{}", server.port));
    let client = client.expect("an address");
    let mut connection = client
        .get_multiplexed_async_connection()
        .await
        .expect("a connection");
    let stats: String = redis::cmd("INFO")
        .arg("commandstats")
        .query_async(&mut connection)
        .await
        .expect("an answer");
    let calls = |verb: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(verb))?;
        line.split(',').next()?.parse::<usize>().ok()
    };
    calls("cmdstat_evalsha:calls=").unwrap_or(0) + calls("cmdstat_eval:calls=").unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_is_one_command_however_many_rates_hold() {
    let server = Server::start();
    let remote = remote(&server, "filter");
    let rates = rates(&[(600, 60_000), (5_000, 86_400_000), (9_000, 99_000_000)]);
    // The server may not know the script when it is first asked.
    let first = remote.take_all("bob", &rates, &[0, 1, 2]).await;
    assert!(first.expect("an answer").passes());
    let before = asked(&server).await;
    for n in 1..=20 {
        let outcome = remote.take_all("ada", &rates, &[0, 1, 2]).await;
        assert!(outcome.expect("an answer").passes());
        assert_eq!(asked(&server).await, before + n);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_flood_at_once_no_more_ask_than_could_pass() {
    use tokio::io::AsyncWriteExt;

    let server = Server::start();
    let metrics = std::sync::Arc::new(Metrics::default());
    let mut parts = doorward_plugin_api::Parts::new(
        doorward_core::clock::Clock::system(),
        std::sync::Arc::new(doorward_net::http::outbound::Outbound::new()),
        metrics.clone(),
    );
    parts.redis = Some(server.connect(&metrics));
    let config = serde_json::json!({"rate": {"numberOfRequests": 6, "duration": "6 days"}});
    let config = config.as_object().expect("an object");
    let filter = (crate::throttling::KIND.build)(config, &parts).expect("valid");
    let request = async || {
        let (mut client, stream) = tokio::io::duplex(4096);
        let text = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        client.write_all(text).await.expect("room");
        let mut session = pingora::protocols::http::ServerSession::new_http1(Box::new(stream));
        session.read_request().await.expect("a request");
        let mut exchange = doorward_plugin_api::filter::Exchange::default();
        match filter.on_request(&mut session, &mut exchange) {
            doorward_plugin_api::filter::Verdict::Now(flow) => flow,
            doorward_plugin_api::filter::Verdict::Wait => {
                filter.on_request_slow(&mut session, &mut exchange).await
            }
        }
    };
    let flood = futures_util::future::join_all((0..300).map(|_| request()));
    let passes = |flow: &doorward_plugin_api::filter::Flow| {
        matches!(flow, doorward_plugin_api::filter::Flow::Continue)
    };
    assert_eq!(flood.await.iter().filter(|flow| passes(flow)).count(), 6);
    // One more in each second that it may have taken.
    let asked = asked(&server).await;
    assert!((6..100).contains(&asked), "{asked} of 300 asked");
}
