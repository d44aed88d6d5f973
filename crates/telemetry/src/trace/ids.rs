//! Random identifiers of traces and spans.

use std::cell::Cell;
use std::fmt;
use std::hash::{BuildHasher, RandomState};

/// The identifier of a trace. Never zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

/// The identifier of a span. Never zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId([u8; 8]);

impl TraceId {
    /// Returns `None` for zero, which is invalid.
    pub fn from_bytes(bytes: [u8; 16]) -> Option<Self> {
        (bytes != [0; 16]).then_some(Self(bytes))
    }

    /// Returns a random identifier.
    pub fn draw() -> Self {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&draw().to_be_bytes());
        bytes[8..].copy_from_slice(&draw().to_be_bytes());
        Self(bytes)
    }

    /// Returns the bytes as they are sent.
    pub fn bytes(self) -> [u8; 16] {
        self.0
    }

    /// Returns a number that is the same in every process of the trace, and as good as random.
    pub(crate) fn lot(self) -> u64 {
        let [.., a, b, c, d, e, f, g, h] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

impl SpanId {
    /// Returns `None` for zero, which is invalid.
    pub fn from_bytes(bytes: [u8; 8]) -> Option<Self> {
        (bytes != [0; 8]).then_some(Self(bytes))
    }

    /// Returns a random identifier.
    pub fn draw() -> Self {
        Self(draw().to_be_bytes())
    }

    /// Returns the bytes as they are sent.
    pub fn bytes(self) -> [u8; 8] {
        self.0
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

thread_local! {
    /// Source of random numbers: a keyed hash of consecutive numbers, with a random key for each thread.
    static LOTS: (RandomState, Cell<u64>) = (RandomState::new(), Cell::new(0));
}

/// Returns a random number other than zero.
fn draw() -> u64 {
    LOTS.with(|(key, turn)| {
        turn.set(turn.get().wrapping_add(1));
        key.hash_one(turn.get()).max(1)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_are_alike() {
        let here = || (0..10_000).map(|_| TraceId::draw()).collect::<HashSet<_>>();
        let elsewhere = std::thread::spawn(here).join().unwrap();
        let all: HashSet<_> = here().union(&elsewhere).copied().collect();
        assert_eq!(all.len(), 20_000);
        assert_eq!(TraceId::from_bytes([0; 16]), None);
        assert_eq!(SpanId::from_bytes([0; 8]), None);
        assert_eq!(SpanId::from_bytes([1, 2, 3, 4, 5, 6, 7, 0xab]).unwrap().to_string(), "01020304050607ab");
    }
}
