//! Content codings: which one a client wants, and what makes it.

use std::io::Write as _;

use bytes::Bytes;
use flate2::write::GzEncoder;
use http::{HeaderMap, header};
use parking_lot::Mutex;
use serde::Deserialize;

use doorward_net::http::quality;

/// Most items of `Accept-Encoding` that are read.
const ITEMS: usize = 32;
/// How hard each tries: answers are made for one client and one time.
const GZIP_LEVEL: u32 = 5;
const BROTLI_QUALITY: u32 = 4;
const ZSTD_LEVEL: i32 = 3;
/// What each may look back at, as a power of two: 512 KiB. More would take megabytes
/// for each answer under way.
const WINDOW: u32 = 19;
/// Bytes that brotli gathers before it writes them.
const BROTLI_BUFFER: usize = 4 << 10;

/// A content coding (RFC 9110 §8.4.1, RFC 7932, RFC 8878).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Coding {
    /// Zstandard.
    Zstd,
    /// Brotli.
    Br,
    /// Gzip.
    Gzip,
}

impl Coding {
    /// Its registered name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Br => "br",
            Self::Gzip => "gzip",
        }
    }

    /// The coding of `own` that the client wants most, the first of those that it
    /// wants alike; nothing where it would rather have none (RFC 9110 §12.5.3).
    pub(crate) fn wanted(headers: &HeaderMap, own: &[Self]) -> Option<Self> {
        let values = headers.get_all(header::ACCEPT_ENCODING).iter();
        let items = values.flat_map(|value| value.to_str().unwrap_or("").split(','));
        let mut weights = [None; 3];
        let (mut identity, mut others) = (None, None);
        for item in items.take(ITEMS) {
            let mut pieces = item.split(';');
            let name = pieces.next().unwrap_or("").trim();
            let is = |other: &str| name.eq_ignore_ascii_case(other);
            let place = match own.iter().position(|coding| is(coding.name())) {
                Some(place) => weights.get_mut(place),
                None if is("identity") => Some(&mut identity),
                None if name == "*" => Some(&mut others),
                None => None,
            };
            if let Some(place) = place {
                *place = Some(quality::weight(pieces));
            }
        }
        let weighed = own.iter().zip(weights);
        let weighed = weighed.map(|(coding, weight)| (*coding, weight.or(others).unwrap_or(0)));
        // Of equal ones the last is taken.
        let (coding, weight) = weighed.rev().max_by_key(|(_, weight)| *weight)?;
        (weight > 0 && weight >= identity.unwrap_or(0)).then_some(coding)
    }
}

/// Makes a coding, piece by piece.
pub(crate) struct Encoder(Mutex<Kind>);

enum Kind {
    Gzip(GzEncoder<Vec<u8>>),
    // Until its end is written.
    Brotli(Option<Box<brotli::CompressorWriter<Vec<u8>>>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

impl Encoder {
    /// Begins a body.
    pub(crate) fn new(coding: Coding) -> std::io::Result<Self> {
        let out = Vec::new();
        let kind = match coding {
            Coding::Gzip => {
                let level = flate2::Compression::new(GZIP_LEVEL);
                Kind::Gzip(GzEncoder::new(out, level))
            }
            Coding::Br => {
                let writer =
                    brotli::CompressorWriter::new(out, BROTLI_BUFFER, BROTLI_QUALITY, WINDOW);
                Kind::Brotli(Some(Box::new(writer)))
            }
            Coding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(out, ZSTD_LEVEL)?;
                encoder.window_log(WINDOW)?;
                Kind::Zstd(encoder)
            }
        };
        Ok(Self(Mutex::new(kind)))
    }

    /// The coded form of what came so far: all of it with `flush`, the last of it at
    /// the `end`.
    pub(crate) fn encode(
        &mut self,
        piece: &[u8],
        flush: bool,
        end: bool,
    ) -> std::io::Result<Bytes> {
        // `get_mut` takes no lock: it is there since zstd's is not `Sync`.
        let out = match self.0.get_mut() {
            Kind::Gzip(encoder) => {
                encoder.write_all(piece)?;
                if end {
                    encoder.try_finish()?;
                } else if flush {
                    encoder.flush()?;
                }
                std::mem::take(encoder.get_mut())
            }
            Kind::Zstd(encoder) => {
                encoder.write_all(piece)?;
                if end {
                    encoder.do_finish()?;
                } else if flush {
                    encoder.flush()?;
                }
                std::mem::take(encoder.get_mut())
            }
            Kind::Brotli(writer) => {
                let Some(encoder) = writer else {
                    return Ok(Bytes::new());
                };
                encoder.write_all(piece)?;
                if end {
                    let whole = writer.take().map(|encoder| encoder.into_inner());
                    whole.unwrap_or_default()
                } else {
                    if flush {
                        encoder.flush()?;
                    }
                    std::mem::take(encoder.get_mut())
                }
            }
        };
        Ok(out.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use std::io::Read as _;

    const ALL: [Coding; 3] = [Coding::Zstd, Coding::Br, Coding::Gzip];

    fn wanted(accept: &str) -> Option<&'static str> {
        let mut headers = HeaderMap::new();
        let value = HeaderValue::from_str(accept).expect("a value");
        headers.insert(header::ACCEPT_ENCODING, value);
        Coding::wanted(&headers, &ALL).map(Coding::name)
    }

    #[test]
    fn the_client_chooses_by_weight_and_the_order_decides_between_equals() {
        assert_eq!(Coding::wanted(&HeaderMap::new(), &ALL), None);
        for (accept, coding) in [
            ("gzip", Some("gzip")),
            ("GZIP, deflate, br", Some("br")),
            ("gzip, deflate, br, zstd", Some("zstd")),
            ("gzip;q=1.0, br;q=0.5, zstd;q=0.1", Some("gzip")),
            ("gzip;q=0, br;q=0.001", Some("br")),
            ("*", Some("zstd")),
            ("zstd;q=0, *;q=0.1", Some("br")),
            ("*;q=0", None),
            ("identity, gzip;q=0.5", None),
            ("identity;q=0.5, gzip", Some("gzip")),
            ("deflate, compress", None),
            ("gzip;q=x", None),
            ("", None),
            (",,;;=,", None),
        ] {
            assert_eq!(wanted(accept), coding, "{accept}");
        }
        // What comes behind so many items is not read.
        let long = format!("{}gzip", "x,".repeat(5000));
        assert_eq!(wanted(&long), None);
    }

    fn decoded(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match coding {
            Coding::Gzip => flate2::read::GzDecoder::new(bytes).read_to_end(&mut out),
            Coding::Br => brotli::Decompressor::new(bytes, 4096).read_to_end(&mut out),
            Coding::Zstd => zstd::stream::read::Decoder::new(bytes)
                .expect("a decoder")
                .read_to_end(&mut out),
        }
        .expect("decoded");
        out
    }

    #[test]
    fn each_coding_gives_back_what_went_in() {
        let text = "all work and no play ".repeat(5000);
        for coding in ALL {
            let mut encoder = Encoder::new(coding).expect("an encoder");
            let mut out = Vec::new();
            for piece in text.as_bytes().chunks(7001) {
                out.extend(encoder.encode(piece, false, false).expect("coded"));
            }
            out.extend(encoder.encode(b"", false, true).expect("coded"));
            assert!(out.len() < text.len() / 20, "{coding:?}: {}", out.len());
            assert_eq!(decoded(coding, &out), text.as_bytes(), "{coding:?}");
        }
    }

    #[test]
    fn a_flushed_piece_can_be_read_before_the_end() {
        for coding in ALL {
            let mut encoder = Encoder::new(coding).expect("an encoder");
            let first = encoder.encode(b"data: 1\n\n", true, false).expect("coded");
            let mut out = [0; 9];
            let read = match coding {
                Coding::Gzip => flate2::read::GzDecoder::new(&*first).read_exact(&mut out),
                Coding::Br => brotli::Decompressor::new(&*first, 64).read_exact(&mut out),
                Coding::Zstd => zstd::stream::read::Decoder::new(&*first)
                    .expect("a decoder")
                    .read_exact(&mut out),
            };
            read.expect("decoded");
            assert_eq!(&out, b"data: 1\n\n", "{coding:?}");
        }
    }
}
