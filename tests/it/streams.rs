//! Requests of every kind on one connection of HTTP/2: some go by the gateway's
//! forwarding loop, others by the engine, and the client can't tell which.

use bytes::Bytes;
use futures_util::future::join_all;
use h2::client::SendRequest;
use http::Request;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use crate::forwarder::doors;
use crate::grpc::client;
use crate::support::{Door, Reply, Setup, Upstream};

/// What a client sends as a stream.
struct Stream<'a> {
    method: &'a str,
    path: &'a str,
    fields: &'a [(&'a str, &'a str)],
    body: &'a [u8],
}

impl<'a> Stream<'a> {
    fn new(method: &'a str, path: &'a str) -> Self {
        Self {
            method,
            path,
            fields: &[],
            body: b"",
        }
    }

    /// Sends it; the status and the whole body of the answer.
    async fn exchange(
        self,
        door: &Door,
        client: SendRequest<Bytes>,
    ) -> Result<(u16, Vec<u8>), h2::Error> {
        let mut request = Request::builder().method(self.method).uri(format!(
            "http://{}{}",
            door.proxy(),
            self.path
        ));
        for (name, value) in self.fields {
            request = request.header(*name, *value);
        }
        let request = request.body(()).expect("a request");
        let mut client = client.ready().await?;
        let (answer, mut sender) = client.send_request(request, self.body.is_empty())?;
        if !self.body.is_empty() {
            sender.send_data(Bytes::copy_from_slice(self.body), true)?;
        }
        let answer = answer.await?;
        let status = answer.status().as_u16();
        let mut stream = answer.into_body();
        let mut all = Vec::new();
        while let Some(piece) = stream.data().await {
            let piece = piece?;
            stream.flow_control().release_capacity(piece.len())?;
            all.extend_from_slice(&piece);
        }
        Ok((status, all))
    }
}

#[tokio::test]
async fn one_connection_carries_streams_of_every_kind_at_once() {
    let upstream = Upstream::echo().await;
    let [door, _behind] = doors(&upstream).await;
    let client = client(&door).await;
    let length: &[_] = &[("content-length", "2")];
    let trailers: &[_] = &[("te", "trailers"), ("content-length", "2")];
    let long: &[_] = &[("content-length", "2"), ("expect", "100-continue")];
    let exchanges = [
        ("GET", "/h1/plain", &[][..], &b""[..], 200),
        ("GET", "/h2/handed/over", &[], b"", 200),
        ("POST", "/h1/body", length, b"hi", 200),
        ("POST", "/h2/body", length, b"hi", 200),
        ("POST", "/sent/body", length, b"hi", 200),
        ("POST", "/h1/endless", &[], b"hi", 200),
        ("POST", "/h1/te", trailers, b"hi", 200),
        ("POST", "/h1/expect", long, b"hi", 200),
        ("POST", "/other", length, b"{}", 200),
        ("POST", "/refused", length, b"hi", 401),
        ("GET", "/nowhere", &[], b"", 404),
        ("HEAD", "/h1/head", &[], b"", 200),
    ];
    for round in 0..3 {
        let all = exchanges.map(|(method, path, fields, body, _)| {
            let stream = Stream {
                method,
                path,
                fields,
                body,
            };
            stream.exchange(&door, client.clone())
        });
        for (answer, (method, path, .., expected)) in join_all(all).await.into_iter().zip(exchanges)
        {
            let (status, body) = answer.expect("no error");
            assert_eq!(status, expected, "{round}: {method} {path}");
            assert_eq!(body.is_empty(), method == "HEAD", "{round}: {path}");
        }
    }
    let seen = upstream.seen();
    for path in [
        "/h1/body",
        "/sent/body",
        "/h1/endless",
        "/h1/te",
        "/h1/expect",
    ] {
        let seen = seen.iter().filter(|seen| seen.target == path);
        let bodies: Vec<_> = seen.map(|seen| &*seen.body).collect();
        assert_eq!(bodies, [b"hi"; 3], "{path}");
    }
}

#[tokio::test]
async fn a_stream_has_the_form_of_http1_at_its_upstream() {
    let upstream = Upstream::echo().await;
    let service = format!(
        "- {{name: a, url: '{}', routes: [{{paths: [/], strip_path: false, \
         preserve_host: true}}]}}\n",
        upstream.url("")
    );
    let door = Setup::new().services(&service).start().await;
    let client = client(&door).await;
    let stream = Stream {
        fields: &[
            ("te", "trailers"),
            ("te", "trailers"),
            ("cookie", "a=1"),
            ("cookie", "b=2"),
        ],
        ..Stream::new("GET", "/a/b?c=d")
    };
    let (status, _) = stream.exchange(&door, client).await.expect("no error");
    assert_eq!(status, 200);
    let seen = upstream.last();
    assert_eq!(seen.target, "/a/b?c=d");
    assert_eq!(seen.all("host"), [door.proxy().to_string()]);
    assert_eq!(seen.all("cookie"), ["a=1; b=2"]);
    assert_eq!(seen.all("te"), ["trailers"]);
    for name in ["connection", "transfer-encoding", "content-length"] {
        assert_eq!(seen.header(name), None, "{name}");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_resets_its_stream_alone() {
    let upstream = Upstream::start(|request| match &*request.target {
        "/h1/cut" => Reply::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfour".to_vec()),
        "/h1/close" => Reply::Close,
        "/h1/malformed" => Reply::Raw(b"HTTP/1.1 200 OK\r\nno field\r\n\r\n".to_vec()),
        _ => Reply::Raw(b"HTTP/1.1 200 OK\r\n\r\nuntil the end".to_vec()),
    })
    .await;
    let [door, _behind] = doors(&upstream).await;
    let client = client(&door).await;
    let ask = |path| Stream::new("GET", path).exchange(&door, client.clone());
    let (cut, close, malformed, whole) = tokio::join!(
        ask("/h1/cut"),
        ask("/h1/close"),
        ask("/h1/malformed"),
        ask("/h1/whole")
    );
    let cut = cut.expect_err("it is not whole");
    assert_eq!(cut.reason(), Some(h2::Reason::INTERNAL_ERROR));
    assert_eq!(close.expect("an answer").0, 502);
    assert_eq!(malformed.expect("an answer").0, 502);
    let (status, body) = whole.expect("an answer");
    assert_eq!((status, &*body), (200, &b"until the end"[..]));
    assert_eq!(ask("/h1/whole").await.expect("an answer").0, 200);
}

#[tokio::test]
async fn a_stream_that_its_client_resets_keeps_no_upstream_waiting() {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let service = format!(
        "- {{name: a, url: 'http://{}', routes: [{{paths: [/]}}]}}\n",
        silent.local_addr().expect("an address")
    );
    let door = Setup::new().services(&service).start().await;
    let mut client = client(&door).await;
    let request = Request::get(format!("http://{}/", door.proxy())).body(());
    let (answer, mut sender) = client
        .send_request(request.expect("a request"), true)
        .expect("sent");
    let (mut upstream, _) = silent.accept().await.expect("a connection");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(upstream.read_u8().await.expect("a head"));
    }
    sender.send_reset(h2::Reason::CANCEL);
    assert!(answer.await.is_err());
    let mut rest = Vec::new();
    upstream.read_to_end(&mut rest).await.expect("the end");
    assert!(rest.is_empty());
}

#[tokio::test]
async fn a_stream_that_goes_on_after_its_answer_is_not_reset() {
    let door = Setup::new().start().await;
    let client = client(&door).await;
    let body = vec![b'y'; 60_000];
    let stream = Stream {
        fields: &[("content-length", "60000")],
        body: &body,
        ..Stream::new("POST", "/nowhere")
    };
    let (status, _) = stream.exchange(&door, client.clone()).await.expect("ok");
    assert_eq!(status, 404);
    let again = Stream::new("GET", "/nowhere").exchange(&door, client);
    assert_eq!(again.await.expect("the connection is whole").0, 404);
}
