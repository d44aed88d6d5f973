//! Output of replies: bytes, with long values in between that are shared with the engine instead of copied.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::{Arc, Weak};

use arrayvec::ArrayVec;
use engine::Stored;

use crate::connection::{self, Written};
use crate::pass::Pass;
use crate::pins::{Pin, Pins};
use crate::posted::Posted;
use crate::shared::Shared as Server;
use crate::transport::Transport;

/// Bytes to be sent, in order.
#[derive(Debug, Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    /// Shared values in the order of their positions.
    values: VecDeque<Placed>,
    /// Total size of `values` as sent.
    values_bytes: usize,
    /// Size of the largest compressed part placed since the output was empty. One part is decompressed at a
    /// time.
    unpacked_bytes: usize,
    meter: Meter,
}

/// Accounts for output whose size the client chooses, and checks it against the memory limit at intervals.
#[derive(Debug)]
struct Meter {
    /// `None` for output that has its own limit.
    server: Option<Weak<Server>>,
    looks_at_bytes: usize,
    is_refused: bool,
    /// Length of the output when it was refused.
    refused_at: usize,
    /// Bytes of the output that are accounted elsewhere.
    counted_bytes: usize,
    /// Bytes charged here, so that concurrent checks can't grant the same memory twice.
    charged_bytes: usize,
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            server: None,
            looks_at_bytes: usize::MAX,
            is_refused: false,
            refused_at: 0,
            counted_bytes: 0,
            charged_bytes: 0,
        }
    }
}

impl Meter {
    /// Returns whether there is room for `bytes` in total. If so, charges them.
    fn charge(&mut self, server: &Server, bytes: usize) -> bool {
        let counted_bytes = self.counted_bytes + self.charged_bytes;
        let has_room = bytes <= counted_bytes || server.take_for_reply(counted_bytes, bytes);
        if has_room {
            self.charged_bytes = bytes.saturating_sub(self.counted_bytes).max(self.charged_bytes);
        }
        has_room
    }

    #[cold]
    fn release(&mut self) {
        let charged_bytes = std::mem::take(&mut self.charged_bytes);
        if let Some(server) = self.server.as_ref().and_then(Weak::upgrade) {
            server.account(charged_bytes, 0);
        }
    }
}

/// Growth that needs no check, and the interval of checks.
const STEP_BYTES: usize = 256 << 10;
/// A growing list reserves this many times its size in address space. Reserved pages take no memory until
/// they are written. Moving a list, in contrast, needs its memory twice, or three times until the allocator
/// returns the old memory.
const AHEAD: usize = 8;

/// Bytes of a compressed value that are decompressed at a time. This is the size of its independently
/// compressed blocks.
const PIECE_BYTES: usize = 256 << 10;

/// A part of a shared value at a position among the bytes. Never empty.
#[derive(Debug)]
struct Placed {
    /// Number of bytes before the value.
    at: usize,
    range: Range<usize>,
    shared: Shared,
}

/// Data sent without copying.
#[derive(Debug)]
enum Shared {
    /// A value shared with the engine.
    Value {
        /// The pin is held until the client has read the value.
        pin: Option<Pin>,
        stored: Stored,
        /// The bytes to send. For a compressed value, only the needed part, which is decompressed just before
        /// it is sent, while no lock is held.
        plain: Option<Arc<Vec<u8>>>,
    },
    /// A message shared with other clients.
    Message(Arc<Posted>),
}

/// Progress of sending: the sent bytes, and the sent part of the first remaining value.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    bytes: usize,
    of_value: usize,
}

/// Parts sent with one call. The kernel handles up to eight without allocating.
const SLICES_MAX: usize = 64;

impl Output {
    /// Creates a worker's output, which is checked against the memory limit.
    pub(crate) fn of_worker(bytes: usize, server: &Arc<Server>) -> Self {
        let server = Some(Arc::downgrade(server));
        let meter = Meter { server, looks_at_bytes: STEP_BYTES, ..Meter::default() };
        Self { bytes: Vec::with_capacity(bytes), meter, ..Self::default() }
    }

    /// Returns whether `bytes` more may be copied to the output. After a refusal, everything that the command
    /// writes afterwards is refused, too.
    #[inline]
    pub(crate) fn has_room(&mut self, bytes: usize) -> bool {
        let bytes = self.bytes.len() + bytes;
        bytes < self.meter.looks_at_bytes || self.grow(bytes)
    }

    /// Returns whether there is room to decompress a part of `bytes` bytes of a compressed value.
    pub(crate) fn has_room_to_unpack(&mut self, bytes: usize) -> bool {
        let bytes = bytes.min(PIECE_BYTES);
        if bytes <= self.unpacked_bytes {
            return true;
        }
        let has_room = self.look(self.bytes.len() + bytes);
        if has_room {
            self.unpacked_bytes = bytes;
        }
        has_room
    }

    /// Checks the memory limit and grows the buffer: by several times its size if possible, otherwise by
    /// enough for the time until the next check.
    #[cold]
    fn grow(&mut self, bytes: usize) -> bool {
        let has_room = self.look(bytes);
        let needed =
            self.meter.looks_at_bytes.min(bytes + bytes / 8 + STEP_BYTES).saturating_add(STEP_BYTES / 4);
        if has_room && needed > self.bytes.capacity() {
            let more = |capacity: usize| capacity.saturating_sub(self.bytes.len());
            let (ahead, needed) = (more(needed.saturating_mul(AHEAD)), more(needed));
            if self.bytes.try_reserve_exact(ahead).is_err() {
                self.bytes.reserve_exact(needed);
            }
        }
        has_room
    }

    #[cold]
    fn look(&mut self, bytes: usize) -> bool {
        let Some(server) = self.meter.server.as_ref().and_then(Weak::upgrade) else { return true };
        if self.meter.is_refused {
            // Lengths and numbers were still written without a check: drop them.
            self.bytes.truncate(self.meter.refused_at);
            return false;
        }
        self.meter.is_refused = !self.meter.charge(&server, bytes);
        if self.meter.is_refused {
            (self.meter.looks_at_bytes, self.meter.refused_at) = (0, self.bytes.len());
            return false;
        }
        self.meter.looks_at_bytes = bytes + (bytes / 8).max(STEP_BYTES);
        true
    }

    /// Sets how many bytes of the output are accounted elsewhere.
    pub(crate) fn set_counted(&mut self, bytes: usize) {
        self.release();
        self.meter.counted_bytes = bytes;
    }

    /// Returns whether bytes are charged here, so that keys have to be evicted for them.
    pub(crate) fn is_charged(&self) -> bool {
        self.meter.charged_bytes > 0
    }

    /// Releases the charge. Bytes accounted elsewhere are unaffected.
    #[inline]
    pub(crate) fn release(&mut self) {
        if self.is_charged() {
            self.meter.release();
        }
    }

    /// Returns whether part of the command's reply was refused. The command must not make changes that the
    /// reply would have reported.
    pub(crate) fn is_refused(&self) -> bool {
        self.meter.is_refused
    }

    /// Like [`Self::is_refused`], and resets the state for the next command.
    pub(crate) fn take_refusal(&mut self) -> bool {
        if self.meter.is_refused {
            self.meter.looks_at_bytes = STEP_BYTES;
        }
        std::mem::take(&mut self.meter.is_refused)
    }

    /// Length of the bytes without values, which is the position of the next reply.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.values.is_empty()
    }

    /// Returns whether the output contains values.
    #[inline]
    pub(crate) fn has_values(&self) -> bool {
        !self.values.is_empty()
    }

    /// Returns whether the output should be sent before more is written: it is long enough, or contains a
    /// value to be decompressed. Otherwise, values are sent together with further replies, to save a system
    /// call.
    #[inline]
    pub(crate) fn is_to_be_sent(&self, enough_bytes: usize) -> bool {
        self.has_values() && (self.unpacked_bytes > 0 || self.sent_bytes() >= enough_bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    #[inline]
    pub(crate) fn push(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    #[inline]
    pub(crate) fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends a part of a value. An empty part is skipped.
    pub(crate) fn share(&mut self, stored: Stored, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        if let Stored::Plain(value) = &stored {
            let plain = Some(Arc::clone(value));
            return self.place(range, Shared::Value { pin: None, stored, plain });
        }
        let mut begin = range.start;
        while begin < range.end {
            let end = range.end.min((begin / PIECE_BYTES + 1) * PIECE_BYTES);
            self.place(begin..end, Shared::Value { pin: None, stored: stored.clone(), plain: None });
            begin = end;
        }
    }

    /// Appends a shared message.
    pub(crate) fn share_message(&mut self, message: &Arc<Posted>) {
        self.place(0..message.bytes().len(), Shared::Message(Arc::clone(message)));
    }

    fn place(&mut self, range: Range<usize>, shared: Shared) {
        self.values_bytes += range.len();
        self.values.push_back(Placed { at: self.bytes.len(), range, shared });
    }

    /// Appends messages for one recipient, sharing the long ones.
    pub(crate) fn post(&mut self, messages: &Self) {
        let before = self.bytes.len();
        self.bytes.extend_from_slice(&messages.bytes);
        for placed in &messages.values {
            if let Shared::Message(message) = &placed.shared {
                let (range, shared) = (placed.range.clone(), Shared::Message(Arc::clone(message)));
                self.values_bytes += range.len();
                self.values.push_back(Placed { at: before + placed.at, range, shared });
            }
        }
    }

    /// Appends another output.
    pub(crate) fn append(&mut self, other: Self) {
        let before = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.values_bytes += other.values_bytes;
        self.values
            .extend(other.values.into_iter().map(|placed| Placed { at: before + placed.at, ..placed }));
    }

    /// Returns whether the value at position `at` contains a byte; `None` if there is no value.
    pub(crate) fn value_at_has(&self, at: usize, byte: u8) -> Option<bool> {
        let parts = self.values.iter().rev().take_while(|placed| placed.at >= at);
        let mut parts = parts.filter(|placed| placed.at == at).peekable();
        parts.peek()?;
        Some(parts.any(|placed| memchr::memchr(byte, &placed.plain()).is_some()))
    }

    /// Moves the value at position `at` to `to`, and drops the bytes from `to` on.
    pub(crate) fn pull_value(&mut self, at: usize, to: usize) {
        self.values.iter_mut().rev().take_while(|placed| placed.at == at).for_each(|placed| placed.at = to);
        self.bytes.truncate(to);
    }

    /// Drops everything written after the first `length` bytes.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
        // A value at `length` stays: its length precedes it, and its line end follows it.
        while self.values.back().is_some_and(|placed| placed.at > length) {
            if let Some(gone) = self.values.pop_back() {
                self.forget(&gone);
            }
        }
    }

    /// Removes a byte that was already sent. No value may follow it.
    pub(crate) fn remove_first(&mut self, at: usize) {
        self.bytes.remove(at);
    }

    /// Inserts bytes at position `at`.
    pub(crate) fn insert(&mut self, at: usize, bytes: &[u8]) {
        self.values.iter_mut().filter(|placed| placed.at > at).for_each(|placed| placed.at += bytes.len());
        // Reserve exactly these bytes, because a growing list would double its memory.
        self.bytes.reserve_exact(bytes.len());
        self.bytes.splice(at..at, bytes.iter().copied());
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        if self.has_values() {
            self.values.clear();
        }
        // Reset the sizes in any case, because the values may have been moved out as unsent output.
        self.values_bytes = 0;
        self.unpacked_bytes = 0;
        if self.meter.server.is_some() {
            self.meter.looks_at_bytes = STEP_BYTES;
            self.meter.counted_bytes = 0;
            self.release();
        }
    }

    /// Memory of the output without stored values.
    pub(crate) fn own_bytes(&self) -> usize {
        self.bytes.len() + self.values.len() * size_of::<Placed>()
    }

    /// Number of bytes to be sent.
    #[inline]
    pub(crate) fn sent_bytes(&self) -> usize {
        self.bytes.len() + self.values_bytes
    }

    /// Memory held, without shared values.
    #[inline]
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.values.capacity() * size_of::<Placed>() + self.unpacked_bytes
    }

    /// Frees memory that only a large reply needed. The output must have been sent or moved out.
    #[inline]
    pub(crate) fn shrink(&mut self, bytes_max: usize) {
        if self.bytes.capacity() > bytes_max {
            self.bytes = Vec::with_capacity(bytes_max);
        }
        self.release();
        if self.values.capacity() > VALUES_KEPT {
            self.values = VecDeque::new();
        }
    }

    /// Appends the whole output to `out` as contiguous bytes.
    pub(crate) fn append_to(&mut self, out: &mut Vec<u8>) {
        let mut at = 0;
        for placed in &mut self.values {
            placed.unpack();
            out.extend_from_slice(&self.bytes[at..placed.at]);
            out.extend_from_slice(placed.bytes());
            at = placed.at;
        }
        out.extend_from_slice(&self.bytes[at..]);
    }

    /// The unsent bytes.
    #[inline]
    pub(crate) fn bytes_from(&self, sent: Sent) -> &[u8] {
        &self.bytes[sent.bytes..]
    }

    /// The next slices to send with one call. Compressed values are decompressed one at a time.
    pub(crate) fn next_slices(&mut self, sent: Sent) -> ArrayVec<IoSlice<'_>, SLICES_MAX> {
        if let Some(first) = self.values.front_mut() {
            first.unpack();
        }
        self.slices(sent)
    }

    fn slices(&self, sent: Sent) -> ArrayVec<IoSlice<'_>, SLICES_MAX> {
        let (mut at, mut skipped) = (sent.bytes, sent.of_value);
        let mut slices = ArrayVec::new();
        for placed in &self.values {
            if slices.remaining_capacity() < 3 || !placed.is_plain() {
                return slices;
            }
            if placed.at > at {
                slices.push(IoSlice::new(&self.bytes[at..placed.at]));
                at = placed.at;
            }
            slices.push(IoSlice::new(&placed.bytes()[skipped..]));
            skipped = 0;
        }
        if at < self.bytes.len() {
            slices.push(IoSlice::new(&self.bytes[at..]));
        }
        slices
    }

    /// Advances by `more` sent bytes, and drops values that were sent.
    #[inline]
    pub(crate) fn advance(&mut self, sent: &mut Sent, more: usize) {
        if self.has_values() {
            return self.advance_past_values(sent, more);
        }
        sent.bytes += more.min(self.bytes.len() - sent.bytes);
    }

    fn advance_past_values(&mut self, sent: &mut Sent, mut more: usize) {
        loop {
            let end = self.values.front().map_or(self.bytes.len(), |placed| placed.at);
            let of_bytes = more.min(end - sent.bytes);
            sent.bytes += of_bytes;
            more -= of_bytes;
            if more == 0 {
                return;
            }
            let Some(placed) = self.values.front() else { return };
            let of_value = more.min(placed.range.len() - sent.of_value);
            sent.of_value += of_value;
            more -= of_value;
            if sent.of_value == placed.range.len() {
                sent.of_value = 0;
                if let Some(gone) = self.values.pop_front() {
                    self.forget(&gone);
                }
            }
        }
    }

    #[inline]
    pub(crate) fn is_all(&self, sent: Sent) -> bool {
        self.values.is_empty() && sent.bytes == self.bytes.len()
    }

    fn forget(&mut self, gone: &Placed) {
        self.values_bytes -= gone.range.len();
    }
}

/// Capacity of the list of values that a reused output keeps.
const VALUES_KEPT: usize = 64;

impl Placed {
    /// The bytes to send; empty if not decompressed yet.
    fn bytes(&self) -> &[u8] {
        match &self.shared {
            Shared::Value { plain: None, .. } => &[],
            Shared::Value { plain: Some(plain), stored: Stored::Plain(_), .. } => &plain[self.range.clone()],
            Shared::Value { plain: Some(plain), stored: Stored::Packed(_), .. } => plain,
            Shared::Message(message) => &message.bytes()[self.range.clone()],
        }
    }

    fn is_plain(&self) -> bool {
        !matches!(self.shared, Shared::Value { plain: None, .. })
    }

    fn unpack(&mut self) {
        if let Shared::Value { stored: Stored::Packed(packed), plain, .. } = &mut self.shared {
            plain.get_or_insert_with(|| Arc::new(packed.unpack(self.range.clone())));
        }
    }

    /// The bytes to send, decompressed if needed.
    fn plain(&self) -> Cow<'_, [u8]> {
        match &self.shared {
            Shared::Value { stored: Stored::Packed(packed), plain: None, .. } => {
                Cow::Owned(packed.unpack(self.range.clone()))
            }
            _ => Cow::Borrowed(self.bytes()),
        }
    }

    /// Pins the value until its client has read it.
    fn hold(&mut self, pins: &Arc<Pins>) {
        if let Shared::Value { pin, stored, .. } = &mut self.shared {
            *pin = Some(Pins::hold(pins, stored));
        }
    }
}

/// Shorter replies are copied, and the worker keeps its buffer for the next one.
const KEPT_BYTES_MIN: usize = 64 << 10;

/// Output that a client has not read yet.
#[derive(Debug, Default)]
pub(crate) struct Unsent {
    output: Output,
    sent: Sent,
}

impl Unsent {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.output.is_empty()
    }

    /// Moves the unsent rest of an output here. The buffer is moved, too, if it is large and most of it is
    /// unsent.
    pub(crate) fn keep(&mut self, output: &mut Output, sent: Sent, pins: &Arc<Pins>) {
        output.values.iter_mut().for_each(|placed| placed.hold(pins));
        let left = output.bytes.len() - sent.bytes;
        if self.is_empty() && left >= output.bytes.len().max(KEPT_BYTES_MIN) / 2 {
            self.output.bytes = std::mem::take(&mut output.bytes);
            // Shrinks in place, because spare capacity would be counted as held.
            self.output.bytes.shrink_to_fit();
            self.output.values = std::mem::take(&mut output.values);
            self.output.values_bytes = output.values_bytes;
            self.output.unpacked_bytes = output.unpacked_bytes;
            self.sent = sent;
            output.clear();
            return;
        }
        let before = self.output.bytes.len();
        self.output.bytes.reserve_exact(left);
        self.output.bytes.extend_from_slice(&output.bytes[sent.bytes..]);
        if self.output.values.is_empty() {
            self.sent.of_value = sent.of_value;
        }
        self.output.values_bytes += output.values_bytes;
        self.output.unpacked_bytes = self.output.unpacked_bytes.max(output.unpacked_bytes);
        self.output.values.extend(
            output.values.drain(..).map(|placed| Placed { at: before + placed.at - sent.bytes, ..placed }),
        );
        output.clear();
    }

    /// Writes as much as the socket accepts.
    pub(crate) fn write(&mut self, transport: &mut Transport, pass: Option<&Pass>) -> io::Result<Written> {
        let written = connection::write(transport, &mut self.output, &mut self.sent, pass)?;
        self.settle();
        Ok(written)
    }

    fn settle(&mut self) {
        if self.output.is_all(self.sent) {
            *self = Self::default();
        }
    }

    /// Memory held. Values count only if they are stored nowhere else, see [`Pins`].
    pub(crate) fn held_bytes(&self) -> usize {
        self.output.held_bytes()
    }

    /// Bytes that the client has not read.
    pub(crate) fn bytes(&self) -> usize {
        self.output.sent_bytes() - self.sent.bytes - self.sent.of_value
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    fn plain(text: &str) -> Stored {
        Stored::Plain(Arc::new(text.as_bytes().to_vec()))
    }

    fn text(output: &mut Output) -> String {
        let mut bytes = Vec::new();
        output.append_to(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn example() -> Output {
        let mut output = Output::default();
        output.extend_from_slice(b"one ");
        output.share(plain("_two_"), 1..4);
        output.extend_from_slice(b" three ");
        output.share(plain("four"), 0..4);
        output.share(plain("five"), 0..4);
        output.extend_from_slice(b" six");
        output
    }

    #[test]
    fn values_stand_where_they_were_placed() {
        let mut output = example();
        assert_eq!(text(&mut output), "one two three fourfive six");
        assert_eq!((output.own_bytes(), output.sent_bytes()), (15 + 3 * size_of::<Placed>(), 26));
        output.insert(4, b"1.5 ");
        assert_eq!(text(&mut output), "one two1.5  three fourfive six");
        output.truncate(9);
        assert_eq!(text(&mut output), "one two1.5  ");
        output.truncate(3);
        assert_eq!((text(&mut output), output.has_values()), ("one".to_owned(), false));
        output.share(plain(""), 0..0);
        assert!(!output.has_values(), "an empty part is skipped");
    }

    /// Tests every size of the writes, and every number of bytes sent before the rest is kept as unsent
    /// output.
    #[test]
    fn everything_is_sent_once_and_in_order() {
        for (step, kept_after) in (1..30).flat_map(|step| (0..30).map(move |kept| (step, kept))) {
            let (mut output, mut sent, mut told) = (example(), Sent::default(), Vec::new());
            let pins = Arc::new(Pins::of_nothing());
            let mut take = |slices: &[IoSlice<'_>], most: usize| {
                let bytes: Vec<u8> =
                    slices.iter().flat_map(|slice| slice.iter().copied()).take(most).collect();
                told.extend_from_slice(&bytes);
                bytes.len()
            };
            for _ in 0..kept_after {
                let more = take(&output.slices(sent), step);
                output.advance(&mut sent, more);
            }
            let mut unsent = Unsent::default();
            if !output.is_all(sent) {
                unsent.keep(&mut output, sent, &pins);
                assert_eq!(output.sent_bytes(), 0, "the output has nothing left to send");
            }
            while !unsent.is_empty() {
                let before = unsent.bytes();
                let more = take(&unsent.output.slices(unsent.sent), step);
                unsent.output.advance(&mut unsent.sent, more);
                unsent.settle();
                assert_eq!(unsent.bytes(), before - more);
            }
            assert_eq!(String::from_utf8_lossy(&told), "one two three fourfive six", "{step} {kept_after}");
            assert_eq!((unsent.held_bytes(), pins.count()), (0, 0));
        }
    }
}
