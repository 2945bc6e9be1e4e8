//! The memory of tokens: a million of them are shown, each good, each another.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::client::Client;
use crate::door::Door;
use crate::mega;
use crate::process::Port;

/// Connections on which they are shown.
const CONNECTIONS: usize = 16;

/// What the documentation says that a plugin remembers at most, in bytes.
const BOUND: u64 = 32 << 20;

/// Shows `count` tokens to a plugin whose provider is another process.
pub(crate) fn measure(binary: &Path, upstream: &Port, count: usize) -> Result<()> {
    let mut provider = Door::prepare(binary, upstream, 1)?;
    provider.start()?;
    let issuer = format!("http://{}/oauth2", provider.port().address());
    let mut door = Door::prepare(binary, upstream, 2)?;
    let route = format!(
        "_format_version: \"3.0\"\nservices:\n- name: many-tokens\n  url: http://{}\n  \
         routes: [{{name: many-tokens, paths: [/many-tokens]}}]\n  plugins:\n  \
         - name: openid-connect\n    config: {{issuer: \"{issuer}\", client_id: [bench], \
         client_secret: [{SECRET}], auth_methods: [bearer], enable_hs_signatures: true}}\n",
        upstream.address()
    );
    door.declare("tokens.yaml", &route)?;
    door.start()?;
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    // What the first ones warm up is not theirs.
    show(door.port(), &key, &issuer, 0..200)?;
    std::thread::sleep(Duration::from_millis(500));
    let before = door.resident()?;
    let began = Instant::now();
    let each = count / CONNECTIONS;
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..CONNECTIONS)
            .map(|n| {
                let (door, key, issuer) = (&door, &key, &issuer);
                let range = 1000 + n * each..1000 + (n + 1) * each;
                scope.spawn(move || show(door.port(), key, issuer, range))
            })
            .collect();
        let mut done = workers.into_iter().map(|worker| match worker.join() {
            Ok(outcome) => outcome,
            Err(_) => bail!("a client broke off"),
        });
        done.try_for_each(|outcome| outcome)
    })?;
    let (resident, peak) = (door.resident()?, door.peak()?);
    println!(
        "\n{count} tokens of {} bytes, shown in {:.1?}: {:.1} MB resident before, {:.1} MB after; \
         at most {:.1} MB more than before (bar: {:.0} MB)",
        token(&key, &issuer, 123_456).len(),
        began.elapsed(),
        mega(before),
        mega(resident),
        mega(peak.saturating_sub(before)),
        mega(BOUND),
    );
    Ok(())
}

const SECRET: &str = "a-secret-that-is-long-enough-for-hs256";

/// Shows tokens of these numbers on one connection.
fn show(port: &Port, key: &hmac::Key, issuer: &str, numbers: std::ops::Range<usize>) -> Result<()> {
    let mut client = Client::connect(port)?;
    for number in numbers {
        let status = client.with_token("/many-tokens", &token(key, issuer, number))?;
        if status != 200 {
            bail!("token {number} was answered with {status}");
        }
    }
    Ok(())
}

/// A token with the claims that the embedded provider gives.
fn token(key: &hmac::Key, issuer: &str, number: usize) -> String {
    let claims = format!(
        r#"{{"sub":"user{number}","cts":"OAUTH2_STATELESS_GRANT","auth_level":0,"auditTrackingId":"7c3ea7d2-7b44-4a4e-9d6c-0a5b9a6a6a11-{number}","subname":"user{number}","iss":"{issuer}","tokenName":"access_token","token_type":"Bearer","authGrantId":"Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6","aud":"bench","nbf":1700000000,"grant_type":"authorization_code","scope":["openid","profile"],"auth_time":1700000000,"realm":"/","exp":4000000000,"iat":1700000000,"expires_in":3600,"jti":"hU1mXjQ3b2xkX2p0aV9pbl9i{number}"}}"#
    );
    let head = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT","kid":"k"}"#);
    let message = format!("{head}.{}", URL_SAFE_NO_PAD.encode(claims));
    let signature = hmac::sign(key, message.as_bytes());
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
}
