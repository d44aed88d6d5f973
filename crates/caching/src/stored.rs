//! What is kept with a stored response for the decisions about its reuse.

use crate::{
    DeltaSeconds, Lifetime, LifetimeSource, RequestFacts, ResponseFacts, Rules, Timestamp, age, freshness,
};

/// The facts about a stored response. Small and `Copy`; nothing here grows with the header section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredFacts {
    /// The status code.
    pub status: u16,
    /// When it arrived, or was last freshened.
    pub response_time: Timestamp,
    /// `Date`, or the time of arrival.
    pub date: Timestamp,
    /// Its age when it arrived, in milliseconds.
    pub corrected_initial_age_ms: u64,
    /// The age at which it stops being fresh, in milliseconds.
    pub freshness_lifetime_ms: u64,
    /// Who said so.
    pub lifetime_source: LifetimeSource,
    /// `stale-while-revalidate` in milliseconds, where the response has it.
    pub stale_while_revalidate_ms: Option<u64>,
    /// `stale-if-error` in milliseconds, where the response has it.
    pub stale_if_error_ms: Option<u64>,
    /// How long past its freshness it is worth its place, in milliseconds: at least a day, for validation, and as long
    /// as it may be used stale.
    pub useful_when_stale_ms: u64,
    /// Never to be used stale: `must-revalidate`, `proxy-revalidate` or `s-maxage`.
    pub must_revalidate: bool,
    /// Never to be used without validation: `no-cache`.
    pub no_cache: bool,
    /// Whether it has `ETag` or `Last-Modified`, so that a validation can be tried.
    pub has_validator: bool,
}

impl StoredFacts {
    /// The facts to keep of a response. Whether it may be kept is for [`crate::may_store`] to say; this
    /// one serves for a freshened response, which is kept already.
    pub fn new(request: &RequestFacts, response: &ResponseFacts, rules: &Rules) -> Self {
        let lifetime = freshness::lifetime(request, response, rules);
        let initial_age_ms = age::corrected_initial_age_ms(response);
        let directives = &response.directives;
        let window_ms = |seconds: Option<DeltaSeconds>| seconds.map(|seconds| u64::from(seconds) * 1000);
        let stale_while_revalidate_ms = window_ms(directives.stale_while_revalidate);
        let stale_if_error_ms = window_ms(directives.stale_if_error);
        Self {
            status: response.status,
            response_time: response.times.response,
            date: response.date,
            corrected_initial_age_ms: initial_age_ms,
            freshness_lifetime_ms: lifetime_ms(lifetime, initial_age_ms),
            lifetime_source: lifetime.source,
            stale_while_revalidate_ms,
            stale_if_error_ms,
            useful_when_stale_ms: rules.useful_when_stale_ms(stale_while_revalidate_ms, stale_if_error_ms),
            //= RFC 9111 section 5.2.2.10: s-maxage includes proxy-revalidate
            //= RFC 9111 section 5.2.2.2: must-revalidate
            //= RFC 9111 section 5.2.2.2: must-revalidate is never ignored
            //= RFC 9111 section 5.2.2.8: proxy-revalidate
            must_revalidate: directives.must_revalidate
                || directives.proxy_revalidate
                || directives.s_maxage.is_some(),
            //= RFC 8246 section 2: a stale response is validated as without
            no_cache: response.must_always_validate(),
            has_validator: response.has_validator(),
        }
    }

    /// `current_age` in milliseconds. A clock that went back adds nothing.
    //= RFC 9111 section 4.2.3: current age
    pub fn current_age_ms(&self, now: Timestamp) -> u64 {
        let resident_ms = now.ms_since(self.response_time).max(0).unsigned_abs();
        //= RFC 9111 section 5.3: far expiration times do not overflow
        self.corrected_initial_age_ms.saturating_add(resident_ms)
    }

    /// What is left of the lifetime in milliseconds; zero or negative when stale.
    pub fn ttl_ms(&self, now: Timestamp) -> i64 {
        let clamp = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        clamp(self.freshness_lifetime_ms).saturating_sub(clamp(self.current_age_ms(now)))
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
        self.current_age_ms(now).saturating_sub(self.freshness_lifetime_ms)
    }

    /// The same response, stale from `now` on, as a soft purge wants it.
    #[must_use]
    pub fn expired(mut self, now: Timestamp) -> Self {
        self.freshness_lifetime_ms = self.freshness_lifetime_ms.min(self.current_age_ms(now));
        self
    }
}

/// What the operator grants runs from the arrival: the origin server does not know of it, and an `Age`
/// from further up or a clock that is wrong would use it up before it began.
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

    #[test]
    fn the_facts_stay_small() {
        assert!(size_of::<StoredFacts>() <= 96, "{}", size_of::<StoredFacts>());
    }
}
