//! Attacks on the token broker, each by its name.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{BROKER, FLOWS, FORM, INVALID, OWN, ask, assert_fault, brokered, post, text, with};
use crate::support::door::IDENTITY;
use crate::support::raw::exchange;
use crate::support::{Door, Reply, Setup, Upstream, eventually, http};

/// A request for a token at `path`, byte by byte; `more` are header lines.
pub(super) fn asking(path: &str, more: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: any.test\r\n{more}Connection: close\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

pub(super) const BODY: &str = "grant_type=password&username=demo&password=Ch4ng31t-demo&client_id=orders\
                    &client_secret=orders-secret&scope=openid";

/// A new application of the product `name`: identifier, credentials, and a
/// token of its own.
pub(super) async fn own_token(door: &Door, name: &str) -> (String, (String, String), String) {
    let application = json!({"name": "a", "developer": "dev@example.com", "products": [name]});
    let made = door.admin_post("/broker/applications", &application).await;
    let made = made.expect(201).json();
    let (key, secret) = (text(&made, "consumer_key"), text(&made, "consumer_secret"));
    let grant = [("grant_type", "client_credentials")];
    let request = http::client().post(door.proxy_url("/weather/token"));
    let answer = http::send(request.basic_auth(&key, Some(&secret)).form(&grant)).await;
    let token = text(&answer.expect(200).json(), "access_token");
    (text(&made, "id"), (key, secret), token)
}

#[tokio::test]
async fn forging_the_clients_address_does_not_make_an_administrator() {
    let upstream = Upstream::echo().await;
    let confined = "    /:\n      settings: {admin_addresses: [10.9.9.9]}\n";
    let users = "- {userName: amadmin, password: Ch4ng31t-admin}\n        - {userName: alice";
    let identity =
        IDENTITY
            .replacen("    /:\n", confined, 1)
            .replacen("- {userName: alice", users, 1);
    let services = format!(
        "- name: weather\n  url: {0}\n  routes: [{{paths: [/weather]}}]\n  plugins:\n  \
         - {{name: token-broker, config: {{base_path: /weather, token_endpoint: '{OWN}'}}}}\n\
         - name: plain\n  url: {0}\n  routes: [{{paths: [/plain]}}]\n  plugins:\n  \
         - {{name: openid-connect, config: {{issuer: 'http://@PROXY@/oauth2', \
         client_id: [orders], client_secret: [orders-secret], auth_methods: [password]}}}}\n",
        upstream.url("")
    );
    for (trusted, status) in [("", 401), (", trusted_ips: [127.0.0.1]", 200)] {
        let door = Setup::new()
            .proxy(&format!("{{listen: [\"@PROXY@\"]{trusted}}}"))
            .identity(&format!("\n  base_url: http://@PROXY@{identity}{BROKER}"))
            .services(&services)
            .start()
            .await;
        // Where a proxy in front is trusted, its word counts; else nobody's.
        let forged = "X-Forwarded-For: 10.9.9.9\r\n";
        let body = BODY.replace(
            "=demo&password=Ch4ng31t-demo",
            "=amadmin&password=Ch4ng31t-admin",
        );
        let request = asking("/weather/access_token", forged, &body);
        let answer = exchange(&door.proxy(), &request).await.expect("an answer");
        assert_eq!(answer.status, status, "{}", answer.text());
        let plain = |name: &'static str, address: Option<&'static str>| {
            let password = match name {
                "amadmin" => "Ch4ng31t-admin",
                _ => "Ch4ng31t-alice",
            };
            let request = http::client().get(door.proxy_url("/plain/x"));
            let request = request.basic_auth(name, Some(password));
            http::send(match address {
                Some(address) => request.header("x-forwarded-for", address),
                None => request,
            })
        };
        plain("amadmin", Some("10.9.9.9")).await.expect(status);
        // What was given to that address is not for others.
        plain("amadmin", None).await.expect(401);
        plain("amadmin", Some("127.0.0.1")).await.expect(401);
        plain("alice", None).await.expect(200);
    }
}

#[tokio::test]
async fn guessing_passwords_through_the_broker_locks_the_guessers_address() {
    let upstream = Upstream::echo().await;
    let service = format!(
        "- name: weather\n  url: {}\n  routes: [{{paths: [/weather]}}]\n  plugins:\n  \
         - {{name: token-broker, config: {{base_path: /weather, token_endpoint: '{OWN}'}}}}\n",
        upstream.url("")
    );
    let limits = "\n  lockout: {per_address: {failures: 3}}";
    let door = Setup::new()
        .proxy("{listen: [\"@PROXY@\"], trusted_ips: [127.0.0.1]}")
        .identity(&format!(
            "\n  base_url: http://@PROXY@{limits}{IDENTITY}{BROKER}"
        ))
        .services(&service)
        .start()
        .await;
    let ask = async |address: &str, user: &str, password: &str| {
        let body = BODY.replace(
            "=demo&password=Ch4ng31t-demo",
            &format!("={user}&password={password}"),
        );
        let from = format!("X-Forwarded-For: {address}\r\n");
        let request = asking("/weather/access_token", &from, &body);
        let answer = exchange(&door.proxy(), &request).await;
        answer.expect("an answer").status
    };
    for guessed in ["alice", "nobody", "somebody"] {
        assert_eq!(ask("192.0.2.1", guessed, "guessed-Pa55").await, 401);
    }
    assert_eq!(ask("192.0.2.1", "demo", "Ch4ng31t-demo").await, 401);
    assert_eq!(ask("192.0.2.2", "demo", "Ch4ng31t-demo").await, 200);
}

#[tokio::test]
async fn smuggling_parameters_into_the_form_gives_no_token() {
    let upstream = Upstream::echo().await;
    let provider =
        Upstream::start(|_| Reply::Json(200, json!({"access_token": "given", "expires_in": 60})))
            .await;
    let door = brokered(&upstream, &provider.url("/token"), "").await;
    let flood: String = (0..200).map(|n| format!("&p{n}=")).collect();
    let long = format!("{BODY}&x={}", "y".repeat(70_000));
    let path = "/weather/access_token";
    for (path, body) in [
        (path, &*format!("{BODY}&client_id=other")),
        (path, &*format!("{BODY}&%63lient_id=other")),
        (path, &*format!("{BODY}&grant_type=client_credentials")),
        (path, &*format!("{BODY}{flood}")),
        (path, &*format!("{BODY}&x=%ff")),
        (path, &*format!("{BODY}&x=%4")),
        (path, &*long),
        // Credentials in the address are nobody's.
        (&*format!("{path}?{BODY}"), ""),
        (path, "client_id[]=orders&grant_type[]=password"),
        (path, &*BODY.replace('&', ";")),
    ] {
        let answer = exchange(&door.proxy(), &asking(path, "", body)).await;
        let status = answer.expect("an answer").status;
        assert!(
            matches!(status, 400 | 401 | 413),
            "{path} {body:.90}: {status}"
        );
    }
    for kind in [
        "application/json",
        "multipart/form-data; boundary=x",
        "text/plain",
    ] {
        let request = String::from_utf8(asking(path, "", BODY)).expect("text");
        let request = request.replace("application/x-www-form-urlencoded", kind);
        let answer = exchange(&door.proxy(), request.as_bytes()).await;
        assert_eq!(answer.expect("an answer").status, 400, "{kind}");
    }
    // Two clients in one request.
    let basic = "Authorization: Basic b3RoZXI6b3RoZXItc2VjcmV0\r\n";
    let answer = exchange(&door.proxy(), &asking(path, basic, BODY)).await;
    assert_eq!(answer.expect("an answer").status, 400);
    assert!(provider.seen().is_empty(), "the provider was asked");
}

#[tokio::test]
async fn injecting_lines_by_a_client_id_or_a_path_adds_no_header() {
    let upstream = Upstream::echo().await;
    let provider = Upstream::start(|_| Reply::Json(400, json!({"error": "invalid_client"}))).await;
    let door = brokered(&upstream, &provider.url("/token"), "").await;
    for value in [
        "orders%0d%0aX-Evil: 1",
        "orders%00",
        "%22,error=%22none",
        "<script>alert(1)</script>",
        "orders ",
        "ORDERS",
    ] {
        let body = BODY.replace("client_id=orders", &format!("client_id={value}"));
        let request = asking("/weather/access_token", "", &body);
        let answer = exchange(&door.proxy(), &request).await.expect("an answer");
        assert_eq!(answer.status, 401, "{value}");
        assert_eq!(answer.header("x-evil"), None);
        assert_eq!(
            serde_json::from_slice::<Value>(&answer.body).expect("JSON"),
            json!({"ErrorCode": "invalid_client", "Error": "ClientId is Invalid"})
        );
    }
    assert!(
        provider.seen().is_empty(),
        "an unknown client was asked about"
    );
    // A user name is a value, whatever is in it.
    let body = BODY.replace("=demo&", "=a%26grant_type%3Dimplicit%0d%0a&");
    let request = asking("/weather/access_token", "", &body);
    exchange(&door.proxy(), &request).await.expect("an answer");
    let sent = String::from_utf8_lossy(&provider.last().body).into_owned();
    assert!(sent.starts_with("grant_type=password&username=a%26grant_type%3Dimplicit%0D%0A&"));
}

#[tokio::test]
async fn a_provider_that_packs_its_reply_is_not_unpacked() {
    let upstream = Upstream::echo().await;
    let provider = Upstream::start(|seen| {
        let form = String::from_utf8_lossy(&seen.body).into_owned();
        let body = br#"{"access_token":"s3cret-token","expires_in":60}"#;
        let reply = |headers: &str, body: &[u8]| {
            let head = format!("HTTP/1.1 200 OK\r\n{headers}\r\n");
            Reply::Raw([head.as_bytes(), body].concat())
        };
        let length = format!("Content-Length: {}\r\n", body.len());
        match () {
            // What says that it is packed, is; and so is what is.
            () if form.contains("=packed&") => reply(
                "Content-Length: 4\r\nContent-Encoding: gzip\r\n",
                &[0x1f, 0x8b, 8, 0],
            ),
            () if form.contains("=claims&") => {
                reply(&format!("{length}Content-Encoding: gzip\r\n"), body)
            }
            () if form.contains("=endless&") => {
                let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, "s".repeat(1 << 20));
                reply("Transfer-Encoding: chunked\r\n", chunk.repeat(3).as_bytes())
            }
            () if form.contains("=moved&") => Reply::Raw(
                [
                    b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/\r\n",
                    length.as_bytes(),
                    b"\r\n",
                    body,
                ]
                .concat(),
            ),
            () => reply(&length, body),
        }
    })
    .await;
    let door = brokered(&upstream, &provider.url("/token"), "").await;
    for user in ["packed", "claims", "endless", "moved"] {
        let answer = ask(&door, &with("username", Some(user))).await.expect(500);
        assert!(!answer.body.contains("s3cret"), "{user}");
        let code = answer.json()["fault"]["detail"]["errorcode"].clone();
        let wanted = match user {
            "packed" | "claims" => "steps.extractvariables.SourceMessageNotAvailable",
            _ => "steps.servicecallout.ExecutionFailed",
        };
        assert_eq!(code, wanted, "{user}");
    }
    assert_eq!(exported(&door).1, 0, "a token was stored");
}

#[tokio::test]
async fn widening_scopes_by_a_refresh_is_refused() {
    let upstream = Upstream::echo().await;
    let provider =
        Upstream::start(|_| Reply::Json(200, json!({"access_token": "given", "expires_in": 60})))
            .await;
    let door = brokered(&upstream, &provider.url("/token"), "").await;
    let first = ask(&door, &with("scope", Some("READ WRITE"))).await;
    let mut token = text(&first.expect(200).json(), "refresh_token");
    for (scope, granted) in [
        (Some("READ WRITE openid"), None),
        (Some("admin"), None),
        (Some("WRITE"), Some("WRITE")),
        // What was given up is gone.
        (Some("READ"), None),
        (None, Some("WRITE")),
    ] {
        let mut form = vec![
            ("grant_type", "refresh_token"),
            ("refresh_token", &*token),
            ("client_id", "orders"),
            ("client_secret", "orders-secret"),
        ];
        form.extend(scope.map(|scope| ("scope", scope)));
        let answer = post(&door, "/weather/refresh_token", &form).await;
        match granted {
            Some(granted) => {
                let body = answer.expect(200).json();
                assert_eq!(text(&body, "scope"), granted);
                token = text(&body, "refresh_token");
            }
            None => {
                let answer = answer.expect(400).json();
                assert_eq!(answer["ErrorCode"], "invalid_scope");
            }
        }
    }
}

#[tokio::test]
async fn using_a_refresh_token_twice_at_once_gives_one_token() {
    let upstream = Upstream::echo().await;
    let door = brokered(&upstream, OWN, "").await;
    let first = ask(&door, &FORM).await.expect(200).json();
    let refresh = text(&first, "refresh_token");
    let form = [
        ("grant_type", "refresh_token"),
        ("refresh_token", &*refresh),
        ("client_id", "orders"),
        ("client_secret", "orders-secret"),
    ];
    let all = (0..8).map(|_| post(&door, "/weather/refresh_token", &form));
    let all = join_all(all).await;
    let good: Vec<_> = all.iter().filter(|one| one.status == 200).collect();
    assert_eq!(good.len(), 1);
    assert!(all.iter().all(|one| matches!(one.status, 200 | 400)));
    // Another application can do nothing with it.
    let next = text(&good[0].json(), "refresh_token");
    let stranger = json!({"name": "s", "developer": "dev@example.com", "products": ["weather"],
                          "consumer_key": "stranger", "consumer_secret": "known"});
    door.admin_post("/broker/applications", &stranger)
        .await
        .expect(201);
    let theirs = [
        ("grant_type", "refresh_token"),
        ("refresh_token", &*next),
        ("client_id", "stranger"),
        ("client_secret", "known"),
    ];
    let answer = post(&door, "/weather/refresh_token", &theirs).await;
    assert_eq!(answer.expect(400).json()["Error"], "Invalid Refresh Token");
}

#[tokio::test]
async fn asking_all_at_once_does_not_exceed_a_quota() {
    let upstream = Upstream::echo().await;
    let door = brokered(&upstream, OWN, FLOWS).await;
    let product = json!({"name": "scarce", "quota": 5, "quota_time_unit": "month"});
    door.admin_post("/broker/products", &product)
        .await
        .expect(201);
    let (id, credentials, token) = own_token(&door, "scarce").await;
    let all = (0..40).map(|_| door.get_as(&token, "any.test", "/weather/x"));
    let all = join_all(all).await;
    let passed = all.iter().filter(|one| one.status == 200).count();
    assert_eq!(passed, 5);
    assert!(all.iter().all(|one| matches!(one.status, 200 | 429)));
    // Neither another token nor a change that leaves the rate makes room.
    let grant = [("grant_type", "client_credentials")];
    let request = http::client().post(door.proxy_url("/weather/token"));
    let request = request.basic_auth(&credentials.0, Some(&credentials.1));
    let other = http::send(request.form(&grant)).await.expect(200).json();
    let other = text(&other, "access_token");
    door.get_as(&other, "any.test", "/weather/x")
        .await
        .expect(429);
    let path = format!("/broker/applications/{id}");
    door.admin_json(reqwest::Method::PATCH, &path, &json!({"name": "b"}))
        .await
        .expect(200);
    door.get_as(&other, "any.test", "/weather/x")
        .await
        .expect(429);
}

#[tokio::test]
async fn replaying_a_token_that_another_process_revoked_is_refused() {
    let upstream = Upstream::echo().await;
    let door = brokered(&upstream, OWN, "").await;
    let answer = ask(&door, &FORM).await.expect(200).json();
    let token = text(&answer, "access_token");
    let call = || door.get_as(&token, "any.test", "/weather/x");
    call().await.expect(200);
    let words = ["broker", "revoke", "-c", "doorward.yaml", "--token", &token];
    let ended = door.run(&words);
    assert!(ended.status.success(), "{ended:?}");
    eventually("the refusal", || async {
        (call().await.status == 401).then_some(())
    })
    .await;
    let refresh = text(&answer, "refresh_token");
    let form = [
        ("grant_type", "refresh_token"),
        ("refresh_token", &*refresh),
        ("client_id", "orders"),
        ("client_secret", "orders-secret"),
    ];
    let answer = post(&door, "/weather/refresh_token", &form).await;
    assert_eq!(answer.expect(400).json()["Error"], "Invalid Refresh Token");
}

#[tokio::test]
async fn looking_for_secrets_in_logs_metrics_audit_and_store_finds_none() {
    let upstream = Upstream::echo().await;
    let door = brokered(&upstream, OWN, "").await;
    let answer = ask(&door, &FORM).await.expect(200).json();
    ask(&door, &with("password", Some("guessed-Pa55"))).await;
    ask(&door, &with("client_secret", Some("guessed-s3cret"))).await;
    let (token, refresh) = (
        text(&answer, "access_token"),
        text(&answer, "refresh_token"),
    );
    door.get_as(&token, "any.test", "/weather/x")
        .await
        .expect(200);
    door.get_as("guessed-t0ken", "any.test", "/weather/x").await;
    let application = json!({"name": "a", "developer": "dev@example.com"});
    let made = door.admin_post("/broker/applications", &application).await;
    let secret = text(&made.expect(201).json(), "consumer_secret");
    let body = json!({"token": token});
    door.admin_post("/broker/tokens/revoke", &body)
        .await
        .expect(204);
    let audit = eventually("the records", || async {
        let all = door.admin_get("/audit/export").await.expect(200).body;
        all.contains("broker/tokens").then_some(all)
    })
    .await;
    let metrics = door.admin_get("/metrics").await.expect(200).body;
    let (stored, count) = exported(&door);
    assert_eq!(count, 1);
    let secrets = BTreeSet::from([
        &*token,
        &*refresh,
        &*secret,
        "Ch4ng31t-demo",
        "orders-secret",
        "guessed-Pa55",
        "guessed-s3cret",
        "guessed-t0ken",
    ]);
    for secret in secrets {
        for (place, text) in [
            ("log", &door.log_text()),
            ("audit", &audit),
            ("metrics", &metrics),
            ("store", &stored),
        ] {
            assert!(!text.contains(secret), "{secret} is in the {place}");
        }
    }
}

#[tokio::test]
async fn a_slash_at_the_end_changes_no_condition() {
    let upstream = Upstream::echo().await;
    let flows = ", flows: [{name: open, condition: 'not (proxy.pathsuffix = \"/admin\")', \
                 operation: none}, {name: api, operation: VerifyAccessToken}]";
    let door = brokered(&upstream, OWN, flows).await;
    let (code, words) = INVALID;
    for path in ["/weather/admin", "/weather/admin/", "/weather//admin//"] {
        assert_fault(door.get("any.test", path).await, 401, code, words);
    }
    door.get("any.test", "/weather/x").await.expect(200);
}

/// All that the store holds, and how many tokens of the broker are in it.
fn exported(door: &Door) -> (String, u64) {
    let exported = door.run(&["store", "export", "-c", "doorward.yaml"]);
    let text = String::from_utf8_lossy(&exported.stdout).into_owned();
    let end = text.trim_end().lines().last().unwrap_or_default();
    let end: Value = serde_json::from_str(end).expect("the end of an export");
    let count = end["rows"]["broker_tokens"].as_u64();
    (text, count.expect("a number"))
}

#[tokio::test]
async fn guessing_the_secret_of_an_application_is_braked_and_the_right_one_passes() {
    let upstream = Upstream::echo().await;
    let door = brokered(&upstream, OWN, FLOWS).await;
    door.admin_post("/broker/products", &json!({"name": "narrow"}))
        .await
        .expect(201);
    let (_, (key, secret), _) = own_token(&door, "narrow").await;
    let (_, (other, _), _) = own_token(&door, "narrow").await;
    let ask = async |key: &str, secret: &str| {
        let grant = [("grant_type", "client_credentials")];
        let request = http::client().post(door.proxy_url("/weather/token"));
        http::send(request.basic_auth(key, Some(secret)).form(&grant)).await
    };
    for n in 0..20 {
        assert_eq!(ask(&key, &format!("wrong {n}")).await.status, 401, "{n}");
    }
    for n in 0..20 {
        let answer = ask(&key, &format!("wrong {n}")).await;
        assert_eq!(answer.status, 429, "{n}: {}", answer.body);
        assert_eq!(answer.header("retry-after"), "1");
        ask(&key, &secret).await.expect(200);
    }
    assert_eq!(ask(&other, "wrong").await.status, 401);
}
