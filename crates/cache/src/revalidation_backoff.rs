//! Back-off from background validations that didn't replace the stored response.

use std::hash::{BuildHasher, Hash, RandomState};

use caching::Timestamp;
use message::client::Client;
use parking_lot::Mutex;

/// Pauses after failed background validations. Every hit can start such a validation, thousands per second for a hot key; the back-off
/// protects a failing origin.
///
/// A validation has the fields of the request that caused it, so it may fail because of that request alone. Its client pauses longer than
/// other clients, so another client makes the next attempt. A client that is refused for `REFUSALS_MAX` keys pauses for every key.
///
/// Memory is bounded: a pause takes one of `SLOTS` slots. The next pause in the same slot overwrites it, which may allow an earlier
/// attempt. The hash has a secret, so that keys that share a slot can't be chosen.
#[derive(Default)]
pub struct RevalidationBackoff {
    waits: Slots,
    refusals: Slots,
}

/// Slots of a table: 128 KiB.
const SLOTS: usize = 1 << 12;
/// Pause after a failure: long enough for an overloaded origin, and short compared with the lifetimes that justify a validation in advance.
const WAIT_MS: i64 = 500;
/// Pause of other clients after a refusal. The origin can answer, but if it refuses all clients, not every client should try.
const WAIT_OF_OTHERS_MS: i64 = 50;
/// Pause of the refused client: longer than [`WAIT_OF_OTHERS_MS`], so that several such clients don't take turns on one key.
const WAIT_OF_REFUSED_MS: i64 = 1_500;
/// Maximum number of keys for which a client may be refused at the same time; many users behind one address shouldn't reach it.
const REFUSALS_MAX: i64 = 64;
/// Time after which one refusal is forgotten.
const REFUSAL_MS: i64 = 125;
const REFUSALS_MAX_MS: i64 = REFUSALS_MAX * REFUSAL_MS;

impl RevalidationBackoff {
    /// Returns whether a client must not begin a validation of a key now.
    pub fn holds_back(&self, key: &[u8], client: Option<Client>, now: Timestamp) -> bool {
        let waits = |who: Option<Client>| self.waits.left_ms((key, who), now) > 0;
        let is_refused = |client| self.refusals.left_ms(client, now) > REFUSALS_MAX_MS;
        waits(None) || client.is_some_and(|client| waits(Some(client)) || is_refused(client))
    }

    /// Starts a pause after a validation that didn't change the stored response. `refused` is the client, if the origin answered without
    /// replacing the response. `None` if the origin failed or the client is unknown.
    pub fn begin(&self, key: &[u8], refused: Option<Client>, now: Timestamp) {
        let none: Option<Client> = None;
        match refused {
            None => self.waits.set((key, none), WAIT_MS, now),
            Some(client) => {
                self.waits.set((key, none), WAIT_OF_OTHERS_MS, now);
                self.waits.set((key, Some(client)), WAIT_OF_REFUSED_MS, now);
                let refusals_ms = self.refusals.left_ms(client, now) + REFUSAL_MS;
                self.refusals.set(client, refusals_ms.min(2 * REFUSALS_MAX_MS), now);
            }
        }
    }
}

/// Remaining pauses, each under the hash of its subject.
struct Slots {
    slots: Box<[Mutex<Slot>]>,
    hasher: RandomState,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    hash: u64,
    began_ms: i64,
    wait_ms: i64,
}

impl Default for Slots {
    fn default() -> Self {
        Self { slots: (0..SLOTS).map(|_| Mutex::default()).collect(), hasher: RandomState::new() }
    }
}

impl Slots {
    /// Returns the remaining time of a pause: zero if the clock was set back to before its start.
    fn left_ms(&self, who: impl Hash, now: Timestamp) -> i64 {
        let hash = self.hasher.hash_one(who);
        let slot = *self.slot(hash).lock();
        let passed_ms = now.as_ms() - slot.began_ms;
        if slot.hash == hash && passed_ms >= 0 { (slot.wait_ms - passed_ms).max(0) } else { 0 }
    }

    fn set(&self, who: impl Hash, wait_ms: i64, now: Timestamp) {
        let hash = self.hasher.hash_one(who);
        *self.slot(hash).lock() = Slot { hash, began_ms: now.as_ms(), wait_ms };
    }

    fn slot(&self, hash: u64) -> &Mutex<Slot> {
        &self.slots[hash as usize % SLOTS]
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const BEGAN: Timestamp = Timestamp::from_seconds(1_790_000_000);

    fn client(number: u8) -> Option<Client> {
        Some(Client::of(Ipv4Addr::new(192, 0, 2, number).into()))
    }

    #[test]
    fn a_key_is_left_alone_for_half_a_second_if_the_origin_fails() {
        let backoff = RevalidationBackoff::default();
        assert!(!backoff.holds_back(b"key", client(1), BEGAN));
        backoff.begin(b"key", None, BEGAN);
        for who in [client(1), client(2), None] {
            let after = |ms| backoff.holds_back(b"key", who, BEGAN.plus_ms(ms));
            assert_eq!([-1, 0, 499, 500].map(after), [false, true, true, false]);
        }
        assert!(!backoff.holds_back(b"another key", client(1), BEGAN));
        let others = (0..8 * SLOTS).map(|number| number.to_string().into_bytes());
        others.for_each(|other| backoff.begin(&other, None, BEGAN));
        assert!(!backoff.holds_back(b"key", client(1), BEGAN), "its slot was overwritten");
    }

    #[test]
    fn others_are_left_alone_for_less_long_than_the_client_that_was_refused() {
        let backoff = RevalidationBackoff::default();
        backoff.begin(b"key", client(1), BEGAN);
        for (who, expected) in [
            (client(1), [true, true, true, true, false]),
            (client(2), [true, true, false, false, false]),
            (None, [true, true, false, false, false]),
        ] {
            let after = |ms| backoff.holds_back(b"key", who, BEGAN.plus_ms(ms));
            assert_eq!([0, 49, 50, 1_499, 1_500].map(after), expected, "{who:?}");
        }
    }

    #[test]
    fn a_client_that_is_refused_for_many_keys_waits_whatever_the_key() {
        let backoff = RevalidationBackoff::default();
        let refuse = |refusals: i64, now| {
            let keys = (0..refusals).map(|number| number.to_string().into_bytes());
            keys.for_each(|key| backoff.begin(&key, client(1), now));
        };
        let check = |after_ms, expected| {
            let now = BEGAN.plus_ms(after_ms);
            let found = [client(1), client(2), None].map(|who| backoff.holds_back(b"another key", who, now));
            assert_eq!(found, [expected, false, false], "after {after_ms} ms");
        };
        refuse(REFUSALS_MAX, BEGAN);
        check(0, false);
        refuse(1, BEGAN);
        check(0, true);
        check(124, true);
        check(125, false);
        refuse(2, BEGAN.plus_ms(125));
        check(374, true);
        check(375, false);
        refuse(10 * REFUSALS_MAX, BEGAN.plus_ms(1000));
        check(1000, true);
        check(8999, true);
        check(9000, false);
        // The clock was set back.
        check(-3_600_000, false);
    }
}
