//! Connections closed by the server, by reason, for metrics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Reason why the server closed a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The client did not authenticate, or did not finish the TLS handshake, in time.
    AuthTimeout,
    /// The buffers of all clients exceeded their limit, and this client's were the largest.
    Buffers,
    /// The client sent HTTP.
    Http,
    /// The client was idle for too long.
    Idle,
    /// The client did not read messages from others.
    Messages,
    /// The client did not read replies, or its pending replies exceeded the limit.
    Replies,
    /// A request was too large.
    Request,
    /// There were too many unauthenticated clients, or their buffers were too large.
    Strangers,
}

impl Ending {
    /// All reasons, in the order of `Endings::counts`.
    pub const ALL: [Self; 8] = [
        Self::AuthTimeout,
        Self::Buffers,
        Self::Http,
        Self::Idle,
        Self::Messages,
        Self::Replies,
        Self::Request,
        Self::Strangers,
    ];

    /// The label in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AuthTimeout => "auth_timeout",
            Self::Buffers => "buffers",
            Self::Http => "http",
            Self::Idle => "idle",
            Self::Messages => "messages",
            Self::Replies => "replies",
            Self::Request => "request",
            Self::Strangers => "strangers",
        }
    }
}

/// Counters of all workers.
#[derive(Debug, Default)]
pub(crate) struct Endings([AtomicU64; Ending::ALL.len()]);

impl Endings {
    pub(crate) fn add(&self, ending: Ending) {
        self.0[ending as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn count(&self, ending: Ending) -> u64 {
        self.0[ending as usize].load(Relaxed)
    }

    pub(crate) fn counts(&self) -> [(Ending, u64); Ending::ALL.len()] {
        Ending::ALL.map(|ending| (ending, self.count(ending)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_counted_in_its_own_place() {
        let endings = Endings::default();
        Ending::ALL.into_iter().enumerate().for_each(|(times, ending)| {
            (0..times).for_each(|_| endings.add(ending));
        });
        assert!(endings.counts().iter().enumerate().all(|(times, (_, count))| *count == times as u64));
        assert!(Ending::ALL.is_sorted_by_key(|ending| ending.name()));
    }
}
