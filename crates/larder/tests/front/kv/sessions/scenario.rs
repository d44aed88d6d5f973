//! Plays `conformance/resp/*.scenario`, with several connections, first with Redis and then with `larder kv`.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::net::{Shutdown, SocketAddr};
use std::path::{Path, PathBuf};

use testkit::wait;

use super::Talker;

/// Steps, and the file that they come from.
pub(crate) struct Scenario {
    file: PathBuf,
    /// Lines `NAME: COMMAND`. A connection whose name ends with 3 speaks RESP3.
    steps: Vec<(String, String)>,
}

/// Connections by name, each with its client ID.
struct Players {
    address: SocketAddr,
    connections: BTreeMap<String, (Talker, String)>,
    control: Talker,
}

/// Bytes that each connection receives in a step.
type Received = BTreeMap<String, Vec<u8>>;

pub(crate) fn files(extension: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/resp");
    let files = fs::read_dir(folder).expect("the folder").map(|entry| entry.expect("an entry").path());
    let is_one = |path: &PathBuf| path.extension().is_some_and(|end| end == extension);
    let mut files: Vec<_> = files.filter(is_one).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

pub(crate) fn all() -> Vec<Scenario> {
    files("scenario").iter().flat_map(read).collect()
}

/// Reads the scenarios of a file, which are separated by lines that start with `==`.
fn read(file: &PathBuf) -> Vec<Scenario> {
    let text = fs::read_to_string(file).expect("the file");
    let lines: Vec<_> = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let parts = lines.split(|line| line.starts_with("==")).filter(|steps| !steps.is_empty());
    let step = |line: &&str| {
        let (connection, command) = line.split_once(": ").unwrap_or_else(|| panic!("no connection: {line}"));
        (connection.to_owned(), command.to_owned())
    };
    parts.map(|steps| Scenario { file: file.clone(), steps: steps.iter().map(step).collect() }).collect()
}

impl Scenario {
    /// Asserts that both servers send the same to the same connections, step by step.
    pub(crate) fn play(&self, redis: SocketAddr, larder: SocketAddr) {
        let mut players = Players::new(redis);
        let expected = self.steps.iter().map(|(connection, command)| {
            players.take(connection, command);
            players.settled()
        });
        let expected: Vec<_> = expected.collect();
        let file = self.file.display();
        let mut players = Players::new(larder);
        for ((connection, command), expected) in self.steps.iter().zip(&expected) {
            players.take(connection, command);
            players.expect(expected, &format!("{file}, {connection}: {command}"));
        }
        players.expect_nothing_more(&file.to_string());
    }
}

impl Players {
    fn new(address: SocketAddr) -> Self {
        let mut players = Self { address, connections: BTreeMap::new(), control: Talker::connect(address) };
        for command in ["FLUSHALL", "CONFIG SET notify-keyspace-events \"\""] {
            players.control.expect(command, "+OK\r\n");
        }
        players
    }

    fn take(&mut self, connection: &str, command: &str) {
        if let Some(key) = command.strip_prefix("until-gone ") {
            let exists = format!("EXISTS {key}");
            return wait::until_true("the key has expired", || self.control.ask(&exists) == ":0");
        }
        let mut command = command.replace("\\n", "\r\n");
        for (name, (_, id)) in &self.connections {
            command = command.replace(&format!("ID({name})"), id);
        }
        let (player, _) = self.connections.entry(connection.to_owned()).or_insert_with(|| {
            let mut player = Talker::connect(self.address);
            let id = player.id();
            (if connection.ends_with('3') { player.with_resp3() } else { player }, id)
        });
        if command == "close" {
            player.0.shutdown(Shutdown::Both).expect("it is open");
            self.connections.remove(connection);
            return;
        }
        player.send(format!("{command}\r\n"));
    }

    /// Returns everything that Redis sends after a step: it executes all commands and writes every message before it reads again.
    fn settled(&mut self) -> Received {
        (0..3).for_each(|_| self.control.expect("PING", "+PONG\r\n"));
        let players = self.connections.iter_mut();
        players.map(|(name, (player, _))| (name.clone(), player.come().0)).collect()
    }

    fn expect(&mut self, expected: &Received, what: &str) {
        for (name, expected) in expected {
            let (player, id) = self.connections.get_mut(name).expect("it was used in this step or before");
            let mut given = Vec::new();
            let read = (&mut player.0).take(expected.len() as u64).read_to_end(&mut given);
            assert_eq!(text(&given), text(expected), "{what}\nfor {name} ({id}): {read:?}");
        }
    }

    fn expect_nothing_more(self, what: &str) {
        for (name, (mut player, _)) in self.connections {
            let _ = player.0.shutdown(Shutdown::Write);
            let mut rest = Vec::new();
            let _ = player.0.read_to_end(&mut rest);
            assert_eq!(text(&rest), "", "{what}: more for {name}");
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
