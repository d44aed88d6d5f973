//! Servers for tests of clients: `larder kv`, and redis-server 7.0 to verify the tests.

use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use tempfile::TempDir;
use testkit::{Port, Service, wait};

use crate::LARDER;

/// The password of servers that require one.
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

/// A running server. Killed when dropped.
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
        let mut service = Service::start(&mut self.command(), self.folder.path(), "server");
        wait::until_true("it listens", || {
            service.assert_runs();
            TcpStream::connect(self.address()).is_ok()
        });
        self.service = Some(service);
    }

    fn command(&self) -> Command {
        match self.kind {
            Kind::Larder => self.larder(),
            Kind::Redis => self.redis(),
        }
    }

    fn larder(&self) -> Command {
        let mut command = Command::new(LARDER);
        command.args(["kv", "--maxmemory", "64MiB", "--workers", "2"]);
        command.arg("--listen").arg(self.address().to_string());
        if self.entrance == Entrance::Locked {
            let file = |name: &str| self.folder.path().join(name);
            std::fs::write(file("password"), PASSWORD).expect("a file in the folder");
            std::fs::write(file("kv.toml"), "[kv]\npassword_files = [\"password\"]\n")
                .expect("a file in the folder");
            command.arg("--config").arg(file("kv.toml"));
        }
        command
    }

    fn redis(&self) -> Command {
        let mut command = Command::new("redis-server");
        command.args(["--bind", &self.address().ip().to_string()]);
        command.args(["--port", &self.address().port().to_string()]);
        command.args(["--save", "", "--dir"]).arg(self.folder.path());
        if self.entrance == Entrance::Locked {
            command.args(["--requirepass", PASSWORD]);
        }
        command
    }
}
