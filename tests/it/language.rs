//! The language of the pages: sentences that a reader takes in at once.
//!
//! Blocks of code are left out. In tables each cell is read for itself, and what
//! a colon or a semicolon parts counts as two there.

use std::fmt::Write as _;
use std::path::Path;

/// Most words of a sentence.
const LONGEST: usize = 45;
/// Most words of a page's sentences on average.
const AVERAGE: usize = 25;

#[test]
fn sentences_of_the_pages_are_short() {
    let mut complaints = String::new();
    for (name, text) in pages() {
        let sentences = sentences(&text);
        let counts: Vec<_> = sentences.iter().map(|one| words(one)).collect();
        for (sentence, count) in sentences.iter().zip(&counts) {
            if *count > LONGEST {
                let _ = writeln!(complaints, "{name}: {count} words: {sentence}");
            }
        }
        // Cells of one word are no sentences.
        let counted: Vec<_> = counts.into_iter().filter(|count| *count > 3).collect();
        let (sum, number) = (counted.iter().sum::<usize>(), counted.len());
        if sum > AVERAGE * number {
            let _ = writeln!(complaints, "{name}: {sum} words in {number} sentences");
        }
    }
    assert!(
        complaints.is_empty(),
        "at most {LONGEST} words a sentence, {AVERAGE} on average:\n{complaints}"
    );
}

#[test]
fn sentences_of_the_pages_name_their_subject() {
    for (name, text) in pages() {
        let mut sentences = sentences(&text).into_iter();
        let unnamed = sentences.find(|one| one.to_lowercase().contains("whoever"));
        assert_eq!(unnamed, None, "{name}");
    }
}

/// The pages: name and text.
fn pages() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = std::fs::read_dir(root.join("docs")).expect("a directory");
    let mut paths: Vec<_> = docs.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths.extend(["README.md", "ARCHITECTURE.md"].map(|name| root.join(name)));
    paths.sort();
    assert!(paths.len() > 20, "{paths:?}");
    let page = |path: &std::path::PathBuf| {
        let name = path.strip_prefix(root).expect("below the root");
        let text = std::fs::read_to_string(path).expect("a page");
        (name.display().to_string(), text)
    };
    paths.iter().map(page).collect()
}

fn words(sentence: &str) -> usize {
    sentence.split_whitespace().count()
}

/// The sentences of a page, in order.
fn sentences(page: &str) -> Vec<String> {
    let mut sentences = Vec::new();
    let mut paragraph = String::new();
    let mut is_code = false;
    for line in page.lines() {
        let text = line.trim_start();
        let is_fence = text.starts_with("```");
        is_code ^= is_fence;
        if is_code || is_fence {
            end(&mut paragraph, &mut sentences);
        } else if text.starts_with('|') {
            end(&mut paragraph, &mut sentences);
            cells(text, &mut sentences);
        } else if text.is_empty() || text.starts_with('#') || text.starts_with("<!--") {
            end(&mut paragraph, &mut sentences);
        } else {
            let item = item(text);
            if item.is_some() {
                end(&mut paragraph, &mut sentences);
            }
            paragraph.push_str(item.unwrap_or(text));
            paragraph.push(' ');
        }
    }
    end(&mut paragraph, &mut sentences);
    sentences
}

/// The text of an item of a list.
fn item(line: &str) -> Option<&str> {
    let numbered = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = (numbered.len() < line.len()).then(|| numbered.strip_prefix(". "));
    let bullet = line.strip_prefix("- ").or_else(|| line.strip_prefix("* "));
    bullet.or(number.flatten())
}

/// Ends a paragraph: its sentences go to `sentences`.
fn end(paragraph: &mut String, sentences: &mut Vec<String>) {
    split(paragraph, ".!?", sentences);
    paragraph.clear();
}

/// The sentences of a row of a table; its delimiter has none.
fn cells(row: &str, sentences: &mut Vec<String>) {
    if row.bytes().all(|byte| b"|-: ".contains(&byte)) {
        return;
    }
    for cell in row.trim_matches('|').split(" | ") {
        split(cell, ".!?;:", sentences);
    }
}

/// Splits at blanks behind one of `marks`.
fn split(text: &str, marks: &str, sentences: &mut Vec<String>) {
    let mut sentence = String::new();
    for word in text.split_whitespace() {
        if !sentence.is_empty() {
            sentence.push(' ');
        }
        sentence.push_str(word);
        if word.ends_with(|c| marks.contains(c)) {
            sentences.push(std::mem::take(&mut sentence));
        }
    }
    if !sentence.is_empty() {
        sentences.push(sentence);
    }
}

#[test]
fn sentences_are_told_apart() {
    let page = "# Title\n\nOne two. Three\nfour: five.\n\n```sh\nno code.\n```\n\n- an item\n  \
                goes on\n- another\n\n1. first\n\n| a | b |\n|---|:--|\n| one; two | three |\n";
    assert_eq!(
        sentences(page),
        [
            "One two.",
            "Three four: five.",
            "an item goes on",
            "another",
            "first",
            "a",
            "b",
            "one;",
            "two",
            "three",
        ]
    );
}
