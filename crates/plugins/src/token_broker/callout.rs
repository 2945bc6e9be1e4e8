//! Asking the provider whether it lets somebody in (interface 4.8).
//!
//! The fields of the client's form go to the provider's token endpoint, with
//! `grant_type` fixed to `password`, and no other. Of its answer the tokens and
//! how long they live are taken; nothing of it is ever shown or logged.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde_json::{Map, Value};
use url::Url;
use uuid::Uuid;

use super::fault::Fault;
use super::variable::{EXTERNAL_ACCESS_TOKEN, EXTERNAL_REFRESH_TOKEN, EXTERNAL_STATUS, Set};
use doorward_core::jose::claims::lifetime;
use doorward_core::jose::json;
use doorward_core::jose::verify::Unverified;
use doorward_net::http::outbound::{Answer, Options, Outbound, OutboundError};

/// Longest answer that is read, in bytes.
const MAX_ANSWER: usize = 64 * 1024;
/// Longest token that is taken, in bytes: it must fit a header of requests.
const MAX_TOKEN: usize = 16 * 1024;
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The token endpoint of a provider.
#[derive(Debug)]
pub(super) struct Provider {
    pub(super) endpoint: Url,
    pub(super) options: Options,
    pub(super) outbound: Arc<Outbound>,
}

/// What is asked.
#[derive(Debug)]
pub(super) struct Question<'a> {
    pub(super) username: &'a str,
    pub(super) password: &'a str,
    pub(super) client_id: &'a str,
    pub(super) client_secret: Option<&'a str>,
    pub(super) scope: Option<&'a str>,
    pub(super) client: IpAddr,
}

/// What the provider gave.
#[derive(Debug, Default)]
pub(super) struct Granted {
    pub(super) set: Set,
    /// How long its access token lives, in milliseconds, if it said so.
    pub(super) life_ms: Option<i64>,
    /// Whom it let in, if it is the provider in this process.
    pub(super) user: Option<Uuid>,
    /// What that provider knows its access token by.
    pub(super) origin: Option<Map<String, Value>>,
}

impl Provider {
    /// The provider's tokens.
    ///
    /// # Errors
    /// It has refused, or gave no answer that can be used. `short` says in
    /// which shape a refusal is told.
    pub(super) async fn ask(&self, question: &Question<'_>, short: bool) -> Result<Granted, Fault> {
        let mut form = vec![
            ("grant_type", "password"),
            ("username", question.username),
            ("password", question.password),
            ("client_id", question.client_id),
        ];
        form.extend(
            question
                .client_secret
                .map(|secret| ("client_secret", secret)),
        );
        form.extend(question.scope.map(|scope| ("scope", scope)));
        let mut headers = HeaderMap::new();
        let client = question.client.to_canonical().to_string();
        if let Ok(client) = HeaderValue::try_from(client) {
            headers.insert(FORWARDED_FOR, client);
        }
        let options = Options {
            on_behalf_of: Some(question.client),
            ..self.options
        };
        let sent = self
            .outbound
            .post_form(&self.endpoint, &form, headers, options);
        match sent.await {
            Ok(answer) => {
                let granted = read(&answer, short)?;
                let origin = self.origin(&granted).await?;
                Ok(Granted { origin, ..granted })
            }
            Err(error) => {
                tracing::warn!(endpoint = %self.endpoint, %error, "the provider gave no answer");
                Err(Fault::callout(reason(&error, self.options.timeout)))
            }
        }
    }

    /// What the provider in this process knows the access token by that was granted,
    /// also where it was asked by another address of its own.
    async fn origin(&self, granted: &Granted) -> Result<Option<Map<String, Value>>, Fault> {
        let Some(token) = granted.set.get(EXTERNAL_ACCESS_TOKEN) else {
            return Ok(None);
        };
        let by_issuer = || {
            let claims = Unverified::parse(token).ok()?.claims_of_anyone().ok()?;
            let issuer = claims.get("iss")?.as_str()?;
            self.outbound.token_status(&Url::parse(issuer).ok()?)
        };
        let issuer = self
            .outbound
            .token_status(&self.endpoint)
            .or_else(by_issuer);
        match issuer {
            Some(issuer) => issuer.claims_of(token).await.map_err(|_| Fault::store()),
            None => Ok(None),
        }
    }
}

fn reason(error: &OutboundError, timeout: Duration) -> String {
    match error {
        OutboundError::Timeout(_) => format!("timeout occurred after {} ms", timeout.as_millis()),
        OutboundError::TooLong => "the response is too long".to_owned(),
        _ => "the provider can't be reached".to_owned(),
    }
}

fn read(answer: &Answer, short: bool) -> Result<Granted, Fault> {
    let status = answer.status;
    if answer.body.len() > MAX_ANSWER {
        return Err(Fault::callout("the response is too long"));
    }
    // Packed replies were not asked for, and are not unpacked.
    let packed = answer
        .headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .any(|how| how != "identity");
    let members = json::object(&answer.body).ok().filter(|_| !packed);
    match status {
        StatusCode::OK => Ok(Granted {
            user: answer.user,
            ..granted(&members.ok_or_else(Fault::extraction)?)?
        }),
        StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            let error = members.as_ref().and_then(|members| members.get("error"));
            Err(match error.and_then(Value::as_str) {
                Some("invalid_client") => Fault::unknown_client(short),
                Some("invalid_scope") => Fault::bad_scope(short),
                _ => Fault::not_authorized(short),
            })
        }
        _ => {
            let status = status.as_u16();
            let reason = format!("ResponseCode {status} is treated as error");
            Err(Fault::callout(reason))
        }
    }
}

fn granted(members: &Map<String, Value>) -> Result<Granted, Fault> {
    let token = |name: &str| {
        let token = members.get(name).and_then(Value::as_str)?;
        let fits = (1..=MAX_TOKEN).contains(&token.len());
        (fits && token.bytes().all(|byte| byte.is_ascii_graphic())).then(|| token.to_owned())
    };
    if members.get("error").is_some_and(|error| !error.is_null()) {
        return Err(Fault::extraction());
    }
    let access = token("access_token").ok_or_else(Fault::extraction)?;
    let mut set = Set::from([
        (EXTERNAL_ACCESS_TOKEN.to_owned(), access),
        (EXTERNAL_STATUS.to_owned(), "true".to_owned()),
    ]);
    if let Some(refresh) = token("refresh_token") {
        set.insert(EXTERNAL_REFRESH_TOKEN.to_owned(), refresh);
    }
    let life = lifetime(members).map_err(|_| Fault::extraction())?;
    // One that is over is good for nothing.
    if life.is_some_and(|seconds| seconds <= 0) {
        return Err(Fault::extraction());
    }
    Ok(Granted {
        set,
        // A provider rounds down: the second that it names has begun.
        life_ms: life.map(|seconds| seconds.saturating_mul(1000).saturating_add(1)),
        user: None,
        origin: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Answer {
        Answer {
            status: StatusCode::from_u16(status).expect("a status"),
            headers: HeaderMap::new(),
            body: body.to_owned().into(),
            user: None,
        }
    }

    fn refused(status: u16, body: &str) -> Fault {
        read(&answer(status, body), true).expect_err("refused")
    }

    #[test]
    fn the_token_and_its_life_are_taken() {
        let body = r#"{"access_token":"abc","expires_in":"60","x":{}}"#;
        let granted = read(&answer(200, body), true).expect("granted");
        assert_eq!(granted.set["forgerock_access_token"], "abc");
        assert_eq!(granted.set["oauth_external_authorization_status"], "true");
        assert_eq!(granted.life_ms, Some(60_001));
    }

    #[test]
    fn a_reply_without_a_usable_token_is_a_fault_that_shows_nothing_of_it() {
        let long = format!(r#"{{"access_token":"{}"}}"#, "x".repeat(MAX_TOKEN + 1));
        for body in [
            "",
            "<html>s3cret</html>",
            r#"{"access_token":""}"#,
            r#"{"access_token":7}"#,
            r#"{"access_token":"a\nb"}"#,
            r#"{"access_token":"a","access_token":"b"}"#,
            r#"{"access_token":"a","expires_in":0}"#,
            r#"{"access_token":"a","expires_in":"soon"}"#,
            r#"{"access_token":"a","expires_in":[60]}"#,
            r#"{"access_token":"a","error":"invalid_grant"}"#,
            r#"{"error":"invalid_grant"}"#,
            "{}",
            "null",
            "[]",
            r#"["s3cret"]"#,
            &long,
        ] {
            let fault = refused(200, body);
            assert_eq!(fault, Fault::extraction(), "{body}");
        }
        let huge = refused(200, &"x".repeat(MAX_ANSWER + 1));
        assert_eq!(huge.code, "steps.servicecallout.ExecutionFailed");
    }

    #[test]
    fn other_statuses_are_faults_and_redirects_are_not_followed() {
        for status in [201, 302, 307, 404, 429, 500, 503] {
            let fault = refused(status, r#"{"access_token":"s3cret"}"#);
            assert_eq!(fault.status, 500);
            let text = format!(
                "Execution of ServiceCallout provider failed. Reason: ResponseCode {status} is \
                 treated as error"
            );
            assert_eq!(fault.text, text);
        }
        assert_eq!(
            refused(400, r#"{"error":"invalid_grant"}"#),
            Fault::not_authorized(true)
        );
        assert_eq!(refused(401, "s3cret"), Fault::not_authorized(true));
        assert_eq!(
            refused(401, r#"{"error":"invalid_client"}"#),
            Fault::unknown_client(true)
        );
        assert_eq!(
            refused(400, r#"{"error":"invalid_scope"}"#),
            Fault::bad_scope(true)
        );
    }
}
