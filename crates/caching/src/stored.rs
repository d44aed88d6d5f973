//! Facts about a stored response, for decisions about its reuse.

use crate::directives::DELTA_SECONDS_MAX;
use crate::opened::Opener;
use crate::{
    DeltaSeconds, Lifetime, LifetimeSource, RequestFacts, ResponseFacts, Rules, Timestamp, freshness, opened,
};

/// The facts about a stored response. The cache holds one for each stored response, so the type is small and `Copy`:
/// its size doesn't depend on the header section, and most numbers have less than 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredFacts {
    /// Time at which the response arrived, or was last freshened.
    pub response_time: Timestamp,
    /// `Date`, or the time of arrival.
    pub date: Timestamp,
    corrected_initial_age: Span,
    freshness_lifetime: Span,
    useful_when_stale: Span,
    /// The status code.
    pub status: u16,
    stale_while_revalidate: Window,
    stale_if_error: Window,
    /// The source of the freshness lifetime.
    pub lifetime_source: LifetimeSource,
    /// Whether the response must not be used stale: `must-revalidate`, `proxy-revalidate` or `s-maxage`.
    pub must_revalidate: bool,
    /// Whether the response must not be used without validation: `no-cache`.
    pub no_cache: bool,
    marks: u8,
}

/// Flag of a response with `ETag` or `Last-Modified`.
const HAS_VALIDATOR: u8 = 1;
/// Flag of a response that the origin server allows sharing.
const OPENED: u8 = 2;
/// Flag of a response with `immutable`.
const IMMUTABLE: u8 = 4;
/// Flag of a response that only the operator allows sharing, and not the origin server.
const GRANTED: u8 = 8;
/// Flag of a response stored with `Set-Cookie`.
const SETS_COOKIE: u8 = 16;
/// Flag of a response to a request with credentials, without a lifetime: it is never used stale, although no directive
/// forbids that.
const PERSONAL: u8 = 32;
/// Flag of a response whose lifetime was ended early.
const ENDED: u8 = 64;

impl StoredFacts {
    /// Returns the facts of a response. [`crate::may_store`] decides whether it may be stored; for a freshened
    /// response, which is stored already, this function suffices.
    pub fn new(request: &RequestFacts, response: &ResponseFacts, rules: &Rules) -> Self {
        let lifetime = freshness::lifetime(request, response, rules);
        let initial_age_ms = corrected_initial_age_ms(response);
        let directives = &response.directives;
        let stale_while_revalidate = Window::new(directives.stale_while_revalidate);
        let stale_if_error = Window::new(directives.stale_if_error);
        let opener = opened::opener(lifetime, response, rules);
        let has_directive =
            directives.must_revalidate || directives.proxy_revalidate || directives.s_maxage.is_some();
        // `public` permits storing a response to credentials, but only a lifetime permits using it without validation.
        let is_personal = opened::is_personal(request, rules) && lifetime.ms == 0;
        let useful_ms = rules.useful_when_stale_ms(stale_while_revalidate.ms(), stale_if_error.ms());
        Self {
            status: response.status,
            response_time: response.times.response,
            date: response.date,
            corrected_initial_age: Span::from_ms(initial_age_ms),
            freshness_lifetime: Span::from_ms(lifetime_ms(lifetime, initial_age_ms)),
            useful_when_stale: Span::from_ms(useful_ms),
            lifetime_source: lifetime.source,
            stale_while_revalidate,
            stale_if_error,
            //= RFC 9111 section 5.2.2.10: s-maxage includes proxy-revalidate
            //= RFC 9111 section 5.2.2.2: must-revalidate
            //= RFC 9111 section 5.2.2.2: must-revalidate is never ignored
            //= RFC 9111 section 5.2.2.8: proxy-revalidate
            must_revalidate: has_directive || is_personal,
            //= RFC 8246 section 2: a stale response is validated as without
            no_cache: response.must_always_validate(),
            marks: mark(response.has_validator(), HAS_VALIDATOR)
                | mark(opener == Some(Opener::Origin), OPENED)
                | mark(opener == Some(Opener::Operator), GRANTED)
                | mark(response.has_set_cookie && rules.store_set_cookie, SETS_COOKIE)
                | mark(directives.immutable, IMMUTABLE)
                | mark(is_personal && !has_directive, PERSONAL),
        }
    }

    /// Marks the response as made for one request: every other request validates it first.
    #[must_use]
    pub fn for_one_request(mut self) -> Self {
        self.no_cache = true;
        self
    }

    /// Returns whether the response has `ETag` or `Last-Modified`, so that it can be validated.
    pub fn has_validator(&self) -> bool {
        self.marks & HAS_VALIDATOR != 0
    }

    /// Returns whether the origin or the operator allows sharing: `public`, or a lifetime
    /// ([`crate::sharing::may_share`]).
    pub fn is_shareable(&self) -> bool {
        self.opener().is_some()
    }

    /// Returns the party that allows sharing, the origin or the operator; `None` if neither allows it.
    pub(crate) fn opener(&self) -> Option<Opener> {
        if self.marks & OPENED != 0 {
            return Some(Opener::Origin);
        }
        (self.marks & GRANTED != 0).then_some(Opener::Operator)
    }

    /// Returns whether the response may answer every request under any rules: the origin server allows sharing, and the
    /// response sets no cookie.
    pub(crate) fn is_for_all(&self) -> bool {
        self.marks & (OPENED | SETS_COOKIE) == OPENED
    }

    /// Returns whether the response was stored with `Set-Cookie`, as the operator permits.
    pub(crate) fn sets_cookie(&self) -> bool {
        self.marks & SETS_COOKIE != 0
    }

    /// Returns whether the response has `immutable`, so that it never changes while it is fresh.
    pub fn is_immutable(&self) -> bool {
        self.marks & IMMUTABLE != 0
    }

    /// Returns whether the response must not be used stale only because its request had credentials, not because of a
    /// directive.
    pub fn is_personal(&self) -> bool {
        self.marks & PERSONAL != 0
    }

    /// Returns whether the response's lifetime was ended early, as by a soft purge.
    pub fn is_ended(&self) -> bool {
        self.marks & ENDED != 0
    }

    /// Returns the age of the response on arrival, in milliseconds.
    pub fn corrected_initial_age_ms(&self) -> u64 {
        self.corrected_initial_age.ms()
    }

    /// Returns the facts for a request that has waited `waited_ms` for the response of another request's fetch.
    /// `corrected_initial_age` includes the whole delay of that fetch. A waiting request accepts any response that is
    /// generated while it waits, so its wait is subtracted from the age on arrival.
    #[must_use]
    pub fn awaited(&self, waited_ms: u64) -> Self {
        let age_ms = self.corrected_initial_age_ms().saturating_sub(waited_ms);
        Self { corrected_initial_age: Span::from_ms(age_ms), ..*self }
    }

    /// Returns the age at which the response stops being fresh, in milliseconds.
    pub fn freshness_lifetime_ms(&self) -> u64 {
        self.freshness_lifetime.ms()
    }

    /// Returns `stale-while-revalidate` in milliseconds, if the response has it.
    pub fn stale_while_revalidate_ms(&self) -> Option<u64> {
        self.stale_while_revalidate.ms()
    }

    /// Returns `stale-if-error` in milliseconds, if the response has it.
    pub fn stale_if_error_ms(&self) -> Option<u64> {
        self.stale_if_error.ms()
    }

    /// Returns how many milliseconds after its lifetime the response is worth keeping: as long as it may be used stale,
    /// and at least a day, for validation.
    pub fn useful_when_stale_ms(&self) -> u64 {
        self.useful_when_stale.ms()
    }

    /// Returns `current_age` in milliseconds. A clock that was set back slightly counts as no time passed.
    //= RFC 9111 section 4.2.3: current age
    pub fn current_age_ms(&self, now: Timestamp) -> u64 {
        let resident_ms = now.ms_since(self.response_time);
        if resident_ms < -CLOCK_BACK_MS_MAX {
            return self.age_unknown_ms(resident_ms.unsigned_abs());
        }
        //= RFC 9111 section 5.3: far expiration times do not overflow
        self.corrected_initial_age_ms().saturating_add(resident_ms.max(0).unsigned_abs())
    }

    /// Returns the age of a response that arrived in the future. The time at which the clock was set back is unknown,
    /// so the response counts as stale, and its age grows by at least the difference.
    #[cold]
    fn age_unknown_ms(&self, back_ms: u64) -> u64 {
        self.corrected_initial_age_ms().saturating_add(back_ms).max(self.freshness_lifetime_ms())
    }

    /// Returns the remaining lifetime in milliseconds; zero or negative when stale.
    pub fn ttl_ms(&self, now: Timestamp) -> i64 {
        let clamp = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        clamp(self.freshness_lifetime_ms()).saturating_sub(clamp(self.current_age_ms(now)))
    }

    /// Returns the value of `ttl` in `Cache-Status`: seconds, rounded down.
    pub fn ttl_s(&self, now: Timestamp) -> i64 {
        self.ttl_ms(now).div_euclid(1000)
    }

    /// Returns the value of `Age`: seconds, rounded down.
    pub fn age_s(&self, now: Timestamp) -> u64 {
        self.current_age_ms(now) / 1000
    }

    /// Returns whether the response is fresh.
    //= RFC 9111 section 4.2: fresh while the lifetime is greater than the age
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        self.ttl_ms(now) > 0
    }

    /// Returns the time for which it has been stale, in milliseconds; 0 while it is fresh.
    //= RFC 9111 section 4.2.4: what is stale
    pub fn staleness_ms(&self, now: Timestamp) -> u64 {
        self.current_age_ms(now).saturating_sub(self.freshness_lifetime_ms())
    }

    /// Returns the facts with the lifetime ended at `now`, as by a soft purge.
    #[must_use]
    pub fn expired(mut self, now: Timestamp) -> Self {
        let age_ms = self.current_age_ms(now);
        if age_ms < self.freshness_lifetime_ms() {
            self.freshness_lifetime = Span::from_ms(age_ms);
            self.marks |= ENDED;
        }
        self
    }
}

/// Maximum clock correction, in milliseconds, that makes no response stale: responses stay fresh for that much longer.
const CLOCK_BACK_MS_MAX: i64 = 10_000;

/// Milliseconds in 48 bits, which is 8,900 years; longer spans are clamped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span([u8; 6]);

impl Span {
    const MS_MAX: u64 = (1 << 48) - 1;

    fn from_ms(ms: u64) -> Self {
        let [a, b, c, d, e, f, ..] = ms.min(Self::MS_MAX).to_le_bytes();
        Self([a, b, c, d, e, f])
    }

    fn ms(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }
}

/// Seconds of a directive, if present. Unaligned, to avoid padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window([u8; 4]);

impl Window {
    /// Greater than any parsed [`DeltaSeconds`].
    const ABSENT: DeltaSeconds = DeltaSeconds::MAX;

    fn new(seconds: Option<DeltaSeconds>) -> Self {
        debug_assert!(seconds.is_none_or(|seconds| seconds <= DELTA_SECONDS_MAX));
        Self(seconds.unwrap_or(Self::ABSENT).to_le_bytes())
    }

    fn ms(self) -> Option<u64> {
        let seconds = DeltaSeconds::from_le_bytes(self.0);
        (seconds != Self::ABSENT).then(|| u64::from(seconds) * 1000)
    }
}

fn mark(is_set: bool, mark: u8) -> u8 {
    if is_set { mark } else { 0 }
}

/// Returns `corrected_initial_age`, the age of a response on arrival, in milliseconds.
//= RFC 9111 section 4.2.3: corrected initial age
fn corrected_initial_age_ms(response: &ResponseFacts) -> u64 {
    // `Date` has whole seconds, so the arrival is rounded down as well: its milliseconds would make every response up
    // to a second older than it is.
    //= RFC 9111 section 4.2.3: apparent age is never negative
    let apparent_age_s = response
        .times
        .arrival_by_others()
        .whole_seconds()
        .saturating_sub(response.date.whole_seconds())
        .max(0);
    //= RFC 9111 section 4.2.3: the delay counts from the request
    let response_delay_ms = response.times.response.ms_since(response.times.request).max(0);
    //= RFC 9111 section 4.2.3: age_value
    let corrected_age_ms = u64::from(response.age_s.unwrap_or(0)) * 1000 + response_delay_ms.unsigned_abs();
    apparent_age_s.unsigned_abs().saturating_mul(1000).max(corrected_age_ms)
}

/// Returns the lifetime including the initial age. A lifetime from the operator begins on arrival: otherwise an `Age`
/// from upstream or a wrong clock could end it before the response arrives. The age of the response includes its
/// initial age, so the lifetime is extended by it. RFC 9111 leaves the choice of a lifetime to the cache if the origin
/// states none.
fn lifetime_ms(lifetime: Lifetime, initial_age_ms: u64) -> u64 {
    match lifetime.source {
        LifetimeSource::Override | LifetimeSource::Default => lifetime.ms.saturating_add(initial_age_ms),
        LifetimeSource::SMaxage
        | LifetimeSource::MaxAge
        | LifetimeSource::Expires
        | LifetimeSource::Heuristic
        | LifetimeSource::Nothing => lifetime.ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ExchangeTimes;

    #[test]
    fn the_facts_stay_small() {
        assert_eq!(size_of::<StoredFacts>(), 48);
    }

    /// The gateway's clock is half a minute ahead, and the gateway knows this offset.
    #[test]
    fn what_is_dated_by_others_is_no_older_by_a_clock_that_is_ahead() {
        let now = Timestamp::from_ms(1_030_500);
        let lines: &[crate::FieldLine<'_>] =
            &[("date", b"Thu, 01 Jan 1970 00:16:39 GMT"), ("cache-control", b"max-age=20")];
        for (lines, clock_ahead_ms, expected) in
            [(lines, 0, 31_000), (lines, -30_000, 1_000), (lines, 30_000, 61_000), (&lines[1..], -30_000, 0)]
        {
            let times = ExchangeTimes { request: now, response: now, clock_ahead_ms };
            let rules = Rules::default();
            let response = ResponseFacts::parse(200, lines, times, &rules);
            let stored = StoredFacts::new(&RequestFacts::parse("GET", &[]), &response, &rules);
            assert_eq!(stored.current_age_ms(now), expected, "{clock_ahead_ms}");
        }
    }

    /// The clock may have been set back: a response that arrived hours in the future would be fresh for hours too long.
    #[test]
    fn what_arrived_in_the_future_is_stale() {
        let response_time = Timestamp::from_ms(1_000_000_000);
        let times = ExchangeTimes { request: response_time, response: response_time, clock_ahead_ms: 0 };
        let check = |max_age: &'static [u8], after_ms: i64, age_ms: u64, is_fresh: bool| {
            let rules = Rules::default();
            let response = ResponseFacts::parse(200, &[("cache-control", max_age)], times, &rules);
            let stored = StoredFacts::new(&RequestFacts::parse("GET", &[]), &response, &rules);
            let now = response_time.plus_ms(after_ms);
            assert_eq!((stored.current_age_ms(now), stored.is_fresh(now)), (age_ms, is_fresh), "{after_ms}");
        };
        check(b"max-age=60", 59_999, 59_999, true);
        check(b"max-age=60", -10_000, 0, true);
        check(b"max-age=60", -10_001, 60_000, false);
        check(b"max-age=60", -7_200_000, 7_200_000, false);
        check(b"max-age=86400", -7_200_000, 86_400_000, false);
    }

    #[test]
    fn spans_and_windows_keep_what_they_are_given() {
        for ms in [0, 1, 999, 1 << 31, Span::MS_MAX] {
            assert_eq!(Span::from_ms(ms).ms(), ms);
        }
        assert_eq!(Span::from_ms(u64::MAX).ms(), Span::MS_MAX);
        for seconds in [None, Some(0), Some(60), Some(DELTA_SECONDS_MAX)] {
            assert_eq!(Window::new(seconds).ms(), seconds.map(|seconds| u64::from(seconds) * 1000));
        }
    }
}
