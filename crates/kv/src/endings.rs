//! Connections that the server has ended, and why: for whoever watches it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Why the server has ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// No password was given, or the TLS handshake not finished, in time.
    AuthTimeout,
    /// The buffers of all clients were above their limit, and its own the largest.
    Buffers,
    /// It spoke HTTP.
    Http,
    /// It said nothing for too long.
    Idle,
    /// It did not read messages that others have sent it.
    Messages,
    /// It did not read replies, or asked for more at once than it may.
    Replies,
    /// A request was too large.
    Request,
    /// Too many clients, or their buffers too large, before they gave a password.
    Strangers,
}

impl Ending {
    /// In the order of `Endings::counts`.
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

    /// As metrics tell it.
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

/// Of all workers.
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
