//! An HTTP/2 client that reads only on request: it writes frames by hand, over cleartext.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use testkit::wait::DEADLINE;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

pub(crate) struct Http2 {
    stream: TcpStream,
    next_id: u32,
    open: bool,
    /// Flow-control window of the other side, for all streams.
    credit: i64,
}

/// The windows of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Windows {
    AsTheyBegin,
    Widest,
    /// No content of any response fits.
    Closed,
}

impl Http2 {
    #[track_caller]
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::connect_with(address, Windows::AsTheyBegin)
    }

    #[track_caller]
    pub(crate) fn connect_with(address: SocketAddr, windows: Windows) -> Self {
        let stream = TcpStream::connect(address).expect("somebody listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("the deadline is not zero");
        stream.set_nodelay(true).expect("a TCP socket has this option");
        let mut client = Self { stream, next_id: 1, open: true, credit: 65_535 };
        client.stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").expect("it reads");
        match windows {
            Windows::AsTheyBegin => client.frame(SETTINGS, 0, 0, b""),
            Windows::Closed => client.frame(SETTINGS, 0, 0, b"\x00\x04\x00\x00\x00\x00"),
            Windows::Widest => {
                client.frame(SETTINGS, 0, 0, b"\x00\x04\x7f\xff\xff\xff");
                client.frame(WINDOW_UPDATE, 0, 0, b"\x7f\x00\x00\x00");
            }
        }
        client
    }

    /// Sends the head of a request on a new stream, and leaves the stream open.
    pub(crate) fn request(&mut self, method: &str, path: &str) -> &mut Self {
        self.head((method, "http", path), END_HEADERS)
    }

    /// Sends a request without content on a new stream.
    pub(crate) fn get(&mut self, path: &str) -> &mut Self {
        self.head(("GET", "http", path), END_HEADERS | END_STREAM)
    }

    /// Sends a request without content and with this scheme on a new stream.
    pub(crate) fn get_by_scheme(&mut self, scheme: &str) -> &mut Self {
        self.head(("GET", scheme, "/"), END_HEADERS | END_STREAM)
    }

    fn head(&mut self, (method, scheme, path): (&str, &str, &str), flags: u8) -> &mut Self {
        // Entries of the static table of RFC 7541: `:method`, and the names `:scheme`, `:path` and `:authority`.
        let mut block = vec![if method == "POST" { 0x83 } else { 0x82 }];
        for (name, value) in [(0x06, scheme), (0x04, path), (0x01, "a")] {
            block.extend([name, u8::try_from(value.len()).expect("a short value")]);
            block.extend_from_slice(value.as_bytes());
        }
        let id = self.next_id;
        self.next_id += 2;
        self.frame(HEADERS, flags, id, &block);
        self
    }

    /// Sends content of the last request.
    pub(crate) fn data(&mut self, content: &[u8]) -> &mut Self {
        let id = self.next_id - 2;
        self.credit -= content.len() as i64;
        self.frame(DATA, 0, id, content);
        self
    }

    /// Sends content of the last request as soon as the connection's flow-control window has room for it.
    #[track_caller]
    pub(crate) fn data_within_window(&mut self, content: &[u8]) -> &mut Self {
        for piece in content.chunks(16_384) {
            while self.credit < piece.len() as i64 {
                self.read_frame();
            }
            self.data(piece);
        }
        self
    }

    /// Returns the status of the next response: 0 if it is neither 200 nor 400.
    #[track_caller]
    pub(crate) fn status(&mut self) -> u16 {
        loop {
            // Entries of the static table of RFC 7541.
            match self.read_frame() {
                (HEADERS, _, payload) if payload[0] == 0x88 => return 200,
                (HEADERS, _, payload) => return if payload[0] == 0x8c { 400 } else { 0 },
                _ => {}
            }
        }
    }

    /// Ends the last request.
    pub(crate) fn end(&mut self) -> &mut Self {
        let id = self.next_id - 2;
        self.frame(DATA, END_STREAM, id, b"");
        self
    }

    /// Cancels the last request.
    pub(crate) fn cancel(&mut self) -> &mut Self {
        let id = self.next_id - 2;
        self.frame(RST_STREAM, 0, id, b"\x00\x00\x00\x08");
        self
    }

    /// Returns whether the other side has ended neither the last stream nor the connection, according to the frames so
    /// far.
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

    /// Reads until content arrives.
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
        // The window sizes in its settings apply once they are acknowledged.
        if head[3] == SETTINGS && head[4] & ACK == 0 {
            self.frame(SETTINGS, ACK, 0, b"");
        }
        if head[3] == WINDOW_UPDATE && head[5..] == [0; 4] {
            let more = payload[..].try_into().map(u32::from_be_bytes).expect("four bytes");
            self.credit += i64::from(more);
        }
        (head[3], head[4], payload)
    }

    fn frame(&mut self, kind: u8, flags: u8, id: u32, payload: &[u8]) {
        let bytes = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
        let mut frame = vec![bytes[1], bytes[2], bytes[3], kind, flags];
        frame.extend_from_slice(&id.to_be_bytes());
        frame.extend_from_slice(payload);
        // The next read notices that it is closed.
        let _ = self.stream.write_all(&frame);
    }
}
