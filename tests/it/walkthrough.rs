//! The walk-through, and the short one of the README, as a reader would type them.
//!
//! Blocks of a page marked `sh walk` run one after the other in one bash;
//! a `text` block that follows shows what is printed, `…` standing for
//! anything. After `sh walk reload` the reload is waited for. A block marked
//! `sh restart` stands for `kill -9` and a new start.

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
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_of_the_walk_through_works() {
    let log = walk(include_str!("../../docs/walk-through.md"), 16).await;
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
    walk(include_str!("../../README.md"), 2).await;
}

/// Walks through `page`, which compares at least `least` texts; the log.
async fn walk(page: &str, least: usize) -> String {
    let upstream_port = Port::reserve();
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
    let mut door = demo_door();
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
            .replace(":9000", &format!(":{}", upstream_port.number()))
    };
    for file in ["conf/demo.yaml", "conf/demo-routes.yaml"] {
        let text = std::fs::read_to_string(format!("{}/{file}", env!("CARGO_MANIFEST_DIR")));
        door.write(
            file,
            &ports(&door, &text.expect("a file of the repository")),
        );
    }
    door.start().await;

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
        }
    }
    assert!(compared >= least, "the page lost its walk-through");
    assert!(!upstream.seen().is_empty());
    log.push_str(&door.take_log());
    log
}

#[test]
fn dots_stand_for_anything() {
    assert!(matches("a b c\n", "a … c"));
    assert!(matches("abc", "…c"));
    assert!(matches("one\ntwo\nthree", "one\n…\nthree"));
    assert!(!matches("abd", "a…c"));
    assert!(!matches("abc", "ab"));
}

/// A door that runs `conf/demo.yaml` and has the program where a reader has it.
fn demo_door() -> Door {
    let mut door = Setup::new().lay_out();
    door.use_config("conf/demo.yaml");
    for dir in ["conf", "target/quick"] {
        std::fs::create_dir_all(door.path(dir)).expect("a directory");
    }
    let program = door.path("target/quick/doorward");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_doorward"), program).expect("a link");
    door
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
        let mut child = Command::new("bash")
            .current_dir(door.dir())
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
