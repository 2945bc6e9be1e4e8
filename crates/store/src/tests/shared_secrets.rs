//! Secrets that all nodes of a store share.

use super::*;
use doorward_core::jose::keys::KeyError;
use doorward_core::jose::vault::Vault;

fn vault(texts: &[&str]) -> Vault {
    let texts: Vec<_> = texts.iter().map(|text| Secret::new(*text)).collect();
    Vault::new(&texts).expect("a vault")
}

#[tokio::test]
async fn a_new_database_is_opened_by_many_at_once() {
    for _ in 0..5 {
        let directory = tempfile::tempdir().expect("a directory");
        let url = url(&directory);
        let all = futures_util::future::join_all((0..8).map(|_| open(&url))).await;
        for opened in all {
            opened.expect("a store");
        }
    }
}

#[tokio::test]
async fn nodes_that_begin_at_once_get_one_secret_and_keep_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let url = url(&directory);
    let (one, two) = tokio::join!(open(&url), open(&url));
    let (one, two) = (one.expect("a store"), two.expect("a store"));
    let plain = Vault::default();
    let (first, second) = tokio::join!(
        shared_secret(&one, &plain, "x"),
        shared_secret(&two, &plain, "x")
    );
    let first = first.expect("a secret");
    assert_eq!(first, second.expect("a secret"));
    assert_eq!(first.len(), 32);
    let other = shared_secret(&one, &plain, "y").await.expect("a secret");
    assert_ne!(first, other);
    drop((one, two));
    let later = open(&url).await.expect("a store");
    let kept = shared_secret(&later, &plain, "x").await;
    assert_eq!(kept.expect("a secret"), first);
}

#[tokio::test]
async fn a_secret_is_sealed_by_the_master_key_and_needs_it_from_then_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(&url(&directory)).await.expect("a store");
    let (one, two) = ("1".repeat(32), "2".repeat(32));
    let of = async |texts: &[&str]| shared_secret(&store, &vault(texts), "x").await;
    let first = of(&[]).await.expect("made");
    assert_eq!(of(&[&one]).await.expect("sealed"), first);
    for texts in [&[][..], &[two.as_str()]] {
        let refused = of(texts).await;
        assert!(matches!(
            refused,
            Err(SharedSecretError::Key(KeyError::Sealed))
        ));
    }
    assert_eq!(of(&[&two, &one]).await.expect("taken over"), first);
    assert_eq!(of(&[&two]).await.expect("opened"), first);
}
