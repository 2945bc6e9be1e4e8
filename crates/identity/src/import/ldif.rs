//! LDIF (RFC 2849): entries of people, as a directory exports them.
//!
//! Changes, controls and values elsewhere (`:<`) are refused: nothing is read
//! but the file itself.

use std::io::{self, BufRead, Read};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Map;

use super::attributes::{Place, without_gaps};
use super::{ImportError, ImportedPassword, ImportedUser, RECORD_MAX, Record};
use doorward_core::model::secret::Secret;

/// Attributes of directories (RFC 4519, RFC 2798 and what servers add), and
/// where their values belong. Several values of `[]` stay apart; of others the
/// first one counts.
const ATTRIBUTES: &[(&str, &str, Option<&str>)] = &[
    ("displayname", "displayName", None),
    ("cn", "name.formatted", None),
    ("commonname", "name.formatted", None),
    ("sn", "name.familyName", None),
    ("surname", "name.familyName", None),
    ("givenname", "name.givenName", None),
    ("gn", "name.givenName", None),
    ("middlename", "name.middleName", None),
    ("personaltitle", "name.honorificPrefix", None),
    ("generationqualifier", "name.honorificSuffix", None),
    ("nickname", "nickName", None),
    ("title", "title", None),
    ("employeetype", "userType", None),
    ("preferredlanguage", "preferredLanguage", None),
    ("entryuuid", "externalId", None),
    ("nsuniqueid", "externalId", None),
    ("mail", "emails", Some("work")),
    ("rfc822mailbox", "emails", Some("work")),
    ("mailalternateaddress", "emails", Some("other")),
    ("telephonenumber", "phoneNumbers", Some("work")),
    ("mobile", "phoneNumbers", Some("mobile")),
    ("mobiletelephonenumber", "phoneNumbers", Some("mobile")),
    ("homephone", "phoneNumbers", Some("home")),
    ("hometelephonenumber", "phoneNumbers", Some("home")),
    ("pager", "phoneNumbers", Some("pager")),
    ("facsimiletelephonenumber", "phoneNumbers", Some("fax")),
    ("street", "addresses.streetAddress", None),
    ("streetaddress", "addresses.streetAddress", None),
    ("l", "addresses.locality", None),
    ("localityname", "addresses.locality", None),
    ("st", "addresses.region", None),
    ("stateorprovincename", "addresses.region", None),
    ("postalcode", "addresses.postalCode", None),
    ("c", "addresses.country", None),
];

/// Classes of entries that are of people.
const PEOPLE: [&str; 8] = [
    "person",
    "inetorgperson",
    "organizationalperson",
    "account",
    "posixaccount",
    "user",
    "pilotperson",
    "residentialperson",
];

/// The records of a file.
pub struct LdifRecords<R> {
    reader: R,
    /// The attribute that has the user name, in small letters.
    name: String,
    /// The physical line that was read last.
    line: u64,
    /// A line that belongs to what comes next.
    ahead: Option<Vec<u8>>,
    begun: bool,
    over: bool,
}

/// A line with those that continue it, and where it begins.
struct Logical {
    line: u64,
    text: Vec<u8>,
}

impl<R: BufRead> LdifRecords<R> {
    /// Reads `reader`; user names are the values of the attribute `name`.
    pub fn new(reader: R, name: &str) -> Self {
        Self {
            reader,
            name: name.to_ascii_lowercase(),
            line: 0,
            ahead: None,
            begun: false,
            over: false,
        }
    }

    fn physical(&mut self) -> Result<Option<Vec<u8>>, ImportError> {
        if let Some(line) = self.ahead.take() {
            return Ok(Some(line));
        }
        let unreadable = |line, error| ImportError::Unreadable { line, error };
        let mut text = Vec::new();
        let most = u64::try_from(RECORD_MAX).unwrap_or(u64::MAX);
        let read = (&mut self.reader).take(most).read_until(b'\n', &mut text);
        let read = read.map_err(|error| unreadable(self.line + 1, error))?;
        if read == 0 {
            return Ok(None);
        }
        self.line += 1;
        if text.last() != Some(&b'\n') && read >= RECORD_MAX {
            let error = io::Error::other("the line is longer than 1 MiB");
            return Err(unreadable(self.line, error));
        }
        while matches!(text.last(), Some(b'\n' | b'\r')) {
            text.pop();
        }
        Ok(Some(text))
    }

    fn logical(&mut self) -> Result<Option<Logical>, ImportError> {
        let Some(mut text) = self.physical()? else {
            return Ok(None);
        };
        let line = self.line;
        // An empty line ends a record, and nothing continues it.
        while !text.is_empty() {
            match self.physical()? {
                Some(next) if next.first() == Some(&b' ') => {
                    if text.len() + next.len() > RECORD_MAX {
                        let text = "the value is longer than 1 MiB".to_owned();
                        return Err(ImportError::Format { line, text });
                    }
                    text.extend_from_slice(&next[1..]);
                }
                next => {
                    self.ahead = next;
                    break;
                }
            }
        }
        // The line that was read ahead is counted, and not yet used.
        Ok(Some(Logical { line, text }))
    }

    /// The lines of the next record.
    fn lines(&mut self) -> Result<Option<(u64, Vec<Logical>)>, ImportError> {
        let mut lines: Vec<Logical> = Vec::new();
        let mut bytes = 0;
        while let Some(logical) = self.logical()? {
            if logical.text.first() == Some(&b'#') {
                continue;
            }
            if logical.text.is_empty() {
                if lines.is_empty() {
                    continue;
                }
                break;
            }
            let version = logical.text.starts_with(b"version:");
            if !std::mem::replace(&mut self.begun, true) && version {
                continue;
            }
            bytes += logical.text.len();
            if bytes > 4 * RECORD_MAX {
                let text = "the record is longer than 4 MiB".to_owned();
                let line = logical.line;
                return Err(ImportError::Format { line, text });
            }
            lines.push(logical);
        }
        Ok(lines
            .first()
            .map(|first| first.line)
            .map(|line| (line, lines)))
    }
}

impl<R: BufRead> Iterator for LdifRecords<R> {
    type Item = Result<Record, ImportError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        match self.lines() {
            Ok(Some((line, lines))) => Some(Ok(Record {
                line,
                found: entry(&lines, &self.name),
            })),
            Ok(None) => None,
            Err(error) => {
                self.over = true;
                Some(Err(error))
            }
        }
    }
}

/// The user of an entry; none if it is of something else than a person.
fn entry(lines: &[Logical], name: &str) -> Result<Option<ImportedUser>, String> {
    let mut entry = Entry::default();
    for (position, logical) in lines.iter().enumerate() {
        let (attribute, value) = attribute(&logical.text)?;
        match (position, attribute.as_str()) {
            (0, "dn") => continue,
            (0, _) => return Err("the record does not begin with `dn:`".to_owned()),
            (_, "changetype" | "control") => {
                return Err("is a change, and not an entry".to_owned());
            }
            _ => {}
        }
        entry.take(&attribute, &value, name)?;
    }
    let Some(user_name) = entry.user_name else {
        return if entry.person {
            Err(format!("has no attribute {name}"))
        } else {
            Ok(None)
        };
    };
    let mut record = entry.record;
    record.insert("userName".to_owned(), user_name.into());
    for many in ["emails", "phoneNumbers"] {
        let first = record.get_mut(many).and_then(|values| values.get_mut(0));
        if let Some(first) = first.and_then(|first| first.as_object_mut()) {
            first.insert("primary".to_owned(), true.into());
        }
    }
    if record.contains_key("addresses") {
        let place = Place::Value("addresses".to_owned(), 0, "type".to_owned());
        place.put(&mut record, "work")?;
    }
    without_gaps(&mut record);
    Ok(Some(ImportedUser {
        record,
        password: entry.password,
    }))
}

#[derive(Default)]
struct Entry {
    record: Map<String, serde_json::Value>,
    user_name: Option<String>,
    password: Option<ImportedPassword>,
    person: bool,
    emails: usize,
    phones: usize,
}

impl Entry {
    fn take(&mut self, attribute: &str, value: &[u8], name: &str) -> Result<(), String> {
        let text = || {
            let text = std::str::from_utf8(value);
            text.map_err(|_| format!("{attribute}: is no UTF-8"))
        };
        if attribute == name && self.user_name.is_none() {
            self.user_name = Some(text()?.to_owned());
        }
        match attribute {
            "objectclass" => {
                let class = text()?.to_ascii_lowercase();
                self.person |= PEOPLE.contains(&class.as_str());
            }
            "userpassword" if self.password.is_none() && !value.is_empty() => {
                self.password = Some(password(text()?));
            }
            "nsaccountlock" | "ds-pwp-account-disabled" if text()?.eq_ignore_ascii_case("true") => {
                let off = "Deactivated".into();
                self.record.insert("accountStatus".to_owned(), off);
            }
            _ => {}
        }
        let Some((_, place, kind)) = ATTRIBUTES.iter().find(|(known, ..)| *known == attribute)
        else {
            return Ok(());
        };
        let Some(kind) = kind else {
            let place = Place::parse(place).ok_or("unknown")?;
            let mut fresh = Map::new();
            place.put(&mut fresh, text()?)?;
            return self.add(fresh);
        };
        let count = match *place {
            "emails" => &mut self.emails,
            _ => &mut self.phones,
        };
        if *count >= 64 {
            return Err(format!("{attribute}: has more than 64 values"));
        }
        let at = |member: &str| Place::Value((*place).to_owned(), *count, member.to_owned());
        at("value").put(&mut self.record, text()?)?;
        at("type").put(&mut self.record, kind)?;
        *count += 1;
        Ok(())
    }

    /// Adds what is not there yet.
    fn add(&mut self, fresh: Map<String, serde_json::Value>) -> Result<(), String> {
        for (name, value) in fresh {
            match (self.record.get_mut(&name), value) {
                (Some(old), new) => merge(old, new),
                (None, new) => {
                    self.record.insert(name, new);
                }
            }
        }
        Ok(())
    }
}

fn merge(old: &mut serde_json::Value, new: serde_json::Value) {
    use serde_json::Value::{Array, Object};
    match (old, new) {
        (Object(old), Object(new)) => {
            for (name, value) in new {
                old.entry(name).or_insert(value);
            }
        }
        (Array(old), Array(new)) => {
            for (old, new) in old.iter_mut().zip(new) {
                merge(old, new);
            }
        }
        _ => {}
    }
}

/// A hash names its scheme in braces; anything else is the password.
fn password(text: &str) -> ImportedPassword {
    let scheme = text.strip_prefix('{').and_then(|text| text.split_once('}'));
    match scheme {
        Some((scheme, rest)) => match scheme.to_ascii_uppercase().as_str() {
            "CLEAR" | "CLEARTEXT" => ImportedPassword::Plain(Secret::new(rest)),
            _ => ImportedPassword::Hash(Secret::new(text)),
        },
        None => ImportedPassword::Plain(Secret::new(text)),
    }
}

/// Name (without options, in small letters) and value of a line.
fn attribute(line: &[u8]) -> Result<(String, Vec<u8>), String> {
    let colon = line.iter().position(|byte| *byte == b':');
    let colon = colon.ok_or("a line has no colon")?;
    let name = std::str::from_utf8(&line[..colon]).map_err(|_| "a name is no UTF-8")?;
    let mut parts = name.split(';');
    let base = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
    // Values in other languages are others; `binary` says how it is sent.
    let base = if parts.any(|option| !option.eq_ignore_ascii_case("binary")) {
        format!("{base};")
    } else {
        base
    };
    if base.is_empty() {
        return Err("a line has no name".to_owned());
    }
    let blank = |value: &[u8]| {
        let start = value.iter().position(|byte| *byte != b' ');
        value[start.unwrap_or(value.len())..].to_vec()
    };
    match &line[colon + 1..] {
        [b':', value @ ..] => {
            let value = STANDARD.decode(blank(value));
            Ok((
                base.clone(),
                value.map_err(|_| format!("{base}: is no base64"))?,
            ))
        }
        [b'<', ..] => Err(format!(
            "{base}: names a file or address, which is not read"
        )),
        value => Ok((base, blank(value))),
    }
}
