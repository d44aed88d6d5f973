//! `larder kv` with a configuration file and an admin API.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::client::{Client, Response};
use crate::kv::converse;
use crate::ports::Port;
use crate::process::Service;
use crate::wait;

/// A running `larder kv --config`. Killed when dropped.
pub struct KvService {
    pub service: Service,
    command: Command,
    addresses: Vec<SocketAddr>,
    admin: Port,
    folder: tempfile::TempDir,
}

/// How to start it.
pub struct KvSetup {
    command: Command,
    folder: tempfile::TempDir,
}

impl KvSetup {
    /// `binary` is `env!("CARGO_BIN_EXE_larder")`.
    ///
    /// # Panics
    /// When there is no temporary folder.
    #[track_caller]
    pub fn new(binary: &str) -> Self {
        Self::of(Command::new(binary))
    }

    /// By a command that ends with the binary, such as a shell that limits it.
    ///
    /// # Panics
    /// When there is no temporary folder.
    #[track_caller]
    pub fn of(command: Command) -> Self {
        Self { command, folder: tempfile::tempdir().expect("a folder") }
    }

    /// Puts a file into the folder of this process.
    ///
    /// # Panics
    /// When it can't be written.
    #[must_use]
    pub fn file(self, name: &str, content: &str) -> Self {
        fs::write(self.folder.path().join(name), content).expect("a file in the folder");
        self
    }

    /// Sets an environment variable of the process.
    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Starts it with these lines in `[kv]`; it listens on a free port where they say nothing else. `larder.toml` is in the folder
    /// of this process, and paths are relative to it.
    ///
    /// # Panics
    /// When it ends before it listens.
    #[track_caller]
    pub fn start(mut self, options: &str) -> KvService {
        let admin = Port::reserve();
        let text = config(options, &admin);
        let file = self.folder.path().join(CONFIG);
        fs::write(&file, &text).expect("a file in the folder");
        self.command.args(["kv", "--config"]).arg(&file);
        let count = text.matches(":0\"").count();
        let (service, addresses) = run(&mut self.command, self.folder.path(), count);
        KvService { service, command: self.command, addresses, admin, folder: self.folder }
    }
}

/// Where it listens is known by what it prints.
#[track_caller]
fn run(command: &mut Command, folder: &Path, count: usize) -> (Service, Vec<SocketAddr>) {
    let mut service = Service::start(command, folder, "kv");
    let addresses = wait::until("it prints its addresses", || {
        service.assert_runs();
        let addresses = service.listening();
        (addresses.len() == count).then_some(addresses)
    });
    (service, addresses)
}

impl KvService {
    /// Starts it with these lines in `[kv]`, see [`KvSetup::start`].
    ///
    /// # Panics
    /// When it ends before it listens.
    #[track_caller]
    pub fn start(binary: &str, options: &str) -> Self {
        KvSetup::new(binary).start(options)
    }

    /// Ends it by SIGKILL, and starts it again in the same folder. The admin API is where it was; clients may be elsewhere.
    ///
    /// # Panics
    /// When it ends before it listens.
    #[track_caller]
    pub fn crash(&mut self) {
        self.service.signal(Signal::KILL);
        self.service.end();
        (self.service, self.addresses) = run(&mut self.command, self.folder.path(), self.addresses.len());
    }

    /// The first address.
    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// All of them: without TLS first.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where the admin API listens.
    pub fn admin(&self) -> SocketAddr {
        self.admin.address()
    }

    /// The folder of this process.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Puts a file into the folder of this process.
    ///
    /// # Panics
    /// When it can't be written.
    pub fn write_file(&self, name: &str, content: &str) {
        fs::write(self.folder.path().join(name), content).expect("a file in the folder");
    }

    /// Puts other lines into `[kv]`, and lets it read them.
    #[track_caller]
    pub fn reload(&self, options: &str) -> Response {
        self.write_file(CONFIG, &config(options, &self.admin));
        self.ask_admin("POST", "/reload")
    }

    /// One request to the admin API.
    #[track_caller]
    pub fn ask_admin(&self, method: &str, target: &str) -> Response {
        let mut client = Client::connect(self.admin.address());
        client.send(format!(
            "{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 0\r\n\
             Connection: close\r\n\r\n"
        ));
        client.response_to(method)
    }

    /// The value of a series: its name, with labels where it has some.
    ///
    /// # Panics
    /// When its value is none.
    #[track_caller]
    pub fn metric(&self, series: &str) -> Option<f64> {
        let text = self.ask_admin("GET", "/metrics").text();
        let value =
            text.lines().find_map(|line| line.strip_prefix(series).and_then(|rest| rest.strip_prefix(' ')));
        value.map(|value| value.parse().expect("a number"))
    }

    /// What inline commands on a connection of their own are answered, in one text.
    #[track_caller]
    pub fn ask(&self, commands: &str) -> String {
        String::from_utf8_lossy(&converse(self.address(), commands.as_bytes(), usize::MAX)).into_owned()
    }
}

fn config(options: &str, admin: &Port) -> String {
    let listen = if options.contains("listen =") { "" } else { "listen = [\"127.0.0.1:0\"]\n" };
    format!("[admin]\nlisten = \"{}\"\n[kv]\n{listen}{options}\n", admin.address())
}

const CONFIG: &str = "larder.toml";
