//! The kinds of entities that have pages, and where a page's record lies.

use serde_json::Value;

use super::path;
use super::session::Role;
use super::texts::Texts;

/// A kind of entities.
pub(crate) struct Kind {
    /// Its part of the Admin API's paths.
    pub(crate) plural: &'static str,
    /// What `/schemas` calls it.
    pub(crate) schema: &'static str,
    /// The kind below which alone it is found.
    pub(crate) parent: Option<&'static str>,
    pub(crate) title: fn(&Texts) -> &'static str,
    /// The fields that lists show; the first leads to the record.
    pub(crate) columns: &'static [&'static str],
    /// The kinds that a record's page lists.
    pub(crate) children: &'static [&'static str],
    /// Who changes its records: keys and secrets are the owners'.
    pub(crate) changed_by: Role,
}

/// Every kind.
pub(crate) static KINDS: &[Kind] = &[
    Kind {
        plural: "services",
        schema: "services",
        parent: None,
        title: |t| t.services,
        columns: &[
            "name", "protocol", "host", "port", "path", "enabled", "tags",
        ],
        children: &["routes", "plugins"],
        changed_by: Role::Operator,
    },
    Kind {
        plural: "routes",
        schema: "routes",
        parent: None,
        title: |t| t.routes,
        columns: &["name", "hosts", "paths", "methods", "service", "tags"],
        children: &["plugins"],
        changed_by: Role::Operator,
    },
    Kind {
        plural: "plugins",
        schema: "plugins",
        parent: None,
        title: |t| t.plugins,
        columns: &[
            "name",
            "instance_name",
            "service",
            "route",
            "consumer",
            "enabled",
            "tags",
        ],
        children: &[],
        changed_by: Role::Operator,
    },
    Kind {
        plural: "consumers",
        schema: "consumers",
        parent: None,
        title: |t| t.consumers,
        columns: &["username", "custom_id", "tags"],
        children: &[
            "key-auth",
            "basic-auth",
            "hmac-auth",
            "jwt",
            "oauth2",
            "acls",
            "plugins",
        ],
        changed_by: Role::Operator,
    },
    Kind {
        plural: "upstreams",
        schema: "upstreams",
        parent: None,
        title: |t| t.upstreams,
        columns: &["name", "algorithm", "hash_on", "tags"],
        children: &["targets"],
        changed_by: Role::Operator,
    },
    Kind {
        plural: "certificates",
        schema: "certificates",
        parent: None,
        title: |t| t.certificates,
        columns: &["id", "snis", "tags"],
        children: &["snis"],
        changed_by: Role::Owner,
    },
    Kind {
        plural: "snis",
        schema: "snis",
        parent: None,
        title: |t| t.snis,
        columns: &["name", "certificate", "tags"],
        children: &[],
        changed_by: Role::Operator,
    },
    Kind {
        plural: "ca_certificates",
        schema: "ca_certificates",
        parent: None,
        title: |t| t.ca_certificates,
        columns: &["id", "cert_digest", "tags"],
        children: &[],
        changed_by: Role::Owner,
    },
    Kind {
        plural: "targets",
        schema: "targets",
        parent: Some("upstreams"),
        title: |t| t.targets,
        columns: &["target", "weight", "tags"],
        children: &[],
        changed_by: Role::Operator,
    },
    credential(
        "key-auth",
        "keyauth_credentials",
        |_| "key-auth",
        &["id", "key", "tags"],
    ),
    credential(
        "basic-auth",
        "basicauth_credentials",
        |_| "basic-auth",
        &["username", "tags"],
    ),
    credential(
        "hmac-auth",
        "hmacauth_credentials",
        |_| "hmac-auth",
        &["username", "tags"],
    ),
    credential(
        "jwt",
        "jwt_secrets",
        |_| "jwt",
        &["key", "algorithm", "tags"],
    ),
    credential(
        "oauth2",
        "oauth2_credentials",
        |_| "oauth2",
        &["name", "client_id", "tags"],
    ),
    credential("acls", "acls", |_| "acl", &["group", "tags"]),
];

const fn credential(
    plural: &'static str,
    schema: &'static str,
    title: fn(&Texts) -> &'static str,
    columns: &'static [&'static str],
) -> Kind {
    Kind {
        plural,
        schema,
        parent: Some("consumers"),
        title,
        columns,
        children: &[],
        changed_by: Role::Owner,
    }
}

impl Kind {
    /// The kind that paths call `plural`.
    pub(crate) fn of(plural: &str) -> Option<&'static Kind> {
        KINDS.iter().find(|kind| kind.plural == plural)
    }

    /// The page of its list.
    pub(crate) fn address(&self) -> String {
        path::join("/console/gateway", [self.plural])
    }
}

/// A list or a record of the gateway, as paths of the Admin API and of the console
/// name it.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) kind: &'static Kind,
    /// The kind and the key of the record above it.
    pub(crate) owner: Option<(&'static Kind, String)>,
    pub(crate) key: Option<String>,
}

impl Place {
    /// What these parts of a path name.
    pub(crate) fn of(params: &[String]) -> Option<Self> {
        match params {
            [plural] => Self::whole(plural, None),
            [plural, key] => Self::whole(plural, Some(key)),
            [parent, owner, plural] => Self::below(parent, owner, plural, None),
            [parent, owner, plural, key] => Self::below(parent, owner, plural, Some(key)),
            _ => None,
        }
    }

    fn whole(plural: &str, key: Option<&String>) -> Option<Self> {
        let kind = Kind::of(plural).filter(|kind| kind.parent.is_none())?;
        Some(Self {
            kind,
            owner: None,
            key: key.cloned(),
        })
    }

    fn below(parent: &str, owner: &str, plural: &str, key: Option<&String>) -> Option<Self> {
        let parent = Kind::of(parent)?;
        let is_child = parent.children.contains(&plural);
        let kind = Kind::of(plural).filter(|_| is_child)?;
        Some(Self {
            kind,
            owner: Some((parent, owner.to_owned())),
            key: key.cloned(),
        })
    }

    /// Its path below `prefix`; that of the Admin API below "".
    pub(crate) fn path(&self, prefix: &str) -> String {
        path::join(prefix, self.parts())
    }

    /// The parts of its path ([`Place::of`]).
    pub(crate) fn params(&self) -> Vec<String> {
        self.parts().into_iter().map(str::to_owned).collect()
    }

    fn parts(&self) -> Vec<&str> {
        let mut parts = Vec::new();
        if let Some((parent, owner)) = &self.owner {
            parts.extend([parent.plural, owner.as_str()]);
        }
        parts.push(self.kind.plural);
        parts.extend(self.key.as_deref());
        parts
    }

    /// Its list.
    pub(crate) fn list(&self) -> Self {
        Self {
            key: None,
            ..self.clone()
        }
    }

    /// A record of this list. One that is also found by itself is named so.
    pub(crate) fn record(&self, key: &str) -> Self {
        let owner = self.owner.clone().filter(|_| self.kind.parent.is_some());
        Self {
            owner,
            key: Some(key.to_owned()),
            ..self.clone()
        }
    }
}

/// What people call a record.
pub(crate) fn name_of(record: &Value) -> &str {
    let names = [
        "instance_name",
        "name",
        "username",
        "target",
        "group",
        "custom_id",
        "key",
        "id",
    ];
    let mut names = names.iter().filter_map(|name| record.get(name)?.as_str());
    names
        .find(|name| !name.is_empty() && *name != "**")
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str) -> Option<String> {
        let params: Vec<_> = path.split('/').map(str::to_owned).collect();
        Place::of(&params).map(|place| place.path(""))
    }

    #[test]
    fn only_paths_of_entities_are_places() {
        for path in [
            "services",
            "services/a",
            "upstreams/u/targets",
            "consumers/c/key-auth/k",
        ] {
            assert_eq!(place(path), Some(format!("/{path}")), "{path}");
        }
        let foreign = [
            "config",
            "targets",
            "services/a/targets",
            "snis/x/routes",
            "routes/a/b/c/d",
        ];
        for path in foreign {
            assert_eq!(place(path), None, "{path}");
        }
        // Dots lead nowhere else.
        let params = ["services".to_owned(), "../config".to_owned()];
        let dots = Place::of(&params).expect("a place").path("");
        assert_eq!(dots, "/services/..%2Fconfig");
    }

    #[test]
    fn children_name_kinds() {
        for kind in KINDS {
            for child in kind.children {
                assert!(Kind::of(child).is_some(), "{child}");
            }
        }
    }
}
