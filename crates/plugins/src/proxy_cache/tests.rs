#![expect(clippy::unwrap_used, reason = "tests")]

mod callers;

use serde_json::json;

use super::*;
use crate::testing::{decide, parts, plugin_with, session};
use doorward_core::model::consumer::Consumer;
use doorward_plugin_api::identity::Credential;

struct Cache {
    filter: Arc<dyn Filter>,
    parts: Parts,
}

impl Cache {
    fn new(more: &Value) -> Self {
        let mut config = json!({"strategy": "memory", "content_type": ["text/plain", "text/html"]});
        let fields = more.as_object().unwrap().clone();
        config.as_object_mut().unwrap().extend(fields);
        let parts = parts();
        let filter = plugin_with(&KIND, &config, &parts).unwrap();
        Self { filter, parts }
    }

    /// What the client gets for a request with this line and these fields, where the
    /// upstream answers so: the cache's status, and the body.
    async fn ask(
        &self,
        line: &str,
        fields: &str,
        answer: &[(&'static str, &str)],
        body: &str,
    ) -> (String, String) {
        self.ask_as(Exchange::default(), line, fields, answer, body)
            .await
    }

    async fn ask_as(
        &self,
        mut exchange: Exchange,
        line: &str,
        fields: &str,
        answer: &[(&'static str, &str)],
        body: &str,
    ) -> (String, String) {
        let host = if fields.contains("Host:") {
            ""
        } else {
            "Host: a.test\r\n"
        };
        let request = format!("{line} HTTP/1.1\r\n{host}{fields}\r\n");
        let (mut session, _client) = session(&request).await;
        if let Some(reply) = decide(&*self.filter, &mut session, &mut exchange).await {
            let status = reply.headers.iter().find(|(name, _)| *name == CACHE_STATUS);
            let status = status.map_or(reply.status.as_str(), |(_, value)| value.to_str().unwrap());
            let ReplyBody::Own(body) = &reply.body else {
                return (status.to_owned(), String::new());
            };
            return (
                status.to_owned(),
                String::from_utf8_lossy(body).into_owned(),
            );
        }
        let mut response = ResponseHeader::build(StatusCode::OK, None).unwrap();
        for (name, value) in answer {
            response.append_header(*name, *value).unwrap();
        }
        if !response.headers.contains_key(header::CONTENT_TYPE) {
            response
                .insert_header(header::CONTENT_TYPE, "text/plain")
                .unwrap();
        }
        let request = session.req_header();
        let flow = self
            .filter
            .on_upstream_response(request, &mut exchange, &mut response);
        if let ResponseFlow::Filter(mut filter) = flow.await {
            let (one, other) = body.split_at(body.len() / 2);
            filter.piece(&mut Some(Bytes::from(one.to_owned())), false);
            filter.piece(&mut Some(Bytes::from(other.to_owned())), true);
        }
        let mut told = exchange.response_headers.iter();
        let status = told.find(|(name, _)| *name == CACHE_STATUS).unwrap();
        (status.1.to_str().unwrap().to_owned(), body.to_owned())
    }

    /// The status of the cache alone.
    async fn status(&self, line: &str, fields: &str, answer: &[(&'static str, &str)]) -> String {
        self.ask(line, fields, answer, "body").await.0
    }
}

fn caller(id: u128) -> Exchange {
    let consumer = json!({"id": uuid::Uuid::from_u128(id), "username": "a", "created_at": 0});
    let consumer: Consumer = serde_json::from_value(consumer).unwrap();
    Exchange {
        consumer: Some(Arc::new(consumer.into())),
        credential: Some(Arc::new(Credential::new(uuid::Uuid::from_u128(id), "a"))),
        ..Exchange::default()
    }
}

/// The same consumer by the same credential, with more that is known of it.
fn caller_with(more: impl FnOnce(&mut Exchange)) -> Exchange {
    let mut exchange = caller(1);
    more(&mut exchange);
    exchange
}

#[tokio::test]
async fn an_answer_is_given_again_until_its_time_is_over() {
    let cache = Cache::new(&json!({"cache_ttl": 10}));
    assert_eq!(
        cache.ask("GET /", "", &[], "one").await,
        ("Miss".into(), "one".into())
    );
    cache.parts.clock.advance(9_000);
    assert_eq!(
        cache.ask("GET /", "", &[], "two").await,
        ("Hit".into(), "one".into())
    );
    cache.parts.clock.advance(1000);
    assert_eq!(cache.status("GET /", "", &[]).await, "Miss");
}

#[tokio::test]
async fn what_answers_head_is_stored_and_answers_head_alone() {
    let cache = Cache::new(&json!({}));
    let length: &[(&'static str, &str)] = &[("content-length", "4")];
    assert_eq!(cache.status("HEAD /", "", length).await, "Miss");
    // What another filter adds behind the head is not the upstream's.
    let hit = cache.ask("HEAD /", "", length, "body").await;
    assert_eq!(hit, ("Hit".into(), String::new()));
    assert_eq!(cache.ask("GET /", "", &[], "body").await.0, "Miss");
    let hit = cache.ask("GET /", "", &[], "body").await;
    assert_eq!(hit, ("Hit".into(), "body".into()));
    let (mut session, _client) = session("HEAD / HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
    let mut exchange = Exchange::default();
    let reply = decide(&*cache.filter, &mut session, &mut exchange).await;
    let told = reply.unwrap().headers;
    let told = told
        .iter()
        .find(|(name, _)| *name == header::CONTENT_LENGTH);
    assert_eq!(told.map(|(_, value)| value.as_bytes()), Some(&b"4"[..]));
}

/// The names of the cache's headers in the answer to this request.
async fn told(cache: &Cache, fields: &str) -> Vec<String> {
    let request = format!("GET / HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n");
    let (mut session, _client) = session(&request).await;
    let mut exchange = Exchange::default();
    let reply = decide(&*cache.filter, &mut session, &mut exchange).await;
    let headers = reply.map_or(Vec::new(), |reply| reply.headers);
    let names = headers.iter().map(|(name, _)| name.as_str().to_owned());
    names
        .filter(|name| name.starts_with("x-cache") || name == "age")
        .collect()
}

#[tokio::test]
async fn who_asks_to_debug_is_told_all_whatever_is_shown_to_others() {
    let hidden = json!({"response_headers":
        {"age": false, "X-Cache-Status": false, "X-Cache-Key": false}, "cache_control": true});
    let cache = Cache::new(&hidden);
    let only = "Cache-Control: only-if-cached\r\n";
    let debug = "Kong-Debug: 1\r\n";
    assert!(told(&cache, only).await.is_empty());
    assert_eq!(
        told(&cache, &format!("{only}{debug}")).await,
        ["x-cache-key"]
    );
    let fresh: &[(&'static str, &str)] = &[("cache-control", "max-age=60")];
    assert_eq!(cache.status("GET /", debug, fresh).await, "Miss");
    assert!(told(&cache, "").await.is_empty());
    let all = ["x-cache-status", "x-cache-key", "age"];
    assert_eq!(told(&cache, debug).await, all);
    let shown = Cache::new(&json!({"cache_control": true}));
    assert_eq!(told(&shown, only).await, ["x-cache-key"]);
}

#[tokio::test]
async fn what_is_kept_longer_than_it_is_fresh_is_refreshed() {
    let cache = Cache::new(&json!({"cache_ttl": 10, "storage_ttl": 100}));
    cache.status("GET /", "", &[]).await;
    cache.parts.clock.advance(11_000);
    assert_eq!(
        cache.ask("GET /", "", &[], "two").await,
        ("Refresh".into(), "two".into())
    );
    assert_eq!(
        cache.ask("GET /", "", &[], "three").await,
        ("Hit".into(), "two".into())
    );
}

#[tokio::test]
async fn poisoning_by_host_meets_another_key() {
    let cache = Cache::new(&json!({}));
    cache.ask("GET /", "Host: evil.test\r\n", &[], "evil").await;
    let got = cache.ask("GET /", "Host: good.test\r\n", &[], "good").await;
    assert_eq!(got, ("Miss".into(), "good".into()));
    assert_eq!(
        cache.status("GET /", "Host: GOOD.test\r\n", &[]).await,
        "Hit"
    );
}

#[tokio::test]
async fn poisoning_by_headers_that_override_the_request_is_not_stored() {
    let cache = Cache::new(&json!({}));
    for header in key_overrides() {
        let fields = format!("{header}: evil\r\n");
        assert_eq!(
            cache.status("GET /", &fields, &[]).await,
            "Bypass",
            "{header}"
        );
    }
    assert_eq!(cache.status("GET /", "", &[]).await, "Miss");
}

fn key_overrides() -> [&'static str; 5] {
    [
        "X-Original-URL",
        "X-Rewrite-URL",
        "X-HTTP-Method-Override",
        "X-Host",
        "Forwarded",
    ]
}

#[tokio::test]
async fn poisoning_by_the_hundred_and_first_parameter_meets_another_key() {
    let cache = Cache::new(&json!({}));
    let many: String = (0..100).map(|n| format!("a{n}=1&")).collect();
    cache
        .ask(&format!("GET /?{many}x=evil"), "", &[], "evil")
        .await;
    assert_eq!(
        cache.status(&format!("GET /?{many}x=good"), "", &[]).await,
        "Miss"
    );
    assert_eq!(
        cache.status(&format!("GET /?{many}x=evil"), "", &[]).await,
        "Hit"
    );
}

#[tokio::test]
async fn poisoning_by_the_body_of_a_get_is_not_stored() {
    let cache = Cache::new(&json!({}));
    let fields = "Content-Length: 4\r\n";
    assert_eq!(cache.status("GET /", fields, &[]).await, "Bypass");
    assert_eq!(
        cache
            .status("GET /", "Transfer-Encoding: chunked\r\n", &[])
            .await,
        "Bypass"
    );
}

#[tokio::test]
async fn poisoning_by_a_trusted_proxys_headers_meets_another_key() {
    let cache = Cache::new(&json!({}));
    let trusted = || Exchange {
        trusted: true,
        ..Exchange::default()
    };
    let evil = "X-Forwarded-Host: evil.test\r\n";
    cache.ask_as(trusted(), "GET /", evil, &[], "evil").await;
    let good = "X-Forwarded-Host: good.test\r\n";
    let got = cache.ask_as(trusted(), "GET /", good, &[], "good").await;
    assert_eq!(got.0, "Miss");
}

#[tokio::test]
async fn an_answer_that_is_cut_short_is_not_stored() {
    let cache = Cache::new(&json!({}));
    let short = [("content-length", "99")];
    assert_eq!(cache.status("GET /", "", &short).await, "Miss");
    assert_eq!(cache.status("GET /", "", &[]).await, "Miss");
    let cache = Cache::new(&json!({}));
    let unframed = Exchange {
        unframed: true,
        ..Exchange::default()
    };
    assert_eq!(
        cache.ask_as(unframed, "GET /", "", &[], "x").await.0,
        "Bypass"
    );
}

#[tokio::test]
async fn one_consumers_answers_are_not_anothers() {
    let cache = Cache::new(&json!({}));
    assert_eq!(
        cache.ask_as(caller(1), "GET /", "", &[], "one").await.0,
        "Miss"
    );
    assert_eq!(
        cache.ask_as(caller(2), "GET /", "", &[], "two").await.0,
        "Miss"
    );
    assert_eq!(cache.ask("GET /", "", &[], "all").await.0, "Miss");
    let got = cache.ask_as(caller(1), "GET /", "", &[], "no").await;
    assert_eq!(got, ("Hit".into(), "one".into()));
}

#[tokio::test]
async fn credentials_that_nobody_has_checked_go_around_the_cache() {
    let cache = Cache::new(&json!({}));
    for field in [
        "Authorization: Bearer x\r\n",
        "Proxy-Authorization: Basic x\r\n",
    ] {
        assert_eq!(cache.status("GET /", field, &[]).await, "Bypass");
    }
    assert_eq!(cache.status("GET /", "", &[]).await, "Miss");
    assert_eq!(
        cache
            .status("GET /", "Authorization: Bearer x\r\n", &[])
            .await,
        "Bypass"
    );
}

#[tokio::test]
async fn cookies_are_neither_stored_nor_shared() {
    let cache = Cache::new(&json!({}));
    let sets = [("set-cookie", "session=1")];
    assert_eq!(cache.status("GET /", "", &sets).await, "Bypass");
    assert_eq!(
        cache.status("GET /", "Cookie: session=1\r\n", &[]).await,
        "Bypass"
    );
    let public = [("cache-control", "public")];
    assert_eq!(
        cache
            .status("GET /", "Cookie: session=1\r\n", &public)
            .await,
        "Miss"
    );
    assert_eq!(
        cache.status("GET /", "Cookie: session=2\r\n", &[]).await,
        "Hit"
    );
    let private = [("cache-control", "private")];
    assert_eq!(cache.status("GET /private", "", &private).await, "Bypass");
}

#[tokio::test]
async fn vary_tells_answers_apart_and_any_stores_nothing() {
    let cache = Cache::new(&json!({}));
    let vary = [("vary", "X-Lang, X-Other")];
    cache.ask("GET /", "X-Lang: de\r\n", &vary, "Tag").await;
    assert_eq!(
        cache.ask("GET /", "X-Lang: en\r\n", &vary, "day").await.0,
        "Miss"
    );
    let got = cache.ask("GET /", "X-Lang: de\r\n", &[], "").await;
    assert_eq!(got, ("Hit".into(), "Tag".into()));
    let got = cache.ask("GET /", "X-Lang: en\r\n", &[], "").await;
    assert_eq!(got, ("Hit".into(), "day".into()));
    assert_eq!(
        cache.status("GET /any", "", &[("vary", "*")]).await,
        "Bypass"
    );
}

#[tokio::test]
async fn encoded_answers_and_those_for_one_origin_are_for_who_asked_so() {
    let cache = Cache::new(&json!({}));
    let gzip = [("content-encoding", "gzip")];
    cache
        .status("GET /", "Accept-Encoding: gzip\r\n", &gzip)
        .await;
    assert_eq!(cache.status("GET /", "", &[]).await, "Miss");
    let origin = [("access-control-allow-origin", "https://evil.test")];
    cache
        .status("GET /o", "Origin: https://evil.test\r\n", &origin)
        .await;
    assert_eq!(
        cache
            .status("GET /o", "Origin: https://good.test\r\n", &[])
            .await,
        "Miss"
    );
}

#[tokio::test]
async fn cache_control_counts_where_it_is_asked_for() {
    let cache = Cache::new(&json!({"cache_control": true}));
    let only = "Cache-Control: only-if-cached\r\n";
    assert_eq!(cache.status("GET /", only, &[]).await, "504");
    for directive in [
        "no-store",
        "no-cache",
        "private",
        "max-age=0",
        "s-maxage=0, max-age=9",
        "max-age=x",
    ] {
        let answer = [("cache-control", directive)];
        assert_eq!(
            cache.status("GET /", "", &answer).await,
            "Bypass",
            "{directive}"
        );
    }
    assert_eq!(cache.status("GET /", "", &[]).await, "Bypass");
    let fresh = [("cache-control", "max-age=10"), ("age", "2")];
    assert_eq!(cache.status("GET /", "", &fresh).await, "Miss");
    assert_eq!(cache.status("GET /", only, &[]).await, "Hit");
    assert_eq!(
        cache
            .status("GET /", "Cache-Control: no-cache\r\n", &[])
            .await,
        "Bypass"
    );
    let stale = "Cache-Control: max-age=1\r\n";
    assert_eq!(cache.status("GET /", stale, &fresh).await, "Refresh");
    let least = "Cache-Control: min-fresh=9\r\n";
    assert_eq!(cache.status("GET /", least, &fresh).await, "Refresh");
}

#[tokio::test]
async fn types_match_with_their_parameters_alone() {
    let cache = Cache::new(&json!({"content_type": ["application/json", "text/*"]}));
    for (content_type, status) in [
        ("application/json; charset=utf-8", "Bypass"),
        ("application/JSON", "Miss"),
        ("text/css", "Miss"),
        ("image/png", "Bypass"),
    ] {
        let answer = [("content-type", content_type)];
        let line = format!("GET /{}", content_type.len());
        assert_eq!(
            cache.status(&line, "", &answer).await,
            status,
            "{content_type}"
        );
    }
}

#[tokio::test]
async fn headers_of_a_connection_and_of_one_caller_are_not_told_again() {
    let cache = Cache::new(&json!({}));
    let answer = [
        ("connection", "x-hop"),
        ("x-hop", "1"),
        ("x-ratelimit-remaining-minute", "4"),
        ("x-kept", "1"),
        ("x-kept", "2"),
    ];
    cache.status("GET /", "", &answer).await;
    let (mut session, _client) = session("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
    let mut exchange = Exchange::default();
    let reply = decide(&*cache.filter, &mut session, &mut exchange)
        .await
        .unwrap();
    assert!(exchange.stored);
    let names: Vec<_> = reply
        .headers
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    let expected = [
        "x-kept",
        "x-kept",
        "content-type",
        "x-cache-status",
        "x-cache-key",
        "age",
    ];
    assert_eq!(names.len(), expected.len(), "{names:?}");
    assert!(
        expected.iter().all(|name| names.contains(name)),
        "{names:?}"
    );
}

#[tokio::test]
async fn operators_see_and_forget_what_is_stored() {
    let cache = Cache::new(&json!({}));
    cache.ask("GET /", "", &[("x-a", "1")], "body").await;
    let (mut session, _client) = session("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
    let reply = decide(&*cache.filter, &mut session, &mut Exchange::default())
        .await
        .unwrap();
    let key = reply.headers.iter().find(|(name, _)| *name == CACHE_KEY);
    let key = key.unwrap().1.to_str().unwrap();
    let operator = cache.filter.response_cache().unwrap();
    let entry = operator.entry(key).unwrap();
    assert_eq!(entry["body"], "body");
    assert_eq!(entry["headers"]["x-a"], "1");
    assert!(operator.remove(key) && !operator.remove(key));
    assert!(operator.entry(key).is_none() && operator.entry("x").is_none());
    cache.status("GET /", "", &[]).await;
    operator.clear();
    assert_eq!(cache.status("GET /", "", &[]).await, "Miss");
}

#[tokio::test]
async fn a_flood_of_answers_stays_within_its_bytes() {
    let cache = Cache::new(&json!({}));
    let body = "x".repeat(1 << 20);
    for number in 0..300 {
        cache.ask(&format!("GET /{number}"), "", &[], &body).await;
    }
    let memory: Arc<Memory> = cache.parts.slots.get_or_default();
    assert!(memory.bytes() <= memory::MAX_BYTES, "{}", memory.bytes());
    let long = "x".repeat(memory::MAX_ENTRY + 1);
    cache.ask("GET /long", "", &[], &long).await;
    assert_eq!(cache.status("GET /long", "", &[]).await, "Miss");
    // Of many answers to one request the newest stay.
    for number in 0..100 {
        let fields = format!("X-A: {number}\r\n");
        cache
            .ask("GET /many", &fields, &[("vary", "x-a")], "x")
            .await;
    }
    assert_eq!(cache.status("GET /many", "X-A: 99\r\n", &[]).await, "Hit");
    assert_eq!(
        cache
            .status("GET /many", "X-A: 1\r\n", &[("vary", "x-a")])
            .await,
        "Miss"
    );
}

#[test]
fn wrong_settings_are_refused_with_the_imitated_words() {
    for (config, words) in [
        (json!({}), "strategy: required field missing"),
        (json!({"strategy": "disk"}), "expected one of: memory"),
        (
            json!({"strategy": "memory", "cache_ttl": 0}),
            "value must be greater than 0",
        ),
        (
            json!({"strategy": "memory", "response_code": []}),
            "length must be at least 1",
        ),
        (
            json!({"strategy": "memory", "request_method": ["DELETE"]}),
            "expected one of: HEAD, GET",
        ),
    ] {
        let message = plugin_with(&KIND, &config, &parts()).err().unwrap();
        assert!(message.contains(words), "{message}");
    }
}

#[tokio::test]
async fn the_order_of_different_parameters_does_not_count_and_that_of_alike_ones_does() {
    let cache = Cache::new(&json!({}));
    assert_eq!(cache.status("GET /?a=b&b=c", "", &[]).await, "Miss");
    assert_eq!(cache.status("GET /?b=c&a=b", "", &[]).await, "Hit");
    // Programs differ in which of two names they take for one.
    for (one, other) in [
        ("a=1&a=2", "a=2&a=1"),
        ("a=1&%61=2", "%61=2&a=1"),
        ("a=1&A=2", "A=2&a=1"),
        ("a[]=1&a[x]=2", "a[x]=2&a[]=1"),
        ("a.b=1&a_b=2", "a_b=2&a.b=1"),
    ] {
        let (one, other) = (format!("GET /?{one}"), format!("GET /?{other}"));
        assert_eq!(cache.status(&one, "", &[]).await, "Miss", "{one}");
        assert_eq!(cache.status(&other, "", &[]).await, "Miss", "{other}");
    }
}
