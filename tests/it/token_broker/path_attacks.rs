//! Attacks on the token broker by the spelling of a path, each by its name.

use serde_json::json;

use super::attacks::{BODY, asking, own_token};
use super::{FLOWS, OWN, brokered};
use crate::support::Upstream;
use crate::support::raw::exchange;

#[tokio::test]
async fn disguising_a_path_reaches_no_other_flow() {
    let upstream = Upstream::echo().await;
    let door = brokered(&upstream, OWN, "").await;
    // What is the token's path however it is spelt, gives a token ...
    for path in [
        "/weather/access_token",
        "/weather/%61ccess_token",
        "/weather//access_token",
        "/weather/x/../access_token",
        "/weather/./access_token/",
        "/weather/access_token;a=b",
    ] {
        let answer = exchange(&door.proxy(), &asking(path, "", BODY)).await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    }
    // ... and what is none, needs one.
    for path in [
        "/weather/access_token/../x",
        "/weather/access_token/%2e%2e/x",
        "/weather/access_token/.%2E/x",
        "/weather/access_token/..%2fx",
        "/weather/access_token%2f..%2fx",
        "/weather/access_token/..;/x",
        "/weather/access_token;/../x",
        "/weather/access_token\\..\\x",
        "/weather/ACCESS_TOKEN",
        "/weather/access%5ftoken/../access_toke",
        "/weather/x;/access_token",
        "/weather/x%2faccess_token",
        "/weather/x?/access_token",
        "/weather/x#/access_token",
    ] {
        let answer = exchange(&door.proxy(), &asking(path, "", BODY)).await;
        let answer = answer.expect("an answer");
        assert!(
            matches!(answer.status, 400 | 401),
            "{path}: {} {}",
            answer.status,
            answer.text()
        );
    }
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn disguising_a_path_leads_out_of_no_product() {
    let upstream = Upstream::echo().await;
    let door = brokered(&upstream, OWN, FLOWS).await;
    let product = json!({"name": "narrow", "api_resources": ["/open", "/reports/**"]});
    door.admin_post("/broker/products", &product)
        .await
        .expect(201);
    let token = own_token(&door, "narrow").await.2;
    for path in [
        "/reports/../x",
        "/reports/%2e%2e/x",
        "/reports/.%2e/x",
        "/reports/..;/x",
        "/reports/..%2fx",
        "/reports%2f..%2fx",
        "/reports/..%5cx",
        "/reports\\..\\x",
        "/reports//../x",
        "/reports/./../x",
        "/REPORTS/x",
        "/Open",
        "/open/x",
        "/open;x",
        "/open%20",
        "/open%00",
        "/open.",
        "/x/%2e%2e/x",
        "/x?/reports/",
        "/x;/reports/y",
        "/../weather/x",
        "/../other",
    ] {
        let head = format!("Authorization: Bearer {token}\r\nConnection: close\r\n");
        let request = format!("GET /weather{path} HTTP/1.1\r\nHost: any.test\r\n{head}\r\n");
        let answer = exchange(&door.proxy(), request.as_bytes()).await;
        let status = answer.map_or(0, |answer| answer.status);
        assert!(matches!(status, 0 | 400 | 401 | 404), "{path}: {status}");
    }
    assert!(upstream.seen().is_empty());
    for path in ["/weather/open", "/weather/open/", "/weather//reports/%78"] {
        door.get_as(&token, "any.test", path).await.expect(200);
    }
}

#[tokio::test]
async fn spelling_a_path_otherwise_leads_past_no_flow() {
    let upstream = Upstream::echo().await;
    let flows = ", flows: [
        {name: guarded, operation: VerifyAccessToken,
         condition: 'proxy.pathsuffix MatchesPath \"/in|side/**\"'},
        {name: named, operation: VerifyAccessToken,
         condition: 'proxy.pathsuffix = \"/h\u{f6}f\"'},
        {name: shaped, operation: VerifyAccessToken,
         condition: 'proxy.pathsuffix ~~ \"/[{][0-9]+[}]\"'},
        {name: open, operation: none}]";
    let door = brokered(&upstream, OWN, flows).await;
    for path in [
        "/in|side/x",
        "/in%7Cside/x",
        "/%69n%7cside/x",
        "/x/../in|side//x",
        "/h%C3%B6f",
        "/h%c3%b6f/",
        "/h%c3%B6%66",
        "/{1}",
        "/%7b1%7D",
        "/%7B%31}",
    ] {
        let request =
            format!("GET /weather{path} HTTP/1.1\r\nHost: any.test\r\nConnection: close\r\n\r\n");
        let answer = exchange(&door.proxy(), request.as_bytes()).await;
        assert_eq!(answer.expect("an answer").status, 401, "{path}");
    }
    assert!(upstream.seen().is_empty());
    door.get_as("none", "any.test", "/weather/inside/x")
        .await
        .expect(200);
}
