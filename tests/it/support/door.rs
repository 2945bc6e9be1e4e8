//! The real `doorward` program, in a temporary directory of its own.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsFd, AsRawFd as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use tempfile::TempDir;

use super::ports::Port;
use super::{Answer, eventually, http};

/// The user and the client that [`Setup::new`] declares.
pub(crate) const IDENTITY: &str = "
  realms:
    /:
      users:
        - userName: demo
          password: Ch4ng31t-demo
          displayName: Demo User
          emails: [{value: demo@example.com, type: work, primary: true}]
        - {userName: alice, password: Ch4ng31t-alice}
      clients:
        - client_id: orders
          client_secret: orders-secret
          grant_types: [client_credentials, password, refresh_token]
          scope: openid profile read write
        - client_id: other
          client_secret: other-secret
          grant_types: [client_credentials]
          scope: openid read
";

/// The service that makes the identity provider reachable.
pub(crate) const IDENTITY_SERVICE: &str = "
- name: identity
  protocol: internal
  host: identity
  routes:
  - {name: identity, paths: [/oauth2, /json, /v1, /scim/v2, /.well-known], strip_path: false}
";

/// What a door is started with. Texts may name `@PROXY@` and `@ADMIN@`
/// (`127.0.0.1:port`), `@PROXY_PORT@` and `@DIR@`.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    proxy: String,
    admin: String,
    identity: String,
    entities: String,
    store: String,
    env: Vec<(String, String)>,
    bears_full_files: bool,
}

impl Setup {
    /// A door with the identity provider, one realm, two users, two clients and
    /// no other service.
    pub(crate) fn new() -> Self {
        Self {
            proxy: r#"{listen: ["@PROXY@"]}"#.to_owned(),
            admin: r#"{listen: "@ADMIN@"}"#.to_owned(),
            identity: format!("\n  base_url: http://@PROXY@{IDENTITY}"),
            entities: format!("_format_version: \"3.0\"\nservices:{IDENTITY_SERVICE}"),
            store: "sqlite:@DIR@/data/doorward.db".to_owned(),
            env: Vec::new(),
            bears_full_files: false,
        }
    }

    /// Lets the program outlive a write beyond its limit of a file's length: it
    /// fails instead (see [`Door::limit_files`]).
    pub(crate) fn bears_full_files(mut self) -> Self {
        self.bears_full_files = true;
        self
    }

    /// Keeps everything in the database at this address.
    pub(crate) fn store(mut self, url: &str) -> Self {
        url.clone_into(&mut self.store);
        self
    }

    /// Replaces the `proxy` section.
    pub(crate) fn proxy(mut self, section: &str) -> Self {
        section.clone_into(&mut self.proxy);
        self
    }

    /// Replaces the `admin` section.
    pub(crate) fn admin(mut self, section: &str) -> Self {
        section.clone_into(&mut self.admin);
        self
    }

    /// Replaces the `identity` section.
    pub(crate) fn identity(mut self, section: &str) -> Self {
        section.clone_into(&mut self.identity);
        self
    }

    /// Adds services (a YAML list) to the declared ones.
    pub(crate) fn services(mut self, services: &str) -> Self {
        self.entities.push_str(services);
        self
    }

    /// Sets an environment variable of the program.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Writes the files, without starting anything.
    pub(crate) fn lay_out(self) -> Door {
        let door = Door {
            dir: TempDir::new().expect("a temporary directory"),
            proxy: Port::reserve(),
            admin: Port::reserve(),
            env: self.env.clone(),
            bears_full_files: self.bears_full_files,
            config: "doorward.yaml".to_owned(),
            child: None,
            log: Arc::default(),
        };
        let main = format!(
            "proxy: {}\nadmin: {}\nstore: \"{}\"\n\
             entities: [\"@DIR@/routes.yaml\"]\nidentity: {}\n\
             telemetry: {{access_log: stdout, metrics: true}}\n",
            self.proxy, self.admin, self.store, self.identity
        );
        door.write("doorward.yaml", &main);
        door.write("routes.yaml", &self.entities);
        door
    }

    /// Starts the program and waits until it is ready.
    pub(crate) async fn start(self) -> Door {
        let mut door = self.lay_out();
        door.start().await;
        door
    }
}

/// A `doorward` process and its files. Dropping it kills the process.
pub(crate) struct Door {
    dir: TempDir,
    proxy: Port,
    admin: Port,
    env: Vec<(String, String)>,
    bears_full_files: bool,
    config: String,
    child: Option<Child>,
    log: Arc<Mutex<Vec<String>>>,
}

impl Door {
    /// Starts the program on the files as they are, and waits until it is ready.
    pub(crate) async fn start(&mut self) {
        self.spawn();
        self.until_ready().await;
    }

    /// Waits until the program is ready.
    pub(crate) async fn until_ready(&mut self) {
        let status = self.admin_url("/status");
        let client = http::client();
        eventually("the program to be ready", || {
            if let Some(ended) = self.exited() {
                panic!("the program ended with {ended}:\n{}", self.log_text());
            }
            let request = client.get(&status);
            async move {
                let code = request.send().await.ok()?.status();
                // Behind a token the listener says so, once it is there.
                let answers = code.is_success() || code.as_u16() == 401;
                answers.then_some(())
            }
        })
        .await;
    }

    /// Starts the program with another file of its directory from now on.
    pub(crate) fn use_config(&mut self, name: &str) {
        name.clone_into(&mut self.config);
    }

    /// Sets an environment variable of the program for starts from now on.
    pub(crate) fn set_env(&mut self, name: &str, value: &str) {
        self.env.push((name.to_owned(), value.to_owned()));
    }

    /// Starts the program without waiting.
    pub(crate) fn spawn(&mut self) {
        let mut command = self.command(&["run", "-c", &self.config]);
        if self.bears_full_files {
            command = self.without_signal(&command);
        }
        self.spawn_command(command, Stdio::piped(), Stdio::piped());
    }

    /// Starts another subcommand that serves, without waiting.
    pub(crate) fn spawn_as(&mut self, arguments: &[&str]) {
        let command = self.command(arguments);
        self.spawn_command(command, Stdio::piped(), Stdio::piped());
    }

    /// As [`Door::spawn`], with other streams for what the program prints.
    pub(crate) fn spawn_printing(&mut self, stdout: Stdio, stderr: Stdio) {
        let command = self.command(&["run", "-c", &self.config]);
        self.spawn_command(command, stdout, stderr);
    }

    /// As [`Door::start`], where the program may open no more than `files`.
    pub(crate) async fn start_with_files(&mut self, files: usize) {
        let mut command = Command::new("sh");
        command
            .args(["-c", "ulimit -n \"$0\" && exec \"$@\"", &files.to_string()])
            .arg(env!("CARGO_BIN_EXE_doorward"))
            .args(["run", "-c", &self.config])
            .current_dir(self.dir.path())
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        self.spawn_command(command, Stdio::piped(), Stdio::piped());
        self.until_ready().await;
    }

    /// As [`Door::spawn`], with a listening socket as service managers hand it over:
    /// the first file behind the standard ones.
    pub(crate) fn spawn_with_socket(&mut self, socket: &impl AsFd) {
        let number = socket.as_fd().as_raw_fd().to_string();
        fcntl_setfd(socket, FdFlags::empty()).expect("it is inherited");
        let mut command = Command::new("bash");
        command
            .args([
                "-c",
                "exec 3<&\"$0\" && export LISTEN_FDS=1 LISTEN_PID=$$ && exec \"$@\"",
            ])
            .arg(number)
            .arg(env!("CARGO_BIN_EXE_doorward"))
            .args(["run", "-c", &self.config])
            .current_dir(self.dir.path())
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        self.spawn_command(command, Stdio::piped(), Stdio::piped());
    }

    fn spawn_command(&mut self, mut command: Command, stdout: Stdio, stderr: Stdio) {
        assert!(self.child.is_none(), "it runs already");
        let mut child = command
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .expect("the program starts");
        if let Some(stream) = child.stdout.take() {
            self.collect(stream);
        }
        if let Some(stream) = child.stderr.take() {
            self.collect(stream);
        }
        self.child = Some(child);
    }

    /// Runs another subcommand to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments)
            .stdin(Stdio::null())
            .output()
            .expect("the program starts")
    }

    /// Runs commands of a page in bash, which finds the program under its name and the
    /// door's file.
    pub(crate) fn shell(&self, commands: &str) -> Output {
        let mut bash = self.bash(commands);
        bash.stdin(Stdio::null()).output().expect("bash starts")
    }

    /// As [`Door::shell`], about to start.
    pub(crate) fn bash(&self, commands: &str) -> Command {
        let bin = self.path("bin");
        std::fs::create_dir_all(&bin).expect("a directory");
        let program = bin.join("doorward");
        if !program.exists() {
            let link = std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_doorward"), program);
            link.expect("a link");
        }
        let path = std::env::var("PATH").expect("a path");
        let mut bash = Command::new("bash");
        bash.args(["-e", "-u", "-o", "pipefail", "-c", commands])
            .current_dir(self.dir())
            .env("PATH", format!("{}:{path}", bin.display()))
            .env("DOORWARD_CONFIG", "doorward.yaml");
        bash
    }

    /// Runs another subcommand on the door's configuration, which succeeds.
    pub(crate) fn run_well(&self, arguments: &[&str]) {
        let arguments = [arguments, &["-c", "doorward.yaml"]].concat();
        let output = self.run(&arguments);
        assert!(output.status.success(), "{output:?}");
    }

    /// The program with `arguments`, in the door's directory and environment.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_doorward"));
        command
            .args(arguments)
            .current_dir(self.dir.path())
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    /// `command` with the signal ignored that comes of a file at its limit.
    fn without_signal(&self, command: &Command) -> Command {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
            .arg(command.get_program())
            .args(command.get_args())
            .current_dir(self.dir.path())
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        shell
    }

    /// Lets no file of the running program grow beyond `bytes`, or any.
    pub(crate) fn limit_files(&self, bytes: Option<u64>) {
        let pid = i32::try_from(self.pid()).ok();
        let pid = pid.and_then(Pid::from_raw);
        let maximum = getrlimit(Resource::Fsize).maximum;
        let current = bytes.or(maximum);
        prlimit(pid, Resource::Fsize, Rlimit { current, maximum }).expect("the limit is set");
    }

    /// Writes a file into the door's directory, in place: the program may see
    /// it before it is whole.
    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), self.fill(text)).expect("the file is written");
    }

    /// Replaces a piece of a file; it must be there. The program sees the file as
    /// it was or as it is then, since another one is renamed to it.
    pub(crate) fn edit(&self, name: &str, from: &str, to: &str) {
        let text = std::fs::read_to_string(self.path(name)).expect("the file is there");
        let (from, to) = (self.fill(from), self.fill(to));
        assert!(text.contains(&from), "{name} does not contain {from:?}");
        let new = self.path(&format!("{name}.new"));
        std::fs::write(&new, text.replace(&from, &to)).expect("the file is written");
        std::fs::rename(new, self.path(name)).expect("the file is replaced");
    }

    /// `text` with the door's addresses in it.
    pub(crate) fn fill(&self, text: &str) -> String {
        text.replace("@PROXY@", &self.proxy.authority())
            .replace("@ADMIN@", &self.admin.authority())
            .replace("@ADMIN_PORT@", &self.admin.number().to_string())
            .replace("@PROXY_PORT@", &self.proxy.number().to_string())
            .replace("@DIR@", self.dir.path().to_str().expect("UTF-8"))
    }

    /// A path in the door's directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The door's directory.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// `127.0.0.1:port` of the proxy listener.
    pub(crate) fn proxy(&self) -> String {
        self.proxy.authority()
    }

    /// `127.0.0.1:port` of the admin listener.
    pub(crate) fn admin(&self) -> String {
        self.admin.authority()
    }

    /// A URL on the proxy listener.
    pub(crate) fn proxy_url(&self, path: &str) -> String {
        format!("http://{}{path}", self.proxy())
    }

    /// A URL on the admin listener.
    pub(crate) fn admin_url(&self, path: &str) -> String {
        format!("http://{}{path}", self.admin())
    }

    /// GET through the proxy, for `host`.
    pub(crate) async fn get(&self, host: &str, path: &str) -> Answer {
        http::send(
            http::client()
                .get(self.proxy_url(path))
                .header("host", host),
        )
        .await
    }

    /// GET through the proxy, with these headers.
    pub(crate) async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = http::client().get(self.proxy_url(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        http::send(request).await
    }

    /// GET through the proxy, for `host`, with a bearer token.
    pub(crate) async fn get_as(&self, token: &str, host: &str, path: &str) -> Answer {
        let request = http::client().get(self.proxy_url(path));
        http::send(request.header("host", host).bearer_auth(token)).await
    }

    /// The process id, while it runs.
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// A figure in KiB of `/proc/PID/status`, such as `VmRSS` or `VmHWM`.
    pub(crate) fn memory_kib(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()))
            .expect("the process is there");
        let line = status.lines().find(|line| line.starts_with(field));
        line.and_then(|line| line.split_whitespace().nth(1))
            .and_then(|number| number.parse().ok())
            .expect("a figure of the process")
    }

    /// Sends a signal by name: `TERM`, `HUP`.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let sent = Command::new("sh")
            .args(["-c", "kill -s \"$0\" \"$1\"", name, &pid])
            .status()
            .expect("sh starts");
        assert!(sent.success(), "the signal {name} was not sent");
    }

    /// `kill -9`, and waits until the process is gone.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("our own process can be killed");
            child.wait().expect("our own process can be waited for");
        }
    }

    /// The exit status, if the process has ended.
    pub(crate) fn exited(&mut self) -> Option<ExitStatus> {
        let child = self.child.as_mut()?;
        child.try_wait().expect("our own process can be waited for")
    }

    /// Waits until the process has ended by itself.
    pub(crate) async fn wait_exit(&mut self) -> ExitStatus {
        let status = eventually("the program to end", || {
            let ended = self.exited();
            async move { ended }
        })
        .await;
        self.child = None;
        // Its last words may still be on their way.
        eventually("all that the program printed", || {
            let read = Arc::strong_count(&self.log) == 1;
            async move { read.then_some(()) }
        })
        .await;
        status
    }

    /// Everything the program has printed so far.
    pub(crate) fn log_text(&self) -> String {
        self.log.lock().expect("not poisoned").join("\n")
    }

    /// Waits for a printed line that `wanted` accepts.
    pub(crate) async fn wait_log(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        eventually(what, || {
            let log = self.log.lock().expect("not poisoned");
            let found = log.iter().find(|line| wanted(line)).cloned();
            async move { found }
        })
        .await
    }

    /// Everything the program has printed so far, which is forgotten.
    pub(crate) fn take_log(&self) -> String {
        std::mem::take(&mut *self.log.lock().expect("not poisoned")).join("\n")
    }

    /// Forgets what was printed until now.
    pub(crate) fn clear_log(&self) {
        self.log.lock().expect("not poisoned").clear();
    }

    fn collect(&self, stream: impl Read + Send + 'static) {
        let log = Arc::clone(&self.log);
        std::thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                log.lock().expect("not poisoned").push(line);
            }
        });
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- what the program printed ---\n{}", self.log_text());
        }
        self.kill();
    }
}
