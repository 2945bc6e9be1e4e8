//! How much the console is.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::console::attribute;
use crate::console_sign_in::Office;

/// One page of each kind, with the longest form.
const PAGES: [&str; 24] = [
    "",
    "/refusals",
    "/explain",
    "/throttling",
    "/route-files",
    "/audit",
    "/gateway/services",
    "/gateway/plugins",
    "/new/services",
    "/new/plugins",
    "/new/plugins?plugin=openid-connect",
    "/identity/realms",
    "/identity/realms/root",
    "/identity/new-realm",
    "/identity/users",
    "/identity/users/new",
    "/identity/groups",
    "/identity/clients",
    "/identity/clients/new?kind=web",
    "/identity/clients/hr",
    "/identity/keys",
    "/identity/probes",
    "/broker/products",
    "/broker-form/products",
];

fn compressed(text: &str) -> usize {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
    encoder.write_all(text.as_bytes()).expect("written");
    encoder.finish().expect("compressed").len()
}

#[tokio::test]
async fn the_whole_console_is_under_300_kb_compressed() {
    let office = Office::open().await;
    let mut owner = office.signed_in("alice").await;
    let mut sizes = Vec::new();
    let first = owner.get("/console").await.expect(200).body;
    for (before, name) in [("rel=\"stylesheet\"", "href"), ("<script", "src")] {
        let asset = attribute(&first, before, name).to_owned();
        let body = owner.get(&asset).await.expect(200).body;
        sizes.push((asset, compressed(&body)));
    }
    for page in PAGES {
        let body = owner.get(&format!("/console{page}")).await;
        sizes.push((page.to_owned(), compressed(&body.expect(200).body)));
    }
    let sum: usize = sizes.iter().map(|(_, size)| size).sum();
    assert!(sum < 300_000, "{sum} bytes: {sizes:?}");
    // The browser asks nobody else for anything.
    assert!(!first.contains("src=\"http") && !first.contains("href=\"http"));
}
