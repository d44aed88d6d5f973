//! `larder kv` with a configuration file and an admin API.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::client::{Client, Response};
use crate::kv::say;
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

/// Settings for starting a [`KvService`].
pub struct KvSetup {
    command: Command,
    folder: tempfile::TempDir,
}

impl KvSetup {
    /// Creates settings for a binary: `env!("CARGO_BIN_EXE_larder")`.
    ///
    /// # Panics
    /// Panics if there is no temporary folder.
    #[track_caller]
    pub fn new(binary: &str) -> Self {
        Self::of(Command::new(binary))
    }

    /// Creates settings for a command that ends with the binary, such as a shell that limits it.
    ///
    /// # Panics
    /// Panics if there is no temporary folder.
    #[track_caller]
    pub fn of(command: Command) -> Self {
        Self { command, folder: tempfile::tempdir().expect("a folder") }
    }

    /// Writes a file to the folder of this process.
    ///
    /// # Panics
    /// Panics if it can't be written.
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

    /// Starts a server with these lines in `[kv]`. It listens on a free port unless the lines set `listen`. `larder.toml` is in the folder
    /// of this process, and paths are relative to it.
    ///
    /// # Panics
    /// Panics if the server ends before it listens.
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

/// Runs the command and reads its addresses from its output.
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
    /// Starts a server with these lines in `[kv]`, see [`KvSetup::start`].
    ///
    /// # Panics
    /// Panics if the server ends before it listens.
    #[track_caller]
    pub fn start(binary: &str, options: &str) -> Self {
        KvSetup::new(binary).start(options)
    }

    /// Kills the server with SIGKILL and restarts it in the same folder. The address of the admin API stays the same; the addresses for
    /// clients may change.
    ///
    /// # Panics
    /// Panics if the server ends before it listens.
    #[track_caller]
    pub fn crash(&mut self) {
        self.service.signal(Signal::KILL);
        self.service.end();
        (self.service, self.addresses) = run(&mut self.command, self.folder.path(), self.addresses.len());
    }

    /// Returns the first address.
    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// Returns all addresses, those without TLS first.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the address of the admin API.
    pub fn admin(&self) -> SocketAddr {
        self.admin.address()
    }

    /// Returns the folder of this process.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file to the folder of this process.
    ///
    /// # Panics
    /// Panics if it can't be written.
    pub fn write_file(&self, name: &str, content: &str) {
        fs::write(self.folder.path().join(name), content).expect("a file in the folder");
    }

    /// Replaces the lines in `[kv]` and reloads the configuration.
    #[track_caller]
    pub fn reload(&self, options: &str) -> Response {
        self.write_file(CONFIG, &config(options, &self.admin));
        self.ask_admin("POST", "/reload")
    }

    /// Sends a request to the admin API.
    #[track_caller]
    pub fn ask_admin(&self, method: &str, target: &str) -> Response {
        Client::ask_admin(self.admin(), method, target, "")
    }

    /// Returns the value of a series, given by its name and labels.
    ///
    /// # Panics
    /// Panics if the value isn't a number.
    #[track_caller]
    pub fn metric(&self, series: &str) -> Option<f64> {
        let text = self.ask_admin("GET", "/metrics").text();
        let value =
            text.lines().find_map(|line| line.strip_prefix(series).and_then(|rest| rest.strip_prefix(' ')));
        value.map(|value| value.parse().expect("a number"))
    }

    /// Sends inline commands on a new connection, and returns the replies as one text.
    #[track_caller]
    pub fn ask(&self, commands: &str) -> String {
        say(self.address(), commands)
    }
}

fn config(options: &str, admin: &Port) -> String {
    let listen = if options.contains("listen =") { "" } else { "listen = [\"127.0.0.1:0\"]\n" };
    format!("[admin]\nlisten = \"{}\"\n[kv]\n{listen}{options}\n", admin.address())
}

const CONFIG: &str = "larder.toml";
