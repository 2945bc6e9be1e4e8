//! The console in a browser.

use super::{Stage, node};
use crate::console_sign_in::{Office, ROLES};

#[tokio::test]
#[ignore = "needs node, its packages and chromium, which `make test` installs"]
async fn people_sign_in_at_the_console_in_chromium() {
    let office = Office::open().await;
    Stage::plain(office.door).run(node("console.mjs")).await;
}

#[tokio::test]
#[ignore = "needs node, its packages and chromium, which `make test` installs"]
async fn people_sign_in_again_before_a_change_in_chromium() {
    let office = Office::with(&format!("{ROLES}, step_up_age: 3")).await;
    let script = node("console-step-up.mjs");
    Stage::plain(office.door).run(script).await;
}

#[tokio::test]
#[ignore = "needs node, its packages and chromium, which `make test` installs"]
async fn every_page_of_the_console_can_be_used_by_everybody() {
    let office = Office::open().await;
    let script = node("console-pages.mjs");
    Stage::plain(office.door).run(script).await;
}
