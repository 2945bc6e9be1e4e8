//! Credentials that are not for the upstream, whether or not the configuration
//! hides them.

use bytes::Bytes;
use http::HeaderValue;
use pingora::http::RequestHeader;

use crate::config::Config;
use crate::credentials::bearer::{PARAMETER, Places, body};
use crate::decide::refusal::Refusal;
use doorward_net::http::form::without;
use doorward_plugin_api::filter::Exchange;

/// Takes out of the head of a request that passes without a verified token
/// what the upstream could take for one.
pub(crate) fn strip(
    config: &Config,
    (takes_tokens, asks_for_tokens): (bool, bool),
    request: &mut RequestHeader,
) {
    if takes_tokens {
        config.places.strip(request);
    }
    let reads = |value: &HeaderValue| asks_for_tokens && config.search.reads(value);
    config.headers.strip(reads, request);
}

/// Whether the head of a request shows, where tokens are searched, anything but
/// the token that was judged, or given for it: a session decides whatever is
/// there, and nobody has looked at it.
pub(crate) fn has_other_credential(
    config: &Config,
    takes_tokens: bool,
    exchange: &Exchange,
    request: &RequestHeader,
) -> bool {
    let judged = exchange.token.as_ref().filter(|_| takes_tokens);
    judged.is_some_and(|judged| config.places.have_other(&judged.token, request))
}

/// Takes the token that was `presented` out of the body of a request, if another
/// one was given for it, which alone is for the upstream.
///
/// # Errors
/// [`Refusal::MalformedRequest`] where it is so written that it can't be taken
/// out without changing the rest.
pub(crate) fn strip_exchanged_token(
    places: &Places,
    presented: &str,
    request: &RequestHeader,
    exchange: &mut Exchange,
) -> Result<(), Refusal> {
    let given = exchange.token.as_ref();
    let exchanged = given.is_some_and(|given| given.token != presented);
    if !exchanged {
        return Ok(());
    }
    let sent = exchange.replacement.as_ref().or(exchange.body.as_ref());
    let found = places.find_in_read_body(request, sent.map(|sent| &sent[..]));
    if found.is_ok_and(|found| found.is_none_or(|found| found.token != presented)) {
        return Ok(());
    }
    let sent = sent.and_then(|sent| std::str::from_utf8(sent).ok());
    let left = sent.and_then(|sent| {
        if body::is_form(&request.headers) {
            without(sent, &[PARAMETER])
        } else {
            without_token(sent, presented)
        }
    });
    match left {
        Some(left) => exchange.replacement = Some(Bytes::from(left)),
        None => {
            exchange.token = None;
            return Err(Refusal::MalformedRequest);
        }
    }
    Ok(())
}

/// A JSON without the text of a token, which is written as it is or with
/// escaped slashes; `None`: it is not in there like that.
fn without_token(json: &str, token: &str) -> Option<String> {
    let written = [
        format!("\"{token}\""),
        format!("\"{}\"", token.replace('/', "\\/")),
    ];
    let written = written.iter().find(|text| json.contains(text.as_str()))?;
    Some(json.replace(written.as_str(), "\"\""))
}
