//! The container image, built and run by buildah, which needs no daemon. The stages
//! that would fetch images of others and compile are replaced by what they make.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::image::add_libraries;
use super::{project, success, text};
use crate::support::ports::Port;
use crate::support::{eventually, http};

const TOKEN: &str = "a-token-of-the-environment";
const MASTER_KEY: &str = "bWFzdGVyLWtleS1mb3ItdGVzdHMtb25seS0wMTIzNDU2Nzg5";

/// buildah with a storage of its own.
struct Buildah {
    storage: TempDir,
}

/// A running container, which ends with the value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // buildah hands the signal on.
        let pid = self.0.id().to_string();
        let _ = Command::new("kill").arg(pid).status();
        let _ = self.0.wait();
    }
}

impl Buildah {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("buildah");
        command.arg("--root").arg(self.storage.path().join("root"));
        command
            .arg("--runroot")
            .arg(self.storage.path().join("run"));
        command.args(["--storage-driver", "vfs"]).args(arguments);
        command.stdin(Stdio::null());
        command
    }

    /// What runs a command in a container, which has the network of this machine.
    fn run(&self, container: &str, ports: &[Port; 2], arguments: &[&str]) -> Command {
        let variables = [
            format!("DOORWARD_ADMIN_TOKEN={TOKEN}"),
            format!("DOORWARD_MASTER_KEY={MASTER_KEY}"),
            format!("DOORWARD_LISTEN={}", ports[0].authority()),
            format!("DOORWARD_ADMIN_LISTEN={}", ports[1].authority()),
        ];
        let mut command = self.command(&["run", "--isolation", "chroot"]);
        for variable in variables {
            command.arg("--env").arg(variable);
        }
        command.args([container, "--", "doorward"]).args(arguments);
        command
    }
}

/// The folder that the image is built of: what the first stage makes, with the
/// program under test, and the last stage of the Dockerfile.
fn lay_out(folder: &Path) -> PathBuf {
    let context = folder.join("context");
    let image = context.join("image");
    std::fs::create_dir(&context).expect("a folder");
    let program = folder.join("doorward");
    let mut strip = Command::new("strip");
    success(
        strip
            .arg("-o")
            .arg(&program)
            .arg(env!("CARGO_BIN_EXE_doorward")),
    );
    let mut layout = Command::new(project("deploy/container/root.sh"));
    success(layout.arg(&program).arg(&image));
    add_libraries(&image);
    let dockerfile = text("Dockerfile");
    let (_, last) = dockerfile.rsplit_once("\nFROM ").expect("a last stage");
    // The program under test is no static file.
    let libraries = ["lib", "lib64"].into_iter();
    let libraries = libraries.filter(|name| image.join(name).exists());
    let libraries = libraries.map(|name| format!("COPY --from=build /image/{name} /{name}\n"));
    let file = format!(
        "FROM scratch AS build\nCOPY image /image\nFROM {last}{}",
        libraries.collect::<String>()
    );
    std::fs::write(context.join("Dockerfile"), file).expect("a file");
    context
}

#[tokio::test]
#[ignore = "needs buildah and root, which `make test` brings"]
async fn buildah_builds_the_image_and_runs_it_as_its_user() {
    if !rustix::process::geteuid().is_root() {
        println!("left out: buildah runs a chroot as root alone");
        return;
    }
    let folder = TempDir::new().expect("a folder");
    let context = lay_out(folder.path());
    let storage = TempDir::new().expect("a folder");
    let buildah = Buildah { storage };
    let build = [
        "build",
        "--isolation",
        "chroot",
        "--layers=false",
        "--format",
        "docker",
        "--tag",
        "doorward",
    ];
    success(buildah.command(&build).arg(&context));
    let image = success(&mut buildah.command(&["inspect", "--type", "image", "doorward"]));
    let image: Value = serde_json::from_str(&image).expect("JSON");
    let config = &image["Docker"]["config"];
    assert_eq!(config["User"], "10001:10001");
    assert_eq!(config["Entrypoint"][0], "doorward");
    assert_eq!(config["Cmd"][0], "run");
    assert_eq!(config["Healthcheck"]["Test"][2], "health");

    let container = success(&mut buildah.command(&["from", "--pull-never", "doorward"]));
    let container = container.trim();
    let ports = [Port::reserve(), Port::reserve()];
    let mut run = buildah.run(container, &ports, &["run"]);
    run.stdout(Stdio::null()).stderr(Stdio::null());
    let _running = Running(run.spawn().expect("buildah starts"));
    // As HEALTHCHECK asks.
    eventually("the container to be healthy", || async {
        let health = buildah
            .run(container, &ports, &["health", "--ready"])
            .output();
        health
            .expect("buildah starts")
            .status
            .success()
            .then_some(())
    })
    .await;
    let status = http::client().get(format!("http://{}/status", ports[1].authority()));
    http::send(status.bearer_auth(TOKEN)).await.expect(200);
    let discovery = format!(
        "http://{}/oauth2/.well-known/openid-configuration",
        ports[0].authority()
    );
    http::send(http::client().get(discovery)).await.expect(200);
}
