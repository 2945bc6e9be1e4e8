//! Messages in JSON, descriptions of services, and who would misuse either.

mod bounds;

use tempfile::TempDir;

use super::*;

/// A service with messages of most kinds.
const SHOP: &str = r#"syntax = "proto3";
package shop;
import "google/protobuf/any.proto";
import "parts/item.proto";
import "parts/node.proto";
service Shop {
  rpc Find(Query) returns (Item);
  rpc Watch(Query) returns (stream Item);
  rpc Tell(stream Query) returns (Item);
  rpc Wrap(Query) returns (google.protobuf.Any);
  rpc Fill(Query) returns (Basket);
}
message Basket {
  repeated Item items = 1;
  map<string, int32> counts = 2;
  repeated int32 numbers = 3;
  google.protobuf.Any any = 4;
}
message Query { string first_name = 1; int64 number = 2; Query inner = 3; }
"#;

const ITEM: &str = r#"syntax = "proto3";
package shop;
enum Size { SMALL = 0; LARGE = 1; }
message Item { string name = 1; int64 big_number = 2; Size size = 3; repeated string tags = 4; }
"#;

/// Messages that hold each other in an extension.
const NODE: &str = r#"syntax = "proto2";
package shop;
message Node { extensions 100 to 199; }
extend Node { optional Node next = 100; }
"#;

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

fn shop() -> Arc<dyn Filter> {
    let folder = folder(&[
        ("shop.proto", SHOP),
        ("parts/item.proto", ITEM),
        ("parts/node.proto", NODE),
    ]);
    let path = folder.path().join("shop.proto");
    plugin(&KIND, &json!({"proto": path.to_str().unwrap()})).unwrap()
}

/// What the plugin makes of a request.
async fn called(filter: &dyn Filter, path: &str, kind: &str, body: &[u8]) -> (u16, Bytes) {
    let (reply, exchange) = exchange_of(filter, path, kind, body).await;
    match reply {
        None => (200, exchange.replacement.unwrap()),
        Some(reply) => {
            let ReplyBody::Own(told) = reply.body else {
                panic!("a text of its own");
            };
            (reply.status.as_u16(), told)
        }
    }
}

async fn exchange_of(
    filter: &dyn Filter,
    path: &str,
    kind: &str,
    body: &[u8],
) -> (Option<Reply>, Exchange) {
    let request = format!("POST {path} HTTP/1.1\r\nHost: a.test\r\nContent-Type: {kind}\r\n\r\n");
    let (mut session, _client) = session(&request).await;
    let mut exchange = Exchange {
        body: Some(Bytes::copy_from_slice(body)),
        ..Exchange::default()
    };
    let reply = decide(filter, &mut session, &mut exchange).await;
    (reply, exchange)
}

fn framed_message(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0][..], &length, message].concat()
}

const FIND: &str = "/shop.Shop/Find";
/// `{"first_name": "mia", "number": 7}`.
const MIA: &[u8] = b"\x0a\x03mia\x10\x07";

#[tokio::test]
async fn messages_in_json_reach_the_upstream_in_protobuf() {
    let filter = shop();
    for json in [
        r#"{"first_name": "mia", "number": 7}"#,
        r#"{"firstName": "mia", "number": "7", "unheard_of": {"a": []}}"#,
    ] {
        let bare = called(&*filter, FIND, "application/json", json.as_bytes()).await;
        assert_eq!(bare, (200, framed_message(MIA).into()), "{json}");
        let frame = framed_message(json.as_bytes());
        let framed = called(&*filter, FIND, "application/grpc-web+json", &frame).await;
        assert_eq!(framed, (200, framed_message(MIA).into()), "{json}");
        let text = STANDARD.encode(&frame);
        let kind = "application/grpc-web-text+json";
        let text = called(&*filter, FIND, kind, text.as_bytes()).await;
        assert_eq!(text, (200, framed_message(MIA).into()), "{json}");
    }
    let two = [framed_message(b"{}"), framed_message(b"{\"number\":7}")].concat();
    let told = called(
        &*filter,
        "/shop.Shop/Tell",
        "application/grpc-web+json",
        &two,
    )
    .await;
    let both = [framed_message(b""), framed_message(b"\x10\x07")].concat();
    assert_eq!(told, (200, both.into()));
}

#[tokio::test]
async fn what_is_no_message_is_refused_and_not_told_again() {
    let filter = shop();
    for (json, told) in [
        ("", "the body is no shop.Query in JSON: line 1, column 0"),
        (
            "{\"number\": \"<script>\"}",
            "the body is no shop.Query in JSON: line 1, column 21",
        ),
        ("[1]", "the body is no shop.Query in JSON: line 1, column 0"),
        (
            "{} {}",
            "the body is no shop.Query in JSON: line 1, column 4",
        ),
    ] {
        let (status, text) = called(&*filter, FIND, "application/json", json.as_bytes()).await;
        let text = String::from_utf8(text.to_vec()).unwrap();
        assert_eq!((status, text.as_str()), (400, told), "{json}");
    }
    let kind = "application/grpc-web+json";
    for (body, told) in [
        (vec![], "the body has no message"),
        (vec![0, 0, 0], "the body has no whole message"),
        // A length that no body has.
        (
            vec![0, 0xff, 0xff, 0xff, 0xff, b'{'],
            "the body has no whole message",
        ),
        (vec![1, 0, 0, 0, 0], "the body has a compressed message"),
        (
            [framed_message(b"{}"), framed_message(b"{}")].concat(),
            "the body has more than one message",
        ),
    ] {
        let answer = called(&*filter, FIND, kind, &body).await;
        assert_eq!(answer, (400, told.into()));
    }
    let text = called(&*filter, FIND, "application/grpc-web-text+json", b"%%%%").await;
    assert_eq!(text, (400, "the body is no Base64".into()));
}

#[tokio::test]
async fn json_that_stands_deep_in_json_is_refused() {
    let deep = |levels: usize| {
        let begin = "{\"inner\":".repeat(levels);
        format!("{begin}{{}}{}", "}".repeat(levels))
    };
    let filter = shop();
    let answer = called(&*filter, FIND, "application/json", deep(90).as_bytes()).await;
    assert_eq!(answer.0, 200);
    for levels in [200, 100_000] {
        let answer = called(&*filter, FIND, "application/json", deep(levels).as_bytes()).await;
        assert_eq!(answer.0, 400, "{levels}");
        let lists = format!("{{\"unheard_of\":{}", "[".repeat(levels));
        let answer = called(&*filter, FIND, "application/json", lists.as_bytes()).await;
        assert_eq!(answer.0, 400, "{levels}");
    }
}

#[tokio::test]
async fn a_message_of_very_many_values_is_not_read() {
    let filter = shop();
    let body = |count: usize| {
        format!(
            "{{\"x\":\"{}\",\"y\":[{}0]}}",
            "[,".repeat(50_000),
            "0,".repeat(count)
        )
    };
    let many = called(&*filter, FIND, "application/json", body(40_000).as_bytes()).await;
    let told = "the message has more than 32768 values";
    assert_eq!(many, (400, told.into()));
    let few = called(&*filter, FIND, "application/json", body(30_000).as_bytes()).await;
    assert_eq!(few.0, 200);
}

#[tokio::test]
async fn only_described_methods_are_called_in_json() {
    let filter = shop();
    for path in [
        "/shop.Shop/Nope",
        "/x",
        "/web/shop.Shop/Find",
        "/shop.Shop/find",
    ] {
        let (status, told) = called(&*filter, path, "application/json", b"{}").await;
        assert_eq!(status, 400);
        assert_eq!(told, format!("Unknown path \"{path}\""));
    }
    // Protobuf needs no description.
    let (reply, exchange) = exchange_of(&*filter, "/other.X/Y", "application/grpc-web", b"").await;
    assert!(reply.is_none() && exchange.replacement.is_none());
}

/// The body of an answer of `path` with these pieces of gRPC.
async fn told(kind: &str, path: &str, pieces: &[&[u8]]) -> Vec<u8> {
    let filter = shop();
    let begun = exchange_of(&*filter, path, "application/json", b"{}").await;
    let (None, mut exchange) = begun else {
        panic!("it goes on");
    };
    let mut request = RequestHeader::build("POST", path.as_bytes(), None).unwrap();
    request.insert_header(CONTENT_TYPE, kind).unwrap();
    let mut response = ResponseHeader::build(200, None).unwrap();
    response
        .insert_header(CONTENT_TYPE, "application/grpc")
        .unwrap();
    let flow = filter.on_upstream_response(&request, &mut exchange, &mut response);
    let ResponseFlow::Filter(mut filter) = flow.await else {
        panic!("its body is translated");
    };
    assert_eq!(response.headers[CONTENT_TYPE], kind);
    let mut all = Vec::new();
    for piece in pieces {
        let mut piece = Some(Bytes::copy_from_slice(piece));
        filter.piece(&mut piece, false);
        assert!(piece.as_ref().is_none_or(|piece| !piece.is_empty()));
        all.extend_from_slice(&piece.unwrap_or_default());
    }
    let mut trailers = HeaderMap::new();
    trailers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
    filter.trailers(&trailers);
    let mut rest = None;
    filter.piece(&mut rest, true);
    all.extend_from_slice(&rest.unwrap_or_default());
    all
}

const DONE: &str = "grpc-status:0\r\ngrpc-message:\r\n";
const FAILED: &str =
    "grpc-status:13\r\ngrpc-message:the answer is no message of the description\r\n";

#[tokio::test]
async fn answers_come_in_json_as_the_description_names_fields() {
    let item = framed_message(b"\x0a\x01a\x10\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x18\x01");
    let json = br#"{"name":"a","big_number":9223372036854775807,"size":"LARGE","tags":[]}"#;
    let bare = told("application/json", FIND, &[&item[..2], &item[2..]]).await;
    assert_eq!(bare, json);
    let whole = [framed_message(json), frame(DONE)].concat();
    let framed = told("application/grpc-web+json", FIND, &[&item]).await;
    assert_eq!(framed, whole);
    let text = told("application/grpc-web-text+json", FIND, &[&item]).await;
    let text: Vec<u8> = text
        .chunks(4)
        .flat_map(|it| STANDARD.decode(it).unwrap())
        .collect();
    assert_eq!(text, whole);
    // Several messages, cut wherever the upstream likes.
    let two = [item.clone(), framed_message(b"")].concat();
    let (one, other) = two.split_at(item.len() + 3);
    let empty = br#"{"name":"","big_number":0,"size":"SMALL","tags":[]}"#;
    let stream = told("application/json", "/shop.Shop/Watch", &[one, other]).await;
    assert_eq!(stream, [&json[..], empty].concat());
    let stream = told(
        "application/grpc-web+json",
        "/shop.Shop/Watch",
        &[one, other],
    )
    .await;
    let frames = [framed_message(json), framed_message(empty), frame(DONE)].concat();
    assert_eq!(stream, frames);
}

#[tokio::test]
async fn an_answer_that_is_no_message_is_no_success() {
    let good = framed_message(b"");
    let json = br#"{"name":"","big_number":0,"size":"SMALL","tags":[]}"#;
    for bad in [
        // A length beyond all bounds, a compressed message, no protobuf, half a message.
        &[0, 0xff, 0xff, 0xff, 0xff, 1][..],
        &[1, 0, 0, 0, 0],
        &[0, 0, 0, 0, 1, 0xff],
        &[0, 0, 0, 0, 9, 0x0a],
    ] {
        let pieces = [&good[..], bad, &good];
        let framed = told("application/grpc-web+json", "/shop.Shop/Watch", &pieces).await;
        assert_eq!(framed, [framed_message(json), frame(FAILED)].concat());
        let bare = told("application/json", "/shop.Shop/Watch", &pieces).await;
        let fault = br#"{"code":13,"message":"the answer is no message of the description"}"#;
        assert_eq!(bare, [&json[..], fault].concat());
    }
}

/// What is said of a description whose main file is `a.proto`.
fn refusal(files: &[(&str, &str)]) -> String {
    let folder = folder(files);
    let path = folder.path().join("a.proto");
    let error = plugin(&KIND, &json!({"proto": path.to_str().unwrap()})).err();
    error.unwrap_or_else(|| "taken".to_owned())
}

#[test]
fn a_description_that_is_wrong_is_refused_by_file_and_line() {
    let head = "syntax = \"proto3\";\n";
    let service = "service S { rpc M(A) returns (A); }\nmessage A {}\n";
    let good = format!("{head}{service}");
    assert_eq!(refusal(&[("a.proto", &good)]), "taken");
    for (text, told) in [
        (
            format!("{head}message A {{ string a = 0; }}"),
            "proto: a.proto:2:24: message numbers",
        ),
        (
            format!("{head}message A {{ B b = 1; }}"),
            "proto: a.proto:2:13: name 'B' is not defined",
        ),
        (
            format!("{head}import \"b.proto\";\n{service}"),
            "proto: a.proto:2:1: import 'b.proto' not found",
        ),
        (
            format!("{head}message A {{}}"),
            "proto: describes no service",
        ),
        (
            format!("{head}package google.protobuf;\n{service}"),
            "proto: google.protobuf.A is not for others to define",
        ),
    ] {
        let error = refusal(&[("a.proto", &text)]);
        assert!(error.starts_with(told), "{error}\n{told}");
    }
    let error = refusal(&[
        ("a.proto", "import \"b.proto\";\n"),
        ("b.proto", "import \"a.proto\";\n"),
    ]);
    assert!(error.contains("import cycle detected"), "{error}");
    let error = refusal(&[("b.proto", "")]);
    assert!(
        error.starts_with("proto: a.proto: there is no such file"),
        "{error}"
    );
}

#[test]
fn what_a_file_has_is_not_told_to_who_may_write_a_configuration() {
    let secret = "root:x:0:0:root";
    for text in [
        format!("{secret}\n"),
        format!("syntax = \"{secret}\";\n"),
        format!("syntax = \"proto3\";\nmessage {secret}"),
        format!("message A {{ string a = 1 [default = {secret}]; }}"),
        format!("message A {{ reserved \"{secret}\" \"{secret}\"; }}"),
    ] {
        let error = refusal(&[("a.proto", &text)]);
        assert!(error.starts_with("proto: a.proto:"), "{error}");
        assert!(!error.contains("root"), "{error}");
    }
    for path in [
        "/etc/passwd",
        "/etc/passwd\0.proto",
        ".proto",
        "/proc/self/environ",
        "/",
    ] {
        let error = plugin(&KIND, &json!({ "proto": path })).err().unwrap();
        assert!(error.contains("proto: "), "{error}");
        assert!(!error.contains("root"), "{error}");
    }
}

#[test]
fn imports_do_not_leave_the_folder() {
    let other = folder(&[("b.proto", "syntax = \"proto3\"; message B {}")]);
    let outside = other.path().join("b.proto");
    let outside = outside.to_str().unwrap();
    let service = "service S { rpc M(A) returns (A); }\nmessage A {}\n";
    for import in [
        outside,
        "../b.proto",
        "c/../../b.proto",
        "./b.proto",
        "c//b.proto",
        "link.proto",
        "b.txt",
    ] {
        let text = format!("import \"{import}\";\n{service}");
        let folder = folder(&[("a.proto", &text), ("b.txt", "")]);
        std::os::unix::fs::symlink(outside, folder.path().join("link.proto")).unwrap();
        let path = folder.path().join("a.proto");
        let error = plugin(&KIND, &json!({"proto": path.to_str().unwrap()})).err();
        let error = error.unwrap_or_else(|| panic!("{import} is refused"));
        assert!(error.starts_with("proto: "), "{error}");
    }
    // A link within the folder is how volumes are changed in one step.
    let folder = folder(&[("..now/a.proto", service)]);
    std::os::unix::fs::symlink("..now/a.proto", folder.path().join("a.proto")).unwrap();
    let path = folder.path().join("a.proto");
    assert!(plugin(&KIND, &json!({"proto": path.to_str().unwrap()})).is_ok());
}

#[test]
fn a_description_is_read_within_bounds() {
    let service = "service S { rpc M(A) returns (A); }\nmessage A {}\n";
    let long = format!("{service}// {}", "x".repeat(1 << 20));
    let error = refusal(&[("a.proto", &long)]);
    assert_eq!(error, "proto: a.proto: is too long");
    // Each imports the next.
    let files: Vec<_> = (0..300)
        .map(|n| {
            (
                format!("f{n}.proto"),
                format!("import \"f{}.proto\";", n + 1),
            )
        })
        .collect();
    let first = format!("import \"f0.proto\";\n{service}");
    let mut all = vec![("a.proto", first.as_str())];
    all.extend(
        files
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str())),
    );
    let error = refusal(&all);
    assert!(error.ends_with("is one file too many"), "{error}");
    for (open, close) in [
        ("message A {", "}"),
        ("/**//**/ option (x) = { a {", "}"),
        ("option (x) = { a {", "}"),
        ("option (x) = { a <", ">"),
    ] {
        let deep = format!("\n{}{}", open.repeat(20_000), close.repeat(20_000));
        let error = refusal(&[("a.proto", &deep)]);
        assert_eq!(
            error,
            "proto: a.proto:2: brackets stand too deep in each other"
        );
    }
    let quoted = format!(
        "// {0}\n/* {0} */ {service} message B {{ optional string a = 1 [json_name = \"{0}\"]; }}",
        "{<".repeat(100)
    );
    assert_eq!(refusal(&[("a.proto", &quoted)]), "taken");
    // A pipe is no file: nobody waits for a writer.
    let folder = folder(&[]);
    let path = folder.path().join("a.proto");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    let error = plugin(&KIND, &json!({"proto": path.to_str().unwrap()}))
        .err()
        .unwrap();
    assert_eq!(error, "proto: a.proto: can't be read");
}
