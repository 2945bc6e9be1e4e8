//! Tokens that the broker issues itself, and what survives a restart.

use super::*;

#[tokio::test]
async fn an_application_of_the_broker_gets_tokens_of_its_own_within_its_products() {
    let upstream = Upstream::echo().await;
    let door = brokered(&upstream, OWN, FLOWS).await;
    let products = [
        json!({"name": "little", "api_resources": ["/x", "/x/**"], "quota": 2,
               "quota_time_unit": "day", "scopes": ["READ"]}),
        json!({"name": "elsewhere", "proxies": ["other"]}),
    ];
    for product in &products {
        door.admin_post("/broker/products", product)
            .await
            .expect(201);
    }
    let application = json!({"name": "a", "developer": "dev@example.com", "products": ["little"]});
    let made = door.admin_post("/broker/applications", &application).await;
    let made = made.expect(201).json();
    let (key, secret) = (text(&made, "consumer_key"), text(&made, "consumer_secret"));
    let grant = [("grant_type", "client_credentials")];
    let request = || http::client().post(door.proxy_url("/weather/token"));
    let answer = http::send(request().basic_auth(&key, Some("wrong")).form(&grant)).await;
    answer.expect(401);
    let answer = http::send(request().basic_auth(&key, Some(&secret)).form(&grant)).await;
    let body = answer.expect(200).json();
    assert_eq!(text(&body, "access_token").len(), 28);
    assert!(body.get("refresh_token").is_none());
    assert_eq!(text(&body, "refresh_token_expires_in"), "0");
    assert_eq!(text(&body, "scope"), "READ");
    assert_eq!(text(&body, "tier"), "gold");
    let token = text(&body, "access_token");
    let call = |path: &'static str| door.get_as(&token, "any.test", path);
    assert_fault(
        call("/weather/y").await,
        401,
        "keymanagement.service.apiresource_doesnot_exist",
        "APIResource /y does not exist",
    );
    // No spelling of a path leads out of the product.
    call("/weather/x/../y").await.expect(401);
    let write = http::client()
        .post(door.proxy_url("/weather/x"))
        .bearer_auth(&token)
        .body("b");
    assert_fault(
        http::send(write).await,
        403,
        "steps.oauth.v2.InsufficientScope",
        "Required scope(s): WRITE",
    );
    call("/weather/x").await.expect(200);
    call("/weather//x/1").await.expect(200);
    let over = call("/weather/x").await;
    let wait: u64 = over.header("retry-after").parse().expect("seconds");
    assert!(wait > 0);
    let words = format!("Rate limit quota violation. Quota limit  exceeded. Identifier : {key}");
    assert_fault(over, 429, "policies.ratelimit.QuotaViolation", &words);
    door.get("any.test", "/weather/health").await.expect(200);
    let path = format!("/broker/applications/{}", text(&made, "id"));
    let change = |change: Value| changed(&door, &path, change);
    change(json!({"products": ["elsewhere"]})).await;
    let code = "keymanagement.service.InvalidAPICallAsNoApiProductMatchFound";
    let words = "Invalid API call as no apiproduct match found";
    assert_fault(call("/weather/x").await, 401, code, words);
    let none = json!({"products": ["none"]});
    let unknown = door.admin_json(Method::PATCH, &path, &none).await;
    let unknown = unknown.expect(400).json();
    assert_eq!(unknown["fields"]["products"], "there is no product none");
    let gone = json!({"name": "none"});
    door.admin_post("/broker/products", &gone).await.expect(201);
    change(json!({"products": ["none"]})).await;
    door.admin_delete("/broker/products/none").await.expect(204);
    let code = "keymanagement.service.apiproduct_doesnot_exist";
    assert_fault(
        call("/weather/x").await,
        401,
        code,
        "API Product does not exist",
    );
    change(json!({"products": ["weather"], "status": "revoked"})).await;
    let code = "keymanagement.service.invalid_client-app_not_approved";
    let words = "Invalid API call as app not approved";
    assert_fault(call("/weather/x").await, 401, code, words);
    change(json!({"status": "approved"})).await;
    call("/weather/x").await.expect(200);
    post(&door, "/weather/revoke", &[("token", &token)])
        .await
        .expect(200);
    let code = "keymanagement.service.access_token_not_approved";
    assert_fault(
        call("/weather/x").await,
        401,
        code,
        "Access Token not approved",
    );
    post(&door, "/weather/revoke", &[("token", "x")])
        .await
        .expect(401);
}

#[tokio::test]
async fn a_restart_forgets_no_token_and_no_revocation() {
    let upstream = Upstream::echo().await;
    let mut door = brokered(&upstream, OWN, "").await;
    let one = text(&ask(&door, &FORM).await.expect(200).json(), "access_token");
    let two = text(&ask(&door, &FORM).await.expect(200).json(), "access_token");
    let body = json!({"token": two});
    door.admin_post("/broker/tokens/revoke", &body)
        .await
        .expect(204);
    door.kill();
    door.start().await;
    door.get_as(&one, "any.test", "/weather/x")
        .await
        .expect(200);
    door.get_as(&two, "any.test", "/weather/x")
        .await
        .expect(401);
    // The application is the same one, also when its declaration changes.
    door.edit("doorward.yaml", "name: orders app", "name: another name");
    eventually("the other name", || async {
        let list = door.admin_get("/broker/applications").await.expect(200);
        list.body.contains("another name").then_some(())
    })
    .await;
    door.get_as(&one, "any.test", "/weather/x")
        .await
        .expect(200);
    door.edit(
        "doorward.yaml",
        "consumer_key: orders,",
        "consumer_key: orders2,",
    );
    eventually("the end of the application", || async {
        let answer = door.get_as(&one, "any.test", "/weather/x").await;
        (answer.status == 401).then_some(())
    })
    .await;
}
