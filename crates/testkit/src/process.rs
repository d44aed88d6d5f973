//! The binary under test as a process.

use std::fs::{self, File};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;

use crate::client::{Client, Response};
use crate::ports::Port;
use crate::tool::spawn;
use crate::wait;

/// Settings for starting the gateway.
pub struct Setup {
    binary: PathBuf,
    tool: Vec<String>,
    folder: TempDir,
    listen: Port,
    admin: Port,
    origin: Option<String>,
    config: Option<String>,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

/// A running gateway with its admin API. Killed when dropped.
pub struct Larder {
    service: Service,
    folder: TempDir,
    listen: Port,
    admin: Port,
    config: Option<String>,
}

/// A running subcommand of the binary. Killed when dropped; its output is shown if the test fails.
pub struct Service {
    child: Child,
    log: PathBuf,
    errors: PathBuf,
}

/// A process started by the process under test. Killed when dropped.
pub struct Successor(Pid);

impl Successor {
    /// Creates the handle of a process by its id, as reported by the process under test.
    ///
    /// # Panics
    /// Panics if the number isn't a process id.
    pub fn new(id: u64) -> Self {
        let id = i32::try_from(id).ok().and_then(Pid::from_raw);
        Self(id.expect("the id of a process"))
    }

    /// Sends a signal. The process may have ended already.
    pub fn signal(&self, signal: Signal) {
        // If the process has ended, it needs no signal.
        let _ = kill_process(self.0, signal);
    }

    /// Waits until the process has ended.
    #[track_caller]
    pub fn end(&self) {
        wait::until_true("the successor ends", || test_kill_process(self.0).is_err());
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

impl Setup {
    /// Sets up a gateway for one origin, without a configuration file. `binary` is `env!("CARGO_BIN_EXE_larder")`.
    pub fn origin(binary: &str, origin: &str) -> Self {
        Self { origin: Some(origin.to_owned()), ..Self::new(binary) }
    }

    /// Sets up a gateway with a configuration file. In the text, `@listen@` and `@admin@` are addresses and `@dir@` is this process's
    /// own folder; `listen` and `[admin]` are added if missing.
    pub fn config(binary: &str, config: &str) -> Self {
        Self { config: Some(config.to_owned()), ..Self::new(binary) }
    }

    fn new(binary: &str) -> Self {
        Self {
            binary: binary.into(),
            tool: Vec::new(),
            folder: tempfile::tempdir().expect("a temporary folder"),
            listen: Port::reserve(),
            admin: Port::reserve(),
            origin: None,
            config: None,
            arguments: Vec::new(),
            environment: Vec::new(),
        }
    }

    /// Adds arguments to `larder serve`.
    #[must_use]
    pub fn arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }

    /// Runs the gateway under a tool, with these arguments, followed by the binary and its arguments; `@dir@` is the folder of this
    /// process.
    #[must_use]
    pub fn under(mut self, tool: &[&str]) -> Self {
        let folder = self.folder.path().display().to_string();
        self.tool = tool.iter().map(|word| word.replace("@dir@", &folder)).collect();
        self
    }

    /// Sets an environment variable of the process; `@dir@` is its folder.
    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        let value = value.replace("@dir@", &self.folder.path().display().to_string());
        self.environment.push((name.to_owned(), value));
        self
    }

    /// Writes a file to the folder of this process, or to one below it.
    ///
    /// # Panics
    /// Panics if the file can't be written.
    #[must_use]
    pub fn file(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        let path = self.folder.path().join(name);
        let folder = path.parent().expect("it is in a folder");
        fs::create_dir_all(folder).expect("a folder");
        fs::write(path, content).expect("a file in the folder");
        self
    }

    /// Starts the gateway and waits until it is ready.
    ///
    /// # Panics
    /// Panics if it ends or does not become ready.
    #[track_caller]
    pub fn start(self) -> Larder {
        let admin = self.admin.address();
        self.start_when(admin)
    }

    /// Starts the gateway and waits until `/ready` at another address succeeds. Use it if the admin API requires a token.
    ///
    /// # Panics
    /// Panics if it ends or does not become ready.
    #[track_caller]
    pub fn start_when(self, probes: SocketAddr) -> Larder {
        let mut larder = self.spawn();
        wait::until_true("the gateway is ready", || larder.is_ready(probes));
        larder
    }

    /// Starts the gateway and waits until clients can connect. Sends no request to the admin API, which would count in the metrics.
    ///
    /// # Panics
    /// Panics if it ends or does not listen.
    #[track_caller]
    pub fn start_unasked(self) -> Larder {
        // A tool such as valgrind makes a start some fifty times slower.
        let deadline = if self.tool.is_empty() { wait::DEADLINE } else { 5 * wait::DEADLINE };
        let mut larder = self.spawn();
        wait::until_within(deadline, "the gateway listens", || {
            larder.service.assert_runs();
            TcpStream::connect(larder.address()).is_ok().then_some(())
        });
        larder
    }

    #[track_caller]
    fn spawn(self) -> Larder {
        let mut words = self.tool.iter().map(PathBuf::from).chain([self.binary.clone()]);
        let mut command = Command::new(words.next().expect("the command line has the binary"));
        command.args(words).arg("serve").args(self.addresses()).args(&self.arguments);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let service = Service::start(&mut command, self.folder.path(), "larder");
        let Self { folder, listen, admin, config, .. } = self;
        Larder { service, folder, listen, admin, config }
    }

    fn addresses(&self) -> Vec<String> {
        let text = |value: &str| value.to_owned();
        let Some(config) = &self.config else {
            let origin = self.origin.as_deref().expect("either an origin or a configuration is set");
            let (listen, admin) = (self.listen.address().to_string(), self.admin.address().to_string());
            return vec![text("--origin"), text(origin), text("--listen"), listen, text("--admin"), admin];
        };
        let file = self.folder.path().join(CONFIG);
        let filled = fill(config, &self.listen, &self.admin, self.folder.path());
        fs::write(&file, filled).expect("a file in the folder");
        vec![text("--config"), file.display().to_string()]
    }
}

fn fill(config: &str, listen: &Port, admin: &Port, folder: &Path) -> String {
    let mut text = config.to_owned();
    if !config.contains("@listen@") {
        text.insert_str(0, "listen = [\"@listen@\"]\n");
    }
    if !config.contains("@admin@") {
        text.push_str("\n[admin]\nlisten = \"@admin@\"\n");
    }
    text.replace("@listen@", &listen.address().to_string())
        .replace("@admin@", &admin.address().to_string())
        .replace("@dir@", &folder.display().to_string())
}

impl Larder {
    /// Returns the address for clients.
    pub fn address(&self) -> SocketAddr {
        self.listen.address()
    }

    /// Returns the address of the admin API.
    pub fn admin(&self) -> SocketAddr {
        self.admin.address()
    }

    /// Returns the URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }

    /// Opens a connection.
    #[track_caller]
    pub fn client(&self) -> Client {
        Client::connect(self.address())
    }

    /// Sends a GET on a new connection.
    #[track_caller]
    pub fn get(&self, target: &str) -> Response {
        self.client().get(target)
    }

    /// Sends a request on a new connection; `fields` are field lines, each with its line end.
    #[track_caller]
    pub fn ask(&self, method: &str, target: &str, fields: &str) -> Response {
        self.client().ask(method, target, fields)
    }

    /// Sends a request with a body to the admin API.
    #[track_caller]
    pub fn ask_admin(&self, method: &str, target: &str, body: &str) -> Response {
        Client::ask_admin(self.admin(), method, target, body)
    }

    /// Returns the sum of all series of a metric whose line contains all these parts.
    ///
    /// # Panics
    /// Panics if `/metrics` does not answer.
    #[track_caller]
    pub fn metric(&self, name: &str, parts: &[&str]) -> f64 {
        let answer = self.ask_admin("GET", "/metrics", "");
        assert_eq!(answer.status(), 200);
        let text = answer.text();
        let fits = |line: &&str| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
                && parts.iter().all(|part| line.contains(part))
        };
        let values = text.lines().filter(fits).filter_map(|line| line.rsplit(' ').next());
        values.filter_map(|value| value.parse::<f64>().ok()).sum()
    }

    /// Waits until the sum that [`Larder::metric`] returns is as expected.
    #[track_caller]
    pub fn wait_for(&self, name: &str, parts: &[&str], is_expected: impl Fn(f64) -> bool) {
        let what = format!("{name} {parts:?} is as expected");
        wait::until_true(&what, || is_expected(self.metric(name, parts)));
    }

    /// Replaces the configuration file without a reload. [`Setup::config`] describes the form of the text.
    ///
    /// # Panics
    /// Panics if the gateway was started without one.
    pub fn write_config(&mut self, config: &str) {
        assert!(self.config.is_some(), "started without a configuration file");
        let filled = fill(config, &self.listen, &self.admin, self.folder.path());
        fs::write(self.folder.path().join(CONFIG), filled).expect("a file in the folder");
        self.config = Some(config.to_owned());
    }

    /// Returns the folder of this process.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the process.
    pub fn service(&mut self) -> &mut Service {
        &mut self.service
    }

    /// Sends a signal.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        self.service.signal(signal);
    }

    /// Returns the resident memory in bytes, including anonymous files.
    #[track_caller]
    pub fn resident_bytes(&self) -> u64 {
        self.service.resident_bytes()
    }

    /// Returns its standard output.
    pub fn stdout(&self) -> String {
        self.service.stdout()
    }

    /// Returns its standard error.
    pub fn stderr(&self) -> String {
        self.service.stderr()
    }

    /// Returns whether `/ready` reports that it is ready.
    #[track_caller]
    fn is_ready(&mut self, probes: SocketAddr) -> bool {
        self.service.assert_runs();
        let Ok(stream) = TcpStream::connect(probes) else { return false };
        let mut client = Client::over(stream);
        let asked = client.try_send("GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        asked.is_ok() && client.try_response_to("GET").is_ok_and(|response| response.status() == 200)
    }
}

impl Service {
    /// Starts a command of the binary; its output goes to files in the folder.
    ///
    /// # Panics
    /// Panics if it can't be started.
    #[track_caller]
    pub fn start(command: &mut Command, folder: &Path, name: &str) -> Self {
        Self::start_with(command, Stdio::null(), folder, name)
    }

    /// Starts a command of the binary with this standard input.
    ///
    /// # Panics
    /// Panics if it can't be started.
    #[track_caller]
    pub fn start_with(command: &mut Command, input: Stdio, folder: &Path, name: &str) -> Self {
        let (log, errors) = (folder.join(format!("{name}.out")), folder.join(format!("{name}.err")));
        let open = |path: &PathBuf| File::create(path).expect("a file in the folder");
        command.stdin(input).stdout(open(&log)).stderr(open(&errors));
        // Don't read a configuration that is installed on this machine.
        command.env("CONFIGURATION_DIRECTORY", folder.join("no-configuration"));
        let child = spawn(name, command);
        Self { child, log, errors }
    }

    /// Asserts that the process has not ended.
    ///
    /// # Panics
    /// Panics if it has.
    #[track_caller]
    pub fn assert_runs(&mut self) {
        if let Some(status) = self.status() {
            panic!("it ended ({status}); it wrote:\n{}{}", self.stdout(), self.stderr());
        }
    }

    /// Returns the exit status, if the process has ended.
    ///
    /// # Panics
    /// Panics if the system does not know the process.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Waits until the process ends by itself.
    #[track_caller]
    pub fn end(&mut self) -> ExitStatus {
        wait::until("the process ends", || self.status())
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// Panics if the process has ended.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the process runs");
    }

    /// Returns the addresses in its `listening on` lines.
    ///
    /// # Panics
    /// Panics if another line is printed.
    #[track_caller]
    pub fn listening(&self) -> Vec<SocketAddr> {
        let text = self.stdout();
        let lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        // Sockets in the file system have no address.
        let lines = lines.filter(|line| !line.starts_with("listening on unix:"));
        let address = |line: &str| line.strip_prefix("listening on ")?.split_once("://")?.1.parse().ok();
        lines.map(|line| address(line).unwrap_or_else(|| panic!("not an address: {line}"))).collect()
    }

    /// Returns its standard output.
    pub fn stdout(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Returns its standard error.
    pub fn stderr(&self) -> String {
        fs::read_to_string(&self.errors).unwrap_or_default()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let text = format!("--- the process wrote:\n{}{}", self.stdout(), self.stderr());
            let _ = std::io::stderr().write_all(text.as_bytes());
        }
    }
}

const CONFIG: &str = "larder.toml";
