//! The operator's program that sets and removes DNS records.

use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::config::DnsHook;
use crate::name;
use crate::problem::bounded;

/// How often a running program is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How much of what it complains of is read, in bytes.
const COMPLAINT: u64 = 2048;
/// What the service manager tells this process, and no other.
const OWN_VARIABLES: [&str; 6] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "LISTEN_PID",
];

/// A TXT record that answers a challenge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TxtRecord {
    pub(crate) name: String,
    pub(crate) value: String,
}

impl TxtRecord {
    /// That of the name `of` (RFC 8555 §8.4).
    pub(crate) fn new(of: &str, value: String) -> Self {
        Self {
            name: format!("_acme-challenge.{}", name::bare(of)),
            value,
        }
    }
}

/// What the program is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Present,
    Cleanup,
}

impl Action {
    fn as_str(self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::Cleanup => "cleanup",
        }
    }
}

/// Ends a program that nobody waits for any more.
struct Attendance(Arc<AtomicBool>);

impl Drop for Attendance {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Runs the program to its end. Whoever stops waiting for it ends it.
///
/// # Errors
/// What it complains of, or why it can't be run.
pub(crate) async fn run(hook: &DnsHook, action: Action, record: &TxtRecord) -> Result<(), String> {
    let (hook, record) = (hook.clone(), record.clone());
    let attendance = Attendance(Arc::default());
    let is_left = attendance.0.clone();
    let run = move || wait_for(&hook, action, &record, &is_left);
    let ran = tokio::task::spawn_blocking(run).await;
    drop(attendance);
    ran.unwrap_or_else(|error| Err(error.to_string()))
}

fn wait_for(
    hook: &DnsHook,
    action: Action,
    record: &TxtRecord,
    is_left: &AtomicBool,
) -> Result<(), String> {
    let (program, arguments) = hook.command.split_first().ok_or("names no program")?;
    let failed = |why: &dyn std::fmt::Display| format!("{program} {}: {why}", action.as_str());
    let mut command = Command::new(program);
    command
        .args(arguments)
        .args([action.as_str(), &record.name, &record.value])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // What it starts ends with it.
        .process_group(0);
    for variable in OWN_VARIABLES {
        command.env_remove(variable);
    }
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    let stderr = child.stderr.take();
    let complaint = std::thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(mut stderr) = stderr {
            // What it says beyond that goes nowhere, and does not hold it up.
            let _ = stderr.by_ref().take(COMPLAINT).read_to_end(&mut text);
            let _ = std::io::copy(&mut stderr, &mut std::io::sink());
        }
        text
    });
    let limit = Duration::from_secs(hook.timeout_seconds);
    let Some(status) = until(&mut child, limit, is_left).map_err(|error| failed(&error))? else {
        return Err(failed(&format!("did not end within {} s", limit.as_secs())));
    };
    if status.success() {
        return Ok(());
    }
    // A child of the program may still hold its stderr: what was said by then counts.
    let text = if complaint.is_finished() || wait_shortly(&complaint) {
        complaint.join().unwrap_or_default()
    } else {
        Vec::new()
    };
    let text = bounded(String::from_utf8_lossy(&text).trim());
    Err(failed(&format!("{status}: {text}")))
}

/// Waits until it ends, at most for `limit`, or until nobody else waits; then it is
/// killed.
fn until(
    child: &mut Child,
    limit: Duration,
    is_left: &AtomicBool,
) -> std::io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline || is_left.load(Ordering::Acquire) {
            // Its number is not another's before it is waited for.
            if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                kill_process_group(group, Signal::KILL)?;
            }
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(LOOK);
    }
}

fn wait_shortly<T>(thread: &std::thread::JoinHandle<T>) -> bool {
    std::thread::sleep(LOOK);
    thread.is_finished()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(script: &str) -> DnsHook {
        DnsHook {
            command: ["/bin/sh", "-c", script, "hook"]
                .map(str::to_owned)
                .to_vec(),
            timeout_seconds: 1,
            ..DnsHook::default()
        }
    }

    #[tokio::test]
    async fn the_program_is_told_what_to_do() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("told");
        let script = format!("echo \"$@\" > {}", file.display());
        let record = TxtRecord::new("*.a.test", "value".to_owned());
        run(&hook(&script), Action::Present, &record)
            .await
            .expect("it ran");
        let told = std::fs::read_to_string(&file).expect("told");
        assert_eq!(told, "present _acme-challenge.a.test value\n");
    }

    #[tokio::test]
    async fn a_program_that_fails_or_hangs_is_told_of() {
        let record = TxtRecord::new("a.test", "value".to_owned());
        let failed = run(&hook("echo no zone >&2; exit 3"), Action::Cleanup, &record).await;
        let failed = failed.expect_err("it fails");
        assert!(
            failed.contains("cleanup: exit status: 3: no zone"),
            "{failed}"
        );
        let late = run(&hook("sleep 60; true"), Action::Present, &record).await;
        let late = late.expect_err("it hangs");
        assert!(late.ends_with("did not end within 1 s"), "{late}");
        let absent = DnsHook {
            command: vec!["/nowhere/hook".to_owned()],
            ..DnsHook::default()
        };
        run(&absent, Action::Present, &record)
            .await
            .expect_err("no program");
    }
}
