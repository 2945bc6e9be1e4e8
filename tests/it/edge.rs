//! What the edge of a site does for all routes: HTTPS for everybody, and health
//! checks.

use crate::support::ports::Port;
use crate::support::raw::{self, Response};
use crate::support::tls::Offer;
use crate::support::{Door, Reply, Setup, Upstream, eventually, http};

/// A door to an echo whose `proxy` section has `settings` and TLS on `tls`.
async fn door_to(upstream: &Upstream, tls: &Port, settings: &str) -> Door {
    let service = format!(
        "- {{name: web, url: '{}', routes: [{{hosts: [a.test, b.test]}}]}}\n",
        upstream.url("")
    );
    let proxy = format!(
        "{{listen: [\"@PROXY@\"], tls: {{listen: [\"{}\"]}}, {settings}}}",
        tls.authority()
    );
    Setup::new().proxy(&proxy).services(&service).start().await
}

async fn ask(door: &Door, line: &str, headers: &str) -> Response {
    let request = format!("{line} HTTP/1.1\r\n{headers}\r\n");
    let answer = raw::exchange(&door.proxy(), request.as_bytes()).await;
    answer.expect("an answer")
}

/// The whole answer over TLS to `GET path`.
async fn over_tls(port: u16, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
    let answer = tokio::task::spawn_blocking(move || {
        let mut connection = Offer::new().connect(port, "a.test")?;
        connection.send(request.as_bytes())?;
        connection.rest()
    });
    let answer = answer.await.expect("no panic").expect("an answer");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn requests_without_tls_are_led_to_it() {
    let (upstream, tls) = (Upstream::echo().await, Port::reserve());
    let door = door_to(&upstream, &tls, "https_redirect: true").await;
    let port = tls.number();
    for (line, headers, location) in [
        (
            "GET /p?q=1",
            "Host: a.test\r\n",
            format!("https://a.test:{port}/p?q=1"),
        ),
        (
            "POST /p",
            "Host: a.test:80\r\nContent-Length: 0\r\n",
            format!("https://a.test:{port}/p"),
        ),
        // No route is needed.
        (
            "GET /",
            "Host: c.test\r\n",
            format!("https://c.test:{port}/"),
        ),
        // Another host in the path is a path.
        (
            "GET //evil.test/x",
            "Host: a.test\r\n",
            format!("https://a.test:{port}//evil.test/x"),
        ),
        // A stranger's word on how it came counts for nothing.
        (
            "GET /",
            "Host: a.test\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil.test\r\n",
            format!("https://a.test:{port}/"),
        ),
    ] {
        let answer = ask(&door, line, headers).await;
        assert_eq!(answer.status, 308, "{line}");
        assert_eq!(answer.header("location"), Some(&*location), "{line}");
    }
    assert_eq!(upstream.seen().len(), 0);
    let answer = over_tls(port, "/p").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn no_redirect_leads_to_a_host_that_is_none() {
    let (upstream, tls) = (Upstream::echo().await, Port::reserve());
    let door = door_to(&upstream, &tls, "https_redirect: 301").await;
    for host in [
        "evil.test/x",
        "u@evil.test",
        "a.test evil.test",
        "a.test:x",
        "evil.test#",
        "",
    ] {
        let answer = ask(&door, "GET /", &format!("Host: {host}\r\n")).await;
        assert!(
            matches!(answer.status, 400 | 404),
            "{host}: {}",
            answer.status
        );
        assert_eq!(answer.header("location"), None, "{host}");
    }
    let twice = ask(&door, "GET /", "Host: a.test\r\nHost: evil.test\r\n").await;
    assert_eq!((twice.status, twice.header("location")), (400, None));
    let absolute = ask(&door, "GET http://evil.test/x", "Host: a.test\r\n").await;
    assert_ne!(absolute.status, 200);
}

#[tokio::test]
async fn challenges_of_certificate_authorities_are_not_redirected() {
    let (upstream, tls) = (Upstream::echo().await, Port::reserve());
    let door = door_to(&upstream, &tls, "https_redirect: 302").await;
    let path = "/.well-known/acme-challenge/token";
    let answer = ask(&door, &format!("GET {path}"), "Host: a.test\r\n").await;
    assert_eq!(answer.status, 200);
    assert_eq!(upstream.last().target, path);
    // No way around: what is another path behind is another one here.
    let around = ask(
        &door,
        "GET /.well-known/acme-challenge/../../p",
        "Host: a.test\r\n",
    )
    .await;
    assert_eq!(around.status, 302);
}

#[tokio::test]
async fn a_trusted_proxy_says_how_the_client_came() {
    let (upstream, tls) = (Upstream::echo().await, Port::reserve());
    let settings = "https_redirect: 307, hsts: {}, trusted_ips: [127.0.0.1]";
    let door = door_to(&upstream, &tls, settings).await;
    let plain = ask(
        &door,
        "GET /",
        "Host: a.test\r\nX-Forwarded-Proto: http\r\n",
    )
    .await;
    assert_eq!(
        (plain.status, plain.header("strict-transport-security")),
        (307, None)
    );
    let secure = ask(
        &door,
        "GET /",
        "Host: a.test\r\nX-Forwarded-Proto: https\r\n",
    )
    .await;
    let year = Some("max-age=31536000");
    assert_eq!(
        (secure.status, secure.header("strict-transport-security")),
        (200, year)
    );
}

#[tokio::test]
async fn browsers_are_told_to_stay_with_tls_on_every_answer_over_it() {
    let upstream = Upstream::start(|_| {
        let head = "HTTP/1.1 200 OK\r\nStrict-Transport-Security: max-age=0\r\n";
        Reply::Raw(format!("{head}Content-Length: 1\r\n\r\nx").into_bytes())
    })
    .await;
    let tls = Port::reserve();
    let hsts = "hsts: {max_age: 600, include_subdomains: true}";
    let door = door_to(&upstream, &tls, hsts).await;
    let told = "strict-transport-security: max-age=600; includesubdomains\r\n";
    // Proxied (once, and the edge's word), not routed, malformed.
    for (path, status) in [("/p", "200"), ("/%zz", "400")] {
        let answer = over_tls(tls.number(), path).await.to_lowercase();
        assert!(
            answer.starts_with(&format!("http/1.1 {status}")),
            "{answer}"
        );
        assert_eq!(
            answer.matches("strict-transport-security").count(),
            1,
            "{answer}"
        );
        assert!(answer.contains(told), "{answer}");
    }
    let answer = door.admin_get("/status").await.expect(200);
    assert_eq!(answer.header("strict-transport-security"), "");
    let unrouted = ask(&door, "GET /", "Host: c.test\r\n").await;
    assert_eq!(
        (
            unrouted.status,
            unrouted.header("strict-transport-security")
        ),
        (404, None)
    );
}

#[tokio::test]
async fn health_checks_on_the_proxy_win_over_routes_and_redirects() {
    let (upstream, tls) = (Upstream::echo().await, Port::reserve());
    let settings = "https_redirect: true, health: {live: /up, ready: /readyz}";
    let door = door_to(&upstream, &tls, settings).await;
    for path in ["/up", "/readyz", "/readyz?x=1"] {
        let answer = ask(&door, &format!("GET {path}"), "Host: a.test\r\n").await;
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.text(), "", "{path}");
        assert_eq!(answer.header("cache-control"), Some("no-store"));
    }
    let posted = ask(&door, "POST /up", "Host: a.test\r\nContent-Length: 0\r\n").await;
    assert_eq!(
        (posted.status, posted.header("allow")),
        (405, Some("GET, HEAD"))
    );
    for path in ["/livez", "/up/", "/UP", "//up"] {
        let answer = ask(&door, &format!("GET {path}"), "Host: a.test\r\n").await;
        assert_eq!(answer.status, 308, "{path}");
    }
    assert_eq!(upstream.seen().len(), 0);
    std::fs::remove_file(door.path("data/doorward.db")).expect("removed");
    eventually("the store to be missed", || async {
        let answer = ask(&door, "GET /readyz", "Host: a.test\r\n").await;
        (answer.status == 503).then_some(())
    })
    .await;
    let alive = ask(&door, "GET /up", "Host: a.test\r\n").await;
    assert_eq!(alive.status, 200);
}

#[tokio::test]
async fn without_the_setting_health_checks_are_paths_like_others() {
    let (upstream, tls) = (Upstream::echo().await, Port::reserve());
    let door = door_to(&upstream, &tls, "").await;
    let url = door.proxy_url("/livez");
    let answer = http::send(http::client().get(url).header("host", "a.test")).await;
    answer.expect(200);
    assert_eq!(upstream.last().target, "/livez");
}

#[tokio::test]
async fn keys_are_agreed_on_with_the_named_curves_alone() {
    use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
    let (upstream, tls) = (Upstream::echo().await, Port::reserve());
    let service = format!(
        "- {{name: web, url: '{}', routes: [{{paths: [/]}}]}}\n",
        upstream.url("")
    );
    let proxy = format!(
        "{{listen: [\"@PROXY@\"], tls: {{listen: [\"{}\"], curves: [secp384r1]}}}}",
        tls.authority()
    );
    let _door = Setup::new().proxy(&proxy).services(&service).start().await;
    let port = tls.number();
    let agreed = tokio::task::spawn_blocking(move || {
        [kx_group::SECP384R1, kx_group::X25519].map(|group| {
            let mut provider = default_provider();
            provider.kx_groups = vec![group];
            let offer = Offer::with(provider, rustls::ALL_VERSIONS, None);
            offer.connect(port, "a.test").is_ok()
        })
    });
    assert_eq!(agreed.await.expect("no panic"), [true, false]);
}

#[tokio::test]
async fn people_see_the_operators_pages_and_programs_see_json() {
    let (upstream, tls) = (Upstream::echo().await, Port::reserve());
    let door = Setup::new()
        .proxy("{listen: [\"@PROXY@\"], error_pages: {404: 404.html, 5xx: pages/5xx.html}}")
        .services(&format!(
            "- {{name: dead, url: 'http://{}', retries: 0, routes: [{{paths: [/dead]}}]}}\n\
             - {{name: web, url: '{}', routes: [{{paths: [/web]}}]}}\n",
            tls.authority(),
            upstream.url("")
        ))
        .lay_out();
    std::fs::create_dir(door.path("pages")).expect("a directory");
    door.write("404.html", "<h1>gone {{status}}</h1>");
    door.write(
        "pages/5xx.html",
        "<h1>sorry</h1><p>{{message}} <i>{{ request_id }}</i>",
    );
    let mut door = door;
    door.start().await;
    let page = "Accept: text/html,application/xml;q=0.9,*/*;q=0.8\r\n";
    let host = "Host: a.test\r\n";
    // On loopback too, where a welcome page would be shown at the root.
    let unrouted = ask(&door, "GET /", &format!("{host}{page}")).await;
    assert_eq!(
        (unrouted.status, &*unrouted.text()),
        (404, "<h1>gone 404</h1>")
    );
    assert_eq!(
        unrouted.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    let failed = ask(&door, "GET /dead/x", &format!("{host}{page}")).await;
    assert_eq!(failed.status, 502);
    let id = failed.header("x-kong-request-id").expect("an id");
    assert!(
        failed.text().starts_with("<h1>sorry</h1>"),
        "{}",
        failed.text()
    );
    assert!(
        failed.text().ends_with(&format!("<i>{id}</i>")),
        "{}",
        failed.text()
    );
    // A client has no say in the id, nor in the page.
    let script = "X-Kong-Request-Id: <script>alert(1)</script>\r\n";
    let scripted = ask(
        &door,
        "GET /dead?<script>",
        &format!("{host}{page}{script}"),
    )
    .await;
    assert!(!scripted.text().contains("script"), "{}", scripted.text());
    for (line, lines) in [("GET /", ""), ("GET /dead", "Accept: application/json\r\n")] {
        let answer = ask(&door, line, &format!("{host}{lines}")).await;
        assert!(!answer.text().contains("<h1>"), "{line}: {}", answer.text());
    }
    // An upstream's own failure is its own.
    let answer = ask(&door, "GET /web", &format!("{host}{page}")).await;
    assert_eq!(answer.status, 200);
    // A status without a page.
    let answer = ask(&door, "TRACE /", &format!("{host}{page}")).await;
    assert!(
        answer.text().contains("<h1>Error</h1>"),
        "{}",
        answer.text()
    );
}

#[tokio::test]
async fn a_page_that_can_not_be_shown_is_an_error_with_its_line() {
    let door = Setup::new()
        .proxy("{listen: [\"@PROXY@\"], error_pages: {404: missing.html}}")
        .lay_out();
    let told = |door: &Door| {
        let output = door.run(&["check", "-c", "doorward.yaml"]);
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let missing = told(&door);
    assert!(
        missing.contains("doorward.yaml:1: proxy.error_pages"),
        "{missing}"
    );
    assert!(missing.contains("missing.html: No such file"), "{missing}");
    door.write("missing.html", "{{user}}");
    assert!(told(&door).contains("'{{user}}' is none of {{request_id}}"));
    door.edit(
        "doorward.yaml",
        "{404: missing.html}",
        "{200: missing.html}",
    );
    assert!(told(&door).contains("expected a status from 400 to 599"));
}
