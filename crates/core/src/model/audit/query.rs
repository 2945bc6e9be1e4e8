//! What records of the audit log are asked for by.

use std::net::IpAddr;

use chrono::{DateTime, NaiveDate};
use uuid::Uuid;

use super::Kind;
use crate::model::user::name;

/// What records of the audit log are asked for by. All that is given must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditQuery {
    /// From this time on, in milliseconds since the epoch.
    pub since_ms: Option<i64>,
    /// Until before this time.
    pub until_ms: Option<i64>,
    /// One of these; none: any.
    pub kinds: Vec<Kind>,
    /// Path of the realm.
    pub realm: Option<String>,
    /// Whom it concerns.
    pub user: Option<AuditUser>,
    /// Which client it concerns.
    pub client_id: Option<String>,
    /// Where the request came from.
    pub address: Option<String>,
    /// Whether it was refused.
    pub failed: Option<bool>,
    /// Only those behind this one, in the order asked for.
    pub after: Option<Uuid>,
    /// The newest first.
    pub newest_first: bool,
    /// At most so many.
    pub limit: u32,
}

/// A user as records are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditUser {
    /// By identifier.
    Id(Uuid),
    /// By the name at that time, folded.
    Name(String),
}

impl AuditUser {
    /// What has the shape of an identifier is one.
    pub fn of(text: &str) -> Self {
        match Uuid::try_parse(text) {
            Ok(id) if text.len() == 36 => Self::Id(id),
            _ => Self::Name(name::key(text)),
        }
    }
}

impl AuditQuery {
    /// Reads a parameter as people write it; of `kind` there may be several, or
    /// several names with commas between them.
    ///
    /// # Errors
    /// What is wrong with the value.
    pub fn set(&mut self, parameter: &str, value: &str, now_ms: i64) -> Result<(), String> {
        match parameter {
            "since" => self.since_ms = Some(instant(value, now_ms)?),
            "until" => self.until_ms = Some(instant(value, now_ms)?),
            "kind" => {
                for name in value.split(',').map(str::trim) {
                    self.kinds.extend(kinds(name)?);
                }
            }
            "realm" => self.realm = Some(format!("/{}", value.trim_matches('/'))),
            "user" => self.user = Some(AuditUser::of(value)),
            "client" => self.client_id = Some(value.to_owned()),
            "outcome" => {
                self.failed = Some(match value {
                    "success" => false,
                    "failure" => true,
                    _ => return Err(format!("'{value}' is none of success and failure")),
                });
            }
            "address" => {
                let address = value.parse::<IpAddr>();
                let address = address.map_err(|_| format!("'{value}' is no IP address"))?;
                self.address = Some(address.to_canonical().to_string());
            }
            "order" => {
                self.newest_first = match value {
                    "newest" => true,
                    "oldest" => false,
                    _ => return Err(format!("'{value}' is none of newest and oldest")),
                };
            }
            _ => return Err("is not known".to_owned()),
        }
        Ok(())
    }
}

/// The kinds of this name: one, or with an asterisk all of a family (`token.*`).
fn kinds(name: &str) -> Result<Vec<Kind>, String> {
    let found: Vec<Kind> = match name.strip_suffix('*') {
        Some(start) if start.ends_with('.') => Kind::ALL
            .iter()
            .copied()
            .filter(|kind| kind.as_str().starts_with(start))
            .collect(),
        _ => Kind::parse(name).into_iter().collect(),
    };
    if found.is_empty() {
        Err(format!("'{name}' is no kind of event"))
    } else {
        Ok(found)
    }
}

/// An instant, in milliseconds since the epoch: RFC 3339, a date, seconds since
/// the epoch, or how long ago (`90s`, `15m`, `24h`, `7d`).
fn instant(text: &str, now_ms: i64) -> Result<i64, String> {
    // A plus sign of an offset that nobody escaped arrives as a blank.
    if let Ok(time) = DateTime::parse_from_rfc3339(&text.replace(' ', "+")) {
        return Ok(time.timestamp_millis());
    }
    let day = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok();
    if let Some(midnight) = day.and_then(|day| day.and_hms_opt(0, 0, 0)) {
        return Ok(midnight.and_utc().timestamp_millis());
    }
    if let Ok(seconds) = text.parse::<i64>() {
        return Ok(seconds.saturating_mul(1000));
    }
    ago(text)
        .map(|ago_ms| now_ms.saturating_sub(ago_ms))
        .ok_or_else(|| format!("'{text}' is no time: give 2026-01-31T12:00:00Z, 2026-01-31 or 24h"))
}

fn ago(text: &str) -> Option<i64> {
    let unit = text.chars().last()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return None,
    };
    let number: i64 = text.strip_suffix(unit)?.parse().ok()?;
    (number >= 0).then(|| number.saturating_mul(seconds * 1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        let now_ms = 10_000_000_000;
        let read = |text| instant(text, now_ms);
        assert_eq!(read("1970-01-02T00:00:00Z"), Ok(86_400_000));
        assert_eq!(read("1970-01-02T01:00:00 01:00"), Ok(86_400_000));
        assert_eq!(read("1970-01-02"), Ok(86_400_000));
        assert_eq!(read("86400"), Ok(86_400_000));
        assert_eq!(read("24h"), Ok(now_ms - 86_400_000));
        assert_eq!(read("0s"), Ok(now_ms));
        for wrong in ["", "yesterday", "h", "-1h", "1.5h"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_no_filter_is_refused() {
        let mut query = AuditQuery::default();
        for (name, value) in [
            ("kind", "session"),
            ("kind", "*"),
            ("outcome", "ok"),
            ("address", "localhost"),
            ("order", "up"),
            ("colour", "red"),
        ] {
            assert!(query.set(name, value, 0).is_err(), "{name}={value}");
        }
        query.set("kind", "token.*,session.end", 0).expect("kinds");
        assert!(query.kinds.contains(&Kind::TokenRevoke));
        assert_eq!(query.kinds.last(), Some(&Kind::SessionEnd));
    }
}
