//! Commands that iterate over all keys, in slices, so that no other client waits for the whole iteration.
//! Memory of their replies is charged as it grows, and released as the client reads.

use std::sync::Arc;

use engine::{Database, Step};

use super::keyspace::is_match;
use super::{Call, Refusal};
use crate::effort::Scope;
use crate::glob::Matcher;
use crate::pins::Buffered;
use crate::posted::Posted;
use crate::reply::Reply;
use crate::shared::Shared;

/// The work of one turn: about 1 ms.
const SLICE: Step = Step { keys_max: 4096, buckets_max: 8192 };
/// Memory is charged in units of this size.
const PIECE_BYTES: usize = 256 << 10;
/// Overhead of a key in a reply.
const BULK_BYTES: usize = 16;

/// Progress of a command.
#[derive(Debug)]
pub(crate) struct Walk {
    /// The engine's database that was selected when the command began.
    database: Database,
    position: u64,
    matcher: Matcher,
    /// Number of keys found.
    pub(super) found: usize,
    told: Told,
}

/// Keys as encoded for the reply.
#[derive(Debug)]
struct Told {
    pieces: Vec<Arc<Posted>>,
    pieces_bytes: usize,
    last: Vec<u8>,
    /// Memory of `last` that is charged.
    counted_bytes: usize,
    buffered: Arc<Buffered>,
    is_refused: bool,
}

impl Walk {
    fn new(call: &Call<'_>) -> Self {
        let told = Told {
            pieces: Vec::new(),
            pieces_bytes: 0,
            last: Vec::new(),
            counted_bytes: 0,
            buffered: Arc::clone(call.shared.buffered()),
            is_refused: false,
        };
        Self { database: call.database(), position: 0, matcher: Matcher::default(), found: 0, told }
    }

    pub(super) fn is_match(&mut self, pattern: &[u8], key: &[u8]) -> bool {
        is_match(&mut self.matcher, pattern, key)
    }

    pub(super) fn tell(&mut self, key: &[u8], shared: &Shared) {
        self.found += 1;
        self.told.add(key, shared);
    }

    /// Returns whether the command has found keys, so that the reply will be an array.
    pub(crate) fn tells(&self) -> bool {
        self.told.counted_bytes > 0 || !self.told.pieces.is_empty()
    }

    /// Size of the reply so far.
    pub(super) fn held_bytes(&self) -> usize {
        self.told.pieces_bytes + self.told.counted_bytes
    }

    /// Replies with the array of keys found.
    pub(super) fn reply(mut self, call: &Call<'_>, reply: &mut Reply<'_>) {
        let begin = reply.out.len();
        reply.array(self.found);
        if call.session.is_reply_begun {
            reply.out.remove_first(begin);
        }
        if self.told.pieces.is_empty() {
            reply.out.extend_from_slice(&self.told.last);
            return;
        }
        self.told.close_last();
        self.told.pieces.iter().for_each(|piece| reply.out.share_message(piece));
    }
}

impl Told {
    fn add(&mut self, key: &[u8], shared: &Shared) {
        let bytes = key.len() + BULK_BYTES;
        if !self.last.is_empty() && self.last.len() + bytes > PIECE_BYTES {
            self.close_last();
        }
        if self.last.is_empty() {
            self.is_refused |= !self.has_room(bytes.max(PIECE_BYTES), shared);
        }
        if self.is_refused {
            return;
        }
        if self.last.is_empty() && self.pieces_bytes > 0 {
            self.last.reserve_exact(bytes.max(PIECE_BYTES));
        }
        resp::append_bulk(&mut self.last, key);
    }

    /// Returns whether there is room for `bytes` more. One piece always fits if keys can be evicted for it.
    fn has_room(&self, bytes: usize, shared: &Shared) -> bool {
        let all_bytes = self.pieces_bytes.saturating_add(bytes);
        all_bytes <= PIECE_BYTES && !shared.is_reserve_spent()
            || shared.could_reply(self.pieces_bytes, all_bytes)
    }

    fn close_last(&mut self) {
        let last = std::mem::take(&mut self.last);
        self.pieces_bytes += last.capacity();
        self.count();
        self.pieces.push(Posted::new(last, &self.buffered));
    }

    /// Updates the charge.
    fn count(&mut self) {
        let bytes = self.last.capacity();
        self.buffered.account(self.counted_bytes, bytes);
        self.counted_bytes = bytes;
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.buffered.account(self.counted_bytes, 0);
    }
}

/// Visits more keys, and returns when all have been visited. A key that exists during the whole iteration is
/// certain to be visited.
pub(super) fn walk(call: &mut Call<'_>, mut see: impl FnMut(&mut Walk, &[u8])) -> Result<Box<Walk>, Refusal> {
    let mut walk = call.session.walk.take().unwrap_or_else(|| Box::new(Walk::new(call)));
    loop {
        let (database, position) = (walk.database, walk.position);
        walk.position = call.engine().scan(database, position, SLICE, call.now_ms, |key| see(&mut walk, key));
        walk.matcher.check()?;
        if walk.told.is_refused {
            return Err(Refusal::ReplyOverLimit);
        }
        walk.told.count();
        if walk.told.counted_bytes > 0 {
            call.shared.make_room_for_part(call.now_ms);
        }
        if walk.position == 0 {
            return Ok(walk);
        }
        if call.effort.scope() == Scope::Command {
            call.session.walk = Some(walk);
            return Err(Refusal::NotYet);
        }
        call.effort.look_at_keys(SLICE.keys_max)?;
    }
}
