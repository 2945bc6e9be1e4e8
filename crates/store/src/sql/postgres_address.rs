//! What an address of a PostgreSQL database may say.
//!
//! The driver passes over what it does not know, with a warning that shows the
//! value. A misspelt `sslmode` would then leave the connection open to anybody in
//! between. So names and values are checked here first, and nothing that is said
//! of them repeats what may be a password.

use std::env;
use std::net::IpAddr;
use std::str::FromStr;

use sqlx::postgres::PgConnectOptions;
use url::{Url, form_urlencoded};

use crate::{Cause, StoreError};
use doorward_core::model::suggestion::nearest;

/// The parameters that an address of a PostgreSQL database may have. `options` may
/// also stand as `options[NAME]`.
pub const POSTGRES_PARAMETERS: &[&str] = &[
    "application_name",
    "dbname",
    "host",
    "hostaddr",
    "options",
    "password",
    "port",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "statement-cache-capacity",
    "user",
];

/// Other names of parameters, which the driver takes as well.
const ALIASES: &[(&str, &str)] = &[
    ("ssl-ca", "sslrootcert"),
    ("ssl-cert", "sslcert"),
    ("ssl-key", "sslkey"),
    ("ssl-mode", "sslmode"),
    ("ssl-root-cert", "sslrootcert"),
];

/// Parameters of libpq that have no effect here. Addresses that providers of databases
/// hand out have them.
pub const POSTGRES_PASSED_OVER: &[&str] = &[
    "channel_binding",
    "client_encoding",
    "connect_timeout",
    "fallback_application_name",
    "gssencmode",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "pgbouncer",
    "pool_timeout",
    "sslnegotiation",
    "sslsni",
    "target_session_attrs",
    "tcp_user_timeout",
];

/// The values of `sslmode`, from the least to the most.
pub const POSTGRES_SSL_MODES: &[&str] = &[
    "disable",
    "allow",
    "prefer",
    "require",
    "verify-ca",
    "verify-full",
];

/// The environment's parts of an address that the driver passes over if they are
/// wrong, with the parameter that each stands for.
const VARIABLES: &[(&str, &str)] = &[("PGSSLMODE", "sslmode"), ("PGPORT", "port")];

/// Whether an address of a PostgreSQL database can be used, as far as its text shows.
///
/// # Errors
/// [`StoreError::Address`] with what is wrong and what is allowed.
pub(crate) fn check_postgres_address(url: &str) -> Result<(), StoreError> {
    options(url).map(drop)
}

/// What the driver makes of an address.
pub(super) fn options(url: &str) -> Result<PgConnectOptions, StoreError> {
    check(url, |name| env::var(name).ok()).map_err(|wrong| StoreError::Address(wrong, None))?;
    // No host is one for others, if `host` says where; not for the parser.
    let url = match url.split_once("@/") {
        Some((user, rest)) if rest.contains("host=") => format!("{user}@localhost/{rest}"),
        _ => url.to_owned(),
    };
    let url = without_passed_over(&url);
    // What is wrong with it is said without what it holds: a password.
    PgConnectOptions::from_str(&url)
        .map_err(|error| StoreError::Address(error.to_string(), Some(Cause::new(error))))
}

/// The address without what has no effect: the driver would show its values.
fn without_passed_over(url: &str) -> String {
    let Some((place, query)) = url.split_once('?') else {
        return url.to_owned();
    };
    let has_effect = |parameter: &&str| {
        let name = form_urlencoded::parse(parameter.as_bytes()).next();
        let name = name.map(|(name, _)| name).unwrap_or_default();
        let is_passed_over = POSTGRES_PASSED_OVER.contains(&&*name);
        if is_passed_over {
            tracing::warn!("the parameter {name} of the store's address has no effect");
        }
        !is_passed_over
    };
    let rest: Vec<_> = query.split('&').filter(has_effect).collect();
    format!("{place}?{}", rest.join("&"))
}

/// Whether each parameter is known, there once, and of a value that it may have.
fn check(url: &str, variable: impl Fn(&str) -> Option<String>) -> Result<(), String> {
    if url.contains('#') {
        return Err("has the character #; write it as %23".to_owned());
    }
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let mut seen = Vec::new();
    // Read as the driver reads them.
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
        let name = alias.map_or(&*name, |(_, name)| name);
        let is_option = name == "options" || name.starts_with("options[") && name.ends_with(']');
        if is_option || POSTGRES_PASSED_OVER.contains(&name) {
            continue;
        }
        if !POSTGRES_PARAMETERS.contains(&name) {
            // A ? in front of an @ stands in a password, and so does the name.
            let name = if query.contains('@') { "?" } else { name };
            return Err(unknown("parameter", name, POSTGRES_PARAMETERS));
        }
        if seen.iter().any(|seen| seen == name) {
            return Err(format!("has the parameter `{name}` twice"));
        }
        check_value(name, &value)?;
        seen.push(name.to_owned());
    }
    if Url::parse(url).is_ok_and(|url| url.port().is_some()) {
        seen.push("port".to_owned());
    }
    for (name, parameter) in VARIABLES {
        if let Some(value) = variable(name).filter(|_| !seen.iter().any(|seen| seen == parameter)) {
            check_value(parameter, &value).map_err(|wrong| format!("takes {name}: {wrong}"))?;
        }
    }
    Ok(())
}

fn check_value(name: &str, value: &str) -> Result<(), String> {
    match name {
        "sslmode" if !POSTGRES_SSL_MODES.contains(&&*value.to_lowercase()) => {
            Err(unknown("value of `sslmode`:", value, POSTGRES_SSL_MODES))
        }
        "port" if value.parse::<u16>().is_ok_and(|port| port > 0) => Ok(()),
        "port" => Err("`port`: expected a whole number from 1 to 65535".to_owned()),
        "statement-cache-capacity" if value.parse::<usize>().is_err() => {
            Err("`statement-cache-capacity`: expected a whole number".to_owned())
        }
        "hostaddr" if value.parse::<IpAddr>().is_err() => {
            Err("`hostaddr`: expected an IP address".to_owned())
        }
        _ => Ok(()),
    }
}

/// What is said of a name that is none of these.
fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    let shown = if name.len() <= 32 && name.bytes().all(is_word) {
        format!(" `{name}`")
    } else {
        String::new()
    };
    let expected = known.join("`, `");
    let told = format!("unknown {what}{shown}, expected one of `{expected}`");
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("{told}; did you mean `{near}`?"),
        None => told,
    }
}

#[cfg(test)]
mod tests {
    use super::{POSTGRES_SSL_MODES, check, without_passed_over};

    fn said(rest: &str) -> String {
        let url = format!("postgres://u:hush@db.test/x{rest}");
        check(&url, |_| None).err().unwrap_or_default()
    }

    #[test]
    fn parameters_that_are_known_are_taken() {
        for rest in [
            "",
            "?",
            "?host=/run/postgresql&user=u&password=p%40",
            "?options=-c%20search_path%3Ddoor&options[geqo]=off",
            "?sslmode=verify-full&sslrootcert=/a&sslcert=/b&sslkey=/c&",
            "?hostaddr=%3A%3A1&port=5432&dbname=x",
            "?user=u@db&ssl-mode=require&ssl-root-cert=/a",
            "?application_name=door&statement-cache-capacity=50",
            "?sslmode=Require&options=-c%20a%3D1&options=-c%20b%3D1",
            "?sslmode=verify%2Dfull&options%5Bsearch_path%5D=door",
            "?sslmode=require&channel_binding=require&connect_timeout=10",
        ] {
            assert_eq!(said(rest), "", "{rest}");
        }
        for mode in POSTGRES_SSL_MODES {
            assert_eq!(said(&format!("?sslmode={mode}")), "");
        }
    }

    #[test]
    fn a_wrong_parameter_is_named_with_what_is_allowed() {
        let modes = "`disable`, `allow`, `prefer`, `require`, `verify-ca`, `verify-full`";
        let nonsense = format!("unknown value of `sslmode`: `nonsense`, expected one of {modes}");
        assert_eq!(said("?sslmode=nonsense"), nonsense);
        assert!(said("?sslmode=verify_full").ends_with("did you mean `verify-full`?"));
        assert!(said("?sslmode=").starts_with("unknown value of `sslmode`:"));
        assert!(said("?sslmod=require").ends_with("did you mean `sslmode`?"));
        assert!(said("?ssl_mode=require").ends_with("did you mean `sslmode`?"));
        assert!(said("?sslcrl=/a").starts_with("unknown parameter `sslcrl`"));
        for twice in [
            "sslmode=require&sslmode=disable",
            "sslmode=require&ssl-mode=disable",
        ] {
            assert_eq!(
                said(&format!("?{twice}")),
                "has the parameter `sslmode` twice"
            );
        }
        assert!(said("?port=0").contains("from 1 to 65535"));
        assert!(said("?hostaddr=db").contains("an IP address"));
    }

    #[test]
    fn what_has_no_effect_does_not_reach_the_driver() {
        let without =
            without_passed_over("postgres://db.test/x?connect_timeout=5&user=u&keepalives=1");
        assert_eq!(without, "postgres://db.test/x?user=u");
        assert_eq!(
            without_passed_over("postgres://db.test/x"),
            "postgres://db.test/x"
        );
    }

    #[test]
    fn what_may_be_part_of_a_password_is_not_repeated() {
        for url in [
            "postgres://u:1?sesame=x@db.test/x",
            "postgres://u:1#sesame@db.test/x",
            "postgres://u@db.test/x?pass%77ord%20sesame=x",
            "postgres://u@db.test/x?pasword=sesame",
        ] {
            let wrong = check(url, |_| None).expect_err(url);
            assert!(!wrong.contains("sesame"), "{wrong}");
        }
    }

    #[test]
    fn what_the_environment_adds_is_checked_where_it_counts() {
        let wrong = |url: &str| check(url, |name| (name == "PGSSLMODE").then(|| "full".to_owned()));
        let said = wrong("postgres://db.test/x").expect_err("it would be `prefer`");
        assert!(said.starts_with("takes PGSSLMODE: unknown value"), "{said}");
        wrong("postgres://db.test/x?sslmode=disable").expect("the address says it");
        let port = |url: &str| check(url, |name| (name == "PGPORT").then(|| "http".to_owned()));
        port("postgres://db.test/x").expect_err("it would be 5432");
        port("postgres://db.test:5433/x").expect("the address says it");
    }
}
