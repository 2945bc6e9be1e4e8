//! Instructions that a proxy spends in user space, counted by callgrind. Noise does
//! not touch them: two counts of one program differ by parts of a thousand.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::process::{self, Process, limited};
use anyhow::{Context, Result, bail};

/// How a proxy is started.
pub(crate) enum Runner {
    /// As it is.
    Direct,
    /// Under callgrind, which writes its counts into the directory: a file a row, for
    /// those who want to read on in a viewer.
    Callgrind(PathBuf),
}

/// What was counted between two moments.
#[derive(Debug, Clone, Default)]
pub(crate) struct Count {
    /// All instructions.
    pub(crate) total: u64,
    /// Instructions by function, without those of the functions that it calls.
    pub(crate) functions: HashMap<String, u64>,
}

impl Runner {
    /// Whether callgrind is installed.
    pub(crate) fn can_count() -> bool {
        let tools = ["valgrind", "callgrind_control"];
        tools.iter().all(|tool| process::find(tool).is_some())
    }

    /// Callgrind, whose counts of the proxy `name` lie below `target/instructions`.
    pub(crate) fn callgrind(name: &str) -> Result<Self> {
        let program = std::env::current_exe()?;
        let target = program.ancestors().nth(3).context("no target directory")?;
        let dir = target.join("instructions").join(name);
        if dir.exists() {
            std::fs::remove_dir_all(&dir)?;
        }
        std::fs::create_dir_all(&dir)?;
        Ok(Self::Callgrind(dir))
    }

    /// `program` with as many open files as the system allows it.
    pub(crate) fn command(&self, program: &Path) -> Command {
        match self {
            Self::Direct => limited(program),
            Self::Callgrind(dir) => {
                let mut command = limited(Path::new("valgrind"));
                command
                    .arg("--tool=callgrind")
                    .arg(format!("--log-file={}/log", dir.display()))
                    .arg(format!("--callgrind-out-file={}/%p", dir.display()))
                    .arg(program);
                command
            }
        }
    }

    /// Longest wait for the first answer: a counted program runs fifty times slower.
    pub(crate) fn patience(&self) -> Duration {
        match self {
            Self::Direct => Duration::from_secs(20),
            Self::Callgrind(_) => Duration::from_secs(120),
        }
    }

    /// What `process`, which this has started, spends on `work`.
    pub(crate) fn count(
        &self,
        process: &Process,
        row: &str,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<Count> {
        let Self::Callgrind(dir) = self else {
            bail!("nothing counts the instructions");
        };
        let pid = process.id();
        control("--zero", pid)?;
        work()?;
        let before = dumps(dir, pid)?;
        control("--dump", pid)?;
        let after = dumps(dir, pid)?;
        let dump = after.into_iter().find(|file| !before.contains(file));
        let dump = dump.context("callgrind has written no counts")?;
        let text = std::fs::read_to_string(&dump)?;
        let name = row.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        std::fs::rename(dump, dir.join(name + ".callgrind"))?;
        Count::read(&text)
    }
}

/// Asks callgrind in the process `pid`.
fn control(what: &str, pid: u32) -> Result<()> {
    let status = Command::new("callgrind_control")
        .args([what, &pid.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    if status.success() {
        Ok(())
    } else {
        bail!("callgrind_control {what} failed: {status}")
    }
}

/// The files of counts of the process.
fn dumps(dir: &Path, pid: u32) -> Result<Vec<PathBuf>> {
    let prefix = format!("{pid}.");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            files.push(entry.path());
        }
    }
    Ok(files)
}

impl Count {
    /// Instructions of one of `requests`.
    pub(crate) fn each(&self, requests: usize) -> f64 {
        self.total as f64 / requests as f64
    }

    /// Reads callgrind's own format: a line `fn=(number) name` begins a function, the
    /// name stands where the number comes first, and lines of costs follow. The line
    /// after `calls=` is what the called function has spent.
    fn read(text: &str) -> Result<Self> {
        let mut names: HashMap<&str, &str> = HashMap::new();
        let mut count = Self::default();
        let mut function = "";
        let mut called = false;
        for line in text.lines() {
            if let Some((key, name)) = line.split_once('=') {
                if matches!(key, "fn" | "cfn") {
                    let (number, name) = name.split_once(' ').unwrap_or((name, ""));
                    if !name.is_empty() {
                        names.insert(number, name);
                    }
                    if key == "fn" {
                        function = number;
                    }
                }
                called = key == "calls";
            } else if let Some(total) = line.strip_prefix("summary: ") {
                count.total = total.trim().parse()?;
            } else if line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) {
                let cost = line.split_whitespace().nth(1).unwrap_or("0");
                if !std::mem::take(&mut called) {
                    *count.functions.entry(function.to_owned()).or_default() +=
                        cost.parse::<u64>()?;
                }
            }
        }
        if count.total == 0 {
            bail!("callgrind has counted nothing");
        }
        let named = |(number, cost): (String, u64)| {
            let name = names.get(number.as_str()).copied().unwrap_or("?");
            (name.to_owned(), cost)
        };
        let mut functions = HashMap::new();
        for (name, cost) in count.functions.drain().map(named) {
            *functions.entry(name).or_default() += cost;
        }
        count.functions = functions;
        Ok(count)
    }
}
