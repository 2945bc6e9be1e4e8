//! The console in a browser.

use super::{Stage, node};
use crate::console_sign_in::Office;

#[tokio::test]
#[ignore = "needs node, its packages and chromium, which `make test` installs"]
async fn people_sign_in_at_the_console_in_chromium() {
    let office = Office::open().await;
    Stage::plain(office.door).run(node("console.mjs")).await;
}
