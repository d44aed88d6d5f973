//! `conformance/resp/*.scenario`: several connections, played first to Redis, then to `larder kv`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};

use testkit::wait;

/// Steps, and the file that they come from.
pub(crate) struct Scenario {
    file: PathBuf,
    steps: Vec<Step>,
}

/// A line: `NAME: COMMAND`. A connection whose name ends with 3 speaks RESP3.
struct Step {
    connection: String,
    command: String,
}

/// Every connection, what it has received, and which number the server knows it by.
struct Players {
    address: SocketAddr,
    connections: BTreeMap<String, (TcpStream, String)>,
    control: TcpStream,
}

/// What each connection received in a step.
type Received = BTreeMap<String, Vec<u8>>;

pub(crate) fn all() -> Vec<Scenario> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/resp");
    let files = fs::read_dir(folder).expect("the folder").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|end| end == "scenario")).collect();
    files.sort();
    assert!(!files.is_empty());
    files.iter().flat_map(read).collect()
}

/// Scenarios of a file are separated by lines that begin with `==`.
fn read(file: &PathBuf) -> Vec<Scenario> {
    let text = fs::read_to_string(file).expect("the file");
    let mut scenarios = vec![Vec::new()];
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line.starts_with("==") {
            scenarios.push(Vec::new());
            continue;
        }
        let (connection, command) = line.split_once(": ").unwrap_or_else(|| panic!("no connection: {line}"));
        let step = Step { connection: connection.to_owned(), command: command.to_owned() };
        scenarios.last_mut().expect("one was pushed").push(step);
    }
    scenarios.retain(|steps| !steps.is_empty());
    scenarios.into_iter().map(|steps| Scenario { file: file.clone(), steps }).collect()
}

impl Scenario {
    /// Both must say the same to the same connections, step by step.
    pub(crate) fn play(&self, redis: SocketAddr, larder: SocketAddr) {
        let mut expected = Vec::new();
        let mut players = Players::new(redis);
        for step in &self.steps {
            players.take(step);
            expected.push(players.settled());
        }
        drop(players);
        let mut players = Players::new(larder);
        for (step, expected) in self.steps.iter().zip(&expected) {
            players.take(step);
            players
                .expect(expected, &format!("{}, {}: {}", self.file.display(), step.connection, step.command));
        }
        players.expect_nothing_more(&self.file.display().to_string());
    }
}

impl Players {
    fn new(address: SocketAddr) -> Self {
        let mut players = Self { address, connections: BTreeMap::new(), control: connect(address) };
        for command in ["FLUSHALL", "CONFIG SET notify-keyspace-events \"\""] {
            assert_eq!(ask(&mut players.control, command), "+OK", "{command}");
        }
        players
    }

    fn take(&mut self, step: &Step) {
        if step.command.starts_with("until-gone ") {
            return self.wait_until_gone(step.command.trim_start_matches("until-gone "));
        }
        let mut command = step.command.clone();
        for (name, (_, id)) in &self.connections {
            command = command.replace(&format!("ID({name})"), id);
        }
        if !self.connections.contains_key(&step.connection) {
            let mut stream = connect(self.address);
            let id = ask(&mut stream, "CLIENT ID");
            if step.connection.ends_with('3') {
                greet(&mut stream);
            }
            self.connections.insert(step.connection.clone(), (stream, id[1..].to_owned()));
        }
        let (stream, _) = &mut self.connections.get_mut(&step.connection).expect("it was inserted");
        if command == "close" {
            stream.shutdown(Shutdown::Both).expect("it is open");
            self.connections.remove(&step.connection);
            return;
        }
        // The server may have closed it in a step before.
        let _ = write!(stream, "{}\r\n", command.replace("\\n", "\r\n"));
    }

    /// Until a key has expired, and that is known.
    fn wait_until_gone(&mut self, key: &str) {
        wait::until_true("the key is gone", || ask(&mut self.control, &format!("EXISTS {key}")) == ":0");
    }

    /// What Redis has sent when it has executed everything and written every message: it does both before it reads again.
    fn settled(&mut self) -> Received {
        for _ in 0..3 {
            assert_eq!(ask(&mut self.control, "PING"), "+PONG");
        }
        let received =
            |(name, (stream, _)): (&String, &mut (TcpStream, String))| (name.clone(), available(stream));
        self.connections.iter_mut().map(received).collect()
    }

    fn expect(&mut self, expected: &Received, what: &str) {
        for (name, expected) in expected {
            let (stream, id) = self.connections.get_mut(name).expect("it was used in this step or before");
            let mut given = Vec::new();
            let missing = |given: &[u8]| expected.len() > given.len();
            while missing(&given) {
                let mut piece = vec![0; expected.len() - given.len()];
                match stream.read(&mut piece) {
                    Ok(0) => break,
                    Ok(length) => given.extend_from_slice(&piece[..length]),
                    Err(error) => panic!(
                        "{what}\n{name} ({id}) waits for {:?} behind {:?}: {error}",
                        text(expected),
                        text(&given)
                    ),
                }
            }
            assert_eq!(text(&given), text(expected), "{what}\nfor {name}");
        }
    }

    /// Everything was expected that came.
    fn expect_nothing_more(self, what: &str) {
        for (name, (mut stream, _)) in self.connections {
            let _ = stream.shutdown(Shutdown::Write);
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest);
            assert_eq!(text(&rest), "", "{what}: more for {name}");
        }
    }
}

/// One connection, and the number that the server knows it by.
pub(crate) struct Talker {
    stream: TcpStream,
    pub(crate) id: String,
}

impl Talker {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let mut stream = connect(address);
        let id = ask(&mut stream, "CLIENT ID");
        Self { stream, id: id[1..].to_owned() }
    }

    pub(crate) fn with_resp3(mut self) -> Self {
        greet(&mut self.stream);
        self
    }

    /// Sends a command whose reply is one line, and gives that.
    pub(crate) fn ask(&mut self, command: &str) -> String {
        ask(&mut self.stream, command)
    }

    pub(crate) fn send(&mut self, command: &str) {
        write!(self.stream, "{command}\r\n").expect("it is open");
    }

    #[track_caller]
    pub(crate) fn expect(&mut self, command: &str, reply: &str) {
        self.send(command);
        self.receive(reply);
    }

    #[track_caller]
    pub(crate) fn receive(&mut self, expected: &str) {
        let mut given = vec![0; expected.len()];
        let read = self.stream.read_exact(&mut given);
        assert!(
            read.is_ok() && text(&given) == expected,
            "{:?} in place of {expected:?}: {read:?}",
            text(&given)
        );
    }

    /// Sends commands, if any, and gives so many lines of the replies.
    pub(crate) fn lines(&mut self, commands: &str, count: usize) -> Vec<String> {
        if !commands.is_empty() {
            self.send(commands);
        }
        (0..count).map(|_| line(&mut self.stream)).collect()
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_nodelay(true).expect("a socket option");
    stream.set_read_timeout(Some(wait::DEADLINE)).expect("a time limit");
    stream
}

/// Sends a command whose reply is one line, and gives that.
fn ask(stream: &mut TcpStream, command: &str) -> String {
    write!(stream, "{command}\r\n").expect("it is open");
    line(stream)
}

fn line(stream: &mut TcpStream) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a reply");
        line.push(byte[0]);
    }
    text(&line).trim_end().to_owned()
}

/// Chooses RESP3. Versions and numbers in the reply are those of each server.
fn greet(stream: &mut TcpStream) {
    write!(stream, "HELLO 3\r\n").expect("it is open");
    let (mut reply, mut byte) = (Vec::new(), [0]);
    while !reply.ends_with(b"modules\r\n*0\r\n") {
        stream.read_exact(&mut byte).expect("a reply");
        reply.push(byte[0]);
    }
}

/// What has arrived already.
fn available(stream: &mut TcpStream) -> Vec<u8> {
    stream.set_nonblocking(true).expect("a socket option");
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => bytes.extend_from_slice(&piece[..length]),
            // Nothing more for now, or a connection that the server has closed.
            Err(_) => break,
        }
    }
    stream.set_nonblocking(false).expect("a socket option");
    bytes
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
