//! Packages: built of the program under test, installed into a folder, started
//! from there.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::{Process, project, success};
use crate::support::ports::Port;
use crate::support::{eventually, http};

/// Builds the packages of the program under test, without its symbols.
fn packages(folder: &Path) {
    let program = folder.join("program");
    success(
        Command::new("strip")
            .arg("-o")
            .arg(&program)
            .arg(env!("CARGO_BIN_EXE_doorward")),
    );
    let mut dist = Command::new(project("deploy/package/dist.sh"));
    dist.arg(&program).arg(folder.join("dist"));
    success(
        dist.env("COMPRESSION", "fast")
            .env("SOURCE_DATE_EPOCH", "1790000000"),
    );
}

/// The file of `folder` whose name ends so.
fn file_of(folder: &Path, end: &str) -> std::path::PathBuf {
    let mut files = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path());
    let file = files.find(|path| path.to_string_lossy().ends_with(end));
    file.unwrap_or_else(|| panic!("no {end} in {}", folder.display()))
}

/// Installs the package below `root` as dpkg does, with its scripts.
fn install(package: &Path, root: &Path) {
    for folder in ["etc", "var/lib/dpkg/info", "var/lib/dpkg/updates"] {
        std::fs::create_dir_all(root.join(folder)).expect("a folder");
    }
    for file in [
        "etc/passwd",
        "etc/group",
        "etc/shadow",
        "etc/gshadow",
        "var/lib/dpkg/status",
    ] {
        std::fs::write(root.join(file), "").expect("a file");
    }
    let mut dpkg = Command::new("dpkg");
    dpkg.arg(format!("--root={}", root.display()));
    dpkg.args([
        "--force-depends",
        "--force-script-chrootless",
        "--force-not-root",
        "--install",
    ]);
    success(dpkg.arg(package));
}

/// Owner and mode of a path.
fn owner_and_mode(path: &Path) -> (u32, u32, u32) {
    let metadata = std::fs::metadata(path).expect("it is installed");
    (metadata.uid(), metadata.gid(), metadata.mode() & 0o7777)
}

/// The numbers of the user that the package made.
fn user(root: &Path) -> (u32, u32) {
    let users = std::fs::read_to_string(root.join("etc/passwd")).expect("users");
    let line = users.lines().find(|line| line.starts_with("doorward:"));
    let line = line.unwrap_or_else(|| panic!("no user in {users:?}"));
    assert!(line.ends_with("/usr/sbin/nologin"), "{line}");
    let numbers: Vec<u32> = line
        .split(':')
        .skip(2)
        .take(2)
        .map(|n| n.parse().expect("a number"))
        .collect();
    (numbers[0], numbers[1])
}

fn no_privileges() -> bool {
    !rustix::process::geteuid().is_root()
}

#[tokio::test]
#[ignore = "needs dpkg and rpmbuild, which `make test` installs"]
async fn what_the_package_installed_can_be_started() {
    if no_privileges() {
        println!("left out: only root gives files to the user of the package");
        return;
    }
    let folder = TempDir::new().expect("a folder");
    packages(folder.path());
    let dist = folder.path().join("dist");
    success(
        Command::new("sha256sum")
            .args(["--check", "--strict", "SHA256SUMS"])
            .current_dir(&dist),
    );

    let root = folder.path().join("root");
    install(&file_of(&dist, ".deb"), &root);
    let (uid, gid) = user(&root);
    assert_eq!(owner_and_mode(&root.join("etc/doorward")), (0, gid, 0o750));
    assert_eq!(
        owner_and_mode(&root.join("etc/doorward/doorward.yaml")),
        (0, gid, 0o640)
    );
    assert_eq!(
        owner_and_mode(&root.join("var/lib/doorward")),
        (uid, gid, 0o700)
    );
    assert_eq!(
        owner_and_mode(&root.join("var/log/doorward")),
        (uid, gid, 0o750)
    );
    for path in [
        "usr/share/man/man1/doorward.1.gz",
        "usr/share/man/man1/doorward-run.1.gz",
        "usr/share/bash-completion/completions/doorward",
        "usr/share/zsh/vendor-completions/_doorward",
        "usr/share/fish/vendor_completions.d/doorward.fish",
        "usr/share/doorward/grafana/doorward-overview.json",
        "usr/share/doorward/haproxy/forward-auth.lua",
        "usr/share/doorward/prometheus/doorward.rules.yml",
        "etc/logrotate.d/doorward",
    ] {
        assert!(root.join(path).is_file(), "{path}");
    }
    let unit = Path::new("deploy/systemd/doorward.service");
    let installed = root.join("usr/lib/systemd/system/doorward.service");
    assert_eq!(installed.is_file(), project("").join(unit).is_file());
    start_installed(&root).await;

    // Once more it is an upgrade: what the operator wrote stays.
    std::fs::write(
        root.join("etc/doorward/routes.yaml"),
        "_format_version: \"3.0\"\n",
    )
    .expect("a file");
    let mut dpkg = Command::new("dpkg");
    dpkg.arg(format!("--root={}", root.display()));
    dpkg.args([
        "--force-depends",
        "--force-script-chrootless",
        "--force-confold",
        "--install",
    ]);
    success(dpkg.arg(file_of(&dist, ".deb")));
    let routes = std::fs::read_to_string(root.join("etc/doorward/routes.yaml")).expect("a file");
    assert_eq!(routes, "_format_version: \"3.0\"\n");
    state_outlives_removal(&root);

    archive_is_whole(&dist, folder.path());
    rpm_is_whole(&dist);
    components_are_told(&dist);
}

/// Starts the installed program with the installed file, as the unit would.
async fn start_installed(root: &Path) {
    let (proxy, admin) = (Port::reserve(), Port::reserve());
    let file = root.join("etc/doorward/doorward.yaml");
    let text = std::fs::read_to_string(&file).expect("a file");
    // The unit starts it at `/`, where the state is at its place.
    assert!(text.contains("|/var/lib/doorward}"), "{text}");
    std::fs::write(&file, text.replace("127.0.0.1:8001", &admin.authority())).expect("a file");
    let mut command = Command::new(root.join("usr/bin/doorward"));
    command
        .args(["run", "-c"])
        .arg(&file)
        .env("DOORWARD_LISTEN", proxy.authority())
        .env("DOORWARD_DATA", root.join("var/lib/doorward"))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let _process = Process(command.spawn().expect("it starts"));
    let client = http::client();
    let status = format!("http://{}/status/ready", admin.authority());
    eventually("what was installed to be ready", || async {
        let answer = client.get(&status).send().await.ok()?;
        answer.status().is_success().then_some(())
    })
    .await;
    let discovery = format!(
        "http://{}/oauth2/.well-known/openid-configuration",
        proxy.authority()
    );
    http::send(client.get(discovery)).await.expect(200);
    assert!(root.join("var/lib/doorward/doorward.db").is_file());
}

/// Removes the package with its files; the state is the operator's.
fn state_outlives_removal(root: &Path) {
    let mut dpkg = Command::new("dpkg");
    dpkg.arg(format!("--root={}", root.display()));
    success(dpkg.args(["--force-script-chrootless", "--purge", "doorward"]));
    assert!(!root.join("usr/bin/doorward").exists());
    assert!(!root.join("etc/doorward/doorward.yaml").exists());
    assert!(root.join("var/lib/doorward/doorward.db").is_file());
}

/// The archive has the program, its pages and its files.
fn archive_is_whole(dist: &Path, folder: &Path) {
    success(
        Command::new("tar")
            .arg("-xzf")
            .arg(file_of(dist, ".tar.gz"))
            .arg("-C")
            .arg(folder),
    );
    let name = file_of(dist, ".tar.gz");
    let name = name
        .file_name()
        .expect("a name")
        .to_string_lossy()
        .replace(".tar.gz", "");
    let archive = folder.join(name);
    for path in [
        "man/doorward.1.gz",
        "completions/zsh",
        "conf/doorward.yaml",
        "LICENSE",
        "docs/operation.md",
    ] {
        assert!(archive.join(path).is_file(), "{path}");
    }
    let version = success(Command::new(archive.join("bin/doorward")).arg("--version"));
    assert_eq!(
        version.trim(),
        concat!("doorward ", env!("CARGO_PKG_VERSION"))
    );
}

/// The package for rpm has the same owners, and no folder of the system.
fn rpm_is_whole(dist: &Path) {
    let listing = success(
        Command::new("rpm")
            .args(["-qplv"])
            .arg(file_of(dist, ".rpm")),
    );
    let line = |path: &str| {
        let line = listing.lines().find(|line| line.ends_with(path));
        line.unwrap_or_else(|| panic!("no {path} in\n{listing}"))
            .to_owned()
    };
    assert!(line(" /usr/bin/doorward").starts_with("-rwxr-xr-x"));
    let file = line(" /etc/doorward/doorward.yaml");
    assert!(
        file.starts_with("-rw-r-----") && file.contains(" doorward "),
        "{file}"
    );
    assert!(line(" /var/lib/doorward").starts_with("drwx------"));
    assert!(
        !listing
            .lines()
            .any(|line| line.ends_with(" /usr/bin") || line.ends_with(" /usr"))
    );
}

/// The list of components names what the program is linked of, and no more.
fn components_are_told(dist: &Path) {
    let listing = std::fs::read_to_string(file_of(dist, ".cdx.json")).expect("a list");
    let listing: Value = serde_json::from_str(&listing).expect("JSON");
    assert_eq!(listing["bomFormat"], "CycloneDX");
    assert_eq!(listing["metadata"]["component"]["name"], "doorward");
    let components = listing["components"].as_array().expect("components");
    let names: Vec<_> = components
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    for name in [
        "pingora-proxy",
        "rustls",
        "tokio",
        "sqlx-core",
        "doorward-gateway",
    ] {
        assert!(names.contains(&name), "{name}");
    }
    for name in ["criterion", "proptest", "openidconnect"] {
        assert!(!names.contains(&name), "{name} is for tests alone");
    }
    let foreign = components.iter().filter(|one| {
        !one["name"]
            .as_str()
            .is_some_and(|name| name.starts_with("doorward"))
    });
    for one in foreign {
        assert!(one["hashes"][0]["content"].is_string(), "{one}");
        assert!(one["licenses"].is_array(), "{one}");
    }
}
