//! The walk-through, the short one of the README and the pages to get started with,
//! as a reader would type them.
//!
//! Blocks of a page marked `sh walk` run one after the other in one bash;
//! a `text` block that follows shows what is printed, `…` standing for
//! anything. After `sh walk reload` the reload is waited for. A block marked
//! `sh restart` stands for `kill -9` and a new start, `sh stop` for the former,
//! `sh hup` for a reload by a signal. A `yaml` block that begins
//! with `# NAME.yaml` is written to that file, and `sh start` starts the program
//! with `doorward.yaml` and the variables that the bash has exported.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::support::ports::Port;
use crate::support::{Door, Reply, Setup, Upstream};

/// What a block of a page asks for.
#[derive(Debug, PartialEq)]
enum Step {
    /// Commands, and the text that they print.
    Run { commands: String, reloads: bool },
    /// What the commands before have printed.
    Expect(String),
    /// `kill -9`, and the same command again.
    Restart,
    /// A file of the page.
    Write { name: String, text: String },
    /// A start, the first one or after a stop.
    Start,
    /// The end of the process.
    Stop,
    /// SIGHUP.
    Reload,
}

/// What came of a page.
struct Walk {
    log: String,
    upstream_requests: usize,
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_of_the_walk_through_works() {
    let page = include_str!("../../docs/walk-through.md");
    let Walk { log, .. } = walk_demo(page, 16).await;
    // The refusals came for the reasons that the text gives.
    for reason in [
        "no_token",
        "unsupported_alg",
        "token_expired",
        "wrong_issuer",
    ] {
        assert!(log.contains(reason), "{reason} in {log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_of_the_readme_works() {
    walk_demo(include_str!("../../README.md"), 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_of_get_started_with_login_works() {
    let walk = walk_from_nothing(include_str!("../../docs/get-started-login.md"), 2).await;
    assert_eq!(walk.upstream_requests, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_of_get_started_with_throttling_works() {
    walk_from_nothing(include_str!("../../docs/get-started-throttling.md"), 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_of_get_started_with_services_works() {
    let walk = walk_from_nothing(include_str!("../../docs/get-started-services.md"), 5).await;
    // Of the calls one is let through.
    assert_eq!(walk.upstream_requests, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_of_get_started_with_a_single_page_works() {
    walk_from_nothing(include_str!("../../docs/get-started-spa.md"), 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_of_back_up_and_restore_works() {
    walk_from_nothing(include_str!("../../docs/how-to-backup.md"), 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_of_a_move_works() {
    let walk = walk_from_nothing(include_str!("../../docs/migrate.md"), 1).await;
    assert_eq!(walk.upstream_requests, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_of_rotation_works() {
    walk_from_nothing(include_str!("../../docs/how-to-rotate.md"), 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_of_passkeys_works() {
    walk_from_nothing(include_str!("../../docs/get-started-passkeys.md"), 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_of_a_client_of_the_broker_works() {
    walk_from_nothing(include_str!("../../docs/get-started-broker.md"), 7).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_of_configuration_in_ci_works() {
    walk_from_nothing(include_str!("../../docs/how-to-ci.md"), 7).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_of_an_upgrade_works() {
    walk_from_nothing(include_str!("../../docs/how-to-upgrade.md"), 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_of_monitoring_works() {
    walk_from_nothing(include_str!("../../docs/how-to-monitor.md"), 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_of_hardening_works() {
    walk_from_nothing(include_str!("../../docs/how-to-harden.md"), 7).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_of_moving_sign_in_works() {
    walk_from_nothing(include_str!("../../docs/migrate-sign-in.md"), 7).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_of_tls_works() {
    walk_from_nothing(include_str!("../../docs/how-to-tls.md"), 6).await;
}

/// Walks through `page` with the demo, which runs already.
async fn walk_demo(page: &str, least: usize) -> Walk {
    let walk = walk(page, demo_door(), &DEMO, least).await;
    assert!(walk.upstream_requests > 0);
    walk
}

/// Walks through `page`, whose files are all that there is.
async fn walk_from_nothing(page: &str, least: usize) -> Walk {
    let door = Setup::new().lay_out();
    provide_program(&door);
    walk(page, door, &[], least).await
}

/// Walks through `page`, which compares at least `least` texts. With `files` of the
/// repository the program runs before the first step.
async fn walk(page: &str, mut door: Door, files: &[&str], least: usize) -> Walk {
    let (upstream_port, tls_port) = (Port::reserve(), Port::reserve());
    let upstream = Upstream::at(&upstream_port.authority(), |seen| {
        let headers = seen
            .headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"));
        let text = format!(
            "{} {} HTTP/1.1\r\n{}",
            seen.method,
            seen.target,
            headers.collect::<String>()
        );
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            text.len()
        );
        Reply::Raw(format!("{head}{text}").into_bytes())
    })
    .await;
    // Rates that don't drip while a slow machine asks, and any time to wait.
    let patient = |text: &str| {
        text.replace("duration='10 s'", "duration='10 hours'")
            .replace("duration: 10 s", "duration: 10 hours")
            .replace("\n429 2", "\n429 …")
    };
    let ports = |door: &Door, text: &str| {
        let port = |authority: String| {
            authority
                .rsplit(':')
                .next()
                .map(str::to_owned)
                .unwrap_or_default()
        };
        patient(text)
            .replace(":8000", &format!(":{}", port(door.proxy())))
            .replace(":8001", &format!(":{}", port(door.admin())))
            .replace(":8443", &format!(":{}", tls_port.number()))
            .replace(":9000", &format!(":{}", upstream_port.number()))
    };
    for file in files {
        let text = std::fs::read_to_string(format!("{}/{file}", env!("CARGO_MANIFEST_DIR")));
        door.write(
            file,
            &ports(&door, &text.expect("a file of the repository")),
        );
    }
    if !files.is_empty() {
        door.start().await;
    }

    let mut shell = Shell::start(&door);
    let mut printed = String::new();
    let mut compared = 0;
    let mut log = String::new();
    for step in steps(page) {
        match step {
            Step::Run { commands, reloads } => {
                log.push_str(&door.take_log());
                printed = shell.run(&ports(&door, &commands));
                if reloads {
                    door.wait_log("the reload", |line| line.contains("reload"))
                        .await;
                }
            }
            Step::Expect(text) => {
                let wanted = ports(&door, &text);
                let log = || door.log_text();
                assert!(
                    matches(&printed, &wanted),
                    "printed:\n{printed}\nexpected:\n{wanted}\n{}",
                    log()
                );
                compared += 1;
            }
            Step::Restart => {
                door.kill();
                door.start().await;
            }
            Step::Stop => door.kill(),
            Step::Reload => {
                log.push_str(&door.take_log());
                door.signal("HUP");
                door.wait_log("the reload", |line| line.contains("reload"))
                    .await;
            }
            Step::Write { name, text } => door.write(&name, &ports(&door, &text)),
            Step::Start => {
                for line in shell.run("env").lines() {
                    if let Some((name, value)) = line.split_once('=') {
                        door.set_env(name, value);
                    }
                }
                door.start().await;
            }
        }
    }
    assert!(compared >= least, "the page lost its walk-through");
    log.push_str(&door.take_log());
    Walk {
        log,
        upstream_requests: upstream.seen().len(),
    }
}

#[test]
fn dots_stand_for_anything() {
    assert!(matches("a b c\n", "a … c"));
    assert!(matches("abc", "…c"));
    assert!(matches("one\ntwo\nthree", "one\n…\nthree"));
    assert!(!matches("abd", "a…c"));
    assert!(!matches("abc", "ab"));
}

/// The files of the demo.
const DEMO: [&str; 2] = ["conf/demo.yaml", "conf/demo-routes.yaml"];

/// A door that runs `conf/demo.yaml` and has the program where a reader has it.
fn demo_door() -> Door {
    let mut door = Setup::new().lay_out();
    door.use_config("conf/demo.yaml");
    std::fs::create_dir_all(door.path("conf")).expect("a directory");
    provide_program(&door);
    door
}

/// Puts the program where a build would.
fn provide_program(door: &Door) {
    std::fs::create_dir_all(door.path("target/quick")).expect("a directory");
    let program = door.path("target/quick/doorward");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_doorward"), program).expect("a link");
}

/// The marked blocks of `readme`, in order.
fn steps(readme: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut ran = false;
    let mut lines = readme.lines();
    while let Some(line) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else {
            continue;
        };
        let block: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
        let text = block.join("\n");
        match kind {
            "sh walk" | "sh walk reload" => steps.push(Step::Run {
                commands: text,
                reloads: kind.ends_with("reload"),
            }),
            "sh restart" => steps.push(Step::Restart),
            "sh start" => steps.push(Step::Start),
            "sh stop" => steps.push(Step::Stop),
            "sh hup" => steps.push(Step::Reload),
            "yaml" => {
                let name = block.first().and_then(|line| line.strip_prefix("# "));
                if let Some(name) = name.filter(|name| name.ends_with(".yaml")) {
                    let name = name.to_owned();
                    steps.push(Step::Write { name, text });
                }
            }
            "text" if ran => steps.push(Step::Expect(text)),
            _ => {}
        }
        ran = kind.starts_with("sh walk");
    }
    steps
}

/// Whether `printed` is `wanted`, in which `…` stands for anything.
pub(crate) fn matches(printed: &str, wanted: &str) -> bool {
    let mut rest = printed.trim_end();
    let mut pieces = wanted.trim_end().split('…');
    let Some(after) = pieces.next().and_then(|first| rest.strip_prefix(first)) else {
        return false;
    };
    rest = after;
    let pieces: Vec<_> = pieces.collect();
    let Some((last, middle)) = pieces.split_last() else {
        return rest.is_empty();
    };
    for piece in middle {
        let Some(at) = rest.find(piece) else {
            return false;
        };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

/// One bash for all blocks, so that variables live on.
struct Shell {
    child: Child,
    printed: BufReader<ChildStdout>,
}

impl Shell {
    fn start(door: &Door) -> Self {
        let path = std::env::var("PATH").expect("a path");
        let programs = door.path("target/quick");
        let mut child = Command::new("bash")
            .current_dir(door.dir())
            .env("PATH", format!("{}:{path}", programs.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("bash starts");
        let printed = BufReader::new(child.stdout.take().expect("piped"));
        let mut shell = Self { child, printed };
        shell.run("set -u; exec 2>&1");
        shell
    }

    /// Runs `commands` and returns what they print.
    fn run(&mut self, commands: &str) -> String {
        const END: &str = "--- end of block ---";
        let stdin = self.child.stdin.as_mut().expect("piped");
        writeln!(stdin, "{commands}\nprintf '\\n%s\\n' '{END}'").expect("bash reads");
        let mut text = String::new();
        loop {
            let mut line = String::new();
            let count = self.printed.read_line(&mut line).expect("bash prints");
            assert!(count > 0, "bash ended after:\n{text}");
            if line.trim_end() == END {
                return text.trim_end().to_owned();
            }
            text.push_str(&line.replace('\r', ""));
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // The shell was started here; it ends with its input.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
