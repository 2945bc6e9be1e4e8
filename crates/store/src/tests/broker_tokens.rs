//! The tokens that the broker gave out.

use super::*;
use doorward_core::model::broker::{TokenFacts, TokenKind, local_person, person, refresh_token};
use doorward_core::model::grant::TokenHash;

/// A refresh token as they are made here: a family, and a secret.
fn made(family: char, secret: char) -> String {
    let letters = |letter: char, number| letter.to_string().repeat(number);
    letters(family, refresh_token::FAMILY) + &letters(secret, refresh_token::SECRET)
}

fn tokens(access: &str, refresh: Option<&str>, client: &str) -> StoredTokens {
    StoredTokens {
        access: TokenHash::of(access),
        access_approved: true,
        expires_ms: 100,
        refresh: refresh.map(TokenHash::of),
        family: refresh
            .and_then(refresh_token::family_of)
            .map(refresh_token::family),
        refresh_approved: true,
        refresh_expires_ms: 1000,
        swept_ms: 2000,
        client_id: client.to_owned(),
        person: None,
        ended_ms: None,
        facts: TokenFacts::default(),
    }
}

async fn keep(store: &Arc<Store>, tokens: &StoredTokens) -> TokenInsertion {
    store
        .keep_broker_tokens(tokens, None)
        .await
        .expect("an answer")
}

async fn by_access(store: &Arc<Store>, access: &str) -> Option<StoredTokens> {
    let found = store.broker_tokens(TokenHash::of(access)).await;
    found.expect("an answer")
}

/// The tokens that a refresh token is in force for.
async fn by_refresh(store: &Arc<Store>, refresh: &str) -> Option<StoredTokens> {
    let shown = PresentedRefreshToken::of(refresh);
    let all = store.broker_refresh(&shown).await.expect("an answer");
    all.into_iter().find(|one| one.refresh == Some(shown.token))
}

async fn refresh(store: &Arc<Store>, presented: &str, tokens: StoredTokens) -> bool {
    let shown = PresentedRefreshToken::of(presented);
    let refresh = Refresh {
        presented: shown.token,
        found_by: shown.named.unwrap_or(shown.token),
        tokens,
        now_ms: 50,
    };
    store
        .refresh_broker_tokens(&refresh, None)
        .await
        .expect("an answer")
}

async fn revoke(store: &Arc<Store>, revoked: RevocationTarget, cascade: bool) -> bool {
    let revoked = store.revoke_broker_token(&revoked, cascade, None).await;
    revoked.expect("an answer").is_some()
}

#[tokio::test]
async fn a_refresh_token_that_was_replaced_leads_to_the_family_that_came_of_it() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let (one, two) = (made('F', '1'), made('F', '2'));
    assert_eq!(
        keep(store, &tokens("a", Some(&one), "c")).await,
        TokenInsertion::Both
    );
    assert!(by_refresh(store, &one).await.is_some());
    assert!(by_refresh(store, &two).await.is_none());
    assert!(refresh(store, &one, tokens("b", Some(&two), "c")).await);
    // The first is spent: it is not in force, and can't be used or revoked.
    assert!(by_refresh(store, &one).await.is_none());
    assert!(!refresh(store, &one, tokens("x", Some(&made('F', '3')), "c")).await);
    assert!(
        !revoke(
            store,
            RevocationTarget::token(TokenKind::Refresh, &one),
            true
        )
        .await
    );
    let shown = PresentedRefreshToken::of(&one);
    let [found] = &store.broker_refresh(&shown).await.expect("an answer")[..] else {
        panic!("its family is known");
    };
    assert_eq!(
        (found.family, found.refresh),
        (shown.named, Some(TokenHash::of(&two)))
    );
    let family = RevocationTarget::Family(shown.named.expect("a family"));
    assert!(revoke(store, family, true).await);
    let found = by_access(store, "b").await.expect("it is there");
    assert!(!found.access_approved && !found.refresh_approved);
    assert!(!refresh(store, &two, tokens("x", Some(&made('F', '3')), "c")).await);
    // Who asks again is told of nothing new.
    assert!(!revoke(store, family, true).await);
}

#[tokio::test]
async fn a_refresh_token_without_family_begins_one() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    // From a provider, and one of those that were made before there were families.
    for old in ["eyJ.foreign".to_owned(), made('O', '1')] {
        let mut first = tokens("a", Some(&old), "c");
        first.family = None;
        assert_eq!(keep(store, &first).await, TokenInsertion::Both);
        let found = by_refresh(store, &old).await.expect("it is there");
        assert_eq!(found.family, None);
        let next = refresh_token::begun(&old) + &"s".repeat(refresh_token::SECRET);
        let refresh = Refresh {
            presented: TokenHash::of(&old),
            found_by: TokenHash::of(&old),
            // The access token is another one each time.
            tokens: tokens(&next, Some(&next), "c"),
            now_ms: 50,
        };
        assert!(
            store
                .refresh_broker_tokens(&refresh, None)
                .await
                .expect("an answer")
        );
        let shown = PresentedRefreshToken::of(&old);
        let all = store.broker_refresh(&shown).await.expect("an answer");
        assert_eq!(all.len(), 1, "what came of a spent token is found by it");
        assert_eq!(all[0].family, Some(shown.begun));
        assert!(by_refresh(store, &next).await.is_some());
    }
}

#[tokio::test]
async fn of_two_refreshes_at_once_one_is_told_yes() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let first = made('F', '1');
    keep(store, &tokens("a", Some(&first), "c")).await;
    let (one, two) = (made('F', '2'), made('F', '3'));
    let (one, two) = tokio::join!(
        refresh(store, &first, tokens("b1", Some(&one), "c")),
        refresh(store, &first, tokens("b2", Some(&two), "c"))
    );
    assert_ne!(one, two);
    assert!(by_access(store, "a").await.is_none());
}

#[tokio::test]
async fn a_token_that_is_given_again_has_a_good_refresh_token() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    keep(store, &tokens("a", Some("r1"), "c")).await;
    assert!(
        revoke(
            store,
            RevocationTarget::token(TokenKind::Refresh, "r1"),
            false
        )
        .await
    );
    assert_eq!(
        keep(store, &tokens("a", Some("r2"), "c")).await,
        TokenInsertion::Both
    );
    let found = by_refresh(store, "r2").await.expect("it is there");
    assert!(found.access_approved && found.refresh_approved);
}

#[tokio::test]
async fn a_provider_may_give_the_same_refresh_token_to_every_sign_in() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    for access in ["a1", "a2", "a2", "a3"] {
        let kept = keep(store, &tokens(access, Some("same"), "c")).await;
        assert_eq!(kept, TokenInsertion::Both, "{access}");
        let found = by_refresh(store, "same").await.expect("it is there");
        assert_eq!(found.access, TokenHash::of(access));
    }
    // Access tokens of before are good as they were.
    let old = by_access(store, "a1").await.expect("it is there");
    assert!(old.access_approved && old.refresh.is_none());
    // It is no other application's, and what was revoked does not rise again.
    assert_eq!(
        keep(store, &tokens("x", Some("same"), "d")).await,
        TokenInsertion::Neither
    );
    assert!(by_access(store, "x").await.is_none());
    assert!(
        revoke(
            store,
            RevocationTarget::token(TokenKind::Refresh, "same"),
            true
        )
        .await
    );
    let kept = keep(store, &tokens("a4", Some("same"), "c")).await;
    assert_eq!(kept, TokenInsertion::AccessOnly);
    let found = by_refresh(store, "same").await.expect("it is there");
    assert!(!found.refresh_approved && found.access == TokenHash::of("a3"));
    assert!(by_access(store, "a4").await.is_some());
}

#[tokio::test]
async fn a_revoked_token_is_known_as_such_and_swept_in_the_end() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let kept = tokens("a", Some("r"), "c");
    keep(store, &kept).await;
    // Of another application it is never.
    assert_eq!(
        keep(store, &tokens("a", None, "d")).await,
        TokenInsertion::Neither
    );
    assert!(
        revoke(
            store,
            RevocationTarget::token(TokenKind::Access, "a"),
            false
        )
        .await
    );
    let found = by_refresh(store, "r").await.expect("it is there");
    assert!(!found.access_approved && found.refresh_approved);
    // And it does not rise again.
    assert_eq!(keep(store, &kept).await, TokenInsertion::Neither);
    store.sweep(1999, 10).await.expect("swept");
    assert!(by_access(store, "a").await.is_some());
    store.sweep(2000, 10).await.expect("swept");
    assert!(by_access(store, "a").await.is_none());
}

#[tokio::test]
async fn what_a_user_began_ends_with_the_user() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let anna = user("Anna", json!({}));
    let bob = user("bob", json!({}));
    for user in [&anna, &bob] {
        store.insert_user(user, None).await.expect("inserted");
    }
    let of = |access: &str, id: Uuid, begun_ms| {
        let mut one = tokens(access, Some(&made('F', 'a')), "c");
        one.refresh = Some(TokenHash::of(access));
        one.family = None;
        one.person = Some(local_person(id));
        one.facts.begun_ms = begun_ms;
        // A refresh is no new sign-in.
        one.facts.issued_ms = 900;
        one
    };
    for one in [
        of("a1", anna.id, 10),
        of("a2", anna.id, 70),
        of("b1", bob.id, 10),
    ] {
        keep(store, &one).await;
    }
    let ended = async |access| by_access(store, access).await.expect("there").has_ended();
    assert!(!ended("a1").await);
    let password = doorward_core::model::secret::Secret::new("x");
    store
        .set_password(anna.id, &password, None, 50, None)
        .await
        .expect("set");
    assert!(ended("a1").await && !ended("a2").await && !ended("b1").await);
    let found = by_refresh(store, "a1").await.expect("it is there");
    assert!(found.has_ended());
    // One that was on its way then is no exception.
    keep(store, &of("a3", anna.id, 50)).await;
    assert!(ended("a3").await);
    assert!(
        store
            .delete_user(anna.id, None, 80, None)
            .await
            .expect("deleted")
    );
    assert!(ended("a2").await);
    let mut bob = bob;
    (bob.active, bob.version, bob.updated_ms) = (false, 2, 90);
    store.update_user(&bob, None).await.expect("updated");
    assert!(ended("b1").await);
    // It is known as long as there are tokens of that time.
    store.sweep(2000, 10).await.expect("swept");
    keep(store, &of("a1", anna.id, 10)).await;
    assert!(ended("a1").await);
    store.sweep(2000 + 86_400_000, 10).await.expect("swept");
    keep(store, &of("a1", anna.id, 10)).await;
    assert!(!ended("a1").await);
}

#[tokio::test]
async fn people_are_ended_by_the_name_that_they_sign_in_with() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let anna = user("Anna", json!({}));
    store.insert_user(&anna, None).await.expect("inserted");
    let long = "x".repeat(5000) + "\0";
    let of = |access: &str, person: Option<String>, end_user: &str| {
        let mut one = tokens(access, None, "c");
        (one.person, one.facts.begun_ms) = (person, 10);
        one.facts.end_user = end_user.to_owned();
        one
    };
    for one in [
        of("local", Some(local_person(anna.id)), "anna"),
        of("foreign", Some(person("ANNA")), "ANNA"),
        // From before it was kept whose they are.
        of("old", None, "Anna"),
        of("other", Some(person("annabel")), "annabel"),
        of("long", Some(person(&long)), &long),
    ] {
        assert_eq!(keep(store, &one).await, TokenInsertion::Both);
    }
    store
        .end_broker_person("aNNa", 20, None)
        .await
        .expect("ended");
    store
        .end_broker_person(&long, 20, None)
        .await
        .expect("ended");
    for (access, wanted) in [
        ("local", true),
        ("foreign", true),
        ("old", true),
        ("other", false),
        ("long", true),
    ] {
        let found = by_access(store, access).await.expect("it is there");
        assert_eq!(found.has_ended(), wanted, "{access}");
    }
}

#[tokio::test]
async fn what_came_of_a_token_that_was_revoked_at_the_provider_has_ended_for_good() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let of = |access: &str, token: &str, grant: &str| {
        let origin = serde_json::json!({"jti": token, "authGrantId": grant});
        let mut tokens = tokens(access, None, "c");
        tokens.facts.origin = origin.as_object().cloned();
        tokens
    };
    for (access, token, grant) in [
        ("a", "t-1", "g-1"),
        ("b", "t-2", "g-1"),
        ("c", "t-3", "g-2"),
        // A token and a grant of one name are two things.
        ("d", "g-2", "t-1"),
    ] {
        keep(store, &of(access, token, grant)).await;
    }
    keep(store, &tokens("e", None, "c")).await;
    let ended = async |access: &str| {
        let found = by_access(store, access).await;
        found.expect("it is there").has_ended()
    };
    let hash = TokenHash::of("of the provider");
    let revoked = store.revoke_access_token(hash, "t-1", 50, None).await;
    revoked.expect("revoked");
    assert!(ended("a").await);
    store.revoke_grant("g-2", 50, None).await.expect("revoked");
    for (access, wanted) in [
        ("a", true),
        ("b", false),
        ("c", true),
        ("d", false),
        ("e", false),
    ] {
        assert_eq!(ended(access).await, wanted, "{access}");
    }
    // The provider forgets a revocation when its own tokens are over.
    store.sweep(1000, 100).await.expect("swept");
    assert!(store.revocations().await.expect("an answer").is_empty());
    assert!(ended("a").await && ended("c").await);
}
