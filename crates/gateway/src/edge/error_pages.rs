//! Pages of the operator's own for answers that the gateway makes itself, shown to
//! those who would rather read a page than JSON.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::StatusCode;

use crate::answer::escape;

/// Longest page, in bytes.
const LONGEST: u64 = 256 << 10;

/// Files of pages by what they are for: `404`, `5xx`.
pub type ErrorPageFiles = BTreeMap<String, PathBuf>;

/// Why a page can't be shown.
#[derive(Debug, PartialEq, Eq)]
pub struct ErrorPageError {
    /// What it is for.
    pub key: String,
    /// What is wrong.
    pub message: String,
}

/// Pages by status.
#[derive(Debug, Default)]
pub struct ErrorPages {
    by_status: BTreeMap<u16, Page>,
    /// For statuses without a page of their own: 4xx, 5xx.
    of_classes: [Option<Page>; 2],
}

impl ErrorPages {
    /// Reads the pages.
    ///
    /// # Errors
    /// The first that can't be shown.
    pub fn read(files: &ErrorPageFiles) -> Result<Self, ErrorPageError> {
        let mut pages = Self::default();
        for (key, file) in files {
            let error = |message| ErrorPageError {
                key: key.clone(),
                message,
            };
            let page = || Page::read(file).map_err(error);
            match key.as_str() {
                "4xx" => pages.of_classes[0] = Some(page()?),
                "5xx" => pages.of_classes[1] = Some(page()?),
                key => {
                    let status = key.parse().ok().filter(|code| (400..600).contains(code));
                    let expected = "expected a status from 400 to 599, 4xx or 5xx";
                    let status = status.ok_or_else(|| error(expected.to_owned()))?;
                    pages.by_status.insert(status, page()?);
                }
            }
        }
        Ok(pages)
    }

    /// The page for a status.
    pub(crate) fn find(&self, status: StatusCode) -> Option<&Page> {
        let of_class = || match status.as_u16() / 100 {
            4 => self.of_classes[0].as_ref(),
            5 => self.of_classes[1].as_ref(),
            _ => None,
        };
        self.by_status.get(&status.as_u16()).or_else(of_class)
    }
}

/// A page, cut where it tells something of the request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Page(Vec<Piece>);

#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    RequestId,
    Status,
    Message,
}

impl Page {
    fn read(file: &Path) -> Result<Self, String> {
        let told = |reason: String| format!("{}: {reason}", file.display());
        let mut text = String::new();
        let opened = std::fs::File::open(file).map_err(|error| told(error.to_string()))?;
        let read = opened.take(LONGEST + 1).read_to_string(&mut text);
        read.map_err(|error| told(error.to_string()))?;
        if text.len() as u64 > LONGEST {
            return Err(told(format!("it is longer than {LONGEST} bytes")));
        }
        Self::parse(&text).map_err(told)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let (name, after) = after.split_once("}}").ok_or("a '{{' has no '}}'")?;
            pieces.push(Piece::Text(before.to_owned()));
            pieces.push(match name.trim() {
                "request_id" => Piece::RequestId,
                "status" => Piece::Status,
                "message" => Piece::Message,
                other => {
                    let other: String = other.chars().take(40).collect();
                    return Err(format!(
                        "'{{{{{other}}}}}' is none of {{{{request_id}}}}, {{{{status}}}}, {{{{message}}}}"
                    ));
                }
            });
            rest = after;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        Ok(Self(pieces))
    }

    /// The page about one request.
    pub(crate) fn render(
        &self,
        status: StatusCode,
        message: &str,
        request_id: Option<&str>,
    ) -> Bytes {
        let mut out = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::RequestId => out.push_str(&escape(request_id.unwrap_or_default())),
                Piece::Status => out.push_str(status.as_str()),
                Piece::Message => out.push_str(&escape(message)),
            }
        }
        out.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_of_a_request_is_escaped() {
        let page =
            Page::parse("<p>{{ status }} {{message}} <i id='{{request_id}}'>").expect("a page");
        let script = "<script>'\"&";
        let shown = page.render(StatusCode::BAD_GATEWAY, script, Some(script));
        let escaped = "&lt;script&gt;&#39;&quot;&amp;";
        assert_eq!(shown, format!("<p>502 {escaped} <i id='{escaped}'>"));
        let shown = page.render(StatusCode::NOT_FOUND, "{{status}}", None);
        assert_eq!(shown, "<p>404 {{status}} <i id=''>");
    }

    #[test]
    fn what_a_page_can_not_tell_is_refused() {
        for (text, told) in [
            ("{{client}}", "none of {{request_id}}"),
            ("a {{ b", "no '}}'"),
        ] {
            let refused = Page::parse(text).expect_err("refused");
            assert!(refused.contains(told), "{refused}");
        }
    }

    #[test]
    fn a_status_has_its_own_page_or_that_of_its_class() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = |name: &str, text: &str| {
            let file = directory.path().join(name);
            std::fs::write(&file, text).expect("written");
            file
        };
        let files = [("404", "own"), ("5xx", "class")];
        let files = files.map(|(key, text)| (key.to_owned(), file(key, text)));
        let pages = ErrorPages::read(&files.into()).expect("read");
        let shown = |code| {
            let status = StatusCode::from_u16(code).expect("a status");
            pages.find(status).map(|page| page.render(status, "", None))
        };
        assert_eq!(shown(404), Some("own".into()));
        assert_eq!(shown(503), Some("class".into()));
        assert_eq!((shown(403), shown(200)), (None, None));
        for (key, text) in [("200", "x"), ("6xx", "x"), ("404", &"x".repeat(1 << 19))] {
            let files = [(key.to_owned(), file("bad", text))];
            let refused = ErrorPages::read(&files.into()).expect_err("refused");
            assert_eq!(refused.key, key);
        }
    }
}
