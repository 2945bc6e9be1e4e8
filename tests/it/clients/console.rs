//! The console in a browser.

use reqwest::Method;
use serde_json::json;

use super::{Stage, node};
use crate::console_pages::Tour;
use crate::console_sign_in::{Office, ROLES, TOKEN};
use crate::support::http::{client, send};

/// Forms that lead back to a page, and have none of their own.
const LEADING: [&str; 15] = [
    "/sign-in",
    "/sign-out",
    "/throttling/{}/reset",
    "/broker/applications/{}/revoke",
    "/broker-apply",
    "/identity/users/{}/session",
    "/identity/users/{}/end-sessions",
    "/identity/users/{}/consent",
    "/identity/users/{}/unlock",
    "/identity/users/{}/reset",
    "/identity/apply",
    "/identity/keys/apply",
    "/identity/clients/apply",
    "/identity/change",
    "/end/{}/{}",
];

/// The forms whose answers are pages: differences, refusals, results.
fn forms() -> Vec<String> {
    let paths = doorward_console::form_paths().into_iter();
    let paths = paths.map(|(path, _)| path);
    let leads = |path: &String| path.starts_with("/apply/") || LEADING.contains(&&**path);
    paths.filter(|path| !leads(path)).collect()
}

/// Runs a half of a script that looks at every page.
async fn tour(script: &str, half: usize) {
    let tour = Tour::open().await;
    let mut script = node(script);
    script.env("DOORWARD_CONSOLE_PAGES", json!(tour.addresses).to_string());
    script.env("DOORWARD_CONSOLE_FORMS", json!(forms()).to_string());
    script.env("DOORWARD_CONSOLE_HALF", half.to_string());
    Stage::plain(tour.office.door).run(script).await;
}

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
    tour("console-pages.mjs", 0).await;
}

#[tokio::test]
#[ignore = "needs node, its packages and chromium, which `make test` installs"]
async fn every_page_of_the_console_can_be_used_in_german_and_dark() {
    tour("console-pages.mjs", 1).await;
}

#[tokio::test]
#[ignore = "needs node, its packages and chromium, which `make test` installs"]
async fn no_page_of_the_console_is_wider_than_its_window_in_german() {
    tour("console-widths.mjs", 0).await;
}

#[tokio::test]
#[ignore = "needs node, its packages and chromium, which `make test` installs"]
async fn no_page_of_the_console_is_wider_than_its_window_in_english() {
    tour("console-widths.mjs", 1).await;
}

#[tokio::test]
#[ignore = "needs node, its packages and chromium, which `make test` installs"]
async fn the_keyboard_reaches_every_part_of_every_page_of_the_console() {
    tour("console-keyboard.mjs", 0).await;
}

#[tokio::test]
#[ignore = "needs node, its packages and chromium, which `make test` installs"]
async fn the_keyboard_reaches_every_part_of_the_other_pages_of_the_console() {
    tour("console-keyboard.mjs", 1).await;
}

#[tokio::test]
#[ignore = "needs node, its packages and chromium, which `make test` installs"]
async fn every_answer_to_a_form_of_the_console_can_be_used_by_everybody() {
    tour("console-forms.mjs", 0).await;
}

#[tokio::test]
#[ignore = "needs node, its packages and chromium, which `make test` installs"]
async fn every_answer_to_a_form_of_the_console_can_be_used_in_german_and_dark() {
    tour("console-forms.mjs", 1).await;
}

/// Those that the pages of docs/ show; `make pictures` keeps them.
#[tokio::test]
#[ignore = "needs node, its packages and chromium, which `make test` installs"]
async fn chromium_takes_the_pictures_of_the_site() {
    let office = Office::open().await;
    let paths = json!({"name": "orders-route", "paths": ["/orders"], "methods": ["GET"]});
    for (path, body) in [
        (
            "/services",
            json!({"name": "orders", "url": "http://127.0.0.1:9000"}),
        ),
        ("/services/orders/routes", paths),
        (
            "/services/orders/plugins",
            json!({"name": "key-auth", "config": {"key_names": ["x-api-key"]}}),
        ),
    ] {
        let request = client().request(Method::POST, office.door.admin_url(path));
        let request = request.header("kong-admin-token", TOKEN).json(&body);
        send(request).await.expect(201);
    }
    Stage::plain(office.door).run(node("pictures.mjs")).await;
}
