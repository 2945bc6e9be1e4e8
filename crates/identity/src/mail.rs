//! Writing to people: through a mail relay, or by telling a program of the
//! operator's what is to be written.
//!
//! Nobody waits for it. What can't be delivered is tried again for some
//! minutes; how much waits is bounded, and lost with the process.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use lettre::message::header::{ContentType, MIME_VERSION_1_0};
use lettre::message::{Mailbox, Message};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Tls, TlsParameters};
use lettre::{AsyncSmtpTransport, AsyncTransport, Tokio1Executor};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use url::Url;
use uuid::Uuid;

use super::config::{MailConfig, SmtpConfig, SmtpTls, WebhookConfig};
use super::records::is_safe_source;
use super::{IdentityError, State};
use doorward_core::clock::random_uuid;
use doorward_core::hex;
use doorward_core::model::visible;
use doorward_net::http::outbound::{Bounds, ChosenBy, OutboundError};

/// Messages that wait or are under way.
const OUTSTANDING: usize = 1000;

/// Messages under way.
const AT_ONCE: usize = 8;

/// Pauses before the tries that follow the first.
const PAUSES: [Duration; 4] = [
    Duration::from_secs(2),
    Duration::from_secs(15),
    Duration::from_secs(60),
    Duration::from_secs(240),
];

/// Longest exchange with a relay.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Shortest secret of a webhook, in bytes.
const SECRET_MIN: usize = 16;

/// The header that proves a message to a webhook.
const SIGNATURE: HeaderName = HeaderName::from_static("x-doorward-signature");

/// Why a message was not delivered.
#[derive(Debug, thiserror::Error)]
enum MailError {
    #[error("the relay: {0}")]
    Smtp(#[from] lettre::transport::smtp::Error),
    #[error("the message can't be written: {0}")]
    Message(#[from] lettre::error::Error),
    #[error("an address can't be written to")]
    Address(#[from] lettre::address::AddressError),
    #[error("the webhook: {0}")]
    Webhook(#[from] OutboundError),
    #[error("the webhook answered {0}")]
    Refused(StatusCode),
}

impl MailError {
    /// Whether another try would fare no better.
    fn is_final(&self) -> bool {
        match self {
            Self::Smtp(error) => error.is_permanent(),
            Self::Message(_) | Self::Address(_) => true,
            Self::Webhook(_) => false,
            Self::Refused(status) => {
                status.is_client_error() && !matches!(status.as_u16(), 408 | 425 | 429)
            }
        }
    }
}

/// What somebody is to be told: as mail, and as a webhook has it.
#[derive(Debug)]
pub(super) struct Letter {
    pub(super) to: String,
    pub(super) subject: String,
    pub(super) text: String,
    pub(super) told: Value,
}

/// The bounds of what is under way.
#[derive(Debug)]
pub(super) struct Mailer {
    outstanding: Arc<Semaphore>,
    active: Semaphore,
}

impl Mailer {
    pub(super) fn new() -> Self {
        Self {
            outstanding: Arc::new(Semaphore::new(OUTSTANDING)),
            active: Semaphore::new(AT_ONCE),
        }
    }
}

/// Whether people can be written to.
pub(super) fn is_set(config: &MailConfig) -> bool {
    config.webhook.is_some() || config.smtp.is_some()
}

/// Checks the section.
///
/// # Errors
/// The key that is wrong.
pub(super) fn check(config: &MailConfig) -> Result<(), IdentityError> {
    let wrong =
        |name: &str, text: &str| Err(IdentityError::in_section("mail", name, text.to_owned()));
    if config.webhook.is_some() && config.smtp.is_some() {
        return wrong("webhook", "can't be set beside smtp");
    }
    if let Some(webhook) = &config.webhook {
        // The link that it is told is as good as a password.
        if !Url::parse(&webhook.url).is_ok_and(|url| is_safe_source(&url)) {
            return wrong(
                "webhook.url",
                "must be an https URL, or http on this machine",
            );
        }
        if webhook.secret.expose().len() < SECRET_MIN {
            return wrong("webhook.secret", "must have 16 bytes or more");
        }
    }
    if let Some(smtp) = &config.smtp {
        if smtp.from.parse::<Mailbox>().is_err() {
            return wrong("smtp.from", "must be an address, or `Name <address>`");
        }
        if smtp.host.is_empty() {
            return wrong("smtp.host", "is empty");
        }
        if smtp.username.is_some() != smtp.password.is_some() {
            return wrong("smtp.username", "needs password, and the other way round");
        }
        if smtp.username.is_some() && smtp.tls == SmtpTls::None {
            return wrong("smtp.tls", "must not be none where a password is sent");
        }
    }
    Ok(())
}

/// Makes and delivers a letter, in the background; `make` gives none where there
/// is nobody to write to.
pub(super) fn send<F>(state: &Arc<State>, make: impl FnOnce(Arc<State>) -> F)
where
    F: Future<Output = Option<Letter>> + Send + 'static,
{
    let Ok(place) = Arc::clone(&state.mailer.outstanding).try_acquire_owned() else {
        tracing::error!("too many messages to people wait: one is dropped");
        return;
    };
    let state = Arc::clone(state);
    let made = make(Arc::clone(&state));
    tokio::spawn(async move {
        let _place = place;
        let Some(letter) = made.await else { return };
        deliver(&state, &letter).await;
    });
}

async fn deliver(state: &State, letter: &Letter) {
    let mut pauses = PAUSES.into_iter();
    // The same with each try: who gets it twice can tell.
    let id = random_uuid();
    loop {
        let error = match attempt(state, letter, id).await {
            Ok(()) => return,
            Err(error) => error,
        };
        let pause = pauses.next().filter(|_| !error.is_final());
        let Some(pause) = pause else {
            tracing::error!(%error, "a message to a user was not delivered");
            return;
        };
        tracing::warn!(%error, "a message to a user is not delivered yet");
        tokio::time::sleep(pause).await;
    }
}

/// Whether this is one address alone (RFC 5321 section 4.1.2).
pub(super) fn is_address(text: &str) -> bool {
    text.parse::<lettre::Address>().is_ok()
}

/// Delivers a letter without content to `to`: one try, whose outcome is told.
pub(super) async fn test(state: &State, to: &str) -> Result<String, String> {
    let base_url = state.live().base_url.clone();
    let subject = "Test message".to_owned();
    let text = format!("This is a test of the mail settings of {base_url}.\n");
    let told = json!({
        "event": "mail.test",
        "user": {"email": to},
        "subject": subject,
        "text": text,
    });
    let letter = Letter {
        to: to.to_owned(),
        subject,
        text,
        told,
    };
    let sent = attempt(state, &letter, random_uuid()).await;
    let sent = sent.map(|()| "was taken for delivery".to_owned());
    sent.map_err(|error| error.to_string())
}

async fn attempt(state: &State, letter: &Letter, id: Uuid) -> Result<(), MailError> {
    // Never closed.
    let _active = state.mailer.active.acquire().await;
    let config = state.live().config.mail.clone();
    match (&config.webhook, &config.smtp) {
        (Some(webhook), _) => tell(state, webhook, letter).await,
        (None, Some(smtp)) => relay(smtp, letter, id).await,
        // Taken away meanwhile.
        (None, None) => Ok(()),
    }
}

/// A letter as mail (RFC 5322), with an identifier of the sender's domain (§3.6.4).
fn message(smtp: &SmtpConfig, letter: &Letter, id: Uuid) -> Result<Message, MailError> {
    let from: Mailbox = smtp.from.parse()?;
    let id = format!("<{id}@{}>", from.email.domain());
    let message = Message::builder()
        .message_id(Some(id))
        .from(from)
        .to(letter.to.parse()?)
        .subject(visible::without_overrides(&letter.subject))
        .header(MIME_VERSION_1_0)
        .header(ContentType::TEXT_PLAIN)
        .body(visible::without_overrides(&letter.text).into_owned())?;
    Ok(message)
}

async fn relay(smtp: &SmtpConfig, letter: &Letter, id: Uuid) -> Result<(), MailError> {
    let message = message(smtp, letter, id)?;
    let tls = match smtp.tls {
        SmtpTls::Starttls => Tls::Required(TlsParameters::new(smtp.host.clone())?),
        SmtpTls::Implicit => Tls::Wrapper(TlsParameters::new(smtp.host.clone())?),
        SmtpTls::None => Tls::None,
    };
    let relay = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(&smtp.host);
    let mut relay = relay.tls(tls).port(smtp.port()).timeout(Some(TIMEOUT));
    if let (Some(name), Some(password)) = (&smtp.username, &smtp.password) {
        let credentials = Credentials::new(name.clone(), password.expose().to_owned());
        relay = relay.credentials(credentials);
    }
    relay.build().send(message).await?;
    Ok(())
}

async fn tell(state: &State, webhook: &WebhookConfig, letter: &Letter) -> Result<(), MailError> {
    let body = letter.told.to_string();
    let time = state.clock.now_secs();
    let key = hmac::Key::new(hmac::HMAC_SHA256, webhook.secret.expose().as_bytes());
    let signature = hmac::sign(&key, format!("{time}.{body}").as_bytes());
    let signature = hex::encode(signature);
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_str(&format!("t={time},v1={signature}")) {
        headers.insert(SIGNATURE, value);
    }
    let url = Url::parse(&webhook.url).map_err(|_| OutboundError::Url)?;
    let answer = state
        .outbound
        .post_json(
            &url,
            Bytes::from(body),
            headers,
            ChosenBy::Operator,
            Bounds::default(),
        )
        .await?;
    if answer.status.is_success() {
        Ok(())
    } else {
        Err(MailError::Refused(answer.status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mail_has_an_identifier_of_the_senders_domain() {
        let smtp = json!({"host": "relay.example", "from": "Doors <no-reply@example.com>"});
        let smtp: SmtpConfig = serde_json::from_value(smtp).expect("a section");
        let letter = Letter {
            to: "ann@x.example".to_owned(),
            subject: "A link".to_owned(),
            text: "https://id.example/reset".to_owned(),
            told: Value::Null,
        };
        let id = random_uuid();
        let mail = message(&smtp, &letter, id).expect("a mail").formatted();
        let mail = String::from_utf8(mail).expect("text");
        assert!(
            mail.contains("MIME-Version: 1.0\r\n")
                && mail.contains(&format!("Message-ID: <{id}@example.com>\r\n")),
            "{mail}"
        );
        assert!(mail.contains("Date: "), "{mail}");
    }
}
