//! Whose account a sign-in leads to, and attempts to make it somebody else's.

use serde_json::{Value, json};

use super::other_provider::{OtherProvider, add, failed, leave, provider, return_, round, who};
use crate::testing::Provider;
use doorward_core::model::user::User;

fn by_email() -> Value {
    json!({"trust_email": true, "link": {"existing": "verified_email"}})
}

fn said(email: &str, verified: Value) -> Value {
    json!({"email": email, "email_verified": verified})
}

fn has(name: &str, email: &str, verified: bool) -> Value {
    json!({"userName": name, "emails": [{"value": email, "verified": verified}]})
}

async fn user(provider: &Provider, name: &str) -> Option<User> {
    provider.store.user_by_name("/", name).await.expect("read")
}

const NO_ACCOUNT: Option<&str> = Some("no_account");

#[tokio::test]
async fn nobody_is_linked_or_made_unless_a_rule_says_so() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, json!({"trust_email": true})).await;
    add(&provider, has("ann", "ann@x.example", true)).await;
    let back = round(&provider, &elsewhere, said("ann@x.example", json!(true))).await;
    assert_eq!(failed(&back).as_deref(), NO_ACCOUNT);
}

#[tokio::test]
async fn an_account_is_linked_by_its_verified_address_and_stays_so() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, by_email()).await;
    add(&provider, has("anna", "Ann@x.example", true)).await;
    let back = round(&provider, &elsewhere, said("ann@X.example", json!("true"))).await;
    assert_eq!(who(&provider, &back).await, "anna");
    let back = round(&provider, &elsewhere, json!({})).await;
    assert_eq!(
        who(&provider, &back).await,
        "anna",
        "the address is not needed any more"
    );
}

#[tokio::test]
async fn takeover_by_an_address_that_is_not_verified() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, by_email()).await;
    add(&provider, has("anna", "ann@x.example", true)).await;
    add(&provider, has("bert", "bert@x.example", false)).await;
    for (email, verified) in [
        ("ann@x.example", json!(false)),
        ("ann@x.example", json!(null)),
        ("ann@x.example", json!("false")),
        ("ann@x.example", json!(1)),
        ("ann@x.example", json!("TRUE")),
        // Verified there, but not here: whoever claimed it here waits for it.
        ("bert@x.example", json!(true)),
        ("", json!(true)),
    ] {
        let back = round(&provider, &elsewhere, said(email, verified.clone())).await;
        assert_eq!(failed(&back).as_deref(), NO_ACCOUNT, "{email} {verified}");
    }
}

#[tokio::test]
async fn takeover_through_a_provider_that_is_not_believed_about_addresses() {
    let elsewhere = OtherProvider::open().await;
    let rules = json!({"trust_email": false, "link": {"existing": "verified_email"}});
    let provider = provider(&elsewhere, rules).await;
    add(&provider, has("anna", "ann@x.example", true)).await;
    let back = round(&provider, &elsewhere, said("ann@x.example", json!(true))).await;
    assert_eq!(failed(&back).as_deref(), NO_ACCOUNT);
}

#[tokio::test]
async fn takeover_by_an_address_that_only_looks_alike() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, by_email()).await;
    add(&provider, has("admin1", "admin@x.example", true)).await;
    add(&provider, has("kim", "kim@x.example", true)).await;
    add(&provider, has("müller", "müller@x.example", true)).await;
    for email in [
        "admın@x.example",
        "ADMİN@x.example",
        "аdmin@x.example",
        "\u{212a}im@x.example",
        "ｋim@x.example",
        "admin@x.example\u{0}",
        " admin@x.example",
        "müller@x.example",
    ] {
        let back = round(&provider, &elsewhere, said(email, json!(true))).await;
        assert_eq!(failed(&back).as_deref(), NO_ACCOUNT, "{email}");
    }
}

#[tokio::test]
async fn an_address_that_two_accounts_have_links_neither() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, by_email()).await;
    add(&provider, has("one", "ann@x.example", true)).await;
    let back = round(&provider, &elsewhere, said("nobody@x.example", json!(true))).await;
    assert_eq!(failed(&back).as_deref(), NO_ACCOUNT);
    add(&provider, has("two", "ANN@x.example", true)).await;
    let back = round(&provider, &elsewhere, said("ann@x.example", json!(true))).await;
    assert_eq!(failed(&back).as_deref(), NO_ACCOUNT);
}

#[tokio::test]
async fn takeover_by_changing_the_address_after_linking() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, by_email()).await;
    add(&provider, has("mallory", "mallory@x.example", true)).await;
    add(&provider, has("victim", "victim@x.example", true)).await;
    let back = round(
        &provider,
        &elsewhere,
        said("mallory@x.example", json!(true)),
    )
    .await;
    assert_eq!(who(&provider, &back).await, "mallory");
    let back = round(&provider, &elsewhere, said("victim@x.example", json!(true))).await;
    assert_eq!(
        who(&provider, &back).await,
        "mallory",
        "the subject decides"
    );
}

#[tokio::test]
async fn takeover_by_the_same_subject_at_another_issuer() {
    let (one, two) = (OtherProvider::open().await, OtherProvider::open().await);
    let mut config = super::other_provider::with(&one, json!({"link": {"create": true}}));
    let provider = Provider::with(config.clone()).await;
    let back = round(&provider, &one, json!({})).await;
    assert_eq!(who(&provider, &back).await, "ann");
    // The operator gives the name to another provider, whose subject is called alike.
    config["realms"]["/"]["settings"]["federation"][0]["issuer"] = json!(two.issuer);
    provider.reload(config).await;
    let back = round(&provider, &two, json!({})).await;
    assert_eq!(failed(&back).as_deref(), NO_ACCOUNT);
}

#[tokio::test]
async fn deactivated_users_are_not_let_in() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, by_email()).await;
    add(&provider, has("anna", "ann@x.example", true)).await;
    let mut record = has("gone1", "gone@x.example", true);
    record["accountStatus"] = json!("Deactivated");
    add(&provider, record).await;
    let back = round(&provider, &elsewhere, said("gone@x.example", json!(true))).await;
    assert_eq!(failed(&back).as_deref(), NO_ACCOUNT);
    let back = round(&provider, &elsewhere, said("ann@x.example", json!(true))).await;
    assert_eq!(who(&provider, &back).await, "anna");
    let anna = user(&provider, "anna").await.expect("anna");
    let off = User {
        active: false,
        version: anna.version + 1,
        ..anna
    };
    provider
        .store
        .update_user(&off, None)
        .await
        .expect("deactivated");
    let back = round(&provider, &elsewhere, json!({})).await;
    assert_eq!(failed(&back).as_deref(), NO_ACCOUNT);
}

#[tokio::test]
async fn users_that_the_file_declares_are_not_let_in() {
    let elsewhere = OtherProvider::open().await;
    let mut rules = by_email();
    rules["link"]["existing"] = json!("user_name");
    let provider = provider(&elsewhere, rules).await;
    let back = round(&provider, &elsewhere, json!({"preferred_username": "demo"})).await;
    assert_eq!(failed(&back).as_deref(), NO_ACCOUNT);
}

#[tokio::test]
async fn the_administrator_is_not_let_in_unless_it_is_said() {
    let elsewhere = OtherProvider::open().await;
    for (rule, may) in [(false, false), (true, true)] {
        let link = json!({"existing": "user_name", "administrator": rule});
        let provider = provider(&elsewhere, json!({"link": link})).await;
        add(&provider, json!({"userName": "amAdmin"})).await;
        let back = round(
            &provider,
            &elsewhere,
            json!({"preferred_username": "amadmin"}),
        )
        .await;
        if may {
            assert_eq!(who(&provider, &back).await, "amAdmin")
        } else {
            assert_eq!(failed(&back).as_deref(), NO_ACCOUNT)
        }
    }
    let provider = provider(&elsewhere, json!({"link": {"create": true}})).await;
    for name in ["amadmin", "AMADMIN", "ａmadmin", "аmаdmіn"] {
        let back = round(&provider, &elsewhere, json!({"preferred_username": name})).await;
        assert_eq!(failed(&back).as_deref(), NO_ACCOUNT, "{name}");
    }
}

#[tokio::test]
async fn the_administrator_stays_confined_to_addresses() {
    let elsewhere = OtherProvider::open().await;
    let groups = json!({"Staff": "staff"});
    let link = json!({"existing": "user_name", "administrator": true, "groups": groups});
    let mut config = super::other_provider::with(&elsewhere, json!({"link": link}));
    config["realms"]["/"]["settings"]["admin_addresses"] = json!(["10.0.0.1"]);
    let provider = Provider::with(config).await;
    let admin = add(&provider, json!({"userName": "amadmin"})).await;
    let claims = json!({"preferred_username": "amadmin", "groups": ["Staff"]});
    let back = round(&provider, &elsewhere, claims).await;
    assert_eq!(back.status, 403);
    let groups = provider.store.memberships(&[admin.id]).await;
    assert!(groups.expect("read").is_empty(), "refused, and in a group");
}

#[tokio::test]
async fn takeover_of_an_existing_name_by_a_new_account() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, json!({"link": {"create": true}})).await;
    add(&provider, json!({"userName": "ann"})).await;
    for name in ["ann", "ANN", "ａnn", "demo", "Demo"] {
        let back = round(&provider, &elsewhere, json!({"preferred_username": name})).await;
        assert_eq!(failed(&back).as_deref(), NO_ACCOUNT, "{name}");
    }
    for name in [
        json!("a\u{202e}b"),
        json!(" "),
        json!("x".repeat(300)),
        json!({}),
        json!(null),
    ] {
        let back = round(&provider, &elsewhere, json!({"preferred_username": name})).await;
        assert_eq!(failed(&back).as_deref(), NO_ACCOUNT, "{name}");
    }
}

#[tokio::test]
async fn a_new_account_has_the_mapped_attributes_and_follows_them_if_told() {
    let elsewhere = OtherProvider::open().await;
    let link = json!({"create": true, "update": true, "user_name": "{preferred_username}@corp"});
    let map = json!({"displayName": "name", "emails": "email", "title": "job.title"});
    let rules = json!({"trust_email": true, "link": link, "map": map});
    let provider = provider(&elsewhere, rules).await;
    let claims = json!({"email": "a@x.example", "email_verified": true, "job": {"title": "Boss"}});
    let back = round(&provider, &elsewhere, claims).await;
    assert_eq!(who(&provider, &back).await, "ann@corp");
    let made = user(&provider, "ann@corp").await.expect("an account");
    assert_eq!(made.profile["displayName"], "Ann A");
    assert_eq!(made.profile["title"], "Boss");
    assert_eq!(made.profile["emails"][0]["verified"], true);
    assert!(made.password_hash.is_none());
    let claims = json!({"email": "b@x.example", "name": "Ann B", "preferred_username": "other"});
    let back = round(&provider, &elsewhere, claims).await;
    assert_eq!(who(&provider, &back).await, "ann@corp");
    let now = user(&provider, "ann@corp").await.expect("an account");
    assert_eq!(now.profile["displayName"], "Ann B");
    assert_eq!(now.profile["title"], "Boss", "what is not said stays");
    assert_eq!(
        now.profile["emails"],
        json!([{"value": "b@x.example", "primary": true, "verified": false}]),
        "nothing is sent to it"
    );
}

#[tokio::test]
async fn two_first_sign_ins_at_once_make_one_account() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, json!({"link": {"create": true}})).await;
    let (one, two) = (leave(&provider).await, leave(&provider).await);
    for trip in [&one, &two] {
        elsewhere.grant(&elsewhere.key.token(&elsewhere.claims(trip, &json!({}))));
        let back = return_(&provider, trip).await;
        assert_eq!(who(&provider, &back).await, "ann");
    }
    let ann = user(&provider, "ann").await.expect("ann");
    let links = provider.store.identities(ann.id).await.expect("read");
    assert_eq!(links.len(), 1);
}
