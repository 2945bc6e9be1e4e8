//! A PostgreSQL server in a directory of its own, as long as the tests run.
//!
//! Found where Debian installs it, or on the PATH. It listens on a Unix socket
//! and on a loopback port, and takes whoever comes.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock};

/// A running server. It ends with the process that started it, however that
/// ends: the shell that watches over it waits for the end of its own input.
#[derive(Debug)]
pub struct Cluster {
    programs: PathBuf,
    directory: PathBuf,
    /// Who runs it where the tests run as root, which the server refuses.
    owner: Option<(u32, u32)>,
    made: Mutex<HashMap<String, Option<PathBuf>>>,
    watch: Child,
}

impl Cluster {
    /// The one that tests share.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(""))
    }

    /// Starts one, with more settings, each a word of a shell.
    ///
    /// # Panics
    /// When PostgreSQL is not installed, or does not start.
    pub fn start(settings: &str) -> Self {
        Self::start_with(settings, &[])
    }

    /// As [`Cluster::start`], with files beside its data that are the server's.
    pub fn start_with(settings: &str, files: &[(&str, &str)]) -> Self {
        let programs = programs().expect("PostgreSQL is installed (apt-get install postgresql)");
        let directory = tempfile::Builder::new().prefix("doorward-pg").tempdir();
        let directory = directory.expect("a directory").keep();
        let owner = is_root().then(|| unprivileged().expect("a user to run PostgreSQL as"));
        if let Some((user, group)) = owner {
            chown(&directory, Some(user), Some(group)).expect("the directory is given away");
        }
        for (name, content) in files {
            let path = directory.join(name);
            fs::write(&path, content).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("private");
            if let Some((user, group)) = owner {
                chown(&path, Some(user), Some(group)).expect("the file is given away");
            }
        }
        let script = format!(
            "{bin}/initdb -D {dir}/data -U doorward -A trust -E UTF8 --locale=C -N >{dir}/log 2>&1 &&
             printf '%s\\n' \"unix_socket_directories='{dir}'\" \"listen_addresses=''\" fsync=off \\
               full_page_writes=off max_connections=500 shared_buffers=64MB {settings} \\
               >>{dir}/data/postgresql.conf &&
             {bin}/pg_ctl -D {dir}/data -l {dir}/log -w -s start </dev/null >>{dir}/log 2>&1 && \\
             echo ready
             read -r _
             {bin}/pg_ctl -D {dir}/data -m immediate stop >>{dir}/log 2>&1
             rm -rf {dir}",
            bin = programs.display(),
            dir = directory.display(),
        );
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).current_dir("/");
        shell.stdin(Stdio::piped()).stdout(Stdio::piped());
        as_owner(&mut shell, owner);
        let mut watch = shell.spawn().expect("a shell");
        let mut said = [0; 5];
        let output = watch.stdout.as_mut().expect("piped");
        if std::io::Read::read_exact(output, &mut said).is_err() {
            let log = fs::read_to_string(directory.join("log"));
            panic!("PostgreSQL does not start:\n{}", log.unwrap_or_default());
        }
        Self {
            programs,
            directory,
            owner,
            made: Mutex::default(),
            watch,
        }
    }

    /// The address of the database of this name, which is made if need be.
    pub fn database(&self, name: &str) -> String {
        self.sibling_database(name, None)
    }

    /// As [`Cluster::database`], of one that goes some time after the directory
    /// has gone that it belongs to: there would be too many.
    pub fn sibling_database(&self, name: &str, directory: Option<&Path>) -> String {
        let mut made = self.made.lock().expect("no test failed here");
        if made.contains_key(name) {
            return self.url(name);
        }
        let host = self.host();
        let place = ["-h", &host, "-U", "doorward"];
        let is_over = |beside: &Option<PathBuf>| beside.as_ref().is_some_and(|path| !path.exists());
        for (over, _) in made.extract_if(|_, beside| is_over(beside)) {
            self.run("dropdb", &[&place[..], &["--force", &over]].concat());
        }
        self.run("createdb", &[&place[..], &[name]].concat());
        made.insert(name.to_owned(), directory.map(Path::to_owned));
        self.url(name)
    }

    /// The address of a database, there or not.
    pub fn url(&self, name: &str) -> String {
        format!("postgres:///{name}?user=doorward&host={}", self.host())
    }

    /// Stops the server as a crash would.
    pub fn stop(&self) {
        self.run(
            "pg_ctl",
            &["-D", &self.path("data"), "-m", "immediate", "-s", "stop"],
        );
    }

    /// Starts a server that was stopped.
    pub fn go_on(&self) {
        let (data, log) = (self.path("data"), self.path("log"));
        self.run("pg_ctl", &["-D", &data, "-l", &log, "-w", "-s", "start"]);
    }

    /// Where its data and its socket are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    fn host(&self) -> String {
        self.directory().display().to_string()
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let mut command = Command::new(self.programs.join(program));
        command
            .args(arguments)
            .current_dir("/")
            .stdin(Stdio::null());
        // `pg_ctl start` leaves the server its output.
        command.stdout(Stdio::null());
        as_owner(&mut command, self.owner);
        let status = command.status().expect("the program runs");
        assert!(status.success(), "{program} {arguments:?}: {status}");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.watch.stdin.take());
        let _ = self.watch.wait();
    }
}

fn as_owner(command: &mut Command, owner: Option<(u32, u32)>) {
    if let Some((user, group)) = owner {
        command.uid(user).gid(group);
    }
}

/// Where the newest server's programs are.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let number = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join("bin/postgres").exists())
        .max_by_key(|path| number(path));
    if let Some(newest) = newest {
        return Some(newest.join("bin"));
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).find(|bin| bin.join("initdb").exists())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// User and group of `postgres`, or of `nobody`.
fn unprivileged() -> Option<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let of = |name: &str| {
        let line = users
            .lines()
            .find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    of("postgres").or_else(|| of("nobody"))
}
