//! HTTP/2 on one connection (RFC 9113), as far as a client needs it that asks and counts.
//!
//! Windows are opened as wide as they go, server push is refused, and the header tables have no size, so that neither
//! flow control nor header compression costs the generator anything per request.

use std::time::Instant;

use super::codec::Codec;
use super::exchange::{Answer, Malformed, Pending, Sink, Then};
use super::frame::{FRAME_BYTES_MAX, Frame, FrameReader, Kind, Part, flag};
use super::hpack;
use super::prepare::Prepared;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const WINDOW_MAX: u32 = (1 << 31) - 1;
const WINDOW_AT_BEGIN: u32 = 65_535;
/// The connection's window is filled up again when this much of it is used.
const WINDOW_REFILL: u32 = 1 << 29;
/// A connection is replaced before its stream numbers run out.
const STREAM_LAST: u32 = (1 << 31) - 1001;
const HEADER_SECTION_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct H2 {
    depth: usize,
    /// The largest request body of the load.
    payload_bytes_max: usize,
    frames: FrameReader,
    waiting: Vec<Stream>,
    next_stream: u32,
    peer: Peer,
    /// A header section that goes on in the next frame.
    section: Vec<u8>,
    unfinished: Option<Frame>,
    used_window: u32,
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    id: u32,
    pending: Pending,
    status: Option<u16>,
    is_first_byte_told: bool,
}

/// What the server said about itself.
#[derive(Debug)]
struct Peer {
    has_spoken: bool,
    streams_max: usize,
    stream_window: i64,
    window: i64,
    /// The last stream that it takes, once it goes away.
    last_stream: Option<u32>,
}

impl H2 {
    pub(super) fn new(depth: usize, payload_bytes_max: usize) -> Self {
        Self {
            depth,
            payload_bytes_max,
            frames: FrameReader::default(),
            waiting: Vec::with_capacity(depth),
            next_stream: 1,
            peer: Peer::unheard(),
            section: Vec::new(),
            unfinished: None,
            used_window: 0,
        }
    }

    /// Whether nothing more will come of this connection.
    fn is_finished(&self) -> bool {
        match self.peer.last_stream {
            Some(last) => self.waiting.iter().all(|stream| stream.id > last),
            None => self.next_stream >= STREAM_LAST && self.waiting.is_empty(),
        }
    }

    fn frame(
        &mut self,
        frame: Frame,
        payload: &[u8],
        sink: &mut dyn Sink,
        out: &mut Vec<u8>,
    ) -> Result<(), Malformed> {
        if !self.peer.has_spoken && frame.kind != Kind::SETTINGS {
            return Err(Malformed("no SETTINGS frame at the begin"));
        }
        if self.unfinished.is_some() && frame.kind != Kind::CONTINUATION {
            return Err(Malformed("a header section that is not continued"));
        }
        match frame.kind {
            Kind::HEADERS => self.headers(frame, payload, sink),
            Kind::CONTINUATION => self.continuation(frame, payload, sink),
            Kind::RST_STREAM => {
                self.finish(frame.stream, Some(Answer::Reset), sink);
                Ok(())
            }
            Kind::SETTINGS => self.settings(frame, payload, out),
            Kind::PING => ping(frame, payload, out),
            Kind::GOAWAY => {
                self.peer.last_stream = Some(number(payload)? & WINDOW_MAX);
                Ok(())
            }
            Kind::WINDOW_UPDATE if frame.stream == 0 => {
                self.peer.window += i64::from(number(payload)? & WINDOW_MAX);
                Ok(())
            }
            Kind::PUSH_PROMISE => Err(Malformed("a push that was refused")),
            _ => Ok(()),
        }
    }

    fn headers(&mut self, frame: Frame, payload: &[u8], sink: &mut dyn Sink) -> Result<(), Malformed> {
        let mut block = frame.without_padding(payload)?;
        if frame.flags & flag::PRIORITY != 0 {
            block = block.get(5..).ok_or(Malformed("a HEADERS frame without its priority"))?;
        }
        if frame.flags & flag::END_HEADERS != 0 {
            return self.section_end(frame, block, sink);
        }
        self.section.clear();
        self.section.extend_from_slice(block);
        self.unfinished = Some(frame);
        Ok(())
    }

    fn continuation(&mut self, frame: Frame, payload: &[u8], sink: &mut dyn Sink) -> Result<(), Malformed> {
        let begun = self.unfinished.filter(|begun| begun.stream == frame.stream);
        let begun = begun.ok_or(Malformed("a CONTINUATION frame of nothing"))?;
        self.section.extend_from_slice(payload);
        if self.section.len() > HEADER_SECTION_BYTES_MAX {
            return Err(Malformed("a header section without end"));
        }
        if frame.flags & flag::END_HEADERS == 0 {
            return Ok(());
        }
        self.unfinished = None;
        let section = std::mem::take(&mut self.section);
        let outcome = self.section_end(begun, &section, sink);
        self.section = section;
        outcome
    }

    fn section_end(&mut self, frame: Frame, block: &[u8], sink: &mut dyn Sink) -> Result<(), Malformed> {
        let Some(stream) = self.waiting.iter_mut().find(|stream| stream.id == frame.stream) else {
            return Ok(());
        };
        if !stream.is_first_byte_told {
            stream.is_first_byte_told = true;
            sink.first_byte(stream.pending);
        }
        if stream.status.is_none() {
            let status = hpack::status(block)?.ok_or(Malformed("a response without a status"))?;
            stream.status = (status >= 200).then_some(status);
        }
        if frame.flags & flag::END_STREAM != 0 {
            self.finish(frame.stream, None, sink);
        }
        Ok(())
    }

    fn data_end(&mut self, frame: Frame, sink: &mut dyn Sink, out: &mut Vec<u8>) -> Result<(), Malformed> {
        if !self.peer.has_spoken || self.unfinished.is_some() {
            return Err(Malformed("a DATA frame out of place"));
        }
        self.used_window += frame.length;
        if self.used_window > WINDOW_REFILL {
            window_update(out, self.used_window);
            self.used_window = 0;
        }
        if frame.flags & flag::END_STREAM != 0 {
            self.finish(frame.stream, None, sink);
        }
        Ok(())
    }

    /// A stream ended, with the answer given or the status that came.
    fn finish(&mut self, id: u32, answer: Option<Answer>, sink: &mut dyn Sink) {
        let Some(at) = self.waiting.iter().position(|stream| stream.id == id) else { return };
        let stream = self.waiting.swap_remove(at);
        let status = || stream.status.map_or(Answer::Reset, Answer::Status);
        sink.answered(stream.pending, answer.unwrap_or_else(status));
    }

    fn settings(&mut self, frame: Frame, payload: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
        if frame.flags & flag::ACK != 0 {
            return Ok(());
        }
        let (settings, []) = payload.as_chunks::<6>() else { return Err(Malformed("half a setting")) };
        for [name_high, name_low, value @ ..] in settings {
            let value = u32::from_be_bytes(*value);
            match u16::from_be_bytes([*name_high, *name_low]) {
                3 => self.peer.streams_max = usize::try_from(value).unwrap_or(usize::MAX),
                4 => self.peer.stream_window = i64::from(value),
                _ => {}
            }
        }
        if self.peer.stream_window < i64::try_from(self.payload_bytes_max).unwrap_or(i64::MAX) {
            return Err(Malformed("a window smaller than the request body"));
        }
        self.peer.has_spoken = true;
        head(out, 0, Kind::SETTINGS, flag::ACK, 0);
        Ok(())
    }
}

impl Codec for H2 {
    fn open(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(PREFACE);
        let settings: [(u16, u32); 3] = [(1, 0), (2, 0), (4, WINDOW_MAX)];
        head(out, 18, Kind::SETTINGS, 0, 0);
        for (name, value) in settings {
            out.extend_from_slice(&name.to_be_bytes());
            out.extend_from_slice(&value.to_be_bytes());
        }
        window_update(out, WINDOW_MAX - WINDOW_AT_BEGIN);
    }

    fn is_ready(&self) -> bool {
        self.peer.has_spoken
    }

    fn room(&self) -> usize {
        let payload = i64::try_from(self.payload_bytes_max).unwrap_or(i64::MAX);
        let is_closed = self.peer.last_stream.is_some() || self.next_stream >= STREAM_LAST;
        if !self.peer.has_spoken
            || is_closed
            || self.peer.window < payload
            || self.peer.stream_window < payload
        {
            return 0;
        }
        self.depth.min(self.peer.streams_max).saturating_sub(self.waiting.len())
    }

    fn oldest(&self) -> Option<Instant> {
        self.waiting.iter().map(|stream| stream.pending.sent).min()
    }

    fn begin(&mut self, pending: Pending, prepared: &Prepared, _tag: Option<&[u8]>, out: &mut Vec<u8>) {
        let id = self.next_stream;
        self.next_stream += 2;
        let has_body = !prepared.payload.is_empty();
        let flags = flag::END_HEADERS | if has_body { 0 } else { flag::END_STREAM };
        head(out, prepared.bytes.len(), Kind::HEADERS, flags, id);
        out.extend_from_slice(&prepared.bytes);
        if has_body {
            head(out, prepared.payload.len(), Kind::DATA, flag::END_STREAM, id);
            out.extend_from_slice(&prepared.payload);
            self.peer.window -= i64::try_from(prepared.payload.len()).unwrap_or(i64::MAX);
        }
        self.waiting.push(Stream { id, pending, status: None, is_first_byte_told: false });
    }

    fn receive(
        &mut self,
        mut input: &[u8],
        sink: &mut dyn Sink,
        out: &mut Vec<u8>,
    ) -> Result<Then, Malformed> {
        while !input.is_empty() {
            let (used, part) = self.frames.read(input)?;
            input = &input[used..];
            match part {
                Part::Nothing => {}
                Part::DataEnd(frame) => self.data_end(frame, sink, out)?,
                Part::Whole(frame) => {
                    // Taken out while it is looked at; handed back for its memory.
                    let payload = self.frames.take_payload();
                    let outcome = self.frame(frame, &payload, sink, out);
                    self.frames.give_back(payload);
                    outcome?;
                }
            }
            if self.is_finished() {
                return Ok(Then::Close);
            }
        }
        Ok(Then::GoOn)
    }

    fn give_up(&mut self) -> Vec<Pending> {
        self.frames = FrameReader::default();
        self.next_stream = 1;
        self.peer = Peer::unheard();
        self.section.clear();
        self.unfinished = None;
        self.used_window = 0;
        self.waiting.drain(..).map(|stream| stream.pending).collect()
    }
}

impl Peer {
    fn unheard() -> Self {
        let window = i64::from(WINDOW_AT_BEGIN);
        Self { has_spoken: false, streams_max: usize::MAX, stream_window: window, window, last_stream: None }
    }
}

fn ping(frame: Frame, payload: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    if payload.len() != 8 {
        return Err(Malformed("a PING frame of a wrong length"));
    }
    if frame.flags & flag::ACK == 0 {
        head(out, 8, Kind::PING, flag::ACK, 0);
        out.extend_from_slice(payload);
    }
    Ok(())
}

fn window_update(out: &mut Vec<u8>, increment: u32) {
    head(out, 4, Kind::WINDOW_UPDATE, 0, 0);
    out.extend_from_slice(&increment.to_be_bytes());
}

fn head(out: &mut Vec<u8>, length: usize, kind: Kind, flags: u8, stream: u32) {
    debug_assert!(length <= FRAME_BYTES_MAX, "a frame the server has to take");
    let [_, high, middle, low] = u32::try_from(length).expect("at most 16 KiB").to_be_bytes();
    out.extend_from_slice(&[high, middle, low, kind.0, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
}

fn number(payload: &[u8]) -> Result<u32, Malformed> {
    let bytes = payload.first_chunk::<4>().ok_or(Malformed("a frame that is too short"))?;
    Ok(u32::from_be_bytes(*bytes))
}
