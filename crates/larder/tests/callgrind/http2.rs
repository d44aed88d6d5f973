//! A minimal HTTP/2 client that can repeat one request and read its responses.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A connection that repeats one request.
pub(crate) struct Http2 {
    stream: TcpStream,
    stream_id: u32,
    block: Vec<u8>,
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// The maximum increment of a connection's window, so that it never has to be raised again.
const WINDOW_RAISE_BYTES: u32 = (1 << 31) - 1 - 65_535;

impl Http2 {
    /// Connects, and sends the request once.
    pub(crate) fn connect(address: SocketAddr, path: &str) -> Self {
        let stream = TcpStream::connect(address).expect("the gateway listens");
        stream.set_nodelay(true).expect("a TCP socket has this option");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("the deadline is not zero");
        // `:method GET`, `:scheme http`, and path and authority as literals that are added to the table (RFC 7541
        // section 6).
        let mut block = vec![0x82, 0x86];
        for (name, value) in [(0x44, path), (0x41, "localhost")] {
            block.extend([name, u8::try_from(value.len()).expect("it is short")]);
            block.extend(value.as_bytes());
        }
        let mut client = Self { stream, stream_id: 1, block };
        client.stream.write_all(PREFACE).expect("the gateway reads");
        client.send(SETTINGS, 0, 0, &[]);
        client.send(WINDOW_UPDATE, 0, 0, &WINDOW_RAISE_BYTES.to_be_bytes());
        client.ask();
        // Path and authority are in the table now, so indexes represent both.
        client.block = vec![0x82, 0x86, 0xbf, 0xbe];
        client
    }

    /// Sends one request and reads the complete response.
    pub(crate) fn ask(&mut self) {
        let block = std::mem::take(&mut self.block);
        self.send(HEADERS, END_STREAM | END_HEADERS, self.stream_id, &block);
        self.block = block;
        while !self.is_end_of_response() {}
        self.stream_id += 2;
    }

    fn send(&mut self, kind: u8, flags: u8, stream_id: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).expect("it is short").to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend(stream_id.to_be_bytes());
        frame.extend(payload);
        self.stream.write_all(&frame).expect("the gateway reads");
    }

    /// Reads one frame, and returns whether it ends the response.
    fn is_end_of_response(&mut self) -> bool {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).expect("the gateway answers");
        let [length @ .., _, _, _, _, _, _] = head;
        let mut payload = vec![0; length.into_iter().fold(0, |sum, byte| sum << 8 | usize::from(byte))];
        self.stream.read_exact(&mut payload).expect("the frame is complete");
        let (kind, flags) = (head[3], head[4]);
        match kind {
            SETTINGS if flags == 0 => self.send(SETTINGS, 1, 0, &[]),
            // 0x88 is `:status 200`.
            HEADERS => assert_eq!(payload.first(), Some(&0x88), "the answer is 200"),
            GOAWAY => panic!("the gateway ends the connection: {payload:?}"),
            _ => {}
        }
        matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0
    }
}
