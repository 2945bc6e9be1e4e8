//! Forms in parts (RFC 7578), read strictly: what two readers could take for
//! different parts is no form.

use std::fmt::Write as _;

use http::HeaderMap;

use super::form::media_type;

/// Longest boundary (RFC 2046 §5.1.1).
const MAX_BOUNDARY: usize = 70;
/// Most parts of a form.
const MAX_PARTS: usize = 1000;
/// Most fields of a part.
const MAX_FIELDS: usize = 16;

/// Why a body is no form in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MultipartError {
    /// The type names no boundary, or one that is none.
    #[error("no boundary")]
    Boundary,
    /// There is no part.
    #[error("no part")]
    Empty,
    /// The boundary stands where none may, or something stands behind it.
    #[error("bad delimiter")]
    Delimiter,
    /// The last part has no end.
    #[error("open part")]
    Open,
    /// The fields of a part are malformed.
    #[error("part without header")]
    Head,
    /// A part has no name, or several.
    #[error("part without name")]
    Name,
    /// There are too many parts.
    #[error("too many parts")]
    Parts,
}

/// One part of a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// Its fields, as they were sent, without the empty line.
    pub head: &'a str,
    /// The name of what it holds.
    pub name: &'a str,
    /// What it holds.
    pub value: &'a [u8],
}

impl<'a> Part<'a> {
    /// The value of a field of the part.
    pub fn field(&self, wanted: &str) -> Option<&'a str> {
        fields(self.head)
            .find_map(|(name, value)| name.eq_ignore_ascii_case(wanted).then_some(value))
    }

    /// Reads what stands between two delimiters.
    fn read(text: &'a [u8]) -> Result<Self, MultipartError> {
        let end = find(text, b"\r\n\r\n").ok_or(MultipartError::Head)?;
        let head = std::str::from_utf8(&text[..end]).map_err(|_| MultipartError::Head)?;
        let lines = head.split("\r\n");
        let sound = |line: &str| {
            let named = line.split_once(':').is_some_and(|(name, _)| is_token(name));
            named && !line.contains(|c: char| c.is_control() && c != '\t')
        };
        if lines.clone().count() > MAX_FIELDS || !lines.clone().all(sound) {
            return Err(MultipartError::Head);
        }
        let is_disposition = |name: &str| name.eq_ignore_ascii_case("content-disposition");
        let mut dispositions = fields(head).filter(|(name, _)| is_disposition(name));
        let (_, disposition) = dispositions.next().ok_or(MultipartError::Name)?;
        if dispositions.next().is_some() {
            return Err(MultipartError::Name);
        }
        let name = form_data(disposition).ok_or(MultipartError::Name)?;
        let value = &text[end + 4..];
        Ok(Self { head, name, value })
    }
}

fn fields(head: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = head.split("\r\n");
    lines.filter_map(|line| line.split_once(':'))
}

/// A form in parts that a request brings.
#[derive(Debug)]
pub struct MultipartForm<'a> {
    boundary: String,
    /// Its parts, in their order.
    pub parts: Vec<Part<'a>>,
}

impl<'a> MultipartForm<'a> {
    /// Reads `body`. `None`: readers could take it for different forms, or for none.
    pub fn read(headers: &HeaderMap, body: &'a [u8]) -> Option<Self> {
        let boundary = boundary(media_type(headers)).ok()?;
        Some(Self {
            parts: parts(boundary, body).ok()?,
            boundary: boundary.to_owned(),
        })
    }

    /// The body without the parts of these names; `None`: it has none of them.
    pub fn without(&self, names: &[&str]) -> Option<Vec<u8>> {
        let others = self.parts.iter();
        let others = others.filter(|part| !names.contains(&part.name));
        if others.clone().count() == self.parts.len() {
            return None;
        }
        // No value that was read has the boundary inside.
        let others = others.map(|part| (part.head, part.value));
        written(&self.boundary, others).ok()
    }
}

/// The boundary that a `Content-Type` names.
///
/// # Errors
/// [`MultipartError::Boundary`].
pub fn boundary(content_type: &str) -> Result<&str, MultipartError> {
    let wrong = MultipartError::Boundary;
    let (_, parameters) = content_type.split_once(';').ok_or(wrong)?;
    let boundary = only(parameters, "boundary").ok_or(wrong)?;
    let may_be = |b: u8| b.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&b);
    let sound = boundary.bytes().all(may_be) && !boundary.ends_with(' ');
    if boundary.is_empty() || boundary.len() > MAX_BOUNDARY || !sound {
        return Err(wrong);
    }
    Ok(boundary)
}

/// The parts of a body with this boundary, in their order.
///
/// # Errors
/// [`MultipartError`].
pub fn parts<'a>(boundary: &str, body: &'a [u8]) -> Result<Vec<Part<'a>>, MultipartError> {
    let delimiter = format!("--{boundary}");
    let mut delimiters = delimiters(body, delimiter.as_bytes());
    let first = delimiters.next().ok_or(MultipartError::Empty)??;
    let mut start = first + delimiter.len();
    let mut all = Vec::new();
    loop {
        let rest = &body[start..];
        if let Some(epilogue) = rest.strip_prefix(b"--") {
            let ends = epilogue.is_empty() || epilogue == b"\r\n";
            let ends = ends && delimiters.next().is_none();
            return if ends {
                Ok(all)
            } else {
                Err(MultipartError::Delimiter)
            };
        }
        if !rest.starts_with(b"\r\n") {
            return Err(MultipartError::Delimiter);
        }
        if all.len() == MAX_PARTS {
            return Err(MultipartError::Parts);
        }
        let next = delimiters.next().ok_or(MultipartError::Open)??;
        let end = next.checked_sub(2).filter(|end| *end >= start + 2);
        all.push(Part::read(
            &body[start + 2..end.ok_or(MultipartError::Head)?],
        )?);
        start = next + delimiter.len();
    }
}

/// Where delimiters stand: at the beginning and behind line breaks. One behind half
/// a line break is one to some readers only.
fn delimiters<'a>(
    body: &'a [u8],
    delimiter: &'a [u8],
) -> impl Iterator<Item = Result<usize, MultipartError>> + 'a {
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let at = from + find(&body[from..], delimiter)?;
            from = at + 1;
            let before = &body[..at];
            if before.is_empty() || before.ends_with(b"\r\n") {
                return Some(Ok(at));
            }
            if before.ends_with(b"\n") || before.ends_with(b"\r") {
                return Some(Err(MultipartError::Delimiter));
            }
        }
    })
}

/// Writes parts with this boundary.
///
/// # Errors
/// [`MultipartError::Delimiter`]: a value has the boundary inside.
pub fn written<'a>(
    boundary: &str,
    parts: impl Iterator<Item = (&'a str, &'a [u8])>,
) -> Result<Vec<u8>, MultipartError> {
    let delimiter = format!("--{boundary}");
    let mut out = Vec::new();
    for (head, value) in parts {
        if delimiters(value, delimiter.as_bytes()).next().is_some() {
            return Err(MultipartError::Delimiter);
        }
        for piece in ["--", boundary, "\r\n", head, "\r\n\r\n"] {
            out.extend_from_slice(piece.as_bytes());
        }
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
    if !out.is_empty() {
        for piece in ["--", boundary, "--\r\n"] {
            out.extend_from_slice(piece.as_bytes());
        }
    }
    Ok(out)
}

/// The fields of a part that is a plain value; what would end the name is written as
/// browsers write it.
pub fn plain_head(name: &str) -> String {
    let mut head = "Content-Disposition: form-data; name=\"".to_owned();
    for c in name.chars() {
        match c {
            '"' | '\\' | '\0'..='\x1f' | '\x7f' => {
                // Writing to a string can't fail.
                let _ = write!(head, "%{:02X}", u32::from(c));
            }
            _ => head.push(c),
        }
    }
    head.push('"');
    head
}

/// The name in a disposition of forms.
fn form_data(disposition: &str) -> Option<&str> {
    let (kind, parameters) = disposition.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("form-data") {
        return None;
    }
    only(parameters, "name")
}

/// The value of the one parameter of this name. Every parameter is read: readers
/// differ in where a malformed one ends.
fn only<'a>(parameters: &'a str, wanted: &str) -> Option<&'a str> {
    let mut found = None;
    let mut rest = parameters;
    loop {
        let (name, after) = rest.split_once('=')?;
        let name = name.trim();
        let (value, after) = value(after.trim_start())?;
        let bare = name.trim_end_matches('*');
        if !is_token(name) || (bare.eq_ignore_ascii_case(wanted) && bare != name) {
            return None;
        }
        if name.eq_ignore_ascii_case(wanted) && found.replace(value).is_some() {
            return None;
        }
        let after = after.trim();
        if after.is_empty() {
            return found;
        }
        rest = after.strip_prefix(';')?;
        if rest.trim().is_empty() {
            return found;
        }
    }
}

/// A value at the beginning of `text`, and what follows.
fn value(text: &str) -> Option<(&str, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(';').unwrap_or(text.len());
        let (value, after) = text.split_at(end);
        let value = value.trim();
        let bare = !value.is_empty() && !value.contains(['"', '\\', ' ', '\t']);
        return bare.then_some((value, after));
    };
    let (value, after) = quoted.split_once('"')?;
    // Some take the quote for a part of the value, others for its end.
    (!value.ends_with('\\')).then_some((value, after))
}

fn is_token(text: &str) -> bool {
    let may_be = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !text.is_empty() && text.bytes().all(may_be)
}

fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    let mut windows = hay.windows(needle.len());
    windows.position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(body: &str) -> Result<Vec<(&str, &[u8])>, MultipartError> {
        let all = parts("xyz", body.as_bytes())?;
        Ok(all.iter().map(|part| (part.name, part.value)).collect())
    }

    const A: &str = "--xyz\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n";

    #[test]
    fn parts_are_what_stands_between_the_delimiters() {
        let body = format!(
            "before\r\n{A}1\r\n--xy\r\n\r\n--xyz\r\nContent-Type: x/y\r\ncontent-disposition: \
             form-data; filename=\"C:\\b\"; name=b\r\n\r\n\r\n--xyz--\r\n"
        );
        let all = names(&body).expect("sound");
        assert_eq!(all, [("a", &b"1\r\n--xy\r\n"[..]), ("b", b"")]);
        let all = parts("xyz", body.as_bytes()).expect("sound");
        assert_eq!(all[1].field("content-type"), Some(" x/y"));
        assert_eq!(names("--xyz--"), Ok(Vec::new()));
    }

    #[test]
    fn tricks_with_boundaries_are_no_form() {
        let open = |text: &str| format!("{A}{text}");
        for body in [
            String::new(),
            A.to_owned(),
            open("1\r\n--xyz"),
            open("1\r\n--xyz--more"),
            open("1\r\n--xyz--\r\nepilogue"),
            open("1\r\n--xyz --"),
            // Behind half a line break.
            open("1\n--xyz--\r\n--xyz--"),
            open("1\r--xyz\r\n\r\n--xyz--"),
            // A boundary that only begins like it.
            open("1\r\n--xyzz\r\n\r\n--xyz--"),
            open("1\r\n--xyz--\r\n--xyz--"),
            "--xyz\r\n--xyz--".to_owned(),
            "--xyz\n\n--xyz--".to_owned(),
        ] {
            assert!(names(&body).is_err(), "{body:?}");
        }
    }

    #[test]
    fn a_part_has_one_name_to_every_reader() {
        for head in [
            "",
            "X: y",
            "Content-Disposition: form-data",
            "Content-Disposition: attachment; name=a",
            "Content-Disposition: form-data; name=a; name=b",
            "Content-Disposition: form-data; name=a; name*=UTF-8''b",
            "Content-Disposition: form-data; name*=UTF-8''b",
            "Content-Disposition: form-data; filename=\"\\\"; name=\"a\"",
            "Content-Disposition: form-data; filename=\"a; name=\"b\"",
            "Content-Disposition: form-data; name=\"a",
            "Content-Disposition: form-data; name=a b",
            "Content-Disposition: form-data; name=a\r\nContent-Disposition: form-data; name=b",
            "Content-Disposition: form-data; name=a\r\n folded: b",
            "Content-Disposition: form-data; name=a\nX: b",
            "Content-Disposition : form-data; name=a",
        ] {
            let body = format!("--xyz\r\n{head}\r\n\r\n1\r\n--xyz--");
            assert!(names(&body).is_err(), "{head:?}");
        }
    }

    #[test]
    fn boundaries_are_those_of_the_standard() {
        assert_eq!(boundary("multipart/form-data; boundary=xyz"), Ok("xyz"));
        assert_eq!(
            boundary("multipart/form-data; charset=utf-8; Boundary=\"x y\";"),
            Ok("x y")
        );
        for kind in [
            "multipart/form-data",
            "multipart/form-data; boundary=",
            "multipart/form-data; boundary=\"\"",
            "multipart/form-data; boundary=\"x \"",
            "multipart/form-data; boundary=a; boundary=b",
            "multipart/form-data; boundary=\"a\r\nb\"",
            "multipart/form-data; boundary=\u{e4}",
        ] {
            assert!(boundary(kind).is_err(), "{kind}");
        }
        let long = format!("multipart/form-data; boundary={}", "x".repeat(71));
        assert!(boundary(&long).is_err());
    }

    #[test]
    fn what_is_written_is_read_again() {
        let head = plain_head("a\"\r\nb\\");
        let body = written("xyz", [(&*head, &b"1"[..])].into_iter()).expect("sound");
        let all = parts("xyz", &body).expect("sound");
        assert_eq!((all[0].name, all[0].value), ("a%22%0D%0Ab%5C", &b"1"[..]));
        assert_eq!(written("xyz", std::iter::empty()), Ok(Vec::new()));
        for value in ["--xyz", "a\r\n--xyz", "a\n--xyz--"] {
            let parts = [(&*head, value.as_bytes())].into_iter();
            assert_eq!(written("xyz", parts), Err(MultipartError::Delimiter));
        }
    }

    #[test]
    fn a_form_has_no_more_parts_than_are_read() {
        let body = format!("{}--xyz--", format!("{A}1\r\n").repeat(MAX_PARTS));
        assert_eq!(names(&body).map(|all| all.len()), Ok(MAX_PARTS));
        let body = format!("{}--xyz--", format!("{A}1\r\n").repeat(MAX_PARTS + 1));
        assert_eq!(names(&body), Err(MultipartError::Parts));
    }
}
