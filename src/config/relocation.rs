//! Paths of the configuration file, taken from its own directory.

use std::path::Path;

use serde_json::Value;

use doorward_core::yaml::{Document, PathSegment};
use doorward_net::telemetry::access_log;

/// What is told of a value, by its place.
type Warning = (Vec<PathSegment>, String);

/// Where paths stand in the file; `*` is every key and every item.
const PATHS: &[&str] = &[
    "entities.*",
    "proxy.upstream_ca",
    "proxy.error_pages.*",
    "proxy.dns.resolv_conf",
    "proxy.dns.hosts_file",
    "proxy.tls.certificate",
    "proxy.tls.key",
    "proxy.tls.client_certificates.ca",
    "admin.tls.certificate",
    "admin.tls.key",
    "admin.tls.client_certificates.ca",
    "acme.ca",
    "identity.pages.theme",
    "identity.outbound.ca_file",
    "identity.realms.*.settings.password_policy.breached_list",
    "identity.realms.*.settings.ldap.ca_file",
    "redis.ca",
    "audit.file",
];

/// Has the relative paths of a document begin at its directory. What is not
/// there, but is in the working directory, where earlier versions looked for
/// it, is taken from there; the answer says which.
pub(super) fn relocate(document: &mut Document) -> Vec<String> {
    let file = document.file().to_owned();
    let directory = file.parent().unwrap_or(Path::new("")).to_owned();
    let mut warnings: Vec<Warning> = Vec::new();
    if directory.as_os_str().is_empty() {
        return Vec::new();
    }
    let mut place = |key: &[PathSegment], path: &str| -> Option<String> {
        let path = Path::new(path);
        if path.is_absolute() || path.as_os_str().is_empty() {
            return None;
        }
        let there = directory.join(path);
        if !there.exists() && path.exists() {
            let message = format!(
                "{} is taken from the working directory, since there is no {}; paths are \
                 relative to the file that names them",
                path.display(),
                there.display()
            );
            warnings.push((key.to_vec(), message));
            return None;
        }
        there.to_str().map(str::to_owned)
    };
    let value = document.value_mut();
    for pattern in PATHS {
        let pieces: Vec<&str> = pattern.split('.').collect();
        each(value, &pieces, &mut Vec::new(), &mut |key, text| {
            if let Some(moved) = place(key, text) {
                *text = moved;
            }
        });
    }
    each(value, &["store"], &mut Vec::new(), &mut |key, text| {
        let path = text.strip_prefix("sqlite:");
        let path = path.map(|path| path.strip_prefix("//").unwrap_or(path));
        if let Some(moved) = path.and_then(|path| place(key, path)) {
            *text = format!("sqlite:{moved}");
        }
    });
    for path in [
        &["telemetry", "access_log"][..],
        &["telemetry", "access_log", "to"],
    ] {
        each(value, path, &mut Vec::new(), &mut |key, text| {
            if let Some((before, path)) = access_log::split_path(text)
                && let Some(moved) = place(key, path)
            {
                *text = format!("{before}{moved}");
            }
        });
    }
    let located = warnings
        .into_iter()
        .map(|(key, message)| document.error(&key, message).to_string());
    located.collect()
}

/// Calls `act` with each text at `path`, and where it stands; `at` is the way to `value`.
fn each(
    value: &mut Value,
    path: &[&str],
    at: &mut Vec<PathSegment>,
    act: &mut impl FnMut(&[PathSegment], &mut String),
) {
    match (path.split_first(), value) {
        (None, Value::String(text)) => act(at, text),
        (Some((&"*", rest)), Value::Array(list)) => {
            for (index, item) in list.iter_mut().enumerate() {
                at.push(index.into());
                each(item, rest, at, act);
                at.pop();
            }
        }
        (Some((&"*", rest)), Value::Object(map)) => {
            for (key, item) in map.iter_mut() {
                at.push(key.as_str().into());
                each(item, rest, at, act);
                at.pop();
            }
        }
        (Some((key, rest)), Value::Object(map)) => {
            if let Some(inner) = map.get_mut(*key) {
                at.push((*key).into());
                each(inner, rest, at, act);
                at.pop();
            }
        }
        _ => {}
    }
}
