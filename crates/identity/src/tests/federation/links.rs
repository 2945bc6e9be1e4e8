//! Accounts elsewhere that users link to their own, and unlink.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde_json::json;

use super::other_provider::{OtherProvider, button, provider, return_, round, trip, who};
use crate::config::HashingConfig;
use crate::hash_blocking;
use crate::records::new_user;
use crate::testing::{Answer, FORM, Provider, request};
use doorward_core::model::audit::{AuditQuery, Kind};
use doorward_core::model::grant::TokenHash;
use doorward_core::model::secret::Secret;
use doorward_core::model::user::User;

const ACCOUNT: &str = "/oauth2/account";
const PASSWORD: &str = "correct horse";

/// Somebody's browser.
struct Browser<'p> {
    provider: &'p Provider,
    cookies: Mutex<BTreeMap<String, String>>,
}

impl<'p> Browser<'p> {
    fn new(provider: &'p Provider) -> Self {
        Self {
            provider,
            cookies: Mutex::default(),
        }
    }

    fn cookie(&self) -> String {
        let cookies = self.cookies.lock();
        let all: Vec<_> = cookies.iter().map(|(n, v)| format!("{n}={v}")).collect();
        all.join("; ")
    }

    fn keep(&self, answer: &Answer) {
        for pair in super::other_provider::cookies(answer).split("; ") {
            if let Some((name, value)) = pair.split_once('=') {
                let mut cookies = self.cookies.lock();
                cookies.insert(name.to_owned(), value.to_owned());
            }
        }
    }

    async fn send(&self, method: &str, path: &str, body: &str) -> Answer {
        let cookie = self.cookie();
        let headers = [("cookie", cookie.as_str()), FORM];
        let answer = self.provider.send(request(method, path, &headers, body));
        let answer = answer.await;
        self.keep(&answer);
        answer
    }

    async fn account(&self) -> Answer {
        self.send("GET", ACCOUNT, "").await
    }

    async fn post(&self, page: &Answer, fields: &str) -> Answer {
        let csrf = page.text.split("name=\"csrf\" value=\"").nth(1);
        let csrf = csrf.and_then(|rest| rest.split('"').next());
        let body = format!("{fields}&csrf={}", csrf.expect("a form"));
        self.send("POST", ACCOUNT, &body).await
    }

    async fn sign_in(&self, name: &str) {
        self.cookies.lock().remove("iPlanetDirectoryPro");
        let page = self.account().await;
        let fields = format!("username={name}&password=correct+horse");
        let answer = self.post(&page, &fields).await;
        assert_eq!(answer.status, 303, "{}", answer.text);
    }

    /// Comes back from the provider as `subject`, whatever happened meanwhile.
    async fn back(&self, elsewhere: &OtherProvider, away: &Answer, subject: &str) -> Answer {
        let trip = trip(away, self.cookie());
        let claims = elsewhere.claims(&trip, &json!({"sub": subject, "email": "b@corp.example"}));
        elsewhere.grant(&elsewhere.key.token(&claims));
        let answer = return_(self.provider, &trip).await;
        self.keep(&answer);
        answer
    }

    async fn leave(&self) -> Answer {
        let page = self.account().await;
        self.send("GET", &button(&page, "corp"), "").await
    }

    async fn unlink(&self) -> Answer {
        let page = self.account().await;
        let mark = "name=\"do\" value=\"unlink\"><input type=\"hidden\" name=\"id\" value=\"";
        let id = page.text.split(mark).nth(1).expect("a link");
        let id = id.split('"').next().expect("an id");
        self.post(&page, &format!("do=unlink&id={id}")).await
    }
}

async fn person(provider: &Provider, name: &str) -> User {
    let config = HashingConfig {
        memory_kib: 8,
        passes: 1,
        ..HashingConfig::default()
    };
    let record = json!({"userName": name});
    let mut user = new_user("/", record.as_object().expect("an object")).expect("a user");
    let hash = hash_blocking(&Secret::new(PASSWORD), &config);
    user.password_hash = Some(hash.expect("a hash"));
    provider
        .store
        .insert_user(&user, None)
        .await
        .expect("added");
    user
}

async fn links(provider: &Provider, user: &User) -> Vec<String> {
    let all = provider.store.identities(user.id).await.expect("read");
    all.into_iter().map(|link| link.subject).collect()
}

#[tokio::test]
async fn a_user_links_an_account_signs_in_by_it_and_unlinks_it() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, json!({})).await;
    let bert = person(&provider, "bert").await;
    let browser = Browser::new(&provider);
    browser.sign_in("bert").await;
    let away = browser.leave().await;
    assert_eq!(away.status, 302, "{}", away.text);
    let back = browser.back(&elsewhere, &away, "u-7").await;
    assert!(back.header("location").starts_with(ACCOUNT), "{back:?}");
    assert_eq!(links(&provider, &bert).await, ["u-7"]);
    let page = browser.account().await;
    assert!(page.text.contains("b@corp.example"), "{}", page.text);
    assert!(
        !page.text.contains("id=\"federation-corp\""),
        "linked twice"
    );
    let other = round(&provider, &elsewhere, json!({"sub": "u-7"})).await;
    assert_eq!(who(&provider, &other).await, "bert");
    let other = TokenHash::of(&super::other_provider::session(&other));
    assert_eq!(browser.unlink().await.status, 303);
    assert!(links(&provider, &bert).await.is_empty());
    let ended = provider.store.session(other).await.expect("read");
    assert!(ended.is_none(), "what began with the link lives on");
    let page = browser.account().await;
    assert!(
        page.text.contains("id=\"federation-corp\""),
        "{}",
        page.text
    );
}

#[tokio::test]
async fn linking_csrf_and_linking_by_who_is_not_signed_in_as_that_user() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, json!({})).await;
    let (bert, _) = (
        person(&provider, "bert").await,
        person(&provider, "eve").await,
    );
    let (berts, eves) = (Browser::new(&provider), Browser::new(&provider));
    berts.sign_in("bert").await;
    eves.sign_in("eve").await;
    // An address that another browser was shown.
    let page = eves.account().await;
    let lured = berts.send("GET", &button(&page, "corp"), "").await;
    assert!(lured.header("location").ends_with("=stale"), "{lured:?}");
    // The user changes on the way.
    let away = berts.leave().await;
    berts.sign_in("eve").await;
    let back = berts.back(&elsewhere, &away, "u-9").await;
    assert!(back.header("location").ends_with("=not_linked"), "{back:?}");
    let page = berts.send("GET", back.header("location"), "").await;
    assert!(page.text.contains("federation_not_linked"), "{}", page.text);
    assert!(links(&provider, &bert).await.is_empty());
    // What is somebody's already.
    let away = eves.leave().await;
    eves.back(&elsewhere, &away, "u-9").await;
    berts.sign_in("bert").await;
    let away = berts.leave().await;
    let back = berts.back(&elsewhere, &away, "u-9").await;
    assert!(back.header("location").ends_with("=not_linked"), "{back:?}");
    assert!(links(&provider, &bert).await.is_empty());
}

#[tokio::test]
async fn a_stolen_old_session_links_nothing() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, json!({})).await;
    person(&provider, "bert").await;
    let browser = Browser::new(&provider);
    browser.sign_in("bert").await;
    provider.clock.advance(10 * 60 * 1000);
    let sent_back = browser.leave().await;
    let to = sent_back.header("location").to_owned();
    assert!(to.ends_with("doorward_federation=recent"), "{to}");
    let page = browser.send("GET", &to, "").await;
    assert!(page.text.contains("name=\"password\""), "{}", page.text);
    let fields = "username=bert&password=correct+horse";
    assert_eq!(browser.post(&page, fields).await.status, 303);
    let away = browser.leave().await;
    assert!(away.header("location").starts_with(&elsewhere.issuer));
}

#[tokio::test]
async fn nobody_removes_their_last_way_in() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, json!({"link": {"create": true}})).await;
    let browser = Browser::new(&provider);
    browser.keep(&round(&provider, &elsewhere, json!({})).await);
    let refused = browser.unlink().await;
    assert!(refused.text.contains("last_way"), "{}", refused.text);
    let ann = provider.store.user_by_name("/", "ann").await.expect("read");
    assert_eq!(links(&provider, &ann.expect("ann")).await, ["u-1"]);
}

/// The groups of a user.
async fn groups(provider: &Provider, user: &User) -> Vec<String> {
    let all = provider.store.memberships(&[user.id]).await.expect("read");
    all.into_iter().map(|(_, group)| group.name).collect()
}

/// The rules of a provider whose group `Staff` is `staff` here.
fn with_groups() -> serde_json::Value {
    json!({"link": {"existing": "user_name", "groups": {"Staff": "staff"}}})
}

#[tokio::test]
async fn groups_that_came_from_a_provider_go_with_the_link_to_it() {
    let elsewhere = OtherProvider::open().await;
    let provider = provider(&elsewhere, with_groups()).await;
    let ann = person(&provider, "ann").await;
    let own = json!({"displayName": "own", "members": [ann.id]});
    let made = provider.manage("POST", "/groups", &own).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let claims = json!({"groups": ["Staff"]});
    let browser = Browser::new(&provider);
    for by_operator in [false, true] {
        let back = round(&provider, &elsewhere, claims.clone()).await;
        assert_eq!(who(&provider, &back).await, "ann");
        assert_eq!(groups(&provider, &ann).await, ["own", "staff"]);
        if by_operator {
            let all = provider.store.identities(ann.id).await.expect("read");
            let path = format!("/users/{}/identities/{}", ann.id, all[0].id);
            let gone = provider.manage("DELETE", &path, &json!(null)).await;
            assert_eq!(gone.status, 204, "{}", gone.text);
        } else {
            browser.sign_in("ann").await;
            assert_eq!(browser.unlink().await.status, 303);
        }
        assert!(links(&provider, &ann).await.is_empty());
        assert_eq!(groups(&provider, &ann).await, ["own"], "{by_operator}");
    }
    for (kind, times, groups) in [
        (Kind::GroupUpdate, 1, json!(null)),
        (Kind::LinkDelete, 2, json!(["staff"])),
    ] {
        let query = AuditQuery {
            kinds: vec![kind],
            limit: 10,
            ..AuditQuery::default()
        };
        let told = provider.store.audit(&query).await.expect("read");
        assert_eq!(told.len(), times, "{told:?}");
        for record in told {
            assert_eq!(record["user"]["id"], json!(ann.id), "{record:?}");
            assert_eq!(record["details"]["groups"], groups, "{record:?}");
        }
    }
}
