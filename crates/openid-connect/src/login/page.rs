//! The pages that the gateway shows while users sign in: they post what a
//! server would not get to see otherwise.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY};
use http::{HeaderValue, StatusCode};

use crate::login::token;
use doorward_net::http::reply::{Reply, ReplyBody};

/// Posts the fragment of its address to the address itself.
const POST_FRAGMENT: &str = "\
const sent = location.hash.slice(1);
history.replaceState(null, '', location.pathname);
if (sent) {
  const form = document.createElement('form');
  form.method = 'post';
  form.action = location.pathname;
  for (const [name, value] of new URLSearchParams(sent)) {
    const field = document.createElement('input');
    field.type = 'hidden';
    field.name = name;
    field.value = value;
    form.append(field);
  }
  document.body.append(form);
  form.submit();
} else {
  document.getElementById('told').textContent = 'There is nothing to sign in with.';
}
";
/// Sends the form that is in the page.
const SEND: &str = "document.forms[0].submit();\n";

/// The page that answers in fragments lead to.
pub(crate) fn fragment() -> Reply {
    let body = "<p id=\"told\">Signing in…</p>\n\
        <noscript><p>Signing in here needs JavaScript.</p></noscript>\n";
    page(body, POST_FRAGMENT)
}

/// A page that sends a form on to `action` once more.
pub(crate) fn resend(action: &str, form: &[u8]) -> Reply {
    let mut body = format!("<form method=\"post\" action=\"{}\">\n", escaped(action));
    for (name, value) in url::form_urlencoded::parse(form) {
        let (name, value) = (escaped(&name), escaped(&value));
        body.push_str(&format!(
            "<input type=\"hidden\" name=\"{name}\" value=\"{value}\">\n"
        ));
    }
    body.push_str("<noscript><button>Continue</button></noscript>\n</form>\n");
    page(&body, SEND)
}

fn page(body: &str, script: &str) -> Reply {
    let nonce = token::<16>();
    let html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <title>Signing in</title>\n<body>\n{body}\
         <script nonce=\"{nonce}\">\n{script}</script>\n</body>\n</html>\n"
    );
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; base-uri 'none'; frame-ancestors 'none'"
    );
    let mut reply = Reply::empty(StatusCode::OK)
        .header(CACHE_CONTROL, HeaderValue::from_static("no-store"))
        .header(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    if let Ok(policy) = HeaderValue::try_from(policy) {
        reply = reply.header(CONTENT_SECURITY_POLICY, policy);
    }
    reply.body = ReplyBody::Raw("text/html; charset=utf-8", Bytes::from(html));
    reply
}

/// A text inside an attribute.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_injection_by_a_form_that_is_sent_again() {
        let reply = resend("/a?b='\"><script>", b"x%22%3E%3Cscript%3E=%27%3C%2Fform%3E");
        let ReplyBody::Raw(_, html) = &reply.body else {
            panic!("{reply:?}");
        };
        let html = std::str::from_utf8(html).expect("text");
        assert_eq!(html.matches("<script").count(), 1, "{html}");
        assert!(
            html.contains("name=\"x&quot;&gt;&lt;script&gt;\""),
            "{html}"
        );
        assert_eq!(html.matches("</form>").count(), 1, "{html}");
    }
}
