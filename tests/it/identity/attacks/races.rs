//! Attacks by doing the same thing twice at once.

use futures_util::future::join_all;

use super::{CALLBACK, ask, code, door, text, tokens, told, userinfo};

const AT_ONCE: usize = 12;

#[tokio::test]
async fn a_code_that_many_redeem_at_once_gives_tokens_once_and_none_that_live() {
    let door = door().await;
    let code = code(&door, "/").await;
    let fields = [
        ("grant_type", "authorization_code"),
        ("code", code.as_str()),
        ("redirect_uri", CALLBACK),
    ];
    let answers = join_all((0..AT_ONCE).map(|_| ask(&door, &fields))).await;
    let (good, bad): (Vec<_>, Vec<_>) = answers.iter().partition(|one| one.status == 200);
    assert_eq!(good.len(), 1);
    for answer in bad {
        assert_eq!(answer.json()["error"], "invalid_grant");
    }
    // Somebody else had the code as well: nobody keeps what it gave.
    let access = text(&good[0].json(), "access_token");
    assert_eq!(told(&door, &access).await["active"], false);
    assert_eq!(userinfo(&door, &access).await, 401);
}

#[tokio::test]
async fn a_refresh_token_that_many_use_at_once_ends_its_family() {
    let door = door().await;
    let first = tokens(&door).await;
    let refresh = text(&first, "refresh_token");
    let fields = [
        ("grant_type", "refresh_token"),
        ("refresh_token", refresh.as_str()),
    ];
    let answers = join_all((0..AT_ONCE).map(|_| ask(&door, &fields))).await;
    let good: Vec<_> = answers.iter().filter(|one| one.status == 200).collect();
    assert!(good.len() <= 1, "{} successors", good.len());
    for answer in good {
        let next = text(&answer.json(), "refresh_token");
        let fields = [
            ("grant_type", "refresh_token"),
            ("refresh_token", next.as_str()),
        ];
        ask(&door, &fields).await.expect(400);
        let access = text(&answer.json(), "access_token");
        assert_eq!(told(&door, &access).await["active"], false);
    }
    let access = text(&first, "access_token");
    assert_eq!(told(&door, &access).await["active"], false);
}

#[tokio::test]
async fn a_refresh_in_flight_survives_no_revocation() {
    let door = door().await;
    for _ in 0..5 {
        let first = tokens(&door).await;
        let refresh = text(&first, "refresh_token");
        let use_it = [
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh.as_str()),
        ];
        let end_it = [&super::APP[..], &[("token", refresh.as_str())]].concat();
        let (used, ended) = tokio::join!(
            ask(&door, &use_it),
            super::post(&door, "token/revoke", &end_it)
        );
        ended.expect(200);
        if used.status == 200 {
            let next = text(&used.json(), "refresh_token");
            let fields = [
                ("grant_type", "refresh_token"),
                ("refresh_token", next.as_str()),
            ];
            ask(&door, &fields).await.expect(400);
            let access = text(&used.json(), "access_token");
            assert_eq!(told(&door, &access).await["active"], false);
        }
    }
}
