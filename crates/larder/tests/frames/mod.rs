//! A client of HTTP/2 that reads no more than it is told to: frames by hand, over cleartext.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use testkit::wait::DEADLINE;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

pub(crate) struct Http2 {
    stream: TcpStream,
    next_id: u32,
    open: bool,
}

impl Http2 {
    #[track_caller]
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("somebody listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("the deadline is not zero");
        stream.set_nodelay(true).expect("a TCP socket has this option");
        let mut client = Self { stream, next_id: 1, open: true };
        client.stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").expect("it reads");
        client.frame(SETTINGS, 0, 0, b"");
        client
    }

    /// The head of a request on a stream of its own, whose end is still to come.
    pub(crate) fn request(&mut self, method: &str, path: &str) -> &mut Self {
        // The static table of RFC 7541 has these: `:method`, `:scheme: http`, `:path` by name, `:authority` by name.
        let mut block = vec![if method == "POST" { 0x83 } else { 0x82 }, 0x86, 0x04];
        block.push(u8::try_from(path.len()).expect("a short path"));
        block.extend_from_slice(path.as_bytes());
        block.extend_from_slice(b"\x01\x01a");
        let id = self.next_id;
        self.next_id += 2;
        self.frame(HEADERS, END_HEADERS, id, &block);
        self
    }

    /// Content of the last request.
    pub(crate) fn data(&mut self, content: &[u8]) -> &mut Self {
        let id = self.next_id - 2;
        self.frame(DATA, 0, id, content);
        self
    }

    /// The end of the last request.
    pub(crate) fn end(&mut self) -> &mut Self {
        let id = self.next_id - 2;
        self.frame(DATA, END_STREAM, id, b"");
        self
    }

    /// Whether neither the last stream nor the connection has been ended by the other side, as far as frames have come.
    pub(crate) fn is_open(&mut self) -> bool {
        self.stream.set_nonblocking(true).expect("a TCP socket has this mode");
        while self.open && self.stream.peek(&mut [0; 9]).is_ok_and(|bytes| bytes == 9) {
            self.stream.set_nonblocking(false).expect("a TCP socket has this mode");
            let (kind, flags, _) = self.read_frame();
            self.open = !(kind == RST_STREAM || kind == HEADERS || kind == DATA && flags & END_STREAM != 0);
            self.stream.set_nonblocking(true).expect("a TCP socket has this mode");
        }
        let is_closed = matches!(self.stream.peek(&mut [0; 1]), Ok(0));
        self.stream.set_nonblocking(false).expect("a TCP socket has this mode");
        self.open && !is_closed
    }

    /// Reads until content comes.
    pub(crate) fn wait_for_data(&mut self) {
        loop {
            let (kind, _, payload) = self.read_frame();
            if kind == DATA && !payload.is_empty() {
                return;
            }
        }
    }

    fn read_frame(&mut self) -> (u8, u8, Vec<u8>) {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).expect("a frame");
        let bytes = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; bytes];
        self.stream.read_exact(&mut payload).expect("the rest of a frame");
        (head[3], head[4], payload)
    }

    fn frame(&mut self, kind: u8, flags: u8, id: u32, payload: &[u8]) {
        let bytes = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
        let mut frame = vec![bytes[1], bytes[2], bytes[3], kind, flags];
        frame.extend_from_slice(&id.to_be_bytes());
        frame.extend_from_slice(payload);
        // What is closed meanwhile is noticed by who reads.
        let _ = self.stream.write_all(&frame);
    }
}
