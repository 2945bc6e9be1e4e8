//! The tables of the page on deployment, against the files that they speak of.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_yaml::Value;
use tempfile::TempDir;

use super::{files, project, success, text};

/// The rows of the table whose head is this line, as their cells.
fn rows(page: &str, head: &str) -> Vec<Vec<String>> {
    let (_, rest) = page.split_once(&format!("\n{head}\n")).expect(head);
    let rows = rest
        .lines()
        .skip(1)
        .take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells = row.trim_matches(['|', ' ']).split(" | ");
        cells.map(|cell| cell.trim().to_owned()).collect()
    })
    .collect()
}

/// What stands in backticks.
fn spans(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[test]
fn variables_of_the_image_in_the_page_are_those_that_its_file_reads() {
    let page = text("docs/deployment.md");
    let mut listed = BTreeMap::new();
    for row in rows(&page, "| variable | default | |") {
        let (names, defaults) = (spans(&row[0]), spans(&row[1]));
        for (number, name) in names.iter().enumerate() {
            let default = defaults.get(number).copied().unwrap_or("required");
            listed.insert((*name).to_owned(), default.to_owned());
        }
    }
    let file = text("deploy/container/doorward.yaml");
    let known: BTreeMap<_, _> = file
        .split("\"&{")
        .skip(1)
        .filter_map(|rest| rest.split('}').next())
        .map(|reference| {
            let (name, default) = reference.split_once('|').unwrap_or((reference, "required"));
            let name = name.replace('.', "_").to_uppercase();
            (name, default.to_owned())
        })
        .collect();
    assert_eq!(listed, known, "of the page, and of the file");
    for name in known.keys() {
        let comment = file.lines().filter(|line| line.starts_with('#'));
        let mut comment = comment.filter(|line| line.contains(name.as_str()));
        assert!(comment.next().is_some(), "the file's head lacks {name}");
    }
    let dockerfile = text("Dockerfile");
    assert!(page.contains("The health check is `doorward health --ready`."));
    let check = r#""doorward", "health", "--ready""#;
    assert!(
        dockerfile.contains(check) || dockerfile.contains("doorward health --ready"),
        "{dockerfile}"
    );
}

#[test]
fn values_of_the_chart_that_the_page_names_are_there() {
    let page = text("docs/deployment.md");
    let values: Value =
        serde_yaml::from_str(&text("deploy/helm/doorward/values.yaml")).expect("YAML");
    let has = |path: &str| {
        let mut place = &values;
        path.split('.').all(|key| match place.get(key) {
            Some(inner) => {
                place = inner;
                true
            }
            None => false,
        })
    };
    let (_, kubernetes) = page.split_once("\n## Kubernetes\n").expect("the heading");
    let mut named = 0;
    for span in spans(kubernetes) {
        let is_path = span.bytes().all(|b| b == b'.' || b.is_ascii_alphanumeric());
        let first = span.split(['.', ':']).next().unwrap_or_default();
        let is_dotted = is_path && span.contains('.');
        if is_dotted && values.get(first).is_some() {
            named += 1;
            assert!(has(span), "{span}");
        }
    }
    for name in ["config", "entities", "readiness", "preStopSeconds"] {
        assert!(
            kubernetes.contains(&format!("`{name}")) && has(name),
            "{name}"
        );
    }
    assert!(named > 4, "{named}");
    let dashboards: BTreeSet<_> = files("deploy/grafana", ".json")
        .iter()
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    let (_, grafana) = page.split_once("\n## Grafana\n").expect("the heading");
    let told = spans(grafana)
        .into_iter()
        .filter(|span| dashboards.contains(*span));
    let told: BTreeSet<_> = told.map(str::to_owned).collect();
    assert_eq!(told, dashboards, "of the page, and of the folder");
}

/// The paths of a listing below `folder`, without what is inside of them.
fn below(listing: &str, folder: &str) -> BTreeSet<String> {
    let paths = listing.lines().filter_map(|line| {
        let path = line.split_whitespace().last()?.trim_start_matches('.');
        let name = path.strip_prefix(folder)?.split('/').next()?;
        Some(format!("{folder}{name}"))
    });
    paths.filter(|path| path != folder).collect()
}

#[test]
#[ignore = "needs the programs that pack"]
fn files_of_the_packages_in_the_page_are_those_that_are_packed() {
    let folder = TempDir::new().expect("a folder");
    let dist = folder.path().join("dist");
    let mut pack = Command::new(project("deploy/package/dist.sh"));
    // A small program in the place of the real one, which prints manual and completions.
    pack.arg("/bin/true").arg(&dist);
    pack.env("TOOL", env!("CARGO_BIN_EXE_doorward"));
    success(pack.env("COMPRESSION", "fast"));
    let page = text("docs/deployment.md");
    let version = env!("CARGO_PKG_VERSION");
    let made: BTreeSet<_> = std::fs::read_dir(&dist)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name())
        .map(|name| name.to_string_lossy().replace("-glibc", ""))
        .collect();
    let rows = |head: &str| rows(&page, head);
    let listed = rows("| file | for |");
    let fits = |made: &str, listed: &str| match listed.strip_prefix('…') {
        Some(end) => made.ends_with(end),
        None => made == listed.replace("VERSION", version),
    };
    let names: Vec<_> = listed.iter().map(|row| spans(&row[0])[0]).collect();
    for made in &made {
        let is_told = names.iter().any(|name| fits(made, name));
        assert!(is_told, "the page lacks {made}");
    }
    for name in &names {
        let is_made = made.iter().any(|made| fits(made, name));
        assert!(is_made, "{name} is not made");
    }
    let file = |end: &str| {
        let mut entries = std::fs::read_dir(&dist).expect("a folder");
        let found = entries.find_map(|entry| {
            let path = entry.expect("an entry").path();
            path.to_string_lossy().ends_with(end).then_some(path)
        });
        found.expect(end)
    };
    let archive = success(Command::new("tar").arg("tzf").arg(file(".tar.gz")));
    let inside: BTreeSet<_> = archive
        .lines()
        .filter_map(|line| line.split_once('/'))
        .filter_map(|(_, rest)| rest.split_once('/'))
        .map(|(name, _)| format!("{name}/"))
        .collect();
    let row = listed.iter().find(|row| row[0].contains("tar.gz"));
    let told = spans(&row.expect("a row")[1])
        .into_iter()
        .map(str::to_owned);
    assert_eq!(
        told.collect::<BTreeSet<_>>(),
        inside,
        "of the page, and of the archive"
    );
    let package = success(Command::new("dpkg-deb").arg("-c").arg(file(".deb")));
    let mut installed = BTreeSet::new();
    for folder in [
        "/etc/",
        "/etc/doorward/",
        "/var/lib/",
        "/var/log/",
        "/usr/share/",
    ] {
        installed.extend(below(&package, folder));
    }
    let told = rows("| path | owner, mode | |");
    let mut paths = BTreeSet::new();
    for row in &told {
        let own = spans(&row[0]);
        let first = own.first().copied().unwrap_or_default();
        let folder = first.rsplit_once('/').map_or("", |(folder, _)| folder);
        for span in own.iter().chain(&spans(&row[2..].join(" "))) {
            let path = span.trim_end_matches('/');
            if span.starts_with('/') {
                paths.insert(path.to_owned());
            } else if own.contains(span) {
                paths.insert(format!("{folder}/{path}"));
            }
        }
    }
    // Standard folders, whose contents the page tells in words.
    for standard in ["bash-completion", "doc", "fish", "man", "zsh"] {
        installed.remove(&format!("/usr/share/{standard}"));
    }
    installed.remove("/etc/doorward");
    installed.remove("/etc/logrotate.d");
    installed.insert("/etc/logrotate.d/doorward".to_owned());
    paths.retain(|path| {
        path.starts_with("/etc/") || path.starts_with("/var/") || path.starts_with("/usr/")
    });
    assert_eq!(paths, installed, "of the page, and of the package");
    let postinst = text("deploy/package/debian/postinst");
    for row in &told {
        for path in spans(&row[0])
            .into_iter()
            .filter(|path| path.starts_with("/var/"))
        {
            let (_, mode) = row[1].split_once(", ").expect("owner and mode");
            let owned = format!("private {mode} \"$user\" {path}\n");
            assert!(
                row[1].starts_with("doorward,") && postinst.contains(&owned),
                "{path}"
            );
        }
    }
    assert!(
        told[0][1].ends_with(", 0640")
            && postinst.contains("private 0640 0 \"/etc/doorward/$file\"")
    );
}
