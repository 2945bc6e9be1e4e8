use super::*;

const PRI: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let [.., a, b, c] = payload.len().to_be_bytes();
    let mut out = vec![a, b, c, kind, flags, 0, 0, 0, stream];
    out.extend_from_slice(payload);
    out
}

fn block(fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        encode(name, value, &mut out);
    }
    out
}

/// What an engine would read of `input` that comes in pieces of `size` bytes.
fn read(input: &[u8], size: usize) -> Option<Vec<u8>> {
    let mut blocks = FieldBlocks::new();
    let (mut held, mut out) = (Vec::new(), Vec::new());
    for piece in input.chunks(size) {
        held.extend_from_slice(piece);
        while !held.is_empty() {
            match blocks.read(&held) {
                Outcome::Passes(count) => out.extend(held.drain(..count)),
                Outcome::Instead(count, with) => {
                    held.drain(..count);
                    out.extend(with);
                }
                Outcome::More => break,
                Outcome::Broken => return None,
            }
        }
    }
    Some(out)
}

/// What is read, in whatever pieces it comes.
fn whole(input: &[u8]) -> Option<Vec<u8>> {
    let first = read(input, usize::MAX);
    for size in [1, 2, 8, 50] {
        assert_eq!(read(input, size), first, "in pieces of {size}");
    }
    first
}

fn get(path: &[u8]) -> Vec<u8> {
    block(&[(b":method", b"GET"), (b":path", path)])
}

#[test]
fn what_is_sound_passes_as_it_is() {
    // The second block uses the table of the first one.
    let mut input = PRI.to_vec();
    input.extend(frame(4, 0, 0, &[]));
    input.extend(frame(HEADERS, END_HEADERS, 1, b"\x82\x84\x40\x01a\x01b"));
    input.extend(frame(0, 1, 1, b"body"));
    input.extend(frame(HEADERS, END_STREAM, 3, b"\x82\x84"));
    input.extend(frame(CONTINUATION, END_HEADERS, 3, b"\xbe"));
    let padded = b"\x02\0\0\0\0\x10\x82\x84\xbe\0\0";
    input.extend(frame(HEADERS, END_HEADERS | PADDED | PRIORITY, 5, padded));
    assert_eq!(whole(&input), Some(input));
}

#[test]
fn a_path_that_is_none_is_mended_and_the_table_kept_in_step() {
    let first = frame(HEADERS, END_HEADERS, 1, b"\x82\x84\x40\x01a\x01b");
    let mut bad = get(b"/\"<\xe4");
    bad.extend(b"\x40\x01c\x01d\xbf");
    let padded = [&[1_u8][..], &bad, &[0]].concat();
    let second = frame(HEADERS, END_HEADERS | END_STREAM | PADDED, 3, &padded);
    // Both entries, the last one first.
    let third = frame(HEADERS, END_HEADERS, 5, b"\x82\x84\xbe\xbf");
    let input = [PRI, &first, &second, &third].concat();
    let mut mended = get(b"/%22%3C%E4");
    mended.extend(block(&[(b"c", b"d"), (b"a", b"b")]));
    let last = block(&[
        (b":method", b"GET"),
        (b":path", b"/"),
        (b"c", b"d"),
        (b"a", b"b"),
    ]);
    let wanted = [
        PRI,
        &first,
        &frame(HEADERS, END_HEADERS | END_STREAM, 3, &mended),
        &frame(HEADERS, END_HEADERS, 5, &last),
    ];
    assert_eq!(whole(&input), Some(wanted.concat()));
}

#[test]
fn a_malformed_name_is_the_error_of_its_stream() {
    for (name, value) in [
        (&b"X-A"[..], &b"b"[..]),
        (b"", b"b"),
        (b"a b", b"c"),
        (b":other", b"x"),
        (b":status", b"200"),
        (b"\xc3\xa4", b"x"),
    ] {
        let both = [(&b"x"[..], &b"a\nb"[..]), (name, value)];
        let bad = frame(HEADERS, END_HEADERS, 1, &block(&both));
        let good = frame(HEADERS, END_HEADERS, 3, &get(b"/"));
        let error = frame(HEADERS, END_HEADERS, 1, &malformed());
        let read = whole(&[PRI, &bad, &good].concat());
        let wanted = [PRI, &error, &good].concat();
        assert_eq!(read, Some(wanted), "{}", name.escape_ascii());
    }
}

#[test]
fn a_request_stands_for_each_one_with_a_malformed_value() {
    for (name, value) in [
        (&b"x"[..], &b"a\rb"[..]),
        (b"x", b"a\nb"),
        (b"x", b"a\0b"),
        (b"x", b" a"),
        (b"x", b"a\t"),
        (b":method", b"G T"),
        (b":method", b""),
        (b":authority", b"\xff"),
    ] {
        let bad = frame(HEADERS, END_HEADERS, 1, &block(&[(name, value)]));
        let good = frame(HEADERS, END_HEADERS, 3, &get(b"/"));
        let stands = block(&[
            (b":method", b"-"),
            (b":scheme", b"http"),
            (b":authority", b"malformed.invalid"),
            (b":path", b"/"),
            (MARK.as_str().as_bytes(), mark()),
        ]);
        let error = frame(HEADERS, END_HEADERS, 1, &stands);
        let read = whole(&[PRI, &bad, &good].concat());
        let wanted = [PRI, &error, &good].concat();
        assert_eq!(read, Some(wanted), "{}", name.escape_ascii());
    }
}

#[test]
fn what_can_be_told_of_a_refused_request_is() {
    let bad = block(&[
        (b":method", b"PUT"),
        (b":authority", b"a.test:80"),
        (b":path", b"/x?y=1"),
        (b"user-agent", b"me"),
        (b"accept", b"a\nb"),
        (b"cookie", b"secret"),
    ]);
    let stands = block(&[
        (b":method", b"PUT"),
        (b":scheme", b"http"),
        (b":authority", b"a.test:80"),
        (b":path", b"/x?y=1"),
        (b"user-agent", b"me"),
        (MARK.as_str().as_bytes(), mark()),
    ]);
    let all = END_HEADERS | END_STREAM;
    let read = whole(&[PRI, &frame(HEADERS, all, 1, &bad)].concat());
    assert_eq!(read, Some([PRI, &frame(HEADERS, all, 1, &stands)].concat()));
}

#[test]
fn malformed_trailers_and_many_malformed_requests_are_errors_of_their_streams() {
    let bad = block(&[(b"x", b"a\nb")]);
    let request = frame(HEADERS, END_HEADERS, 1, &get(b"/"));
    let trailers = frame(HEADERS, END_HEADERS | END_STREAM, 1, &bad);
    let error = frame(HEADERS, END_HEADERS | END_STREAM, 1, &malformed());
    let read = whole(&[PRI, &request, &trailers].concat());
    assert_eq!(read, Some([PRI, &request, &error].concat()));
    let mut blocks = FieldBlocks::new();
    assert_eq!(blocks.read(PRI), Outcome::Passes(PRI.len()));
    for number in 0..=REFUSED {
        let stream = u8::try_from(2 * number + 1).expect("a small number");
        let bad = frame(HEADERS, END_HEADERS, stream, &bad);
        let Outcome::Instead(_, with) = blocks.read(&bad) else {
            panic!("{number} passes");
        };
        let is_error = with == frame(HEADERS, END_HEADERS, stream, &malformed());
        assert_eq!(is_error, number == REFUSED, "{number}");
    }
}

#[test]
fn what_can_not_be_read_is_left_to_the_engine_if_that_can() {
    let broken = frame(HEADERS, END_HEADERS, 3, b"\x80");
    let flood = frame(HEADERS, 0, 3, b"\x82");
    let flood = [flood, frame(CONTINUATION, 0, 3, b"\x84").repeat(20)].concat();
    let other = [frame(HEADERS, 0, 3, b"\x82"), frame(0, 0, 3, b"")].concat();
    for wrong in [broken, flood, other] {
        let passes = [PRI, &wrong].concat();
        assert_eq!(whole(&passes), Some(passes));
        let mended = frame(HEADERS, END_HEADERS, 1, &get(b"/\""));
        let input = [PRI, &mended, &wrong].concat();
        assert_eq!(whole(&input), None, "the table is not the client's");
    }
}

#[test]
fn a_long_block_is_written_in_frames_that_may_be_so_long() {
    let long = vec![b'x'; 20_000];
    let fields = block(&[(b":path", b"/\""), (b"a", &long)]);
    let (one, other) = fields.split_at(PAYLOAD);
    let input = [
        PRI.to_vec(),
        frame(HEADERS, 0, 1, one),
        frame(CONTINUATION, END_HEADERS, 1, other),
    ];
    let mended = block(&[(b":path", b"/%22"), (b"a", &long)]);
    let (one, other) = mended.split_at(PAYLOAD);
    let wanted = [
        PRI.to_vec(),
        frame(HEADERS, 0, 1, one),
        frame(CONTINUATION, END_HEADERS, 1, other),
    ];
    assert_eq!(read(&input.concat(), 3000), Some(wanted.concat()));
}
