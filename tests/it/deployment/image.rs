//! The container image: its root file system as the Dockerfile lays it out, with
//! the program under test in it, run in a chroot as the image's user.

use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::{Process, project, success, text};
use crate::support::ports::Port;
use crate::support::{eventually, http};

/// The user of the image.
const USER: &str = "10001:10001";

/// Copies the libraries that the program under test needs, since it is no static
/// file as that of the image is.
pub(super) fn add_libraries(root: &Path) {
    let listing = success(Command::new("ldd").arg(env!("CARGO_BIN_EXE_doorward")));
    let words = listing
        .split_whitespace()
        .filter(|word| word.starts_with('/'));
    for library in words.map(Path::new) {
        let copy = root.join(library.strip_prefix("/").expect("absolute"));
        std::fs::create_dir_all(copy.parent().expect("a folder")).expect("a folder");
        std::fs::copy(library, copy).expect("a copy");
    }
}

#[test]
fn the_dockerfile_makes_no_image_of_root() {
    let file = text("Dockerfile");
    let last = file.rsplit("\nFROM ").next().expect("a stage");
    assert!(last.starts_with("scratch\n"), "{last}");
    assert!(last.contains(&format!("\nUSER {USER}\n")), "{last}");
    // Without a shell every command is a list.
    for command in ["CMD", "ENTRYPOINT"] {
        for line in last
            .lines()
            .filter(|line| line.trim_start().starts_with(command))
        {
            assert!(line.contains("[\""), "{line}");
        }
    }
    assert!(
        last.contains(r#"CMD ["doorward", "health", "--ready"]"#),
        "{last}"
    );
}

#[tokio::test]
#[ignore = "needs root and /etc/ssl/certs, which packages of `make test` bring"]
async fn the_root_file_system_of_the_image_is_all_that_it_needs() {
    if !rustix::process::geteuid().is_root() {
        println!("left out: only root may change the root directory");
        return;
    }
    let folder = TempDir::new().expect("a folder");
    let root = folder.path().join("root");
    let mut layout = Command::new(project("deploy/container/root.sh"));
    success(layout.arg(env!("CARGO_BIN_EXE_doorward")).arg(&root));
    add_libraries(&root);
    let state = root.join("var/lib/doorward");
    success(Command::new("chown").arg(USER).arg(&state));
    // The user of the image reaches its root.
    success(Command::new("chmod").arg("0755").arg(folder.path()));

    let (proxy, admin) = (Port::reserve(), Port::reserve());
    let inside = |arguments: &[&str]| {
        let mut command = Command::new("chroot");
        command
            .arg(format!("--userspec={USER}"))
            .arg(&root)
            .arg("/usr/local/bin/doorward");
        command.args(arguments).env_clear();
        command.env("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/bin");
        command.env("DOORWARD_CONFIG", "/etc/doorward/doorward.yaml");
        command.env("DOORWARD_LISTEN", proxy.authority());
        command.env("DOORWARD_ADMIN_LISTEN", admin.authority());
        command.env(
            "DOORWARD_MASTER_KEY",
            "bWFzdGVyLWtleS1mb3ItdGVzdHMtb25seS0wMTIzNDU2Nzg5",
        );
        command.stdin(Stdio::null());
        command
    };
    // A secret that is not given is named.
    let refused = inside(&["check"]).output().expect("chroot starts");
    let message = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && message.contains("DOORWARD_ADMIN_TOKEN"),
        "{message}"
    );

    let token = "a-token-of-the-environment";
    let mut run = inside(&["run"]);
    run.env("DOORWARD_ADMIN_TOKEN", token)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let _process = Process(run.spawn().expect("chroot starts"));
    // As HEALTHCHECK asks.
    eventually("the image to be healthy", || async {
        let health = inside(&["health", "--ready"])
            .env("DOORWARD_ADMIN_TOKEN", token)
            .output();
        health
            .expect("chroot starts")
            .status
            .success()
            .then_some(())
    })
    .await;
    let discovery = format!(
        "http://{}/oauth2/.well-known/openid-configuration",
        proxy.authority()
    );
    http::send(http::client().get(discovery)).await.expect(200);
    let metrics = http::client().get(format!("http://{}/metrics", admin.authority()));
    http::send(metrics.bearer_auth(token)).await.expect(200);
    assert!(state.join("doorward.db").is_file());
}
