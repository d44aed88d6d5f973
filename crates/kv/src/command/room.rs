//! Memory for replies that are copied: it is asked for before it is there, and keys make room for it.
//!
//! Large values are shared with the engine, and need none.

use std::sync::atomic::Ordering::Relaxed;

use super::{Call, Outcome, Refusal};
use crate::shared::Shared;

/// A reply of this length is always possible, and others are looked at in such steps.
const STEP_BYTES: usize = 256 << 10;

/// What a command has taken for its reply. At its end, what the client does not read at once counts in its place.
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

    /// Makes room for a reply of so many bytes in all; no shard may be locked. It may take half of what keys can still make room for.
    pub(super) fn make(&mut self, bytes: usize) -> Outcome {
        if bytes <= self.bytes + STEP_BYTES {
            return Ok(());
        }
        if !self.shared.could_reply(self.bytes, bytes) {
            return Err(Refusal::ReplyOverLimit);
        }
        self.shared.account(self.bytes, bytes);
        self.bytes = bytes;
        self.shared.make_room_for_reply(self.now_ms);
        Ok(())
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.shared.account(self.bytes, 0);
    }
}

impl Call<'_> {
    /// Refuses what the server would have to remember for the client in so many bytes, where there is no room for it. The request itself is
    /// gone then.
    pub(super) fn check_kept(&self, bytes: usize) -> Outcome {
        let own_bytes = self.session.client.facts.unread_bytes.load(Relaxed);
        if self.shared.could_keep(bytes, own_bytes) { Ok(()) } else { Err(Refusal::TablesOverLimit) }
    }

    /// What is remembered for the client has changed. Keys make room for it.
    pub(super) fn account_tables(&self) {
        if self.session.account_kept(self.shared) >= STEP_BYTES {
            self.shared.make_room_for_reply(self.now_ms);
        }
    }
}

/// Looks at a reply that grows while shards are locked, so that keys can't make room for it.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    shared: &'a Shared,
    looks_at_bytes: usize,
}

impl<'a> Watch<'a> {
    pub(super) fn new(call: &Call<'a>) -> Self {
        Self { shared: call.shared, looks_at_bytes: STEP_BYTES }
    }

    /// Refuses a reply that takes so many bytes, where that is more than keys could make room for twice.
    pub(super) fn look(&mut self, bytes: usize) -> Outcome {
        if bytes < self.looks_at_bytes {
            return Ok(());
        }
        self.looks_at_bytes = bytes + STEP_BYTES;
        if self.shared.could_reply(0, bytes) { Ok(()) } else { Err(Refusal::ReplyOverLimit) }
    }
}
