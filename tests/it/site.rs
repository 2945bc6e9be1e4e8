//! The pages as a site: `docs/SUMMARY.md` names each of them, and their links
//! lead somewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The pages below docs/ and those beside it, by their paths from the root.
fn pages() -> BTreeMap<PathBuf, String> {
    let docs = std::fs::read_dir(root().join("docs")).expect("a directory");
    let mut paths: Vec<_> = docs
        .map(|entry| Path::new("docs").join(entry.expect("an entry").file_name()))
        .collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths.extend(["README.md", "ARCHITECTURE.md"].map(PathBuf::from));
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(root().join(&path)).expect("a page");
        (path, text)
    };
    paths.into_iter().map(read).collect()
}

/// The targets of the links in `text`, blocks and spans of code left out.
fn links(text: &str) -> Vec<&str> {
    let mut links = Vec::new();
    for line in prose(text) {
        // The odd pieces are code.
        for piece in line.split('`').step_by(2) {
            let targets = piece.split("](").skip(1);
            links.extend(targets.filter_map(|rest| rest.split(')').next()));
        }
    }
    links
}

/// The lines that are outside of blocks of code.
fn prose(text: &str) -> Vec<&str> {
    let mut is_code = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        if !is_code && !is_fence {
            lines.push(line);
        }
    }
    lines
}

/// The anchors of the headings of a page, as sites and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for line in prose(text) {
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let letters = heading
            .trim()
            .chars()
            .filter_map(|c| match c.to_lowercase().next() {
                Some(c) if c.is_alphanumeric() || c == '_' || c == '-' => Some(c),
                Some(' ') => Some('-'),
                _ => None,
            });
        let anchor: String = letters.collect();
        let mut unique = anchor.clone();
        let mut number = 0;
        while !anchors.insert(unique.clone()) {
            number += 1;
            unique = format!("{anchor}-{number}");
        }
    }
    anchors
}

/// Whether an address is one of another site.
fn is_remote(link: &str) -> bool {
    ["http://", "https://", "mailto:"]
        .iter()
        .any(|scheme| link.starts_with(scheme))
}

#[test]
fn the_summary_names_each_page_once() {
    let pages = pages();
    let summary = &pages[Path::new("docs/SUMMARY.md")];
    let listed = links(summary);
    let named: BTreeSet<_> = listed.iter().copied().collect();
    assert_eq!(named.len(), listed.len(), "a page is named twice");
    let below_docs = pages
        .keys()
        .filter_map(|path| path.strip_prefix("docs").ok());
    let pages: BTreeSet<_> = below_docs
        .filter_map(Path::to_str)
        .filter(|name| *name != "SUMMARY.md")
        .collect();
    let missing: Vec<_> = pages.difference(&named).collect();
    let superfluous: Vec<_> = named.difference(&pages).collect();
    assert!(
        missing.is_empty() && superfluous.is_empty(),
        "docs/SUMMARY.md lacks {missing:?} and names {superfluous:?}"
    );
    for shelf in ["Get started", "How to", "Reference", "Explanation"] {
        assert!(summary.contains(&format!("\n# {shelf}\n")), "{shelf}");
    }
}

#[test]
fn links_between_pages_lead_somewhere() {
    let pages = pages();
    let mut broken = Vec::new();
    for (path, text) in &pages {
        for link in links(text).into_iter().filter(|link| !is_remote(link)) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => path.clone(),
                file => path.with_file_name(file),
            };
            let is_right = match pages.get(&target) {
                Some(page) => anchor.is_empty() || anchors(page).contains(anchor),
                // What a site of docs/ does not have is no target of its pages.
                None => {
                    let is_reached = !path.starts_with("docs") || target.starts_with("docs");
                    is_reached && root().join(&target).exists()
                }
            };
            if !is_right {
                broken.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert_eq!(broken, [""; 0]);
}

#[test]
fn pages_load_nothing_from_elsewhere() {
    for (path, text) in pages() {
        for line in prose(&text) {
            // The odd pieces are code.
            let shown: String = line.split('`').step_by(2).collect();
            for what in ["![", "<img", "<script", "<link", "<iframe"] {
                let mut after = shown.split(what).skip(1);
                let is_foreign = after.any(|rest| rest.contains("//"));
                assert!(!is_foreign, "{}: {line}", path.display());
            }
        }
    }
}

/// Most bytes of a picture.
const PICTURE: usize = 60_000;

#[test]
fn each_picture_is_small_shown_and_taken_by_the_tests() {
    let scripts = std::fs::read_to_string(root().join("tests/clients/pictures.mjs"));
    let scripts = scripts.expect("the script");
    let taken = scripts.split("await picture(page, '").skip(1);
    let taken: BTreeSet<_> = taken
        .filter_map(|rest| rest.split('\'').next())
        .map(|name| format!("{name}.webp"))
        .collect();
    let directory = std::fs::read_dir(root().join("docs/pictures")).expect("a directory");
    let kept: BTreeSet<_> = directory
        .map(|entry| entry.expect("an entry").file_name())
        .map(|name| name.into_string().expect("UTF-8"))
        .collect();
    let pages = pages();
    let shown: BTreeSet<_> = pages
        .values()
        .flat_map(|text| text.split("](pictures/").skip(1))
        .filter_map(|rest| rest.split(')').next())
        .map(str::to_owned)
        .collect();
    assert!(shown.contains("explain.webp"), "{shown:?}");
    assert_eq!(kept, shown, "in docs/pictures, and shown by pages");
    assert_eq!(taken, shown, "taken by the script, and shown by pages");
    for name in kept {
        let bytes = std::fs::read(root().join("docs/pictures").join(&name)).expect("a picture");
        assert!(
            bytes.starts_with(b"RIFF") && bytes[8..].starts_with(b"WEBP"),
            "{name}"
        );
        assert!(bytes.len() < PICTURE, "{name}: {} bytes", bytes.len());
    }
}

/// The relative luminance of a colour such as `#6cb8e6` (WCAG 2.2).
fn luminance(colour: &str) -> f64 {
    let number = u32::from_str_radix(colour.trim_start_matches('#'), 16).expect(colour);
    let part = |shift: u32| {
        let part = f64::from((number >> shift) & 0xff) / 255.0;
        if part <= 0.04045 {
            part / 12.92
        } else {
            ((part + 0.055) / 1.055).powf(2.4)
        }
    };
    0.2126 * part(16) + 0.7152 * part(8) + 0.0722 * part(0)
}

#[test]
fn colours_of_the_dark_site_stand_out_from_their_background() {
    let book = std::fs::read_to_string(root().join("book.toml")).expect("a file");
    for setting in [
        "preferred-dark-theme = \"navy\"",
        "additional-css = [\"docs/site.css\"]",
        "[output.html.search]\nenable = true",
    ] {
        assert!(book.contains(setting), "book.toml lacks {setting}");
    }
    let style = std::fs::read_to_string(root().join("docs/site.css")).expect("a file");
    assert!(style.contains(".navy"), "{style}");
    // Those of mdBook's theme: the page, every second row of a table, the sidebar, code.
    let backgrounds = ["#161923", "#1b1f2c", "#282d3f", "#1d1f21"];
    let colours = style.split(['\n', ';']).filter_map(|line| {
        let colour = line.split(": ").nth(1)?;
        colour.starts_with('#').then_some(colour)
    });
    let mut compared = 0;
    for colour in colours {
        for background in backgrounds {
            let contrast = (luminance(colour) + 0.05) / (luminance(background) + 0.05);
            assert!(contrast >= 4.5, "{colour} on {background}: {contrast}");
            compared += 1;
        }
    }
    assert_eq!(compared, 16);
}

#[test]
fn anchors_are_those_of_the_site() {
    let page = "# The `openid-connect` plugin\n## A, b\n```sh\n# no heading\n```\n### A b\n#x\n";
    let wanted = ["the-openid-connect-plugin", "a-b", "a-b-1"].map(str::to_owned);
    assert_eq!(anchors(page), BTreeSet::from(wanted));
    assert_eq!(links("[a](b.md) `[c](d)` [e](#f)"), ["b.md", "#f"]);
}
