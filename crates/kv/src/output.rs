//! Replies as they are written: bytes, and long values among them, which are shared with the engine instead of copied.

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

/// What is to be sent, in order.
#[derive(Debug, Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    /// Where they stand among the bytes, the first first.
    values: VecDeque<Placed>,
    /// Of all `values`, as far as they are to be sent.
    values_bytes: usize,
    /// What the longest of the packed parts takes that were placed since it was empty: one is unpacked at a time.
    unpacked_bytes: usize,
    meter: Meter,
}

/// Looks at an output that grows by what clients have chosen, now and then.
#[derive(Debug)]
struct Meter {
    /// None: what is written has a limit of its own.
    server: Option<Weak<Server>>,
    looks_at_bytes: usize,
    is_refused: bool,
    /// What was there when it was refused: it is of no use any more.
    refused_at: usize,
    /// Of what is written, so much counts already elsewhere.
    counted_bytes: usize,
    /// And so much because it was looked at here: several who look at the same time are not to find the same room.
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
    /// Whether there is room for so many bytes in all; they count from now on.
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

/// Growth that is always possible, and steps in which more is looked at.
const STEP_BYTES: usize = 256 << 10;
/// A list that grows has so many times as much set apart. What is not written takes no memory, but what is copied to where there is more takes it
/// twice, and once more for as long as the allocator keeps it.
const AHEAD: usize = 8;

/// Of a packed value, so much is unpacked at a time: one of the blocks that are packed each for itself.
const PIECE_BYTES: usize = 256 << 10;

/// A part of a value among the bytes. None is empty.
#[derive(Debug)]
struct Placed {
    /// How many bytes stand before it.
    at: usize,
    range: Range<usize>,
    shared: Shared,
}

/// What is sent without being copied.
#[derive(Debug)]
enum Shared {
    /// With the engine.
    Value {
        /// While it waits for its client.
        pin: Option<Pin>,
        stored: Stored,
        /// As it is sent. Of one that is packed, the part alone, unpacked when its turn comes, when nothing is locked.
        plain: Option<Arc<Vec<u8>>>,
    },
    /// With other clients.
    Message(Arc<Posted>),
}

/// How much of an output was sent: of its bytes, and of the first value that is left.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    bytes: usize,
    of_value: usize,
}

/// As many parts are sent with one call: what the kernel takes without asking for memory is eight.
const SLICES_MAX: usize = 64;

impl Output {
    /// That of a worker: what clients ask for has to have room there.
    pub(crate) fn of_worker(bytes: usize, server: &Arc<Server>) -> Self {
        let server = Some(Arc::downgrade(server));
        let meter = Meter { server, looks_at_bytes: STEP_BYTES, ..Meter::default() };
        Self { bytes: Vec::with_capacity(bytes), meter, ..Self::default() }
    }

    /// Whether so much more may be copied behind what is there. A command that was once refused is refused altogether.
    #[inline]
    pub(crate) fn has_room(&mut self, bytes: usize) -> bool {
        let bytes = self.bytes.len() + bytes;
        bytes < self.meter.looks_at_bytes || self.grow(bytes)
    }

    /// Whether a part of a packed value, of so many bytes, may be unpacked for what is there.
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

    /// Far ahead of what is there, if that is to be had; otherwise by as much as may come before it is looked at again.
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
            // Lengths and numbers still come in between.
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

    /// So many bytes of what is written, or about to be, count elsewhere.
    pub(crate) fn set_counted(&mut self, bytes: usize) {
        self.release();
        self.meter.counted_bytes = bytes;
    }

    /// Whether some of what is written counts: keys are to make room for it.
    pub(crate) fn is_charged(&self) -> bool {
        self.meter.charged_bytes > 0
    }

    /// None of what is written counts any more, but for what counts elsewhere.
    #[inline]
    pub(crate) fn release(&mut self) {
        if self.is_charged() {
            self.meter.release();
        }
    }

    /// Whether something that the command has replied had no room: it must not change anything for which that would have been told.
    pub(crate) fn is_refused(&self) -> bool {
        self.meter.is_refused
    }

    /// As [`Self::is_refused`], for the command's end. Another one may be asked for.
    pub(crate) fn take_refusal(&mut self) -> bool {
        if self.meter.is_refused {
            self.meter.looks_at_bytes = STEP_BYTES;
        }
        std::mem::take(&mut self.meter.is_refused)
    }

    /// The bytes without the values: where the next reply begins.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.values.is_empty()
    }

    /// Whether there is a value among the bytes.
    #[inline]
    pub(crate) fn has_values(&self) -> bool {
        !self.values.is_empty()
    }

    /// Whether there are values among the bytes that are to go first: enough of them, or one that is to be unpacked. Others wait for what comes after
    /// them, and cost no call of their own.
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

    /// Places a part of a value behind what is there. An empty one is no part.
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

    /// Places a message that others get too behind what is there.
    pub(crate) fn share_message(&mut self, message: &Arc<Posted>) {
        self.place(0..message.bytes().len(), Shared::Message(Arc::clone(message)));
    }

    fn place(&mut self, range: Range<usize>, shared: Shared) {
        self.values_bytes += range.len();
        self.values.push_back(Placed { at: self.bytes.len(), range, shared });
    }

    /// Messages for one of those who get them: long ones are not copied.
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

    /// All that is in another output goes behind what is there.
    pub(crate) fn append(&mut self, other: Self) {
        let before = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.values_bytes += other.values_bytes;
        self.values
            .extend(other.values.into_iter().map(|placed| Placed { at: before + placed.at, ..placed }));
    }

    /// Whether the value that stands there has such a byte; nothing where none stands there.
    pub(crate) fn value_at_has(&self, at: usize, byte: u8) -> Option<bool> {
        let parts = self.values.iter().rev().take_while(|placed| placed.at >= at);
        let mut parts = parts.filter(|placed| placed.at == at).peekable();
        parts.peek()?;
        Some(parts.any(|placed| memchr::memchr(byte, &placed.plain()).is_some()))
    }

    /// The value that stands there moves to where bytes begin that are of no use, and they go.
    pub(crate) fn pull_value(&mut self, at: usize, to: usize) {
        self.values.iter_mut().rev().take_while(|placed| placed.at == at).for_each(|placed| placed.at = to);
        self.bytes.truncate(to);
    }

    /// Takes back what was written since there were so many bytes.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
        // A value has its length before it and its line end behind it.
        while self.values.back().is_some_and(|placed| placed.at > length) {
            if let Some(gone) = self.values.pop_back() {
                self.forget(&gone);
            }
        }
    }

    /// Takes back a byte that was sent already. No value may stand behind it.
    pub(crate) fn remove_first(&mut self, at: usize) {
        self.bytes.remove(at);
    }

    /// Puts bytes before what was written since there were so many.
    pub(crate) fn insert(&mut self, at: usize, bytes: &[u8]) {
        self.values.iter_mut().filter(|placed| placed.at > at).for_each(|placed| placed.at += bytes.len());
        // No more than that: a list that grows would take twice what it needs.
        self.bytes.reserve_exact(bytes.len());
        self.bytes.splice(at..at, bytes.iter().copied());
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        if self.has_values() {
            self.values.clear();
        }
        // They may have been taken out, as what a client has not read.
        self.values_bytes = 0;
        self.unpacked_bytes = 0;
        if self.meter.server.is_some() {
            self.meter.looks_at_bytes = STEP_BYTES;
            self.meter.counted_bytes = 0;
            self.release();
        }
    }

    /// What it takes beside what is stored.
    pub(crate) fn own_bytes(&self) -> usize {
        self.bytes.len() + self.values.len() * size_of::<Placed>()
    }

    /// What is to be sent.
    #[inline]
    pub(crate) fn sent_bytes(&self) -> usize {
        self.bytes.len() + self.values_bytes
    }

    /// Memory that it holds, but for what it shares.
    #[inline]
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.values.capacity() * size_of::<Placed>() + self.unpacked_bytes
    }

    /// Gives back memory that only a large reply needed. What was written has been sent, or is kept elsewhere.
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

    /// Everything in one piece.
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

    /// What is left of the bytes.
    #[inline]
    pub(crate) fn bytes_from(&self, sent: Sent) -> &[u8] {
        &self.bytes[sent.bytes..]
    }

    /// What comes next, as far as one call takes it. Of values that are packed, one is unpacked at a time.
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

    /// So much more was sent: values that are gone are let go.
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

/// Places for values that are kept by an output which is used again.
const VALUES_KEPT: usize = 64;

impl Placed {
    /// None, where it is not unpacked yet.
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

    /// As it is sent, unpacked for whoever looks at it.
    fn plain(&self) -> Cow<'_, [u8]> {
        match &self.shared {
            Shared::Value { stored: Stored::Packed(packed), plain: None, .. } => {
                Cow::Owned(packed.unpack(self.range.clone()))
            }
            _ => Cow::Borrowed(self.bytes()),
        }
    }

    /// It waits for its client from now on.
    fn hold(&mut self, pins: &Arc<Pins>) {
        if let Shared::Value { pin, stored, .. } = &mut self.shared {
            *pin = Some(Pins::hold(pins, stored));
        }
    }
}

/// A shorter reply is copied: the worker keeps the memory for the next.
const KEPT_BYTES_MIN: usize = 64 << 10;

/// What a client has not read yet.
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

    /// Keeps what is left of an output. Its memory goes along where most of what was written is left, unless that is little.
    pub(crate) fn keep(&mut self, output: &mut Output, sent: Sent, pins: &Arc<Pins>) {
        output.values.iter_mut().for_each(|placed| placed.hold(pins));
        let left = output.bytes.len() - sent.bytes;
        if self.is_empty() && left >= output.bytes.len().max(KEPT_BYTES_MIN) / 2 {
            self.output.bytes = std::mem::take(&mut output.bytes);
            // Where it lies: what was set apart for more counts as held.
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

    /// Writes as much as the socket takes.
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

    /// Memory that it holds. That of values counts where it lies nowhere else: see [`Pins`].
    pub(crate) fn held_bytes(&self) -> usize {
        self.output.held_bytes()
    }

    /// What the client has to read.
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
        assert!(!output.has_values(), "an empty part is none");
    }

    /// However much of it the socket takes at a time, and whenever it becomes what a client has not read.
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
                assert_eq!(output.sent_bytes(), 0, "it is sent no more from there");
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
