//! Other providers that users sign in through.

use super::{Stage, node};

#[tokio::test]
#[ignore = "needs node, its packages and chromium, which `make test` installs"]
async fn people_sign_in_through_other_providers() {
    Stage::set().await.run(node("federation.mjs")).await;
}
