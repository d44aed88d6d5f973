//! Validations ahead of the end of a lifetime, so that no request finds a hot response stale.
//!
//! The window is the last share of the time for which a response is fresh here. What is stored at once is not due at once: each
//! response waits for a part of the first half of the window, which its key draws. Such a draw is the same at each look-up, so a
//! response that is asked for all the time is as likely to be late as any other. A draw at each request (XFetch: Vattani,
//! Chierichetti, Lowenstein, "Optimal Probabilistic Cache Stampede Prevention", 2015) makes what is hottest due first, all of
//! it at the beginning of the window; that no two validate the same thing, which it is for, the collapse of requests sees to.
//! "Timeouts, retries, and backoff with jitter" (Amazon Builders' Library) spreads regular work so: the same for the same host.

use crate::{RequestFacts, Reuse, Rules, StoredFacts, Timestamp};

/// What becomes of `decided`. `draw` is one for the key of the response, evenly spread over all numbers.
pub fn refresh_ahead(
    decided: Reuse,
    request: &RequestFacts,
    stored: &StoredFacts,
    rules: &Rules,
    now: Timestamp,
    draw: impl FnOnce() -> u16,
) -> Reuse {
    if rules.refresh_ahead_percent == 0 || decided != Reuse::Fresh {
        return decided;
    }
    //= RFC 9111 section 5.2.1.7: only-if-cached
    let keeps_away = request.directives.only_if_cached && rules.honour_request_directives;
    //= RFC 8246 section 2.1: no validation of a fresh response
    let is_due = !keeps_away && !stored.is_immutable() && is_due(stored, rules, now, draw);
    if is_due { Reuse::RefreshAhead } else { decided }
}

/// What had an age already when it came has a window of its own: it would be due at once, and so would what comes for it.
fn is_due(stored: &StoredFacts, rules: &Rules, now: Timestamp, draw: impl FnOnce() -> u16) -> bool {
    let fresh_ms = stored.freshness_lifetime_ms().saturating_sub(stored.corrected_initial_age_ms());
    let window_ms = u128::from(fresh_ms) * u128::from(rules.refresh_ahead_percent) / 100;
    let left_ms = u128::from(stored.ttl_ms(now).max(0).unsigned_abs());
    left_ms <= window_ms && left_ms <= window_ms - window_ms * u128::from(draw()) / (2 << 16)
}
