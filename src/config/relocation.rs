//! Paths of the configuration file, taken from its own directory.

use std::path::Path;

use serde_json::Value;

use doorward_core::yaml::Document;

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
    let mut warnings = Vec::new();
    if directory.as_os_str().is_empty() {
        return warnings;
    }
    let mut place = |key: &str, path: &str| -> Option<String> {
        let path = Path::new(path);
        if path.is_absolute() || path.as_os_str().is_empty() {
            return None;
        }
        let there = directory.join(path);
        if !there.exists() && path.exists() {
            warnings.push(format!(
                "{}: {key}: {} is taken from the working directory, since there is no {}; paths \
                 are relative to the file that names them",
                file.display(),
                path.display(),
                there.display()
            ));
            return None;
        }
        there.to_str().map(str::to_owned)
    };
    let value = document.value_mut();
    for pattern in PATHS {
        let pieces: Vec<&str> = pattern.split('.').collect();
        let key = pattern.trim_end_matches(".*");
        each(value, &pieces, &mut |text| {
            if let Some(moved) = place(key, text) {
                *text = moved;
            }
        });
    }
    each(value, &["store"], &mut |text| {
        let path = text.strip_prefix("sqlite:");
        let path = path.map(|path| path.strip_prefix("//").unwrap_or(path));
        if let Some(moved) = path.and_then(|path| place("store", path)) {
            *text = format!("sqlite:{moved}");
        }
    });
    for path in [
        &["telemetry", "access_log"][..],
        &["telemetry", "access_log", "to"],
    ] {
        each(value, path, &mut |text| {
            if !matches!(text.as_str(), "stdout" | "off")
                && let Some(moved) = place(&path.join("."), text)
            {
                *text = moved;
            }
        });
    }
    warnings
}

/// Calls `act` with each text at `path`.
fn each(value: &mut Value, path: &[&str], act: &mut impl FnMut(&mut String)) {
    match (path.split_first(), value) {
        (None, Value::String(text)) => act(text),
        (Some((&"*", rest)), Value::Array(list)) => {
            list.iter_mut().for_each(|item| each(item, rest, act));
        }
        (Some((&"*", rest)), Value::Object(map)) => {
            map.values_mut().for_each(|item| each(item, rest, act));
        }
        (Some((key, rest)), Value::Object(map)) => {
            if let Some(inner) = map.get_mut(*key) {
                each(inner, rest, act);
            }
        }
        _ => {}
    }
}
