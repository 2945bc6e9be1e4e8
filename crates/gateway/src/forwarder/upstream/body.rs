//! The body of an answer, piece by piece (RFC 9112 §6 and §7).

use bytes::Bytes;
use doorward_net::http::framing::{ChunkPart, Chunks};
use pingora::Result;
use pingora::prelude::{Error, ErrorType};

/// Reads a body.
#[derive(Debug)]
pub(super) enum BodyReader {
    /// So many bytes are still to come, at least one.
    Length(u64),
    /// It ends with its last chunk.
    Chunked(Chunks),
    /// It ends with the connection.
    UntilClose,
    /// All of it was read.
    Done,
}

impl BodyReader {
    pub(super) fn chunked() -> Self {
        Self::Chunked(Chunks::new())
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }

    /// Takes the next piece from the beginning of `bytes`; nothing if more has to come, or
    /// if the end has. Whether it has, [`Self::is_done`] says.
    pub(super) fn take(&mut self, bytes: &mut Bytes) -> Result<Option<Bytes>> {
        if bytes.is_empty() {
            return Ok(None);
        }
        match self {
            Self::Done => Ok(None),
            Self::UntilClose => Ok(Some(std::mem::take(bytes))),
            Self::Length(left) => {
                let here = (*left).min(bytes.len() as u64);
                *left -= here;
                if *left == 0 {
                    *self = Self::Done;
                }
                // No more than the length of a slice.
                Ok(Some(bytes.split_to(here as usize)))
            }
            Self::Chunked(chunks) => match chunks.take(bytes) {
                ChunkPart::Data(piece) => {
                    // The end is told with the last data if it has come with it.
                    if chunks.skip(bytes) == Some(ChunkPart::End) {
                        *self = Self::Done;
                    }
                    Ok(Some(piece))
                }
                ChunkPart::Partial => Ok(None),
                ChunkPart::End => {
                    *self = Self::Done;
                    Ok(None)
                }
                ChunkPart::Broken => {
                    let reason = "the answer's chunked coding is broken";
                    Err(Error::explain(ErrorType::ReadError, reason))
                }
            },
        }
    }

    /// The connection has ended.
    pub(super) fn end(&mut self) -> Result<()> {
        let reason = match self {
            Self::UntilClose | Self::Done => {
                *self = Self::Done;
                return Ok(());
            }
            Self::Length(left) => format!("the answer ended {left} bytes too early"),
            Self::Chunked(_) => "the answer ended before its last chunk".to_owned(),
        };
        Err(Error::explain(ErrorType::ConnectionClosed, reason))
    }
}
