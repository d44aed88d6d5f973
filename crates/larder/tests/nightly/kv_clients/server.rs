//! Servers for tests of clients: `larder kv`, and redis-server 7.0 to verify the tests.

use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use tempfile::TempDir;
use testkit::{Port, Service, wait};

use crate::LARDER;

pub(crate) const PASSWORD: &str = "secret";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Larder,
    Redis,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entrance {
    Open,
    Locked,
}

pub(crate) struct Server {
    kind: Kind,
    entrance: Entrance,
    port: Port,
    folder: TempDir,
    /// `None` during a restart.
    service: Option<Service>,
}

impl Server {
    pub(crate) fn start(kind: Kind, entrance: Entrance) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut server = Self { kind, entrance, port: Port::reserve(), folder, service: None };
        server.run();
        server
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Kills the server, and starts an empty one at the same address.
    pub(crate) fn restart(&mut self) {
        self.service = None;
        self.run();
    }

    fn run(&mut self) {
        let (folder, host, port) = (self.folder.path(), self.address().ip(), self.address().port());
        let (program, mut line) = match self.kind {
            Kind::Larder => (LARDER, format!("kv --maxmemory 64MiB --workers 2 --listen {host}:{port}")),
            Kind::Redis => {
                ("redis-server", format!("--bind {host} --port {port} --dir {}", folder.display()))
            }
        };
        if self.entrance == Entrance::Locked {
            let files = [("password", PASSWORD), ("kv.toml", "[kv]\npassword_files = [\"password\"]\n")];
            files.iter().for_each(|(name, text)| std::fs::write(folder.join(name), text).expect("a file"));
            line += &match self.kind {
                Kind::Larder => format!(" --config {}", folder.join("kv.toml").display()),
                Kind::Redis => format!(" --requirepass {PASSWORD}"),
            };
        }
        let mut command = Command::new(program);
        command.args(line.split(' '));
        if self.kind == Kind::Redis {
            command.args(["--save", ""]);
        }
        let mut service = Service::start(&mut command, folder, "server");
        wait::until_true("it listens", || {
            service.assert_runs();
            TcpStream::connect(self.address()).is_ok()
        });
        self.service = Some(service);
    }
}
