//! Signing keys in the console: shown with age and use, and rotated.

use serde_json::Value;

use crate::console_sign_in::{Office, TOKEN};
use crate::console_users::newest;
use crate::support::eventually;
use crate::support::http::{client, send};

const KEYS: &str = "/console/identity/keys";
const ROTATE: &str = "/console/identity/keys/rotate";

async fn keys(office: &Office) -> Vec<Value> {
    let request = client().get(office.door.admin_url("/identity/keys"));
    let keys = send(request.header("kong-admin-token", TOKEN)).await;
    let keys = keys.expect(200).json();
    keys["data"].as_array().expect("a list").clone()
}

#[tokio::test]
async fn an_owner_rotates_the_signing_keys_after_the_difference() {
    let office = Office::open().await;
    let mut owner = office.signed_in("alice").await;
    let page = owner.get(KEYS).await.expect(200).body;
    let before = keys(&office).await;
    for key in &before {
        assert!(
            page.contains(key["kid"].as_str().expect("a name")),
            "{page}"
        );
    }
    assert!(
        page.contains(">signs<") && page.contains("0 days"),
        "{page}"
    );
    // The successor is published, and does not sign yet.
    let fields = [("rotation", "announce")];
    let shown = owner.post(ROTATE, &fields).await.expect(200).body;
    assert!(shown.contains("new key"), "{shown}");
    assert_eq!(keys(&office).await.len(), before.len());
    owner.confirm(&shown).await.expect(303);
    let page = owner.get(KEYS).await.expect(200).body;
    assert!(page.contains("published, signs later"), "{page}");
    assert!(!page.contains("value=\"announce\""), "{page}");
    let record = newest(&office, "key.rotate").await;
    assert_eq!(record["actor"]["name"], "alice", "{record}");
    // The form of before is stale: nothing is rotated twice.
    let count = keys(&office).await.len();
    owner.confirm(&shown).await.expect(409);
    assert_eq!(keys(&office).await.len(), count);
    // At once, and the old ones go.
    let old = office.door.token_request(&[
        ("client_id", "hr"),
        ("client_secret", "hr-secret"),
        ("grant_type", "client_credentials"),
        ("scope", "scim:write"),
    ]);
    let old = old.await.expect(200).json();
    let fields = [("rotation", "replace")];
    let shown = owner.post(ROTATE, &fields).await.expect(200).body;
    assert!(
        shown.contains("withdrawn") && shown.contains("Every token"),
        "{shown}"
    );
    owner.confirm(&shown).await.expect(303);
    let request = client().get(office.door.proxy_url("/v1/users"));
    let token = old["access_token"].as_str().expect("a token");
    send(request.bearer_auth(token)).await.expect(401);
}

#[tokio::test]
async fn nobody_but_an_owner_rotates_keys() {
    let office = Office::open().await;
    // That of RS256 is made while the first one serves.
    let before = eventually("both keys", async || {
        Some(keys(&office).await).filter(|keys| keys.len() == 2)
    });
    let before = before.await;
    let mut owner = office.signed_in("alice").await;
    let fields = [("rotation", "replace")];
    let shown = owner.post(ROTATE, &fields).await.expect(200).body;
    for name in ["vera", "olga"] {
        let mut other = office.signed_in(name).await;
        let page = other.get(KEYS).await.expect(200).body;
        assert!(!page.contains("/keys/rotate"), "{page}");
        other.post(ROTATE, &fields).await.expect(403);
        other.confirm(&shown).await.expect(403);
    }
    // Another session of the owner did not see this difference.
    let mut again = office.signed_in("alice").await;
    again.confirm(&shown).await.expect(403);
    again.submit(ROTATE, &fields).await.expect(403);
    owner.post(ROTATE, &[("rotation", "x")]).await.expect(400);
    assert_eq!(keys(&office).await, before);
}
