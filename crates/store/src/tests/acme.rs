//! Accounts, certificates and challenges of ACME.

use super::*;
use doorward_core::model::acme::{
    AcmeIssued, AcmeState, StoredAcmeAccount, StoredAcmeCertificate, StoredAcmeChallenge,
};
use doorward_core::model::secret::Secret;

fn certificate(updated_ms: i64) -> StoredAcmeCertificate {
    StoredAcmeCertificate {
        names: "a.test b.test".to_owned(),
        directory: "https://authority.test/directory".to_owned(),
        issued: None,
        state: AcmeState::default(),
        updated_ms,
    }
}

#[tokio::test]
async fn an_account_and_a_certificate_are_read_as_they_were_kept() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let account = StoredAcmeAccount {
        directory: "https://authority.test/directory".to_owned(),
        credentials: Secret::new("sealed"),
        contacts: vec!["mailto:a@a.test".to_owned(), "mailto:b@a.test".to_owned()],
        created_ms: 1,
    };
    store.put_acme_account(&account).await.expect("kept");
    let read = store.acme_account(&account.directory).await.expect("read");
    assert_eq!(read, Some(account.clone()));
    store
        .delete_acme_account(&account.directory)
        .await
        .expect("gone");
    let read = store.acme_account(&account.directory).await.expect("read");
    assert_eq!(read, None);

    store
        .put_acme_certificate(&certificate(5), None)
        .await
        .expect("kept");
    let issued = StoredAcmeCertificate {
        issued: Some(AcmeIssued {
            chain: "chain".to_owned(),
            key: Secret::new("key"),
        }),
        state: AcmeState {
            renew_ms: Some(9),
            ..AcmeState::default()
        },
        ..certificate(7)
    };
    store
        .put_acme_certificate(&issued, None)
        .await
        .expect("kept");
    let read = store.acme_certificate(&issued.names).await.expect("read");
    assert_eq!(read, Some(issued.clone()));
    let all = store.acme_certificates().await.expect("read");
    assert_eq!(all, std::slice::from_ref(&issued));
    store
        .delete_acme_certificate(&issued.names)
        .await
        .expect("gone");
    assert_eq!(store.acme_certificates().await.expect("read"), []);
}

#[tokio::test]
async fn a_certificate_may_have_a_hundred_long_names() {
    let fixture = Fixture::new().await;
    let label = "a".repeat(60);
    let names = (0..100).map(|number| format!("{label}.{label}.{label}.n{number}.test"));
    let certificate = StoredAcmeCertificate {
        names: names.collect::<Vec<_>>().join(" "),
        ..certificate(5)
    };
    let kept = fixture.store.put_acme_certificate(&certificate, None).await;
    kept.expect("kept");
    let read = fixture.store.acme_certificate(&certificate.names).await;
    assert_eq!(read.expect("read"), Some(certificate));
}

#[tokio::test]
async fn challenges_are_told_until_they_are_over() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let challenge = StoredAcmeChallenge {
        key: "token".to_owned(),
        answer: "token.thumbprint".to_owned(),
        expires_ms: 10,
    };
    let all = [challenge.clone()];
    store.put_acme_challenges(&all).await.expect("kept");
    assert_eq!(store.acme_challenges(9).await.expect("read"), all);
    assert_eq!(store.acme_challenges(10).await.expect("read"), []);
    store.delete_acme_challenge("token").await.expect("gone");
    assert_eq!(store.acme_challenges(0).await.expect("read"), []);
}

#[tokio::test]
async fn one_node_at_a_time_has_the_lease() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let take = async |holder: &str, now: i64| {
        let taken = store.take_acme_lease("orders", holder, now, now + 10).await;
        taken.expect("an answer")
    };
    assert!(take("one", 0).await);
    assert!(!take("other", 9).await, "it is taken");
    assert!(take("one", 9).await, "the holder prolongs it");
    assert!(take("other", 19).await, "it is over");
    store
        .release_acme_lease("orders", "one")
        .await
        .expect("done");
    assert!(!take("one", 20).await, "only the holder gives it back");
    store
        .release_acme_lease("orders", "other")
        .await
        .expect("done");
    assert!(take("one", 20).await);
}
