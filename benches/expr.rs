//! Expressions: what typical ones cost for a request.
//!
//! Conditions of routes and partitions of throttles are evaluated for every
//! request; those here borrow from it and allocate nothing, but for the text of
//! an address.

use std::hint::black_box;
use std::net::SocketAddr;

use criterion::{Criterion, criterion_group, criterion_main};
use doorward_core::model::token::AccessToken;
use doorward_expr::{Expression, Scope};
use http::Request;
use http::request::Parts;
use serde_json::json;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Conditions, as routes have them.
const CONDITIONS: &[(&str, &str)] = &[
    ("another path", "${find(request.uri.path, '^/other')}"),
    (
        "path by pattern",
        "${find(request.uri.path, '^/home/[a-z]+/')}",
    ),
    (
        "path by look-ahead",
        "${find(request.uri.path, '^/home/(?!admin)')}",
    ),
    ("path by method", "${request.uri.path.startsWith('/home')}"),
    (
        "method and header",
        "${request.method == 'GET' and request.headers['X-Api-Version'][0] == '2'}",
    ),
    (
        "network",
        "${ipMatch(contexts.client.remoteAddress, '192.0.2.0/24')}",
    ),
    ("cookie", "${request.cookies['theme'][0].value == 'dark'}"),
    ("query", "${request.queryParams['page'][0] == '2'}"),
    (
        "scope",
        "${contains(contexts.oauth2.accessToken.scopes, 'mail')}",
    ),
];

/// Texts, as partitions and headers are.
const TEXTS: &[(&str, &str)] = &[
    ("header", "${request.headers['X-User'][0]}"),
    ("claim", "${contexts.oauth2.accessToken.info.sub}"),
    ("lower case", "${toLowerCase(request.headers['X-User'][0])}"),
    ("client address", "${contexts.client.remoteAddress}"),
    ("mixed", "${request.method} ${request.uri.path}"),
];

fn request() -> Parts {
    let request = Request::get("/home/users/7?page=2")
        .header("Host", "api.example.com")
        .header("User-Agent", "bench/1")
        .header("X-User", "ada")
        .header("X-Api-Version", "2")
        .header("Cookie", "sid=0123456789abcdef; theme=dark")
        .body(())
        .expect("a valid request");
    request.into_parts().0
}

fn evaluation(c: &mut Criterion) {
    let request = request();
    let client = SocketAddr::from(([192, 0, 2, 7], 4711));
    let claims = json!({"sub": "demo", "iss": "http://op.example.com", "aud": ["a", "b"]});
    let token = AccessToken {
        token: "abc".to_owned(),
        claims: claims.as_object().expect("an object").clone(),
        scopes: vec!["openid".to_owned(), "mail".to_owned()],
        expires_at: None,
    };
    let scope = Scope {
        token: Some(&token),
        ..Scope::new(&request, client)
    };
    let mut group = c.benchmark_group("condition");
    for (name, source) in CONDITIONS {
        let expression = Expression::compile(source).expect("a valid expression");
        group.bench_function(*name, |b| b.iter(|| expression.is_true(black_box(&scope))));
    }
    group.finish();
    let mut group = c.benchmark_group("text");
    for (name, source) in TEXTS {
        let expression = Expression::compile(source).expect("a valid expression");
        assert!(expression.text(&scope).is_some(), "{name}");
        group.bench_function(*name, |b| {
            b.iter(|| expression.text(black_box(&scope)).map(|text| text.len()));
        });
    }
    group.finish();
}

fn compilation(c: &mut Criterion) {
    c.bench_function("compile a condition", |b| {
        b.iter(|| Expression::compile(black_box("${find(request.uri.path, '^/home/[a-z]+')}")));
    });
}

criterion_group!(benches, evaluation, compilation);
criterion_main!(benches);
