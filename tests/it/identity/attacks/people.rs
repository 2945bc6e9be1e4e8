//! Attacks on people: their names, their passwords, their sessions.

use std::collections::BTreeSet;

use futures_util::future::join_all;

use super::{ask, door};
use crate::identity::authorize::browser::{Browser, Form};
use crate::support::http::{client, send};
use crate::support::{Answer, Door};

async fn password(door: &Door, name: &str, password: &str) -> Answer {
    let fields = [
        ("grant_type", "password"),
        ("username", name),
        ("password", password),
        ("scope", "openid"),
    ];
    ask(door, &fields).await
}

async fn header(door: &Door, name: &str, password: &str) -> Answer {
    let request = client().post(door.proxy_url("/json/authenticate"));
    let request = request
        .header("x-service-username", name)
        .header("x-service-password", password);
    send(request).await
}

const AUTHORIZE: &str = "/oauth2/authorize?client_id=app&response_type=code&scope=openid\
                         &redirect_uri=https%3A%2F%2Fapp.example%2Fcb";

/// The page that follows a try to sign in.
async fn page(door: &Door, name: &str, password: &str) -> Answer {
    let browser = Browser::new(door);
    let page = browser.get(AUTHORIZE).await.expect(200);
    let form = Form::of(&page);
    let form = form.with("username", name).with("password", password);
    let next = browser.post(&form).await;
    match next.header("location") {
        "" => next,
        location => browser.get(location).await,
    }
}

#[tokio::test]
async fn user_enumeration_by_the_password_grant() {
    let door = door().await;
    let mut seen = BTreeSet::new();
    for (name, secret) in [
        ("demo", "wrong"),
        ("nobody", "wrong"),
        ("gone", "Ch4ng31t-gone"),
        ("gone", "wrong"),
        ("d\u{0}emo", "wrong"),
        ("ü", "wrong"),
    ] {
        let answer = password(&door, name, secret).await;
        seen.insert((answer.status, answer.body));
    }
    assert_eq!(seen.len(), 1, "{seen:?}");
}

#[tokio::test]
async fn guessing_over_several_ways_counts_together() {
    let door = door().await;
    for tries in 0..6 {
        match tries % 3 {
            0 => password(&door, "alice", "wrong").await.expect(400),
            1 => header(&door, "alice", "wrong").await.expect(401),
            _ => page(&door, "alice", "wrong").await,
        };
    }
    password(&door, "alice", "Ch4ng31t-alice").await.expect(400);
    header(&door, "alice", "Ch4ng31t-alice").await.expect(401);
    let shown = page(&door, "alice", "Ch4ng31t-alice").await;
    assert!(shown.body.contains("name=\"password\""));
    // Nobody else is locked out.
    password(&door, "demo", "Ch4ng31t-demo").await.expect(200);
}

#[tokio::test]
async fn a_name_spelt_otherwise_gives_no_more_tries() {
    let door = door().await;
    for name in ["alice", "ALICE", "Alice", "aLice", "alicE", "AlIcE"] {
        password(&door, name, "wrong").await.expect(400);
    }
    password(&door, "alice", "Ch4ng31t-alice").await.expect(400);
    password(&door, "ALICE", "Ch4ng31t-alice").await.expect(400);
}

#[tokio::test]
async fn guesses_at_once_are_no_more_than_guesses_one_by_one() {
    let door = door().await;
    let guesses: Vec<_> = (0..30).map(|number| format!("guess-{number}")).collect();
    let mut all: Vec<&str> = guesses.iter().map(String::as_str).collect();
    all.push("Ch4ng31t-alice");
    let answers = join_all(all.iter().map(|guess| password(&door, "alice", guess))).await;
    assert!(
        answers
            .iter()
            .all(|answer| matches!(answer.status, 200 | 400 | 503))
    );
    // Whatever order they came in: afterwards the name is locked, or the right
    // one was among the first five.
    let right = answers.last().expect("the last").status == 200;
    let after = password(&door, "alice", "Ch4ng31t-alice").await.status;
    assert!(right || after == 400, "{after}");
}

#[tokio::test]
async fn a_password_that_is_endless() {
    let door = door().await;
    let long = "p".repeat(60_000);
    let answer = password(&door, "demo", &long).await;
    assert!(matches!(answer.status, 400 | 413), "{answer:?}");
    header(&door, "demo", &"p".repeat(2_000)).await.expect(401);
}

#[tokio::test]
async fn a_stolen_session_dies_with_the_sign_out_of_its_owner() {
    let door = door().await;
    let owner = Browser::new(&door);
    let first = owner.get(AUTHORIZE).await.expect(200);
    owner.sign_in(&first, "demo").await.expect(302);
    let name = "iPlanetDirectoryPro";
    let stolen = owner.cookie(name).expect("a session");
    let thief = Browser::new(&door);
    thief.set_cookie(name, &stolen);
    thief.get(AUTHORIZE).await.expect(302);
    let page = owner.get("/oauth2/connect/endSession").await.expect(200);
    owner
        .post(&Form::of(&page).with("logout-yes", "true"))
        .await
        .expect(200);
    let page = thief.get(AUTHORIZE).await.expect(200);
    assert!(page.body.contains("name=\"password\""));
}

#[tokio::test]
async fn a_session_that_somebody_made_up() {
    let door = door().await;
    for cookie in [
        "x",
        "",
        "AAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "../../etc",
        "%00",
        "a b",
    ] {
        let request = client().get(door.proxy_url(AUTHORIZE));
        let request = request.header("cookie", format!("iPlanetDirectoryPro={cookie}"));
        let page = send(request).await.expect(200);
        assert!(page.body.contains("name=\"password\""), "{cookie}");
    }
}
