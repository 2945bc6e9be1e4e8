//! What the store keeps of a consent: scopes, each at the server that it is for.
//!
//! A scope at one server is not the same scope at another one. An entry is
//! `RESOURCE#SCOPE`, or a scope alone where the request names no resource.
//! Resources have no fragment, so the first `#` parts the two.

/// The entries of a request: each scope at each resource. A request that names
/// resources and no scope has an entry for each resource.
pub(super) fn entries(scopes: &[String], resources: &[String]) -> Vec<String> {
    if resources.is_empty() {
        return scopes.iter().map(|scope| entry("", scope)).collect();
    }
    let mut all = Vec::new();
    for resource in resources {
        // Entries stand in a list that blanks part.
        let resource = resource.replace(' ', "%20");
        if scopes.is_empty() {
            all.push(entry(&resource, ""));
        }
        all.extend(scopes.iter().map(|scope| entry(&resource, scope)));
    }
    all
}

fn entry(resource: &str, scope: &str) -> String {
    // A scope may have the character itself, and is no resource then.
    if resource.is_empty() && !scope.contains('#') {
        scope.to_owned()
    } else {
        format!("{resource}#{scope}")
    }
}

/// What a user is shown of a request: scopes, then resources.
pub(super) fn lines(scopes: &[String], resources: &[String]) -> Vec<String> {
    scopes.iter().chain(resources).cloned().collect()
}

/// What entries are about, each once: scopes, then resources. Older entries are
/// single scopes and resources.
pub(super) fn shown(entries: &[String]) -> Vec<String> {
    let parts = entries.iter().map(|entry| {
        let parts = entry.split_once('#');
        parts.unwrap_or(("", entry.as_str()))
    });
    let (resources, scopes): (Vec<_>, Vec<_>) = parts.unzip();
    let mut all: Vec<String> = Vec::new();
    for one in scopes.into_iter().chain(resources) {
        if !one.is_empty() && !all.iter().any(|known| known == one) {
            all.push(one.to_owned());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn each_scope_is_kept_with_each_resource_and_shown_once() {
        let (a, b) = ("https://a.example/mcp", "https://b.example");
        let kept = entries(&list(&["read", "write"]), &list(&[a, b]));
        assert_eq!(kept.len(), 4);
        assert!(kept.contains(&format!("{b}#write")));
        assert_eq!(shown(&kept), list(&["read", "write", a, b]));
        let bare = entries(&list(&["read"]), &[]);
        assert_eq!(bare, list(&["read"]));
        assert_eq!(shown(&list(&[a, "read"])), list(&[a, "read"]), "an old row");
    }

    #[test]
    fn no_scope_passes_for_a_scope_at_a_server() {
        let forged = entries(&list(&["https://a.example#write"]), &[]);
        let genuine = entries(&list(&["write"]), &list(&["https://a.example"]));
        assert_ne!(forged, genuine);
        assert_eq!(shown(&forged), list(&["https://a.example#write"]));
    }

    #[test]
    fn a_server_without_scopes_is_asked_for_too() {
        let kept = entries(&[], &list(&["https://a.example"]));
        assert_eq!(kept, list(&["https://a.example#"]));
        assert_eq!(shown(&kept), list(&["https://a.example"]));
    }
}
