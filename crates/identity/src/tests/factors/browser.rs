//! A browser that keeps cookies and sends forms.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use url::form_urlencoded::Serializer;

use crate::factors::code_at;
use crate::factors::software_authenticator::{AuthenticatorBehaviour, SoftwareAuthenticator};
use crate::testing::{Answer, FORM, Provider, request};

pub(super) const ORIGIN: &str = "http://localhost:8000";

pub(super) struct Browser<'p> {
    pub(super) provider: &'p Provider,
    cookies: Mutex<BTreeMap<String, String>>,
}

/// The value of the first field of this name on a page.
pub(super) fn field(page: &Answer, name: &str) -> Option<String> {
    let after = |text: &str, mark: &str| Some(text.split_once(mark)?.1.to_owned());
    let rest = after(&page.text, &format!("name=\"{name}\" value=\""))?;
    Some(plain(rest.split('"').next()?))
}

/// Text without the escapes of HTML.
pub(super) fn plain(text: &str) -> String {
    let text = text.replace("&#38;", "&").replace("&amp;", "&");
    text.replace("&#34;", "\"").replace("&quot;", "\"")
}

/// The error that a page shows.
pub(super) fn error(page: &Answer) -> String {
    let rest = page.text.split_once("id=\"doorward-error\">");
    let rest = rest.map(|(_, rest)| rest.split('<').next().unwrap_or_default());
    rest.unwrap_or_default().to_owned()
}

impl<'p> Browser<'p> {
    pub(super) fn new(provider: &'p Provider) -> Self {
        Self {
            provider,
            cookies: Mutex::default(),
        }
    }

    async fn send(&self, method: &str, path: &str, body: &str) -> Answer {
        let cookies = self.cookies.lock().clone();
        let cookies: Vec<_> = cookies.iter().map(|(n, v)| format!("{n}={v}")).collect();
        let cookies = cookies.join("; ");
        let mut headers = vec![("cookie", cookies.as_str())];
        if method == "POST" {
            headers.push(FORM);
        }
        let answer = self
            .provider
            .send(request(method, path, &headers, body))
            .await;
        for cookie in answer.headers.get_all("set-cookie") {
            let pair = cookie.to_str().expect("text").split(';').next();
            let (name, value) = pair.and_then(|pair| pair.split_once('=')).expect("a pair");
            self.cookies
                .lock()
                .insert(name.to_owned(), value.to_owned());
        }
        answer
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "").await
    }

    /// Forgets a cookie; says whether there was one.
    pub(super) fn forget(&self, name: &str) -> bool {
        self.cookies.lock().remove(name).is_some()
    }

    pub(super) fn cookie(&self, name: &str) -> Option<String> {
        self.cookies.lock().get(name).cloned()
    }

    pub(super) fn set_cookie(&self, name: &str, value: &str) {
        self.cookies
            .lock()
            .insert(name.to_owned(), value.to_owned());
    }

    /// Sends the first form with a token of a page with these fields besides its hidden ones.
    pub(super) async fn submit(&self, page: &Answer, fields: &[(&str, &str)]) -> Answer {
        let action = page.text.split_once("method=\"post\" action=\"");
        let action = action.and_then(|(_, rest)| rest.split('"').next());
        let action = plain(action.unwrap_or_else(|| panic!("no form: {}", page.text)));
        let mut body = Serializer::new(String::new());
        for name in ["csrf", "doorward_since", "doorward_step"] {
            let given = fields.iter().any(|(one, _)| *one == name);
            if let Some(value) = field(page, name).filter(|_| !given) {
                body.append_pair(name, &value);
            }
        }
        body.extend_pairs(fields);
        self.send("POST", &action, &body.finish()).await
    }

    /// Follows a redirect to a page of ours.
    pub(super) async fn follow(&self, answer: &Answer) -> Answer {
        let to = answer.header("location");
        assert!(
            to.starts_with('/'),
            "{} {to} {}",
            answer.status,
            answer.text
        );
        self.get(to).await
    }

    pub(super) async fn password(&self, page: &Answer) -> Answer {
        let fields = [("username", "demo"), ("password", "correct horse")];
        self.submit(page, &fields).await
    }

    /// Signs `demo` in at the account page, with the password alone.
    pub(super) async fn sign_in(&self) -> Answer {
        let page = self.get("/oauth2/account").await;
        let answer = self.password(&page).await;
        match answer.status.as_u16() {
            303 => self.follow(&answer).await,
            _ => answer,
        }
    }

    /// The page that offers factors.
    pub(super) async fn offer(&self) -> Answer {
        let page = self.get("/oauth2/account").await;
        self.submit(&page, &[("do", "add"), ("doorward_step", "")])
            .await
    }

    /// Enrols an app for the user who is signed in; gives its key and the
    /// recovery codes, if there are any.
    pub(super) async fn enrol_totp(&self) -> (Vec<u8>, Vec<String>) {
        let page = self.offer().await;
        let (secret, answer) = self.confirm(&page).await;
        assert!(
            matches!(answer.status.as_u16(), 200 | 303),
            "{}",
            answer.text
        );
        assert_eq!(error(&answer), "");
        (secret, codes(&answer))
    }

    /// Confirms the app that a page offers.
    pub(super) async fn confirm(&self, page: &Answer) -> (Vec<u8>, Answer) {
        let secret = offered(page);
        let code = code_at(&secret, self.provider.clock.now_ms());
        let mut fields = vec![("doorward_code", code.as_str()), ("doorward_name", "App")];
        if page.text.contains("name=\"do\" value=\"added\"") {
            fields.push(("do", "added"));
        }
        let answer = self.submit(page, &fields).await;
        (secret, answer)
    }

    /// Enrols a passkey for the user who is signed in.
    pub(super) async fn enrol_passkey(&self, soft: &SoftwareAuthenticator) -> Answer {
        let page = self.offer().await;
        let (client_data, attestation) = soft.create(&says(&page));
        let answer = made(soft, &client_data, &attestation);
        let fields = [("do", "added"), ("doorward_passkey", &*answer)];
        self.submit(&page, &fields).await
    }
}

/// The key of the app that a page offers.
pub(super) fn offered(page: &Answer) -> Vec<u8> {
    let key = page.text.split_once("id=\"totp-key\">");
    let key = key.and_then(|(_, rest)| rest.split('<').next());
    let key = key.unwrap_or_else(|| panic!("no key: {}", page.text));
    base32(&key.replace(' ', ""))
}

fn base32(text: &str) -> Vec<u8> {
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let bits: String = text
        .chars()
        .map(|c| format!("{:05b}", alphabet.find(c).expect("base32")))
        .collect();
    let bytes = bits.as_bytes().chunks_exact(8);
    bytes
        .map(|byte| {
            let text = std::str::from_utf8(byte).expect("digits");
            u8::from_str_radix(text, 2).expect("a byte")
        })
        .collect()
}

/// The recovery codes that a page shows.
pub(super) fn codes(page: &Answer) -> Vec<String> {
    let parts = page.text.split("<li><code>").skip(1);
    parts
        .filter_map(|part| part.split('<').next())
        .map(str::to_owned)
        .collect()
}

/// What the page has the browser do.
pub(super) fn options(page: &Answer) -> serde_json::Value {
    let rest = page.text.split_once("data-options=\"");
    let rest = rest.and_then(|(_, rest)| rest.split('"').next());
    let rest = rest.unwrap_or_else(|| panic!("no passkeys: {}", page.text));
    serde_json::from_str(&plain(rest)).expect("JSON")
}

/// What a right authenticator says to the page.
pub(super) fn says(page: &Answer) -> AuthenticatorBehaviour {
    use base64::Engine;
    let options = options(page);
    let challenge = options["challenge"].as_str().expect("a challenge");
    let challenge = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(challenge);
    AuthenticatorBehaviour::right(&challenge.expect("base64url"), ORIGIN, "localhost")
}

fn base64url(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

/// What the script posts of a new passkey.
pub(super) fn made(soft: &SoftwareAuthenticator, client_data: &[u8], attestation: &[u8]) -> String {
    serde_json::json!({
        "id": base64url(&soft.id),
        "clientDataJSON": base64url(client_data),
        "attestationObject": base64url(attestation),
        "transports": ["internal"],
    })
    .to_string()
}

/// What the script posts of a signature.
pub(super) fn signed(
    soft: &SoftwareAuthenticator,
    says: &AuthenticatorBehaviour,
    handle: Option<&str>,
) -> String {
    let (client_data, data, signature) = soft.get(says);
    serde_json::json!({
        "id": base64url(&soft.id),
        "clientDataJSON": base64url(&client_data),
        "authenticatorData": base64url(&data),
        "signature": base64url(&signature),
        "userHandle": handle,
    })
    .to_string()
}

/// The step of the form that passkeys are sent by.
pub(super) fn passkey_step(page: &Answer) -> String {
    if page.text.contains("id=\"sign-in\"") {
        return field(page, "doorward_step").expect("a step");
    }
    let form = page.text.split_once("id=\"passkey\"");
    let form = form
        .unwrap_or_else(|| panic!("no passkeys: {}", page.text))
        .1;
    let rest = form.split_once("name=\"doorward_step\" value=\"");
    let value = rest.and_then(|(_, rest)| rest.split('"').next());
    plain(value.expect("a step"))
}
