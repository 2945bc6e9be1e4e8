//! Themes: a directory that changes what people see.

use crate::support::http::{client, send};
use crate::support::raw;
use crate::support::{Answer, Door, Setup, eventually};

const IDENTITY: &str = r#"
  base_url: http://@PROXY@
  pages: {theme: "@DIR@/theme"}
"#;

/// A door with a theme of these files.
async fn door(files: &[(&str, &str)]) -> Door {
    let mut door = laid_out(files);
    door.start().await;
    door
}

fn laid_out(files: &[(&str, &str)]) -> Door {
    let door = Setup::new().identity(IDENTITY).lay_out();
    std::fs::create_dir_all(door.path("theme/texts")).expect("a directory");
    for (name, text) in files {
        door.write(&format!("theme/{name}"), text);
    }
    door
}

async fn page(door: &Door, query: &str) -> Answer {
    let url = door.proxy_url(&format!("/oauth2/device/user{query}"));
    send(client().get(url)).await.expect(200)
}

fn between<'t>(text: &'t str, before: &str, after: &str) -> &'t str {
    let rest = text.split_once(before).map_or("", |(_, rest)| rest);
    rest.split_once(after).map_or("", |(found, _)| found)
}

#[tokio::test]
async fn a_theme_adds_styles_pictures_texts_and_languages() {
    let door = door(&[
        ("theme.css", "h1{color:red}"),
        ("logo.svg", "<svg xmlns=\"http://www.w3.org/2000/svg\"/>"),
        ("favicon.png", "x"),
        (
            "texts/en.yaml",
            "brand: Example & Co\ndevice: Pair \"it\"\n",
        ),
        ("texts/fr.yaml", "device: Associer un appareil\n"),
        ("README.md", "of no interest"),
    ])
    .await;
    let english = page(&door, "").await;
    assert!(english.body.contains("<h1>Pair &#34;it&#34;</h1>"));
    assert!(english.body.contains("alt=\"Example &#38; Co\""));
    let policy = english.header("content-security-policy");
    assert!(
        policy.contains("style-src 'sha256-") && policy.contains("' 'self';"),
        "{policy}"
    );
    assert!(!policy.contains("unsafe"), "{policy}");
    let french = page(&door, "?ui_locales=fr-CA").await;
    assert!(french.body.contains("<h1>Associer un appareil</h1>"));
    assert_eq!(french.header("content-language"), "fr");
    let german = page(&door, "?ui_locales=de").await;
    assert!(german.body.contains("<h1>Gerät verbinden</h1>"));
    let metadata = door.proxy_url("/oauth2/.well-known/openid-configuration");
    let metadata = send(client().get(metadata)).await.json();
    assert_eq!(
        metadata["ui_locales_supported"],
        serde_json::json!(["en", "de", "fr"])
    );

    for (mark, kind) in [
        (
            "<link rel=\"stylesheet\" href=\"",
            "text/css; charset=utf-8",
        ),
        ("<img class=\"brand\" src=\"", "image/svg+xml"),
        ("<link rel=\"icon\" href=\"", "image/png"),
    ] {
        let address = between(&english.body, mark, "\"");
        let file = send(client().get(door.proxy_url(address)))
            .await
            .expect(200);
        assert_eq!(file.header("content-type"), kind, "{address}");
        assert_eq!(file.header("x-content-type-options"), "nosniff");
        assert!(file.header("cache-control").contains("immutable"));
        assert!(file.header("content-security-policy").contains("sandbox"));
    }
}

#[tokio::test]
async fn path_traversal_in_themes() {
    let door = door(&[("theme.css", "h1{}"), ("texts/en.yaml", "device: x\n")]).await;
    door.write("theme/.env", "secret");
    for name in [
        "..%2fdoorward.yaml",
        "%2e%2e%2fdoorward.yaml",
        "..%5cdoorward.yaml",
        "texts%2fen.yaml",
        "en.yaml",
        ".env",
        "%00",
        "theme.css%00.svg",
        "theme.css/",
    ] {
        let url = door.proxy_url(&format!("/oauth2/theme/{name}"));
        let answer = send(client().get(url)).await;
        assert!(matches!(answer.status, 400 | 404), "{name}: {answer:?}");
        assert!(!answer.body.contains("base_url") && !answer.body.contains("secret"));
    }
    // As no well-behaved client would ask.
    for path in [
        "/oauth2/theme/../doorward.yaml",
        "/oauth2/theme//etc/passwd",
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let answer = raw::exchange(&door.proxy(), request.as_bytes()).await;
        let answer = answer.expect("an answer");
        assert!(
            matches!(answer.status, 400 | 404),
            "{path}: {}",
            answer.text()
        );
    }
    let url = door.proxy_url("/oauth2/theme/theme.css");
    let file = send(client().get(&url)).await.expect(200);
    assert_eq!(file.header("cache-control"), "public, max-age=300");
    let held = client()
        .get(&url)
        .header("if-none-match", file.header("etag"));
    send(held).await.expect(304);
    send(client().post(&url)).await.expect(405);
}

#[tokio::test]
async fn an_edited_theme_is_in_force_and_a_broken_one_is_not() {
    let door = door(&[("texts/en.yaml", "device: One\n")]).await;
    assert!(page(&door, "").await.body.contains("<h1>One</h1>"));
    door.write("theme/texts/en.yaml", "device: Two\n");
    let shown = |wanted: &'static str| {
        let door = &door;
        eventually("the theme to be in force", move || async move {
            page(door, "").await.body.contains(wanted).then_some(())
        })
    };
    shown("<h1>Two</h1>").await;
    door.write("theme/texts/en.yaml", "device: Three\nsign_im: x\n");
    door.wait_log("the fault to be told", |line| {
        line.contains("en.yaml:2: sign_im: is no text of the pages")
    })
    .await;
    shown("<h1>Two</h1>").await;
    door.write("theme/texts/en.yaml", "device: Four\n");
    shown("<h1>Four</h1>").await;
}

#[tokio::test]
async fn bad_files_of_a_theme_are_told_by_name() {
    for (file, text, told) in [
        ("script.js", "x", "identity.pages.theme: "),
        ("script.js", "x", "script.js: a file of a theme ends in css"),
        (
            "texts/german.yaml",
            "x: y",
            "german.yaml: texts are in files named",
        ),
        ("texts/de.yaml", "sign_in: [", "de.yaml:2"),
    ] {
        let door = laid_out(&[(file, text)]);
        let output = door.run(&["check", "-c", "doorward.yaml"]);
        assert!(!output.status.success(), "{file}");
        let printed = String::from_utf8_lossy(&output.stderr).into_owned()
            + &String::from_utf8_lossy(&output.stdout);
        assert!(printed.contains(told), "{printed}");
    }
    let door = Setup::new().identity(IDENTITY).lay_out();
    let output = door.run(&["check", "-c", "doorward.yaml"]);
    assert!(!output.status.success(), "a directory that is not there");
}

#[tokio::test]
async fn without_a_theme_there_is_nothing_to_ask_for() {
    let door = Setup::new().start().await;
    let url = door.proxy_url("/oauth2/theme/theme.css");
    send(client().get(url)).await.expect(404);
    let page = page(&door, "").await;
    assert!(!page.body.contains("/theme/"), "{}", page.body);
    assert!(!page.body.contains("stylesheet"), "{}", page.body);
}
