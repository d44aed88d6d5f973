//! A connection to a server of the Redis protocol, and helpers that most tests use.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use testkit::Kv;

use crate::LARDER;

pub(crate) struct Talker(pub(crate) TcpStream);

impl Talker {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self(testkit::wait::connect(address))
    }

    /// Switches to RESP3. The reply is skipped, because versions and IDs in it differ between servers.
    pub(crate) fn with_resp3(mut self) -> Self {
        self.send("HELLO 3\r\n");
        self.read_to("modules\r\n*0\r\n");
        self
    }

    pub(crate) fn id(&mut self) -> String {
        self.ask("CLIENT ID")[1..].to_owned()
    }

    /// Sends bytes unchanged. If the server has closed the connection, the next read reports it.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.0.write_all(bytes.as_ref());
    }

    /// Sends a command, and returns the first line of its reply.
    pub(crate) fn ask(&mut self, command: impl AsRef<[u8]>) -> String {
        self.send(command.as_ref());
        if !command.as_ref().ends_with(b"\n") {
            self.send("\r\n");
        }
        self.line()
    }

    /// Reads a line, without its line end; empty if the connection has ended.
    pub(crate) fn line(&mut self) -> String {
        let (mut line, mut byte) = (Vec::new(), [0]);
        while !line.ends_with(b"\r\n") && self.0.read_exact(&mut byte).is_ok() {
            line.push(byte[0]);
        }
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }

    /// Sends commands, and returns `count` lines of the replies.
    pub(crate) fn lines(&mut self, commands: &str, count: usize) -> Vec<String> {
        self.send(commands);
        (0..count).map(|_| self.line()).collect()
    }

    #[track_caller]
    pub(crate) fn expect(&mut self, commands: &str, replies: &str) {
        self.send(format!("{commands}\r\n"));
        self.receive(replies);
    }

    #[track_caller]
    pub(crate) fn receive(&mut self, expected: impl AsRef<[u8]>) {
        let expected = expected.as_ref();
        let mut given = vec![0; expected.len()];
        let read = self.0.read_exact(&mut given);
        let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(400)]).into_owned();
        let is_right = read.is_ok() && given == expected;
        assert!(is_right, "{:?} in place of {:?}: {read:?}", text(&given), text(expected));
    }

    /// Reads until `end` arrives, and returns everything read.
    #[track_caller]
    pub(crate) fn read_to(&mut self, end: &str) -> String {
        let (mut told, mut piece) = (Vec::new(), vec![0; 1 << 20]);
        let mut looked = 0;
        // Searches text: in an unoptimised build, the standard library does that faster than a loop over bytes.
        while !String::from_utf8_lossy(&told[looked..]).contains(end) {
            looked = told.len().saturating_sub(end.len());
            let more = self.0.read(&mut piece).expect("it answers");
            assert!(
                more > 0,
                "the connection has ended after {:?}",
                String::from_utf8_lossy(&told[looked..])
            );
            told.extend_from_slice(&piece[..more]);
        }
        String::from_utf8_lossy(&told).into_owned()
    }

    /// Waits for the replies to all requests, and returns them.
    #[track_caller]
    pub(crate) fn finish(&mut self) -> String {
        self.send("PING\r\n");
        self.read_to("+PONG\r\n")
    }

    /// Sends and reads concurrently until all requests are answered: the replies may exceed the socket buffers.
    #[track_caller]
    pub(crate) fn converse(&mut self, requests: &[u8]) {
        let mut sending = self.0.try_clone().expect("a second handle");
        std::thread::scope(|scope| {
            scope.spawn(move || sending.write_all(&[requests, b"PING\r\n"].concat()));
            self.read_to("+PONG\r\n");
        });
    }

    /// Returns everything received until the server closes the connection, without a reset.
    #[track_caller]
    pub(crate) fn rest(&mut self) -> String {
        let mut told = Vec::new();
        let read = self.0.read_to_end(&mut told);
        let told = String::from_utf8_lossy(&told).into_owned();
        read.unwrap_or_else(|error| panic!("{error} after {told:?}"));
        told
    }

    /// Returns everything received so far, and whether the server has closed the connection.
    pub(crate) fn come(&mut self) -> (Vec<u8>, bool) {
        let (mut come, mut piece) = (Vec::new(), [0; 4096]);
        self.0.set_nonblocking(true).expect("a socket option");
        let is_over = loop {
            match self.0.read(&mut piece) {
                Ok(length @ 1..) => come.extend_from_slice(&piece[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break false,
                _ => break true,
            }
        };
        self.0.set_nonblocking(false).expect("a socket option");
        (come, is_over)
    }

    pub(crate) fn is_closed(&mut self) -> bool {
        self.come().1
    }
}

pub(crate) fn request(arguments: &[&[u8]]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", arguments.len()).into_bytes();
    arguments.iter().for_each(|argument| bulk(&mut request, argument));
    request
}

pub(crate) fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(format!("${}\r\n", bytes.len()).as_bytes());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Line of `[kv]` that turns on compression of long values.
pub(crate) const COMPRESSED: &str = "compression = \"lz4\"";

/// Starts a server with these lines in `[kv]` and these arguments.
pub(crate) fn configured(lines: &str, arguments: &[&str]) -> Kv {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), format!("[kv]\n{lines}\n")).expect("a file");
    let path = file.path().to_str().expect("a path in UTF-8");
    Kv::start(LARDER, &[&["--config", path], arguments].concat())
}

/// Sends many commands in parts, and returns all replies.
pub(crate) fn ask_all(kv: &Kv, commands: impl IntoIterator<Item = String>) -> String {
    let commands: Vec<String> = commands.into_iter().collect();
    let parts = commands.chunks(500);
    parts.map(|part| kv.ask(&part.iter().map(String::as_str).collect::<Vec<_>>())).collect()
}

pub(crate) fn told<'a>(information: &'a str, name: &str) -> &'a str {
    let line = information.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name} is not in {information}"))
}

pub(crate) fn fact(kv: &Kv, name: &str) -> usize {
    told(&kv.ask(&["INFO"]), name).parse().expect("a number")
}
