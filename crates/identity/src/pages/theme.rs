//! A theme: a directory with a stylesheet, pictures and texts.
//!
//! All of it is read with the configuration and served from memory by exact
//! name, so no name of a request ever reaches the file system.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{Context, SHA256};
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, StatusCode};

use doorward_core::hex;
use doorward_core::yaml::{Document, DocumentError};

/// Most files of a theme.
const FILES_MAX: usize = 100;

/// Largest file, in bytes.
const FILE_MAX: u64 = 1 << 20;

/// Largest theme, in bytes.
const THEME_MAX: usize = 8 << 20;

/// What files are, by the end of their names.
const KINDS: [(&str, &str); 11] = [
    ("css", "text/css; charset=utf-8"),
    ("svg", "image/svg+xml"),
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("webp", "image/webp"),
    ("avif", "image/avif"),
    ("ico", "image/x-icon"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
];

/// Why a theme can't be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ThemeError {
    #[error("{}: {error}", file.display())]
    Read {
        file: PathBuf,
        error: std::io::Error,
    },
    #[error("{}: {message}", file.display())]
    File { file: PathBuf, message: String },
    #[error("has more than {FILES_MAX} files")]
    TooMany,
    #[error("is larger than {THEME_MAX} bytes")]
    TooLarge,
    #[error(transparent)]
    Texts(#[from] DocumentError),
}

#[derive(Debug)]
struct Asset {
    kind: &'static str,
    bytes: Bytes,
}

/// A theme in memory.
#[derive(Debug)]
pub(crate) struct Theme {
    assets: HashMap<String, Asset>,
    /// Digest of all of it.
    version: String,
    /// The addresses of what every page refers to.
    pub(super) stylesheet: Option<String>,
    pub(super) logo: Option<String>,
    pub(super) icon: Option<String>,
}

impl Theme {
    /// Reads a theme; gives also its texts by language.
    pub(super) fn read(
        directory: &Path,
        base_path: &str,
    ) -> Result<(Self, Vec<(String, Document)>), ThemeError> {
        let (mut assets, mut texts) = (HashMap::new(), Vec::new());
        let mut total = 0;
        let mut digest = Context::new(&SHA256);
        for file in entries(directory)? {
            let name = name(&file)?;
            if file.is_dir() && name == "texts" {
                texts = read_texts(&file)?;
                continue;
            }
            if is_note(&name) {
                continue;
            }
            let kind = kind(&file, &name)?;
            let bytes = read(&file)?;
            total += bytes.len();
            for part in [name.as_bytes(), &bytes] {
                digest.update(&part.len().to_be_bytes());
                digest.update(part);
            }
            let bytes = Bytes::from(bytes);
            assets.insert(name, Asset { kind, bytes });
            if assets.len() > FILES_MAX {
                return Err(ThemeError::TooMany);
            }
            if total > THEME_MAX {
                return Err(ThemeError::TooLarge);
            }
        }
        let digest = digest.finish();
        let version = hex::encode(&digest.as_ref()[..8]);
        let address = |name: &str| format!("{base_path}/oauth2/theme/{name}?v={version}");
        let picture = |stem: &str| {
            let known = |kind: &&str| assets.contains_key(&format!("{stem}.{kind}"));
            let kinds = KINDS.iter().map(|(kind, _)| *kind);
            let mut pictures = kinds.filter(|kind| !matches!(*kind, "css" | "woff" | "woff2"));
            let kind = pictures.find(known)?;
            Some(address(&format!("{stem}.{kind}")))
        };
        let stylesheet = assets
            .contains_key("theme.css")
            .then(|| address("theme.css"));
        let (logo, icon) = (picture("logo"), picture("favicon"));
        let theme = Self {
            assets,
            version,
            stylesheet,
            logo,
            icon,
        };
        Ok((theme, texts))
    }

    /// The file of this name, for who asks with this query and these headers.
    pub(crate) fn answer(&self, name: &str, query: &str, headers: &HeaderMap) -> Option<Response> {
        let asset = self.assets.get(name)?;
        let tag = format!("\"{}\"", self.version);
        let held = headers.get(IF_NONE_MATCH);
        let held = held.is_some_and(|held| held.as_bytes() == tag.as_bytes());
        let mut response = if held {
            Response::new(Body::empty())
        } else {
            Response::new(Body::from(asset.bytes.clone()))
        };
        if held {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        }
        // An address with the version never means anything else.
        let lasting = query.strip_prefix("v=") == Some(&self.version);
        let caching = if lasting {
            "public, max-age=31536000, immutable"
        } else {
            "public, max-age=300"
        };
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static(caching));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(asset.kind));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        // A picture that is opened by itself is a document, and may do nothing.
        let nothing = "default-src 'none'; style-src 'unsafe-inline'; sandbox; \
                       frame-ancestors 'none'";
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(nothing));
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            headers.insert(ETAG, tag);
        }
        Some(response)
    }
}

/// What stands in a directory, by name; dot files are nobody's business.
fn entries(directory: &Path) -> Result<Vec<PathBuf>, ThemeError> {
    let failed = |error| ThemeError::Read {
        file: directory.to_owned(),
        error,
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if !entry.file_name().to_string_lossy().starts_with('.') {
            files.push(entry.path());
        }
        if files.len() > 2 * FILES_MAX {
            return Err(ThemeError::TooMany);
        }
    }
    files.sort_unstable();
    Ok(files)
}

fn wrong(file: &Path, message: &str) -> ThemeError {
    ThemeError::File {
        file: file.to_owned(),
        message: message.to_owned(),
    }
}

fn name(file: &Path) -> Result<String, ThemeError> {
    let legal = |name: &&str| {
        let mut bytes = name.bytes();
        bytes.all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    let name = file.file_name().and_then(|name| name.to_str());
    let name = name.filter(legal).map(str::to_owned);
    name.ok_or_else(|| wrong(file, "a name has letters, digits and `.`, `_`, `-` only"))
}

/// Whether it is for people who read the directory.
fn is_note(name: &str) -> bool {
    let known = ["README", "LICENSE", "NOTICE", "COPYING"];
    name.ends_with(".md") || name.ends_with(".txt") || known.contains(&name)
}

fn kind(file: &Path, name: &str) -> Result<&'static str, ThemeError> {
    if !file.is_file() {
        return Err(wrong(file, "a theme has files, and a directory `texts`"));
    }
    let end = name.rsplit_once('.').map_or("", |(_, end)| end);
    let known = KINDS.iter().find(|(known, _)| *known == end);
    known.map(|(_, kind)| *kind).ok_or_else(|| {
        let text = "a file of a theme ends in css, svg, png, jpg, jpeg, gif, webp, avif, ico, \
                    woff or woff2, in small letters";
        wrong(file, text)
    })
}

fn read(file: &Path) -> Result<Vec<u8>, ThemeError> {
    let failed = |error| ThemeError::Read {
        file: file.to_owned(),
        error,
    };
    let size = std::fs::metadata(file).map_err(failed)?.len();
    if size > FILE_MAX {
        return Err(wrong(file, "is larger than 1 MiB"));
    }
    let bytes = std::fs::read(file).map_err(failed)?;
    if bytes.len() as u64 > FILE_MAX {
        Err(wrong(file, "is larger than 1 MiB"))
    } else {
        Ok(bytes)
    }
}

fn read_texts(directory: &Path) -> Result<Vec<(String, Document)>, ThemeError> {
    let mut texts = Vec::new();
    for file in entries(directory)? {
        let name = name(&file)?;
        if is_note(&name) {
            continue;
        }
        let lang = name
            .strip_suffix(".yaml")
            .or_else(|| name.strip_suffix(".yml"));
        let Some(lang) = lang.filter(|lang| is_tag(lang)) else {
            let text = "texts are in files named for their language: de.yaml, pt-BR.yaml";
            return Err(wrong(&file, text));
        };
        if texts.iter().any(|(known, _)| known == lang) {
            return Err(wrong(&file, "the language has two files"));
        }
        let text = String::from_utf8(read(&file)?);
        let text = text.map_err(|_| wrong(&file, "is no UTF-8"))?;
        // Themes come from others: they name no variables and no files.
        let document = Document::parse_unresolved(&text, &file)?;
        texts.push((lang.to_owned(), document));
        if texts.len() > FILES_MAX {
            return Err(ThemeError::TooMany);
        }
    }
    Ok(texts)
}

/// Whether this can be a language tag (BCP 47).
fn is_tag(text: &str) -> bool {
    let mut parts = text.split('-');
    let language = parts.next().unwrap_or_default();
    (2..=3).contains(&language.len())
        && language.bytes().all(|byte| byte.is_ascii_lowercase())
        && parts.all(|part| {
            (2..=8).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
        })
}

/// The files of a theme, to see whether they changed.
pub(crate) fn files(directory: &Path) -> Vec<PathBuf> {
    let mut files = entries(directory).unwrap_or_default();
    files.extend(entries(&directory.join("texts")).unwrap_or_default());
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn theme(files: &[(&str, &str)]) -> Result<(Theme, Vec<(String, Document)>), String> {
        let directory = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            let file = directory.path().join(name);
            std::fs::create_dir_all(file.parent().expect("a parent")).expect("a directory");
            std::fs::write(file, text).expect("a file");
        }
        Theme::read(directory.path(), "/am").map_err(|error| error.to_string())
    }

    #[test]
    fn files_that_are_no_part_of_a_theme_are_refused_by_name() {
        let large = "x".repeat((1 << 20) + 1);
        for (name, text, told) in [
            ("x.js", "", "x.js: a file of a theme ends in css"),
            ("x.HTML", "", "x.HTML: a file of a theme ends in css"),
            ("a b.css", "", "a b.css: a name has letters"),
            ("more/x.css", "", "more: a theme has files"),
            (
                "texts/german.yaml",
                "",
                "german.yaml: texts are in files named",
            ),
            ("texts/de.yaml", "a: [", "de.yaml:"),
            ("big.png", large.as_str(), "big.png: is larger than 1 MiB"),
        ] {
            let error = theme(&[(name, text)]).expect_err(name);
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn the_example_is_a_theme() {
        let example = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/theme"));
        let (theme, texts) = Theme::read(example, "").expect("a theme");
        assert!(theme.stylesheet.is_some() && theme.logo.is_some());
        let languages = super::super::texts::Languages::with(&texts).expect("texts");
        assert_eq!(languages.tags().collect::<Vec<_>>(), ["en", "de", "fr"]);
    }

    #[test]
    fn path_traversal_finds_nothing() {
        let (theme, texts) = theme(&[
            ("theme.css", "a{}"),
            ("logo.svg", "<svg/>"),
            ("README.md", "x"),
            (".hidden.css", "x"),
            ("texts/fr.yaml", "sign_in: x"),
        ])
        .expect("a theme");
        assert_eq!(texts.len(), 1);
        let answer = |name| theme.answer(name, "", &HeaderMap::new());
        let css = answer("theme.css").expect("a file");
        assert_eq!(css.headers()["content-type"], "text/css; charset=utf-8");
        for name in [
            "../theme.css",
            "..%2ftheme.css",
            "./theme.css",
            "/etc/passwd",
            "texts/fr.yaml",
            "fr.yaml",
            "README.md",
            ".hidden.css",
            "THEME.CSS",
            "",
        ] {
            assert!(answer(name).is_none(), "{name}");
        }
        let logo = theme.logo.as_deref().expect("a logo");
        let query = logo
            .strip_prefix("/am/oauth2/theme/logo.svg?")
            .expect("its address");
        let lasting = theme.answer("logo.svg", query, &HeaderMap::new());
        let lasting = lasting.expect("a file");
        assert!(
            lasting.headers()["cache-control"]
                .to_str()
                .expect("text")
                .contains("immutable")
        );
        let held = [(IF_NONE_MATCH, lasting.headers()["etag"].clone())];
        let held = theme.answer("logo.svg", query, &held.into_iter().collect());
        assert_eq!(held.expect("an answer").status(), 304);
    }
}
