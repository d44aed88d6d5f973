//! Memory for replies that are copied. It is charged in advance, and keys are evicted for it.
//!
//! Large values are shared with the engine, and need no such memory.

use super::{Call, Outcome, Refusal};
use crate::effort::Scope;
use crate::line::{Next, Waits};
use crate::reply::Reply;
use crate::shared::Shared;

/// Replies up to this size are always possible. Larger replies are checked in steps of this size.
const STEP_BYTES: usize = 256 << 10;

/// Memory charged for a command's reply. When the command ends, output that the client doesn't read
/// immediately is charged instead.
#[derive(Debug)]
pub(super) struct Room<'a> {
    shared: &'a Shared,
    bytes: usize,
    now_ms: u64,
}

impl<'a> Room<'a> {
    pub(super) fn new(call: &Call<'a>) -> Self {
        Self { shared: call.shared, bytes: 0, now_ms: call.now_ms }
    }

    /// Makes room for a reply of `bytes` in total; no shard may be locked. A reply may take half of the
    /// memory that evicting keys can still free.
    pub(super) fn make(&mut self, bytes: usize) -> Outcome {
        if bytes <= self.bytes + STEP_BYTES {
            return Ok(());
        }
        self.shared.make_room_among_keys_that_expire(self.bytes, bytes, self.now_ms);
        if !self.shared.take_for_reply(self.bytes, bytes) {
            return Err(Refusal::ReplyOverLimit);
        }
        self.bytes = bytes;
        self.shared.make_room_for_reply(self.now_ms);
        Ok(())
    }
}

impl Room<'_> {
    /// Charges memory that a command needs for its execution, regardless of room; keys are evicted for it.
    pub(super) fn take(&mut self, bytes: usize) {
        self.shared.account(self.bytes, self.bytes + bytes);
        self.bytes += bytes;
        if bytes >= STEP_BYTES {
            self.shared.make_room_for_reply(self.now_ms);
        }
    }

    /// Memory charged so far.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.shared.account(self.bytes, 0);
    }
}

impl Call<'_> {
    /// Charges `bytes` of client state and evicts keys for it, or refuses if there is no room.
    pub(super) fn keep(&mut self, bytes: usize) -> Outcome {
        if !self.session.promise(bytes, self.shared) {
            return Err(Refusal::TablesOverLimit);
        }
        if bytes >= STEP_BYTES {
            self.shared.make_room_for_reply(self.now_ms);
        }
        Ok(())
    }

    /// Checks whether the command may run now. A command whose reply did not fit waits for its turn.
    pub(super) fn await_room(&mut self) -> Outcome {
        let Some(waits) = self.session.waits.filter(|_| !self.session.is_walking()) else { return Ok(()) };
        if !self.shared.engine.policy().keeps_keys() {
            return Ok(());
        }
        let room = (self.shared.engine.used_bytes(), self.shared.terms());
        match self.shared.line.next(self.session.client.id, waits, room, self.now_ms) {
            Next::Try => Ok(()),
            Next::TryLast => {
                self.session.waits = Some(Waits { is_last: true, ..waits });
                Ok(())
            }
            Next::Wait => Err(Refusal::NotNow),
        }
    }

    /// Memory in use, without the reply that the current command has gathered.
    pub(super) fn used_by_others(&self) -> u64 {
        let own_bytes = self.session.walk.as_ref().map_or(0, |walk| walk.held_bytes());
        self.shared.engine.used_bytes().saturating_sub(own_bytes as u64)
    }

    /// Handles a reply that did not fit: the command waits if other clients may soon free memory by reading.
    /// A command that waits has had no effect.
    pub(super) fn settle_reply(&mut self, outcome: Outcome, reply: &Reply<'_>, used_before: u64) -> Outcome {
        let has_room = outcome != Err(Refusal::ReplyOverLimit) && !reply.out.is_refused();
        if has_room || self.effort.scope() == Scope::Transaction {
            if self.session.waits.is_some() && outcome.is_ok() {
                self.shared.line.moved(self.now_ms);
            }
            return outcome;
        }
        let (before, client) = (self.session.waits, &self.session.client);
        if !self.shared.engine.policy().keeps_keys() {
            return outcome;
        }
        let is_alone = !self.shared.may_have_room_soon(client.buffers_bytes());
        // Take the larger figure, so that memory freed since the refusal counts as new room.
        let used_bytes = used_before.max(self.used_by_others());
        let room = (used_bytes, self.shared.terms());
        let Some(waits) = Waits::again(before, room, is_alone, self.now_ms) else { return outcome };
        if before.is_none() {
            self.shared.line.join(client.id);
        }
        self.session.waits = Some(waits);
        Err(Refusal::NotNow)
    }

    /// Publishes a change in the client's state, and evicts keys for it.
    pub(super) fn account_tables(&self) {
        if self.session.account_kept() >= STEP_BYTES {
            self.shared.make_room_for_reply(self.now_ms);
        }
    }
}

/// Checks the memory of a reply while it is gathered. The memory is charged, so that concurrent replies can't
/// use the same memory.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    shared: &'a Shared,
    counted_bytes: usize,
    looks_at_bytes: usize,
}

impl<'a> Watch<'a> {
    pub(super) fn new(call: &Call<'a>) -> Self {
        Self::of(call.shared)
    }

    fn of(shared: &'a Shared) -> Self {
        Self { shared, counted_bytes: 0, looks_at_bytes: STEP_BYTES }
    }

    /// Refuses a reply that takes more than half of the memory that keys could free.
    pub(super) fn look(&mut self, bytes: usize) -> Outcome {
        if bytes < self.looks_at_bytes {
            return Ok(());
        }
        if !self.shared.take_for_reply(self.counted_bytes, bytes) {
            return Err(Refusal::ReplyOverLimit);
        }
        self.counted_bytes = bytes;
        self.looks_at_bytes = bytes + STEP_BYTES;
        Ok(())
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.shared.account(self.counted_bytes, 0);
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::sync::Arc;

    use engine::{Engine, Policy, Settings};

    use super::*;

    #[test]
    fn replies_that_grow_at_the_same_time_share_the_memory() {
        let settings = Settings { bytes_max: 16 << 20, policy: Policy::default(), seed: 1, threads: 1 };
        let shared = Shared::new(Arc::new(Engine::new(&settings)), None, "test".to_owned(), 1);
        let (mut one, mut other) = (Watch::of(&shared), Watch::of(&shared));
        assert_eq!((one.look(STEP_BYTES - 1), shared.buffers_bytes()), (Ok(()), 0), "it is always possible");
        assert_eq!((one.look(6 << 20), shared.buffers_bytes()), (Ok(()), 6 << 20));
        assert_eq!(other.look(6 << 20), Err(Refusal::ReplyOverLimit));
        drop(one);
        assert_eq!(shared.buffers_bytes(), 0);
        assert_eq!((other.look(6 << 20), shared.buffers_bytes()), (Ok(()), 6 << 20));
        drop(other);
        assert_eq!(shared.buffers_bytes(), 0);
    }
}
