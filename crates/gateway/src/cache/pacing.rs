//! When validations behind responses begin: at a moment that each key draws, and not at once after one that was in vain.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use caching::Timestamp;
use twox_hash::XxHash3_64;

use crate::client::Client;

/// Which keys are left alone for a moment, since a validation behind a response left what is stored as it was. Hits begin
/// such validations, thousands in a second of what is hot: an origin that fails is not to be asked as often.
///
/// A validation has the fields of the request that caused it, so it may be in vain because of that request alone. Its client then waits
/// for longer than others do, and for twice as long each time that follows: whoever keeps asking for what the origin refuses leaves the next
/// attempts to somebody else, also where the origin takes long to refuse, or a few clients take turns.
///
/// A pause has one of a fixed number of places, and gives way to the next one that begins there: the next attempt may come sooner then.
/// So nothing grows. A secret decides who meets in a place, so nobody can choose keys whose pauses end others, or hold for others. Nor can one
/// client end its own by asking for many keys: the origin refuses it [`REFUSALS_MAX`] times, and then it waits whatever the key.
pub(crate) struct Pauses {
    of_keys: Places,
    of_clients: Places,
}

struct Places {
    places: Box<[AtomicU64]>,
    hasher: RandomState,
}

/// Why a validation left what is stored as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InVain {
    /// The origin has failed, or nobody knows whose request it did not like.
    ForAll,
    /// The origin answered this client, but with nothing that replaces what is stored.
    For(Client),
}

/// 32 KiB.
const PLACES: usize = 1 << 12;
/// Enough for an origin that is overloaded, and short beside lifetimes for which a validation ahead is of use.
const PAUSE_MS: u64 = 500;
/// For others than the client whose request was in vain. An origin that has answered is able to answer again, but not all clients
/// are to find out one after the other that it refuses everybody.
const PAUSE_OF_OTHERS_MS: u64 = 50;
/// How often the pause of a client doubles, to 8 s: an origin that refuses all clients of one address is asked again that soon after it stops.
const DOUBLINGS_MAX: u64 = 4;
const PAUSE_MAX_MS: u64 = PAUSE_MS << DOUBLINGS_MAX;
/// How many validations may be in vain because of one client before it begins no others: enough for the pages that a crowd behind one address
/// may not see, and few beside [`PLACES`].
const REFUSALS_MAX: u64 = 64;
/// After which time one of them is forgotten.
const REFUSAL_MS: u64 = PAUSE_MAX_MS / REFUSALS_MAX;
/// A place has the upper bits of the hash of what pauses, below them how often its pause was doubled, and until when it lasts, in milliseconds.
/// That of a client has the time at which all its refusals will be forgotten.
const TIME: u64 = (1 << TIME_BITS) - 1;
const TIME_BITS: u32 = 40;
const DOUBLINGS: u64 = 7 << TIME_BITS;
const HASH: u64 = !(DOUBLINGS | TIME);

/// What a key draws for [`caching::refresh_ahead`]: the same in each instance of a fleet.
pub(crate) fn draw(key: &[u8]) -> u16 {
    (XxHash3_64::oneshot(key) >> 48) as u16
}

impl Pauses {
    pub(crate) fn new() -> Self {
        Self { of_keys: Places::new(), of_clients: Places::new() }
    }

    /// Whether a client is to begin no validation of a key now.
    pub(crate) fn has(&self, key: &[u8], client: Option<Client>, now: Timestamp) -> bool {
        let is_paused = |who: Option<Client>| {
            let (place, hash) = self.of_keys.place((key, who));
            let until = place.load(Ordering::Relaxed);
            until & HASH == hash & HASH && (1..=PAUSE_MS << doublings(until)).contains(&left_ms(until, now))
        };
        is_paused(None)
            || client.is_some_and(|client| is_paused(Some(client)) || self.is_refused(client, now))
    }

    fn is_refused(&self, client: Client, now: Timestamp) -> bool {
        self.refusals_ms(client, now) > PAUSE_MAX_MS
    }

    /// For how long refusals of a client will be remembered.
    fn refusals_ms(&self, client: Client, now: Timestamp) -> u64 {
        let (place, hash) = self.of_clients.place(client);
        let until = place.load(Ordering::Relaxed);
        let ms = left_ms(until, now);
        if until & HASH == hash & HASH && ms <= 2 * PAUSE_MAX_MS { ms } else { 0 }
    }

    pub(crate) fn begin(&self, key: &[u8], why: InVain, now: Timestamp) {
        match why {
            InVain::ForAll => self.pause(key, None, PAUSE_MS, now),
            InVain::For(client) => {
                self.pause(key, None, PAUSE_OF_OTHERS_MS, now);
                self.pause_again(key, client, now);
                self.count_refusal(client, now);
            }
        }
    }

    fn pause(&self, key: &[u8], who: Option<Client>, pause_ms: u64, now: Timestamp) {
        let (place, hash) = self.of_keys.place((key, who));
        place.store(hash & HASH | until(now, pause_ms), Ordering::Relaxed);
    }

    /// Twice as long as the last one, if that is not over for longer than the longest takes.
    fn pause_again(&self, key: &[u8], client: Client, now: Timestamp) {
        let (place, hash) = self.of_keys.place((key, Some(client)));
        let last = place.load(Ordering::Relaxed);
        let over_ms = time(now) as i64 - (last & TIME) as i64;
        let follows = last & HASH == hash & HASH && over_ms.unsigned_abs() <= PAUSE_MAX_MS;
        let doublings = if follows { (doublings(last) + 1).min(DOUBLINGS_MAX) } else { 0 };
        let pause = doublings << TIME_BITS | until(now, PAUSE_MS << doublings);
        place.store(hash & HASH | pause, Ordering::Relaxed);
    }

    /// Those that were under way together may be more than it would have begun one after the other: they hold it for no longer than
    /// the pause of a key lasts.
    fn count_refusal(&self, client: Client, now: Timestamp) {
        let refusals_ms = (self.refusals_ms(client, now) + REFUSAL_MS).min(2 * PAUSE_MAX_MS);
        let (place, hash) = self.of_clients.place(client);
        place.store(hash & HASH | until(now, refusals_ms), Ordering::Relaxed);
    }
}

impl Places {
    fn new() -> Self {
        Self { places: (0..PLACES).map(|_| AtomicU64::new(0)).collect(), hasher: RandomState::new() }
    }

    fn place(&self, what: impl Hash) -> (&AtomicU64, u64) {
        let hash = self.hasher.hash_one(what);
        (&self.places[hash as usize % PLACES], hash)
    }
}

/// More than any pause lasts once it is over, and where the clock was set back.
fn left_ms(until: u64, now: Timestamp) -> u64 {
    until.wrapping_sub(time(now)) & TIME
}

fn time(now: Timestamp) -> u64 {
    now.as_ms() as u64 & TIME
}

fn doublings(place: u64) -> u64 {
    (place & DOUBLINGS) >> TIME_BITS
}

fn until(now: Timestamp, pause_ms: u64) -> u64 {
    (time(now) + pause_ms) & TIME
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
        let pauses = Pauses::new();
        assert!(!pauses.has(b"key", client(1), BEGAN));
        pauses.begin(b"key", InVain::ForAll, BEGAN);
        for who in [client(1), client(2), None] {
            let after = |ms| pauses.has(b"key", who, BEGAN.plus_ms(ms));
            assert_eq!([-1, 0, 499, 500].map(after), [false, true, true, false]);
        }
        assert!(!pauses.has(b"another key", client(1), BEGAN));
        let places = (0..8 * PLACES).map(|number| number.to_string().into_bytes());
        places.for_each(|other| pauses.begin(&other, InVain::ForAll, BEGAN));
        assert!(!pauses.has(b"key", client(1), BEGAN), "it has given way");
    }

    #[test]
    fn others_are_left_alone_for_less_long_than_the_client_that_was_refused() {
        let pauses = Pauses::new();
        pauses.begin(b"key", InVain::For(client(1).unwrap()), BEGAN);
        for (who, expected) in [
            (client(1), [true, true, true, true, false]),
            (client(2), [true, true, false, false, false]),
            (None, [true, true, false, false, false]),
        ] {
            let after = |ms| pauses.has(b"key", who, BEGAN.plus_ms(ms));
            assert_eq!([0, 49, 50, 499, 500].map(after), expected, "{who:?}");
        }
    }

    #[test]
    fn a_client_that_is_refused_again_waits_for_twice_as_long() {
        let pauses = Pauses::new();
        let (mut now, who) = (BEGAN, client(1));
        let mut check = |after_ms: i64, pause_ms: i64| {
            now = now.plus_ms(after_ms);
            pauses.begin(b"key", InVain::For(who.unwrap()), now);
            let has = |who, ms| pauses.has(b"key", who, now.plus_ms(ms));
            let found = (has(who, pause_ms - 1), has(who, pause_ms), has(client(2), 50));
            assert_eq!(found, (true, false, false), "{pause_ms} ms, after {after_ms} ms");
        };
        check(0, 500);
        check(500, 1000);
        check(1000, 2000);
        check(9000, 4000);
        check(4000, 8000);
        check(1, 8000);
        check(16_001, 500);
        check(1, 1000);
        // The clock was set back.
        check(-3_600_000, 500);
    }

    #[test]
    fn a_client_that_is_refused_for_many_keys_waits_whatever_the_key() {
        let pauses = Pauses::new();
        let refuse = |refusals: u64, now| {
            let keys = (0..refusals).map(|number| number.to_string().into_bytes());
            keys.for_each(|key| pauses.begin(&key, InVain::For(client(1).unwrap()), now));
        };
        let check = |after_ms, expected| {
            let now = BEGAN.plus_ms(after_ms);
            let found = [client(1), client(2), None].map(|who| pauses.has(b"another key", who, now));
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
        refuse(REFUSALS_MAX, BEGAN.plus_ms(-3_600_000));
        check(-3_600_000, false);
    }
}
