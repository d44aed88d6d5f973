//! The server under test.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Command;

use testkit::{Client, Port, Response, Service, wait};

pub(crate) const LARDER: &str = env!("CARGO_BIN_EXE_larder");

/// `larder kv --config`, with an admin API.
pub(crate) struct Kv {
    pub(crate) service: Service,
    pub(crate) address: SocketAddr,
    admin: Port,
    folder: tempfile::TempDir,
}

impl Kv {
    /// Starts it; each line of `options` stands in `[kv]`, which listens on a free port.
    pub(crate) fn start(options: &str) -> Self {
        Self::start_with(options, |command| command)
    }

    /// As [`Self::start`], by the command that `change` makes of the usual one.
    pub(crate) fn start_with(options: &str, change: impl FnOnce(Command) -> Command) -> Self {
        let (folder, admin) = (tempfile::tempdir().expect("a folder"), Port::reserve());
        let file = folder.path().join("larder.toml");
        fs::write(&file, config(options, &admin)).expect("a file in it");
        let mut command = Command::new(LARDER);
        command.args(["kv", "--config"]).arg(&file);
        let mut service = Service::start(&mut change(command), folder.path(), "kv");
        let address = wait::until("it prints its address", || {
            service.assert_runs();
            service.stdout().strip_suffix('\n').and_then(|line| line.parse().ok())
        });
        Self { service, address, admin, folder }
    }

    /// Puts other lines into `[kv]`. Does not reload them.
    pub(crate) fn write_config(&self, options: &str) {
        let text = config(options, &self.admin);
        fs::write(self.folder.path().join("larder.toml"), text).expect("a file in the folder");
    }

    /// One request to the admin API.
    pub(crate) fn ask_admin(&self, method: &str, target: &str) -> Response {
        let mut client = Client::connect(self.admin.address());
        client.send(format!(
            "{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 0\r\n\
             Connection: close\r\n\r\n"
        ));
        client.response_to(method)
    }

    /// The value of a series: its name, with labels where it has some.
    pub(crate) fn metric(&self, series: &str) -> Option<f64> {
        let text = self.ask_admin("GET", "/metrics").text();
        let value =
            text.lines().find_map(|line| line.strip_prefix(series).and_then(|rest| rest.strip_prefix(' ')));
        value.map(|value| value.parse().expect("a number"))
    }
}

fn config(options: &str, admin: &Port) -> String {
    format!("[admin]\nlisten = \"{}\"\n[kv]\nlisten = \"127.0.0.1:0\"\n{options}\n", admin.address())
}

/// What inline commands are answered, until the server closes.
pub(crate) fn ask(address: SocketAddr, commands: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(wait::DEADLINE)).expect("a time limit");
    stream.write_all(commands.as_bytes()).expect("it reads");
    stream.shutdown(Shutdown::Write).expect("it is open");
    let mut replies = String::new();
    stream.read_to_string(&mut replies).expect("it answers in text");
    replies
}
