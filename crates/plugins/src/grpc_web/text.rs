//! Bodies of requests in Base64.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use doorward_plugin_api::filter::{BodyDecoder, Malformed};

/// Digits that stand for three bytes.
const GROUP: usize = 4;

/// Decodes Base64, also several padded texts one after the other.
#[derive(Debug, Default)]
pub(super) struct Base64Decoder {
    /// The beginning of a group whose rest is to come.
    begun: Vec<u8>,
}

impl BodyDecoder for Base64Decoder {
    fn restart(&mut self) {
        self.begun.clear();
    }

    fn piece(&mut self, body: &mut Option<Bytes>, end: bool) -> Result<(), Malformed> {
        let digits = body.take().unwrap_or_default();
        self.begun.extend_from_slice(&digits);
        let whole = self.begun.len() / GROUP * GROUP;
        if end && whole < self.begun.len() {
            return Err(Malformed);
        }
        let mut bytes = Vec::with_capacity(whole / GROUP * 3);
        let mut rest = &self.begun[..whole];
        while !rest.is_empty() {
            // What follows padding is another text.
            let padding = rest.iter().position(|digit| *digit == b'=');
            let length = padding.map_or(rest.len(), |at| (at / GROUP + 1) * GROUP);
            let (text, others) = rest.split_at(length);
            STANDARD
                .decode_vec(text, &mut bytes)
                .map_err(|_| Malformed)?;
            rest = others;
        }
        self.begun.drain(..whole);
        *body = Some(bytes.into());
        Ok(())
    }
}
