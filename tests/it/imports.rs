//! Crates depend one way: from the parts that know more to those that know less.
//!
//! Cargo refuses cycles and imports that a manifest does not declare. This test
//! refuses a manifest that declares too much.

use std::fs;
use std::path::Path;

/// Each crate with all crates of this workspace that it may depend on.
const MAY_DEPEND_ON: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("expr", &["core"]),
    ("net", &["core", "expr"]),
    ("store", &["core"]),
    ("audit", &["core", "net", "store"]),
    ("acme", &["core", "net", "store", "audit"]),
    ("plugin-api", &["core", "expr", "net"]),
    ("oidc-client", &["core", "net"]),
    (
        "openid-connect",
        &["core", "expr", "net", "oidc-client", "store", "plugin-api"],
    ),
    (
        "plugins",
        &[
            "core",
            "expr",
            "net",
            "store",
            "audit",
            "plugin-api",
            "oidc-client",
            "openid-connect",
        ],
    ),
    (
        "identity",
        &["core", "net", "store", "audit", "oidc-client"],
    ),
    (
        "gateway",
        &[
            "core",
            "expr",
            "net",
            "store",
            "plugin-api",
            "openid-connect",
            "plugins",
        ],
    ),
    (
        "admin",
        &[
            "core",
            "net",
            "store",
            "audit",
            "plugin-api",
            "openid-connect",
            "plugins",
            "gateway",
        ],
    ),
    ("console", &["core", "net", "admin", "identity"]),
];

#[test]
fn crates_depend_one_way() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    let mut seen = 0;
    for entry in fs::read_dir(&root).expect("the crates") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.expect("UTF-8").to_owned();
        let row = MAY_DEPEND_ON.iter().find(|(of, _)| *of == name);
        let (_, allowed) = row.unwrap_or_else(|| panic!("give {name} a row in MAY_DEPEND_ON"));
        let manifest = fs::read_to_string(path.join("Cargo.toml")).expect("a manifest");
        for dependency in dependencies(&manifest) {
            assert!(
                allowed.contains(&dependency),
                "{name} depends on {dependency}"
            );
        }
        seen += 1;
    }
    assert_eq!(
        seen,
        MAY_DEPEND_ON.len(),
        "a row names a crate that is gone"
    );
}

#[test]
fn dependencies_of_tests_do_not_count() {
    let manifest = "[dependencies]\ndoorward-core.workspace = true\nserde.workspace = true\n\n\
                    [dev-dependencies]\ndoorward-net = { workspace = true }\n";
    let found: Vec<_> = dependencies(manifest).collect();
    assert_eq!(found, ["core"]);
}

/// The crates of this workspace that the section `[dependencies]` names.
fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let section = manifest
        .split_once("[dependencies]\n")
        .map(|(_, rest)| rest);
    let section = section.unwrap_or_default();
    let section = section.split("\n[").next().unwrap_or_default();
    section.lines().filter_map(|line| {
        let name = line.strip_prefix("doorward-")?;
        name.split(['.', ' ']).next()
    })
}
