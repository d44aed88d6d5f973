//! Takes HTTP/2 frames (RFC 9113 section 4.1) out of bytes in whatever pieces they come.

use super::exchange::Malformed;

/// Neither side sends more without having asked.
pub(super) const FRAME_BYTES_MAX: usize = 16_384;
const HEAD_BYTES: usize = 9;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind(pub(super) u8);

impl Kind {
    pub(super) const DATA: Self = Self(0);
    pub(super) const HEADERS: Self = Self(1);
    pub(super) const RST_STREAM: Self = Self(3);
    pub(super) const SETTINGS: Self = Self(4);
    pub(super) const PUSH_PROMISE: Self = Self(5);
    pub(super) const PING: Self = Self(6);
    pub(super) const GOAWAY: Self = Self(7);
    pub(super) const WINDOW_UPDATE: Self = Self(8);
    pub(super) const CONTINUATION: Self = Self(9);
}

pub(super) mod flag {
    pub(in super::super) const ACK: u8 = 0x1;
    pub(in super::super) const END_STREAM: u8 = 0x1;
    pub(in super::super) const END_HEADERS: u8 = 0x4;
    pub(in super::super) const PADDED: u8 = 0x8;
    pub(in super::super) const PRIORITY: u8 = 0x20;
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) length: u32,
    pub(super) kind: Kind,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl Frame {
    fn of(head: [u8; HEAD_BYTES]) -> Self {
        let [high, middle, low, kind, flags, stream @ ..] = head;
        let stream = u32::from_be_bytes(stream) & 0x7fff_ffff;
        Self { length: u32::from_be_bytes([0, high, middle, low]), kind: Kind(kind), flags, stream }
    }

    /// The payload less its padding.
    pub(super) fn without_padding(self, payload: &[u8]) -> Result<&[u8], Malformed> {
        if self.flags & flag::PADDED == 0 {
            return Ok(payload);
        }
        let broken = Malformed("more padding than frame");
        let (padding, rest) = payload.split_first().ok_or(broken)?;
        let length = rest.len().checked_sub(usize::from(*padding)).ok_or(broken)?;
        Ok(&rest[..length])
    }
}

/// What a piece of input completed.
#[derive(Debug)]
pub(super) enum Part {
    Nothing,
    /// A DATA frame, whose payload was stepped over.
    DataEnd(Frame),
    /// Any other frame; its payload is in the reader.
    Whole(Frame),
}

#[derive(Debug, Default)]
pub(super) struct FrameReader {
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
    current: Option<(Frame, usize)>,
    payload: Vec<u8>,
}

impl FrameReader {
    /// Reads up to the end of a frame at most; at least one byte is used.
    pub(super) fn read(&mut self, input: &[u8]) -> Result<(usize, Part), Malformed> {
        let mut used = 0;
        let (frame, left) = match self.current {
            Some(current) => current,
            None => {
                used = (HEAD_BYTES - self.head_bytes).min(input.len());
                self.head[self.head_bytes..self.head_bytes + used].copy_from_slice(&input[..used]);
                self.head_bytes += used;
                if self.head_bytes < HEAD_BYTES {
                    return Ok((used, Part::Nothing));
                }
                self.begin()?
            }
        };
        let step = left.min(input.len() - used);
        let piece = &input[used..used + step];
        if frame.kind != Kind::DATA {
            self.payload.extend_from_slice(piece);
        }
        if step < left {
            self.current = Some((frame, left - step));
            return Ok((used + step, Part::Nothing));
        }
        self.current = None;
        let part = if frame.kind == Kind::DATA { Part::DataEnd(frame) } else { Part::Whole(frame) };
        Ok((used + step, part))
    }

    /// The payload of the frame that was told last.
    pub(super) fn take_payload(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.payload)
    }

    /// Its memory back, for the next one.
    pub(super) fn give_back(&mut self, mut payload: Vec<u8>) {
        payload.clear();
        self.payload = payload;
    }

    fn begin(&mut self) -> Result<(Frame, usize), Malformed> {
        self.head_bytes = 0;
        let frame = Frame::of(self.head);
        let left = usize::try_from(frame.length).unwrap_or(usize::MAX);
        if left > FRAME_BYTES_MAX {
            return Err(Malformed("a frame larger than allowed"));
        }
        Ok((frame, left))
    }
}
