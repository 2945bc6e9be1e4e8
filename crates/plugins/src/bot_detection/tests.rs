#![expect(clippy::unwrap_used, reason = "tests")]

use doorward_net::http::reply::ReplyBody;

use super::*;
use crate::testing::{decide, plugin, session};

async fn answer(config: &Value, lines: &str) -> Option<(u16, String)> {
    let filter = plugin(&KIND, config).unwrap();
    let request = format!("GET / HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n");
    let (mut session, _client) = session(&request).await;
    let reply = decide(&*filter, &mut session, &mut Exchange::default()).await?;
    match reply.body {
        ReplyBody::Message(message) => Some((reply.status.as_u16(), message.into_owned())),
        other => panic!("{other:?}"),
    }
}

async fn is_refused(config: &Value, agent: &str) -> bool {
    let forbidden = Some((403, "Forbidden".to_owned()));
    let answer = answer(config, &format!("User-Agent: {agent}\r\n")).await;
    assert!(answer.is_none() || answer == forbidden);
    answer.is_some()
}

#[tokio::test]
async fn crawlers_and_libraries_are_refused_browsers_and_curl_pass() {
    assert_eq!(user_agents::BOTS.len(), 18);
    for agent in [
        "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
        "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)",
        "facebookexternalhit/1.1",
        "Twitterbot/1.0",
        "some-spider/1.0",
        "Go-http-client/1.1",
        "okhttp/4.12.0",
        "axios/1.7.2",
        "Apache-HttpClient/4.5.13 (Java/17.0.1)",
        "Python-urllib/3.11",
        "reqwest/0.12",
        "aws-sdk-go/1.44",
    ] {
        assert!(is_refused(&json!({}), agent).await, "{agent}");
    }
    for agent in [
        "curl/8.5.0",
        "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) \
         Chrome/126.0.0.0 Safari/537.36",
        "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 \
         (KHTML, like Gecko) Version/17.5 Mobile/15E148 Safari/604.1",
    ] {
        assert!(!is_refused(&json!({}), agent).await, "{agent}");
    }
}

#[tokio::test]
async fn what_is_allowed_passes_before_anything_is_denied() {
    let config = json!({"allow": ["^okhttp/"], "deny": ["okhttp", "^curl/"]});
    assert!(!is_refused(&config, "okhttp/4.12.0").await);
    assert!(is_refused(&config, "curl/8.5.0").await);
    // Case counts.
    assert!(!is_refused(&config, "CURL/8.5.0").await);
}

#[tokio::test]
async fn two_user_agents_are_one_too_many_and_none_is_no_bot() {
    let two = "User-Agent: curl/8.5.0\r\nUser-Agent: okhttp/4\r\n";
    let message = "Only one User-Agent header allowed".to_owned();
    assert_eq!(answer(&json!({}), two).await, Some((400, message)));
    assert_eq!(answer(&json!({}), "").await, None);
}

#[tokio::test]
async fn padding_hides_no_bot() {
    let padded = format!("{}Googlebot/2.1", "a ".repeat(3000));
    assert!(is_refused(&json!({}), &padded).await);
    assert!(is_refused(&json!({}), "\u{fc} Googlebot/2.1").await);
}

#[test]
fn a_pattern_that_is_none_is_refused() {
    for pattern in ["(", "(?<!a)b"] {
        let config = json!({ "deny": [pattern] });
        let message = plugin(&KIND, &config).err().unwrap();
        assert!(message.contains("is not a valid regex"), "{message}");
    }
}
