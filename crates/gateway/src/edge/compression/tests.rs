use super::*;

fn request(lines: &[(&'static str, &str)]) -> RequestHeader {
    let mut request = RequestHeader::build("GET", b"/", None).expect("a request");
    request.set_version(Version::HTTP_11);
    for (name, value) in lines {
        request.append_header(*name, *value).expect("a header");
    }
    request
}

fn response(status: u16, lines: &[(&'static str, &str)]) -> ResponseHeader {
    let mut response = ResponseHeader::build(status, None).expect("a response");
    for (name, value) in lines {
        response.append_header(*name, *value).expect("a header");
    }
    response
}

const GZIP: (&str, &str) = ("accept-encoding", "gzip");
const JSON: (&str, &str) = ("content-type", "application/json; charset=utf-8");

fn header<'a>(response: &'a ResponseHeader, name: &str) -> Option<&'a str> {
    response
        .headers
        .get(name)
        .and_then(|value| value.to_str().ok())
}

#[test]
fn the_head_says_what_the_body_becomes() {
    let compression = Compression::new(CompressionConfig::default());
    let lines = [
        JSON,
        ("content-length", "5000"),
        ("etag", "\"v1\""),
        ("accept-ranges", "bytes"),
        ("vary", "Origin"),
    ];
    let mut head = response(200, &lines);
    let filter = compression.begin(&request(&[GZIP]), &mut head);
    assert!(filter.is_some());
    assert_eq!(header(&head, "content-encoding"), Some("gzip"));
    assert_eq!(header(&head, "etag"), Some("W/\"v1\""));
    assert_eq!(header(&head, "transfer-encoding"), Some("chunked"));
    for gone in ["content-length", "accept-ranges"] {
        assert_eq!(header(&head, gone), None, "{gone}");
    }
    let vary: Vec<_> = head.headers.get_all("vary").iter().collect();
    assert_eq!(vary, ["Origin", "Accept-Encoding"]);
}

#[test]
fn a_client_that_wants_none_is_told_that_there_is_another_form() {
    let compression = Compression::new(CompressionConfig::default());
    let mut head = response(200, &[JSON]);
    assert!(compression.begin(&request(&[]), &mut head).is_none());
    assert_eq!(header(&head, "vary"), Some("Accept-Encoding"));
    let mut asked = request(&[GZIP]);
    asked.set_method(Method::HEAD);
    let mut head = response(200, &[JSON, ("content-length", "5000")]);
    assert!(compression.begin(&asked, &mut head).is_none());
    assert_eq!(header(&head, "content-length"), Some("5000"));
}

#[test]
fn what_must_not_be_changed_passes_as_it_is() {
    let compression = Compression::new(CompressionConfig::default());
    for (status, lines) in [
        (200, vec![JSON, ("content-encoding", "br")]),
        (200, vec![JSON, ("content-encoding", "identity")]),
        (206, vec![JSON, ("content-range", "bytes 0-9/100")]),
        (204, vec![JSON]),
        (304, vec![JSON]),
        (101, vec![JSON]),
        (200, vec![JSON, ("cache-control", "private, No-Transform")]),
        (200, vec![JSON, ("content-digest", "sha-256=:x:")]),
        (200, vec![JSON, ("content-length", "1023")]),
        (200, vec![("content-type", "image/png")]),
        (200, vec![("content-type", "text/event-stream")]),
        (200, vec![("content-type", "application/grpc")]),
        (200, vec![]),
    ] {
        let mut head = response(status, &lines);
        let before = head.headers.clone();
        assert!(compression.begin(&request(&[GZIP]), &mut head).is_none());
        assert_eq!(head.headers, before, "{status} {lines:?}");
    }
    let kept = request(&[GZIP, ("cache-control", "no-transform")]);
    assert!(
        compression
            .begin(&kept, &mut response(200, &[JSON]))
            .is_none()
    );
}

#[test]
fn only_so_many_answers_are_compressed_at_once() {
    let compression = Compression::new(CompressionConfig::default());
    let begin = || compression.begin(&request(&[GZIP]), &mut response(200, &[JSON]));
    compression.under_way.store(AT_ONCE - 1, Ordering::Relaxed);
    let last = begin();
    assert!(last.is_some());
    assert!(begin().is_none());
    drop(last);
    assert!(begin().is_some());
}

#[test]
fn a_list_that_means_nothing_is_refused_by_key() {
    let config = |algorithms: &[Coding], types: &[&str]| CompressionConfig {
        algorithms: algorithms.to_vec(),
        types: types.iter().map(|one| (*one).to_owned()).collect(),
        min_length: 0,
    };
    config(&[Coding::Br], &["text/*"]).check().expect("good");
    for (config, key) in [
        (config(&[], &[]), "algorithms"),
        (config(&[Coding::Br, Coding::Br], &[]), "algorithms.1"),
        (config(&[Coding::Br], &["text/html", "html"]), "types.1"),
        (config(&[Coding::Br], &["*/*"]), "types.0"),
        (
            config(&[Coding::Br], &["application/grpc+proto"]),
            "types.0",
        ),
    ] {
        assert_eq!(config.check().expect_err("refused").0, key);
    }
}
