//! What the chart renders. `make test` installs Helm.

use std::io::Write;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::kubernetes::{MANIFESTS, mount_all};
use super::{client_python, documents, helm, project, success, text};
use crate::support::Setup;
use crate::support::tls::Pair;

const CHART: &str = "deploy/helm/doorward";

/// What Helm renders of the chart.
fn rendered(values: &[&str]) -> String {
    let mut command = helm();
    command.args(["template", "doorward"]).arg(project(CHART));
    command.args(["--namespace", "doorward", "--kube-version", "1.34.0"]);
    success(command.args(values))
}

/// Gives manifests to the schemas of a version of Kubernetes.
fn validate(version: &str, manifests: &str) -> String {
    let mut check = client_python("manifests.py");
    check.args(["kubernetes", version]).stdin(Stdio::piped());
    let mut child = check.stdout(Stdio::piped()).spawn().expect("python starts");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(manifests.as_bytes()).expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    assert!(
        output.status.success(),
        "Kubernetes {version} refuses:\n{manifests}"
    );
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
#[ignore = "needs Helm, python and its packages, which `make test` installs"]
fn kubernetes_takes_the_manifests_and_what_the_chart_renders() {
    success(helm().args(["lint", "--strict"]).arg(project(CHART)));
    let everything = [
        "tls.secretName=tls",
        "autoscaling.enabled=true",
        "prometheus.podMonitor=true",
        "prometheus.rules=true",
        "grafana.dashboards=true",
        "service.type=LoadBalancer",
        "service.externalTrafficPolicy=Local",
        "networkPolicy.adminFrom[0].podSelector.matchLabels.app=prometheus",
        "priorityClassName=high",
        "env[0].name=TZ",
        "env[0].value=UTC",
    ];
    let everything = rendered(&["--set", &everything.join(",")]);
    let plain = text(MANIFESTS) + "\n---\n" + &text("deploy/kubernetes/namespace.yaml");
    for version in ["1.30.0", "1.37.0"] {
        validate(version, &plain);
        let kinds = validate(version, &everything);
        for kind in ["HorizontalPodAutoscaler", "PodMonitor", "PrometheusRule"] {
            assert!(kinds.contains(kind), "{kinds}");
        }
    }
    // With TLS the program takes it as well.
    let door = Setup::new().lay_out();
    mount_all(&door, &documents(&everything));
    let pair = Pair::new("shop.test");
    std::fs::create_dir(door.path("etc/tls")).expect("a folder");
    door.write("etc/tls/tls.crt", &pair.cert);
    door.write("etc/tls/tls.key", &pair.key);
    success(&mut door.command(&["check", "-c", "etc/main/doorward.yaml"]));
}

#[test]
#[ignore = "needs Helm, which `make test` installs"]
fn the_manifests_are_what_the_chart_renders() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("doorward.yaml");
    let mut make = Command::new("make");
    make.arg("--no-print-directory").arg("manifests");
    make.arg(format!("MANIFESTS={}", path.display()));
    success(make.current_dir(project("")));
    let fresh = std::fs::read_to_string(path).expect("manifests");
    assert!(fresh == text(MANIFESTS), "`make manifests` renders others");
}

#[test]
#[ignore = "needs Helm, which `make test` installs"]
fn the_chart_refuses_values_that_are_none() {
    for wrong in [
        "replica=3",
        "config.store=sqlite:data.db",
        "service.type=Nothing",
        "readiness=no",
    ] {
        let mut command = helm();
        command.args([
            "template",
            "doorward",
            "--kube-version",
            "1.34.0",
            "--set",
            wrong,
        ]);
        let output = command.arg(project(CHART)).output().expect("helm starts");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{wrong} is taken");
        assert!(
            message.contains("don't meet the specifications"),
            "{wrong}: {message}"
        );
    }
}

#[test]
#[ignore = "needs Helm, which `make test` installs"]
fn the_chart_takes_the_values_of_the_page() {
    let page = text("docs/deployment.md");
    let mut blocks = page.split("```text\n").skip(1);
    let block = blocks.find(|block| block.starts_with("image:"));
    let block = block.and_then(|block| block.split("```").next());
    let folder = TempDir::new().expect("a folder");
    let values = folder.path().join("my-values.yaml");
    std::fs::write(&values, block.expect("values")).expect("a file");
    let manifests = rendered(&["--values", values.to_str().expect("UTF-8")]);
    assert!(
        manifests.contains("registry.example.com/doorward:0.1.0"),
        "{manifests}"
    );
    assert!(
        manifests.contains("base_url: https://id.example.com"),
        "{manifests}"
    );
}
