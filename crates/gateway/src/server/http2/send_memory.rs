//! Memory for response data that `h2` holds for one connection until it is written to the socket.
//!
//! A client that opens large windows and doesn't read would make `h2` hold a buffer for each of its streams. All streams share one
//! socket, so enough data to keep it busy is enough for all of them: the rest waits at its source. Pieces of stored or filling bodies
//! are counted at their source; copies from files and small pieces are charged to the memory budget here. If the budget has no room,
//! data is sent one small piece at a time for the whole connection.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use cache::fill::INLINE_BODY_BYTES_MAX;
use store::{Budget, Charge, Slice};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum size of a body sent without a charge. A charge would cost more than it protects: the streams of a connection hold few such
/// bodies at a time.
const UNNOTED_BYTES_MAX: usize = 4 << 10;
/// Maximum size of a piece of one stream, after which other streams get their turn.
const PIECE_BYTES_MAX: usize = 64 << 10;
/// Maximum size of a piece if the budget has no room: a frame.
const UNCHARGED_BYTES_MAX: usize = 16 << 10;

/// Room for response data of a connection that hasn't been written yet.
pub(super) struct SendMemory {
    budget: Arc<Budget>,
    room: Arc<Semaphore>,
    bytes_max: u32,
}

/// Whether the bytes of a piece are counted elsewhere while `h2` holds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    Yes,
    No,
}

impl Counted {
    /// Classifies a piece. File contents are copied for sending, and small pieces may be part of a record that is dropped earlier, so
    /// neither is counted elsewhere.
    pub(super) fn of(piece: &Slice) -> Self {
        if piece.file().is_some() || piece.len() <= INLINE_BODY_BYTES_MAX { Self::No } else { Self::Yes }
    }
}

/// A piece together with its room and charge.
struct Piece {
    data: Bytes,
    _place: MemoryPlace,
}

struct MemoryPlace {
    _room: OwnedSemaphorePermit,
    _charge: Option<Charge>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl SendMemory {
    pub(super) fn new(budget: &Arc<Budget>, bytes_max: usize) -> Arc<Self> {
        let bytes_max = u32::try_from(bytes_max.max(UNCHARGED_BYTES_MAX)).unwrap_or(u32::MAX);
        let room = Arc::new(Semaphore::new(bytes_max as usize));
        Arc::new(Self { budget: Arc::clone(budget), room, bytes_max })
    }

    /// Reserves room for a body in memory. Returns `None` if no room is available now.
    pub(super) fn note(&self, data: Bytes) -> Option<Bytes> {
        if data.len() <= UNNOTED_BYTES_MAX {
            return Some(data);
        }
        let room = Arc::clone(&self.room).try_acquire_many_owned(self.permits(data.len())).ok()?;
        let charge = self.budget.reserve(data.len()).ok()?;
        Some(MemoryPlace { _room: room, _charge: Some(charge) }.hold(data))
    }

    /// Takes a piece of at most `bytes` from `data`; waits until room for it is available.
    pub(super) async fn cut(&self, data: &mut Slice, bytes: usize, counted: Counted) -> io::Result<Bytes> {
        let bytes = bytes.min(data.len()).min(PIECE_BYTES_MAX).min(self.bytes_max as usize);
        let room = self.acquire(self.permits(bytes)).await;
        if counted == Counted::Yes {
            return MemoryPlace { _room: room, _charge: None }.take(data, bytes);
        }
        if let Ok(charge) = self.budget.reserve(bytes) {
            return MemoryPlace { _room: room, _charge: Some(charge) }.take(data, bytes);
        }
        drop(room);
        // Reserving all of the room ensures that no other data is held at the same time.
        let room = self.acquire(self.bytes_max).await;
        MemoryPlace { _room: room, _charge: None }.take(data, bytes.min(UNCHARGED_BYTES_MAX))
    }

    async fn acquire(&self, bytes: u32) -> OwnedSemaphorePermit {
        let room = Arc::clone(&self.room).acquire_many_owned(bytes).await;
        room.expect("the room of a connection is never closed")
    }

    fn permits(&self, bytes: usize) -> u32 {
        u32::try_from(bytes).unwrap_or(u32::MAX).min(self.bytes_max)
    }
}

impl MemoryPlace {
    fn take(self, data: &mut Slice, bytes: usize) -> io::Result<Bytes> {
        Ok(self.hold(data.split_to(bytes).into_bytes()?))
    }

    fn hold(self, data: Bytes) -> Bytes {
        Bytes::from_owner(Piece { data, _place: self })
    }
}
