//! People who forgot their passwords, and people who guess those of others.

use aws_lc_rs::hmac;
use serde_json::{Value, json};

use crate::support::door::IDENTITY;
use crate::support::http::{client, send};
use crate::support::smtp::Relay;
use crate::support::{Answer, Door, Reply, Setup, Upstream, eventually};

async fn door(mail: &str) -> Door {
    let more = "
  hashing: {memory_kib: 64, passes: 1}
  lockout: {failures: 3, per_address: {failures: 8}}";
    let identity = format!("\n  base_url: http://@PROXY@{IDENTITY}{more}\n  mail: {mail}");
    let door = Setup::new().identity(&identity).start().await;
    let add = [
        "users",
        "add",
        "carol",
        "--email",
        "carol@example.com",
        "--password",
        "Ch4ng31t-carol",
    ];
    assert!(run(&door, &add).status.success());
    door
}

fn run(door: &Door, arguments: &[&str]) -> std::process::Output {
    door.run(&[arguments, &["-c", "doorward.yaml"]].concat())
}

async fn post(door: &Door, path: &str, form: &[(&str, &str)]) -> Answer {
    let request = client().post(door.proxy_url(path));
    send(request.form(form)).await
}

async fn sign_in(door: &Door, name: &str, password: &str) -> Answer {
    let request = client().post(door.proxy_url("/json/authenticate"));
    let request = request.header("x-service-username", name);
    send(request.header("x-service-password", password)).await
}

const FORGOT: &str = "/oauth2/password/forgot";

#[tokio::test]
async fn a_forgotten_password_is_chosen_anew_by_a_link_that_is_good_once() {
    // The relay is busy at first: what can't be delivered is tried again.
    let relay = Relay::start(1).await;
    let port = relay.port();
    let smtp = "{smtp: {host: 127.0.0.1, tls: none, from: Doors <no-reply@example.com>, port: ";
    let door = door(&format!("{smtp}{port}}}}}")).await;
    let page = send(client().get(door.proxy_url(FORGOT))).await.expect(200);
    assert!(page.body.contains("name=\"username\""), "{}", page.body);
    let nobody = post(&door, FORGOT, &[("username", "nobody")])
        .await
        .expect(200);
    // Where the link leads is not for a request to say.
    let request = client().post(door.proxy_url(FORGOT));
    let request = request.header("host", "evil.example");
    let somebody = request.form(&[("username", "CAROL@example.com")]);
    let somebody = send(somebody).await.expect(200);
    assert_eq!(nobody.body, somebody.body, "the page tells who exists");
    // Whoever is asked for has its password in the file.
    post(&door, FORGOT, &[("username", "demo")])
        .await
        .expect(200);
    let mail = eventually("the mail", || async { relay.mails().pop() }).await;
    assert_eq!(relay.mails().len(), 1);
    assert!(mail.to.contains("<carol@example.com>"), "{}", mail.to);
    let base = format!("http://{}/oauth2/password/reset?token=", door.proxy());
    let at = mail.text.find(&base).expect("a link of base_url");
    let link = mail.text[at..].split_whitespace().next().expect("a link");
    let token = link.strip_prefix(&base).expect("a token");
    assert!(token.len() >= 43, "{token}");
    // Looking at the link spends nothing.
    for _ in 0..2 {
        let form = send(client().get(link)).await.expect(200);
        assert!(form.body.contains(token));
        assert_eq!(form.header("referrer-policy"), "no-referrer");
        assert_eq!(form.header("cache-control"), "no-store");
    }
    let session = sign_in(&door, "carol", "Ch4ng31t-carol")
        .await
        .expect(200)
        .json();
    let choose = async |password: &str, again: &str| {
        let form = [
            ("doorward_token", token),
            ("password", password),
            ("again", again),
        ];
        post(&door, "/oauth2/password/reset", &form).await
    };
    let weak = choose("password", "password").await.expect(400);
    assert!(weak.body.contains("too easy to guess"), "{}", weak.body);
    choose("vexing kelp", "vexing help").await.expect(400);
    let done = choose("vexing kelp", "vexing kelp").await.expect(200);
    assert!(!done.body.contains(token));
    sign_in(&door, "carol", "Ch4ng31t-carol").await.expect(401);
    sign_in(&door, "carol", "vexing kelp").await.expect(200);
    let session = session["tokenId"].as_str().expect("a session");
    let request = client().post(door.proxy_url("/json/sessions?_action=validate"));
    let valid = send(request.header("iplanetdirectorypro", session)).await;
    assert_eq!(valid.json()["valid"], json!(false));
    let spent = choose("another kelp", "another kelp").await.expect(400);
    assert!(spent.body.contains(FORGOT), "{}", spent.body);
    send(client().get(link)).await.expect(400);
    for secret in [token, "vexing kelp", "carol@example.com"] {
        assert!(!door.log_text().contains(secret), "the log has {secret}");
    }
}

#[tokio::test]
async fn a_webhook_is_told_of_a_link_and_can_tell_that_we_did() {
    let hook = Upstream::start(|_| Reply::Json(200, json!({}))).await;
    let url = hook.url("/mail");
    let door = door(&format!(
        "{{webhook: {{url: \"{url}\", secret: sixteen-bytes-or-more}}}}"
    ))
    .await;
    let request = client().post(door.proxy_url(FORGOT));
    let request = request
        .header("accept-language", "de")
        .form(&[("username", "Carol")]);
    send(request).await.expect(200);
    let told = eventually("the webhook", || async { hook.seen().pop() }).await;
    let body: Value = serde_json::from_slice(&told.body).expect("JSON");
    assert_eq!(body["event"], "password.reset");
    assert_eq!(body["user"]["email"], "carol@example.com");
    assert_eq!(body["language"], "de");
    let text = body["text"].as_str().expect("a text");
    assert!(text.contains(body["link"].as_str().expect("a link")));
    let signature = told.header("x-doorward-signature").expect("a signature");
    let (time, mac) = signature.split_once(",v1=").expect("two parts");
    let time = time.strip_prefix("t=").expect("a time");
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"sixteen-bytes-or-more");
    let signed = [time.as_bytes(), b".", &told.body].concat();
    let right = hmac::sign(&key, &signed);
    let right: String = right
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(mac, right);
    // A page of another site can't have a browser ask.
    let request = client()
        .post(door.proxy_url(FORGOT))
        .header("sec-fetch-site", "cross-site");
    send(request.form(&[("username", "carol")]))
        .await
        .expect(400);
    // Nor can anybody fill a mailbox.
    for _ in 0..10 {
        post(&door, FORGOT, &[("username", "carol")])
            .await
            .expect(200);
    }
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert!(hook.seen().len() <= 4, "{}", hook.seen().len());
}

#[tokio::test]
async fn nothing_is_offered_where_nobody_can_be_written_to() {
    let door = Setup::new().start().await;
    send(client().get(door.proxy_url(FORGOT))).await.expect(404);
    let wrong = "{webhook: {url: \"http://elsewhere.example/\", secret: sixteen-bytes-or-more}}";
    let identity = format!("\n  base_url: http://@PROXY@{IDENTITY}\n  mail: {wrong}");
    let door = Setup::new().identity(&identity).lay_out();
    let checked = run(&door, &["check"]);
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(
        !checked.status.success() && said.contains("identity.mail.webhook.url"),
        "{said}"
    );
}

#[tokio::test]
async fn a_lock_survives_a_crash_and_is_lifted_by_the_operator() {
    let mut door = door("{}").await;
    for _ in 0..3 {
        sign_in(&door, "carol", "wrong").await.expect(401);
    }
    let locked = sign_in(&door, "CAROL", "Ch4ng31t-carol").await.expect(401);
    assert!(locked.body.contains("locked"), "{}", locked.body);
    door.kill();
    door.start().await;
    sign_in(&door, "carol", "Ch4ng31t-carol").await.expect(401);
    let listed = run(&door, &["users", "locked"]);
    assert!(String::from_utf8_lossy(&listed.stdout).contains("carol"));
    assert!(run(&door, &["users", "unlock", "Carol"]).status.success());
    eventually("the lock to be lifted", || async {
        let answer = sign_in(&door, "carol", "Ch4ng31t-carol").await;
        (answer.status == 200).then_some(())
    })
    .await;
}

/// How many sign-ins came to this.
async fn counted(door: &Door, outcome: &str) -> usize {
    let metrics = door.admin_get("/metrics").await.body;
    let line = format!("doorward_identity_sign_ins_total{{outcome=\"{outcome}\"}} ");
    let count = metrics.lines().find_map(|text| text.strip_prefix(&line));
    count.map_or(0, |count| count.parse().expect("a number"))
}

#[tokio::test]
async fn of_parallel_guesses_no_more_are_looked_at_than_of_serial_ones() {
    let door = door("{}").await;
    for (n, name) in ["carol", "nobody"].into_iter().enumerate() {
        let spellings = [name.to_owned(), name.to_uppercase()];
        let guess = |n: usize| {
            let (door, name) = (&door, &spellings[n % 2]);
            async move { sign_in(door, name, &format!("guess {n}")).await }
        };
        let answers = futures_util::future::join_all((0..200).map(guess)).await;
        let failed = |answer: &Answer| answer.body.contains("Authentication Failed");
        let locked = |answer: &Answer| {
            answer.status == 401 && answer.body.contains("Your account has been locked.")
        };
        let shed = |answer: &Answer| answer.status == 503 && answer.header("retry-after") == "1";
        let mut looked_at = answers.iter().filter(|one| failed(one)).count();
        let others = answers.iter().filter(|one| locked(one) || shed(one));
        assert_eq!(looked_at + others.count(), 200, "{name}");
        // Who is too many to be looked at gets the try back, so some may be left.
        for n in 200..204 {
            let answer = guess(n).await;
            if locked(&answer) {
                break;
            }
            assert!(failed(&answer), "{name}: {}", answer.body);
            looked_at += 1;
        }
        assert_eq!(looked_at, 3, "{name}");
        assert_eq!(counted(&door, "credentials").await, 3 * (n + 1));
        let form = [
            ("grant_type", "password"),
            ("client_id", "orders"),
            ("client_secret", "orders-secret"),
            ("username", name),
            ("password", "Ch4ng31t-carol"),
            ("scope", "openid profile"),
        ];
        let refused = post(&door, "/oauth2/access_token", &form).await;
        assert_eq!(refused.json()["error"], "invalid_grant", "{}", refused.body);
    }
    assert_eq!(counted(&door, "success").await, 0);
}

#[tokio::test]
async fn behind_a_trusted_proxy_networks_of_ipv6_are_counted() {
    let more = "
  hashing: {memory_kib: 64, passes: 1}
  lockout: {failures: 3, per_address: {failures: 4}}";
    let identity = format!("\n  base_url: http://@PROXY@{IDENTITY}{more}");
    let proxy = r#"{listen: ["@PROXY@"], trusted_ips: [127.0.0.0/8]}"#;
    let door = Setup::new().proxy(proxy).identity(&identity).start().await;
    let from = async |address: String, name: String| {
        let request = client().post(door.proxy_url("/json/authenticate"));
        let request = request.header("x-forwarded-for", address);
        let request = request.header("x-service-username", name);
        let request = request.header("x-service-password", "wrong");
        send(request).await.expect(401).body
    };
    for n in 0..4 {
        let body = from(format!("2001:db8:0:7::{n}"), format!("user-{n}")).await;
        assert!(!body.contains("locked"), "{body}");
    }
    let same = from("2001:db8:0:7:ffff::1".to_owned(), "one".to_owned()).await;
    assert!(same.contains("locked"), "{same}");
    let other = from("2001:db8:0:8::1".to_owned(), "two".to_owned()).await;
    assert!(!other.contains("locked"), "{other}");
}

#[tokio::test]
async fn an_address_that_tries_many_names_is_locked() {
    let door = door("{}").await;
    for n in 0..8 {
        sign_in(&door, &format!("user-{n}"), "wrong")
            .await
            .expect(401);
    }
    let locked = sign_in(&door, "carol", "Ch4ng31t-carol").await.expect(401);
    assert!(locked.body.contains("locked"), "{}", locked.body);
    let listed = door
        .admin_get("/identity/lockouts")
        .await
        .expect(200)
        .json();
    let lock = &listed["data"][0];
    assert_eq!(
        (&lock["kind"], &lock["address"]),
        (&json!("address"), &json!("127.0.0.1"))
    );
    let metrics = door.admin_get("/metrics").await.body;
    assert!(
        metrics.contains("doorward_identity_locks_total{kind=\"address\"} 1"),
        "{metrics}"
    );
    assert!(metrics.contains("doorward_identity_sign_ins_total{outcome=\"credentials\"} 8"));
    let id = lock["id"].as_str().expect("an id");
    door.admin_delete(&format!("/identity/lockouts/{id}"))
        .await
        .expect(204);
    sign_in(&door, "carol", "Ch4ng31t-carol").await.expect(200);
    door.admin_delete("/identity/lockouts/00").await.expect(404);
}
