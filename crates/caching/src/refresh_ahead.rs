//! Validations before the end of a lifetime, so that no request finds a hot response stale.
//!
//! The window is a share at the end of the time for which a response is fresh in this cache. To spread responses that were stored at the
//! same time, each waits for a part of the first half of the window. The part is a pseudo-random number from the key. The number is the
//! same at each look-up, so a frequently requested response is as likely to be late as any other. A draw at each request (XFetch: Vattani,
//! Chierichetti, Lowenstein, "Optimal Probabilistic Cache Stampede Prevention", 2015) makes the hottest responses due first, all at the
//! beginning of the window; its purpose, avoiding duplicate validations, is met by collapsing. "Timeouts, retries, and backoff with jitter"
//! (Amazon Builders' Library) spreads regular work in this way: always the same for the same host.

use crate::{RequestFacts, Reuse, Rules, StoredFacts, Timestamp};

/// Turns a fresh reuse into [`Reuse::RefreshAhead`] if a validation is due. `draw` is a hash of the response's key, evenly distributed over
/// all numbers.
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

/// Returns whether a validation is due. The window is a share of the time for which the response is fresh here, not of
/// its whole lifetime: otherwise a response that arrived with an age would be due immediately, and its successor too.
fn is_due(stored: &StoredFacts, rules: &Rules, now: Timestamp, draw: impl FnOnce() -> u16) -> bool {
    let fresh_ms = stored.freshness_lifetime_ms().saturating_sub(stored.corrected_initial_age_ms());
    let window_ms = u128::from(fresh_ms) * u128::from(rules.refresh_ahead_percent) / 100;
    let left_ms = u128::from(stored.ttl_ms(now).max(0).unsigned_abs());
    left_ms <= window_ms && left_ms <= window_ms - window_ms * u128::from(draw()) / (2 << 16)
}
