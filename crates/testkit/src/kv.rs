//! `larder kv` under test, and conversations with Redis-compatible servers.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::path::Path;
use std::process::Command;

use crate::process::Service;
use crate::wait;

/// A running `larder kv` on a free port. Killed when dropped.
pub struct Kv {
    pub service: Service,
    address: SocketAddr,
    folder: tempfile::TempDir,
}

impl Kv {
    /// Starts a server with these arguments. `binary` is `env!("CARGO_BIN_EXE_larder")`.
    ///
    /// # Panics
    /// Panics if the server ends before it listens.
    #[track_caller]
    pub fn start(binary: &str, arguments: &[&str]) -> Self {
        Self::start_under(&[], binary, arguments)
    }

    /// Starts a server under a tool, with these arguments, followed by the binary and its arguments; `@dir@` is the folder of this server.
    ///
    /// # Panics
    /// Panics if the server ends before it listens.
    #[track_caller]
    pub fn start_under(tool: &[&str], binary: &str, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().display().to_string();
        let mut words = tool.iter().map(|word| word.replace("@dir@", &place)).chain([binary.to_owned()]);
        let mut command = Command::new(words.next().expect("the command line has the binary"));
        command.args(words).args(["kv", "--listen", "127.0.0.1:0"]).args(arguments);
        let mut service = Service::start(&mut command, folder.path(), "kv");
        let address = wait::until("it prints its address", || {
            service.assert_runs();
            service.listening().first().copied()
        });
        Self { service, address, folder }
    }

    /// Returns the folder of its files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends inline commands on a new connection, and returns all replies as one text.
    #[track_caller]
    pub fn ask(&self, commands: &[&str]) -> String {
        say(self.address, &commands.iter().map(|command| format!("{command}\r\n")).collect::<String>())
    }
}

/// Sends inline commands on a new connection, and returns all replies as one text.
///
/// # Panics
/// Panics if no server listens there.
#[track_caller]
pub fn say(address: SocketAddr, commands: &str) -> String {
    String::from_utf8_lossy(&converse(address, commands.as_bytes(), usize::MAX)).into_owned()
}

/// Sends bytes in pieces on a connection, and returns all bytes received until the server closes.
///
/// # Panics
/// Panics if no server listens there.
#[track_caller]
pub fn converse(address: SocketAddr, bytes: &[u8], piece_bytes: usize) -> Vec<u8> {
    let mut stream = wait::connect(address);
    for piece in bytes.chunks(piece_bytes) {
        // The server may already have refused the input and closed the connection.
        if stream.write_all(piece).is_err() {
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Write);
    let mut replies = Vec::new();
    let mut piece = [0; 4096];
    // A reset after the last reply counts as the end too.
    while let Ok(length @ 1..) = stream.read(&mut piece) {
        replies.extend_from_slice(&piece[..length]);
    }
    replies
}
