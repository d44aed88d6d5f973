//! Scripts of clients in other languages: `conformance/clients`.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::server::{Entrance, Kind, Server};

/// The command line of a script in Java.
pub(crate) fn java(class: &str) -> [&str; 6] {
    ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", "{}/java/classes:{}/java/lib/*", class]
}

/// Maximum time without output, with a reserve for a busy machine.
const DEADLINE: Duration = Duration::from_secs(180);

/// Parts that every script has, in this order.
const PARTS: [&str; 9] =
    ["handshake", "strings", "expiry", "binary", "pipeline", "scan", "pubsub", "transactions", "reconnect"];

/// Runs [`PARTS`] and `more` against Redis, then against Larder. `{}` in a command stands for the folder `conformance/clients`. `newer`
/// names the parts for which this client requires a server newer than Redis 7.0.
pub(crate) fn play(words: &[&str], more: &[&str], newer: &[&str]) {
    for kind in [Kind::Redis, Kind::Larder] {
        let mut parts: Vec<_> = PARTS.iter().chain(more).copied().collect();
        parts.retain(|part| kind == Kind::Larder || !newer.contains(part));
        let mut open = Server::start(kind, Entrance::Open);
        let locked = Server::start(kind, Entrance::Locked);
        let mut command = command(words);
        command.env("SERVER", open.address().to_string()).env("LOCKED", locked.address().to_string());
        play_parts(command, &parts, || open.restart());
    }
}

/// Runs the part about clusters, starting at one node.
pub(crate) fn play_cluster(words: &[&str], node: SocketAddr) {
    let mut command = command(words);
    command.env("CLUSTER", node.to_string());
    play_parts(command, &["cluster"], || panic!("nothing to start again"));
}

/// Starts a script and reads its output until its end.
fn play_parts(mut command: Command, parts: &[&str], mut restart: impl FnMut()) {
    let errors = tempfile::NamedTempFile::new().expect("a temporary file");
    command.args(parts).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(errors.reopen().expect("a temporary file"));
    let mut running = Running::start(&mut command);
    let mut lines = Vec::new();
    while let Some(line) = running.line() {
        if line == "restart" {
            restart();
            running.go_on();
        } else {
            lines.push(line);
        }
    }
    // A part without a success message counts as not run.
    let good = parts.iter().filter(|part| lines.iter().any(|line| line == &format!("ok {part}")));
    if good.count() < parts.len() {
        let errors = fs::read_to_string(errors.path()).unwrap_or_default();
        panic!("{command:?}:\n{}\n{errors}", lines.join("\n"));
    }
}

fn command(words: &[&str]) -> Command {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/clients");
    let folder = folder.canonicalize().expect("the folder of the scripts");
    let words: Vec<_> = words.iter().map(|word| word.replace("{}", &folder.display().to_string())).collect();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).env("PYTHONPATH", folder.join("python/lib"));
    command
}

/// A running script. Killed when dropped.
struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let started = command.spawn();
        let mut child =
            started.unwrap_or_else(|error| panic!("{command:?}: {error}: run scripts/install-dependencies"));
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, lines) = mpsc::sync_channel(100);
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // The send fails if the test has failed and dropped the receiver.
                let _ = sender.send(line);
            }
        });
        Self { child, lines }
    }

    /// Returns the next line, or `None` if the script has ended.
    fn line(&mut self) -> Option<String> {
        match self.lines.recv_timeout(DEADLINE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the script is silent for {DEADLINE:?}"),
        }
    }

    fn go_on(&mut self) {
        let input = self.child.stdin.as_mut().expect("it is piped");
        input.write_all(b"\n").expect("it reads");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The call fails if the script has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
