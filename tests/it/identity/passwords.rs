//! People who guess the passwords of others.

use serde_json::json;

use crate::support::door::IDENTITY;
use crate::support::http::{client, send};
use crate::support::{Answer, Door, Setup, eventually};

async fn door() -> Door {
    let more = "
  hashing: {memory_kib: 64, passes: 1}
  lockout: {failures: 3, per_address: {failures: 8}}";
    let identity = format!("\n  base_url: http://@PROXY@{IDENTITY}{more}");
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

#[tokio::test]
async fn a_lock_survives_a_crash_and_is_lifted_by_the_operator() {
    let mut door = door().await;
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
    let door = door().await;
    for (n, name) in ["carol", "nobody"].into_iter().enumerate() {
        let spellings = [name.to_owned(), name.to_uppercase()];
        let guess = |n: usize| {
            let (door, name) = (&door, &spellings[n % 2]);
            async move { sign_in(door, name, &format!("guess {n}")).await }
        };
        let answers = futures_util::future::join_all((0..200).map(guess)).await;
        let looked_at = answers
            .iter()
            .filter(|answer| answer.body.contains("Authentication Failed"))
            .count();
        let locked = |answer: &&Answer| {
            answer.status == 401 && answer.body.contains("Your account has been locked.")
        };
        let shed = |answer: &&Answer| answer.status == 503 && answer.header("retry-after") == "1";
        let others = answers.iter().filter(|one| locked(one) || shed(one));
        assert_eq!((looked_at, others.count()), (3, 197), "{name}");
        assert_eq!(counted(&door, "credentials").await, 3 * (n + 1));
        let form = [
            ("grant_type", "password"),
            ("client_id", "orders"),
            ("client_secret", "orders-secret"),
            ("username", name),
            ("password", "Ch4ng31t-carol"),
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
    let door = door().await;
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
