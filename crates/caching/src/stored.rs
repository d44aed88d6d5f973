//! What is kept with a stored response for the decisions about its reuse.

use crate::directives::DELTA_SECONDS_MAX;
use crate::opened::Opener;
use crate::{
    DeltaSeconds, Lifetime, LifetimeSource, RequestFacts, ResponseFacts, Rules, Timestamp, freshness, opened,
};

/// The facts about a stored response. Small and `Copy`; nothing here grows with the header section. There is one of
/// these for each stored response, so what can be said in less than 64 bits is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredFacts {
    /// When it arrived, or was last freshened.
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
    /// Who set the freshness lifetime.
    pub lifetime_source: LifetimeSource,
    /// Never to be used stale: `must-revalidate`, `proxy-revalidate` or `s-maxage`.
    pub must_revalidate: bool,
    /// Never to be used without validation: `no-cache`.
    pub no_cache: bool,
    marks: u8,
}

/// It has `ETag` or `Last-Modified`.
const HAS_VALIDATOR: u8 = 1;
/// The origin server said that it may be shared.
const OPENED: u8 = 2;
/// It says `immutable`.
const IMMUTABLE: u8 = 4;
/// The operator said that it may be shared, and the origin server did not.
const GRANTED: u8 = 8;
/// It was stored with `Set-Cookie`.
const SETS_COOKIE: u8 = 16;
/// No directive keeps it from stale use, but that it answers credentials and has no lifetime.
const PERSONAL: u8 = 32;
/// Its lifetime was ended before its time.
const ENDED: u8 = 64;

impl StoredFacts {
    /// The facts to keep of a response. Whether it may be kept is for [`crate::may_store`] to say; this
    /// one serves for a freshened response, which is kept already.
    pub fn new(request: &RequestFacts, response: &ResponseFacts, rules: &Rules) -> Self {
        let lifetime = freshness::lifetime(request, response, rules);
        let initial_age_ms = corrected_initial_age_ms(response);
        let directives = &response.directives;
        let stale_while_revalidate = Window::new(directives.stale_while_revalidate);
        let stale_if_error = Window::new(directives.stale_if_error);
        let opener = opened::opener(lifetime, response, rules);
        let has_directive =
            directives.must_revalidate || directives.proxy_revalidate || directives.s_maxage.is_some();
        // `public` lets it be stored; that it may be used as it is would have to be said by a lifetime.
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

    /// For the one request that it was made for, and no other: each has it validated.
    #[must_use]
    pub fn for_one_request(mut self) -> Self {
        self.no_cache = true;
        self
    }

    /// Whether it has `ETag` or `Last-Modified`, so that a validation can be tried.
    pub fn has_validator(&self) -> bool {
        self.marks & HAS_VALIDATOR != 0
    }

    /// Whether somebody said that it may be shared: `public`, or a lifetime ([`crate::sharing::may_share`]).
    pub fn is_shareable(&self) -> bool {
        self.opener().is_some()
    }

    /// Who said that.
    pub(crate) fn opener(&self) -> Option<Opener> {
        if self.marks & OPENED != 0 {
            return Some(Opener::Origin);
        }
        (self.marks & GRANTED != 0).then_some(Opener::Operator)
    }

    /// Whether no rules keep it from anybody: the origin server said that it may be shared, and it sets no cookie.
    pub(crate) fn is_for_all(&self) -> bool {
        self.marks & (OPENED | SETS_COOKIE) == OPENED
    }

    /// Whether it was stored with `Set-Cookie`, as the operator permitted.
    pub(crate) fn sets_cookie(&self) -> bool {
        self.marks & SETS_COOKIE != 0
    }

    /// Whether it says that it never changes while it is fresh: `immutable`.
    pub fn is_immutable(&self) -> bool {
        self.marks & IMMUTABLE != 0
    }

    /// Whether it is never used stale because of credentials alone, and no directive says so.
    pub fn is_personal(&self) -> bool {
        self.marks & PERSONAL != 0
    }

    /// Whether its lifetime has ended before its time, as a soft purge wants it.
    pub fn is_ended(&self) -> bool {
        self.marks & ENDED != 0
    }

    /// Its age when it arrived, in milliseconds.
    pub fn corrected_initial_age_ms(&self) -> u64 {
        self.corrected_initial_age.ms()
    }

    /// As a request judges it that has waited so long for its arrival. Age counts the whole delay of the request that brought it; what another one
    /// has waited is the delay of its own, after which it would have taken any response. How old it was when that one came is left.
    #[must_use]
    pub fn awaited(&self, waited_ms: u64) -> Self {
        let age_ms = self.corrected_initial_age_ms().saturating_sub(waited_ms);
        Self { corrected_initial_age: Span::from_ms(age_ms), ..*self }
    }

    /// The age at which it stops being fresh, in milliseconds.
    pub fn freshness_lifetime_ms(&self) -> u64 {
        self.freshness_lifetime.ms()
    }

    /// `stale-while-revalidate` in milliseconds, where the response has it.
    pub fn stale_while_revalidate_ms(&self) -> Option<u64> {
        self.stale_while_revalidate.ms()
    }

    /// `stale-if-error` in milliseconds, where the response has it.
    pub fn stale_if_error_ms(&self) -> Option<u64> {
        self.stale_if_error.ms()
    }

    /// How long past its freshness it is worth its place, in milliseconds: at least a day, for validation, and as long
    /// as it may be used stale.
    pub fn useful_when_stale_ms(&self) -> u64 {
        self.useful_when_stale.ms()
    }

    /// `current_age` in milliseconds. A clock that went back a little adds nothing.
    //= RFC 9111 section 4.2.3: current age
    pub fn current_age_ms(&self, now: Timestamp) -> u64 {
        let resident_ms = now.ms_since(self.response_time);
        if resident_ms < -CLOCK_BACK_MS_MAX {
            return self.age_unknown_ms(resident_ms.unsigned_abs());
        }
        //= RFC 9111 section 5.3: far expiration times do not overflow
        self.corrected_initial_age_ms().saturating_add(resident_ms.max(0).unsigned_abs())
    }

    /// The age of a response that arrived in the future. Nobody knows how long ago the clock was set back, so that it counts as stale, and as
    /// old as the clock was set back at least.
    #[cold]
    fn age_unknown_ms(&self, back_ms: u64) -> u64 {
        self.corrected_initial_age_ms().saturating_add(back_ms).max(self.freshness_lifetime_ms())
    }

    /// What is left of the lifetime in milliseconds; zero or negative when stale.
    pub fn ttl_ms(&self, now: Timestamp) -> i64 {
        let clamp = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        clamp(self.freshness_lifetime_ms()).saturating_sub(clamp(self.current_age_ms(now)))
    }

    /// What `Cache-Status` shows as `ttl`: seconds, rounded down.
    pub fn ttl_s(&self, now: Timestamp) -> i64 {
        self.ttl_ms(now).div_euclid(1000)
    }

    /// What `Age` shows: seconds, rounded down.
    pub fn age_s(&self, now: Timestamp) -> u64 {
        self.current_age_ms(now) / 1000
    }

    /// Whether it is fresh.
    //= RFC 9111 section 4.2: fresh while the lifetime is greater than the age
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        self.ttl_ms(now) > 0
    }

    /// How long it has been stale, in milliseconds; 0 while it is fresh.
    //= RFC 9111 section 4.2.4: what is stale
    pub fn staleness_ms(&self, now: Timestamp) -> u64 {
        self.current_age_ms(now).saturating_sub(self.freshness_lifetime_ms())
    }

    /// The same response, stale from `now` on, as a soft purge wants it.
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

/// A clock that is corrected by so little makes no response stale; they are fresh for as much longer.
const CLOCK_BACK_MS_MAX: i64 = 10_000;

/// Milliseconds in 48 bits. That is 8,900 years, and longer spans count as that.
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

/// Seconds that a directive names, if it is there. At any alignment, to leave no gap in front of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window([u8; 4]);

impl Window {
    /// More than any [`DeltaSeconds`] that was parsed.
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

/// How old a response was when it arrived: `corrected_initial_age` in milliseconds.
//= RFC 9111 section 4.2.3: corrected initial age
fn corrected_initial_age_ms(response: &ResponseFacts) -> u64 {
    // Date has whole seconds, so the arrival is rounded down to the same: its milliseconds would make
    // every response up to a second older than it is.
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

/// What the operator grants runs from the arrival: the origin server does not know of it, and an `Age`
/// from further up or a clock that is wrong would use it up before it began. The age counts all the same, so the lifetime is longer by it:
/// how long one is that no origin has stated, is left to caches.
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

    /// A gateway whose clock is half a minute ahead, and knows it.
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

    /// It may have been set back: what arrived hours from now was fresh for hours too long.
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
