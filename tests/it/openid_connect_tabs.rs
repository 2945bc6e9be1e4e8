//! Tabs of one browser that was never here before, opened at the very same
//! moment: all send a request before any of them gets an answer, at the service
//! and on every page of the provider.

use futures_util::future::join_all;
use url::Url;

use crate::openid_connect_login::{Browser, CLIENTS, door_with, form_of};
use crate::support::{Answer, Upstream};

const TABS: usize = 20;
/// Most requests of a tab: there are seven.
const ROUNDS: usize = 12;

/// A tab, and what it sends next.
struct Tab {
    next: (Url, Vec<(String, String)>),
    /// What the service answered.
    arrived: Option<Answer>,
}

impl Tab {
    fn open(number: usize) -> Self {
        let address = format!("http://api.test/orders?tab={number}");
        Self {
            next: (address.parse().expect("an address"), Vec::new()),
            arrived: None,
        }
    }

    /// Does what the answer to its request says.
    fn take(&mut self, answer: Answer) {
        let join = |address: &str| self.next.0.join(address).expect("an address");
        self.next = match answer.status {
            302 | 303 => (join(answer.header("location")), Vec::new()),
            200 if answer.body.contains("<form") => {
                let (action, mut fields) = form_of(&answer);
                fields.push(("approve".to_owned(), "true".to_owned()));
                (join(&action), fields)
            }
            _ => {
                self.arrived = Some(answer);
                return;
            }
        };
    }
}

async fn twenty_tabs(consent: bool) {
    let upstream = Upstream::echo().await;
    let wanted = format!("require_consent: {consent}");
    // The machine hashes the passwords of all tabs at the same time.
    let cheap = "\n  hashing: {memory_kib: 64, passes: 1}\n  realms:";
    let identity = CLIENTS
        .replace("require_consent: false", &wanted)
        .replace("\n  realms:", cheap);
    let door = door_with(&identity, &upstream, "http://@PROXY@/oauth2").await;
    let mut browser = Browser::at(&door);
    let mut tabs: Vec<_> = (0..TABS).map(Tab::open).collect();
    for _ in 0..ROUNDS {
        let mut going: Vec<_> = tabs
            .iter_mut()
            .filter(|tab| tab.arrived.is_none())
            .collect();
        let asked = going
            .iter()
            .map(|tab| browser.ask(&tab.next.0, &tab.next.1));
        let answers = join_all(asked).await;
        for (tab, answer) in going.iter_mut().zip(answers) {
            browser.keep(&tab.next.0, &answer);
            tab.take(answer);
        }
    }
    for (number, tab) in tabs.into_iter().enumerate() {
        let address = tab.next.0.to_string();
        assert_eq!(address, format!("http://api.test/orders?tab={number}"));
        tab.arrived.expect("an answer of the service").expect(200);
    }
    assert_eq!(upstream.last().header("cookie"), None);
}

#[tokio::test]
async fn twenty_tabs_sign_in_at_the_very_same_moment() {
    twenty_tabs(false).await;
}

#[tokio::test]
async fn twenty_tabs_sign_in_and_consent_at_the_very_same_moment() {
    twenty_tabs(true).await;
}
