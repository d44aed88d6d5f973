//! Protection of a site: limits on the requests of each client and on forwards, with the counts for these limits.
//!
//! [`rate`] decides, [`clients`] keeps the counts, and [`crate::request::steps::admit`] answers requests.

pub(crate) mod clients;
pub(crate) mod rate;

use std::net::IpAddr;
use std::sync::Arc;

use message::client::is_within;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::config::{CacheRule, CountedRequests, Rate, RateLimit, SITE_POLICY, Site};
use crate::protection::clients::Clients;
use crate::protection::rate::{Nanoseconds, Verdict, nanoseconds};

/// Limits that protect a site.
pub(crate) struct Protection {
    site: Option<Limiter>,
    /// Limits of the rules, in the order of the rules.
    rules: Vec<Option<Limiter>>,
    /// Limit of each rule on the forwards for all clients together, in the order of the rules.
    budgets: Vec<Option<Budget>>,
    /// Names that identify the counts of the rules across reloads, in the order of the rules.
    counted_as: Vec<String>,
}

/// Limit for each client, with the counts of requests.
pub(crate) struct Limiter {
    /// Name of the policy, for clients.
    pub(crate) policy: String,
    pub(crate) limit: RateLimit,
    clients: Arc<Clients>,
}

impl Protection {
    /// Creates the limits of a site; `None` if it has none.
    pub(crate) fn new(site: &Site, rules: &[CacheRule]) -> Option<Self> {
        let of_rule = |rule: &CacheRule| Some(Limiter::new(&rule.name, rule.protection.rate_limit.as_ref()?));
        let protection = Self {
            site: site.protection.rate_limit.as_ref().map(|limit| Limiter::new(SITE_POLICY, limit)),
            rules: rules.iter().map(of_rule).collect(),
            budgets: rules.iter().map(|rule| rule.protection.miss_budget.map(Budget::new)).collect(),
            counted_as: rules.iter().map(|rule| rule.protection.counted_as.clone()).collect(),
        };
        let refuses =
            |rule: &CacheRule| rule.protection.is_denied || rule.protection.request_body_bytes_max.is_some();
        let has_budgets = protection.budgets.iter().any(Option::is_some);
        let has_any = rules.iter().any(refuses) || has_budgets || protection.all().next().is_some();
        has_any.then_some(protection)
    }

    /// Takes over the counts of unchanged limits, both of the site and of its rules.
    pub(crate) fn take_over(&mut self, before: &Self) {
        self.site.iter_mut().zip(&before.site).for_each(|(limiter, before)| limiter.take_over(before));
        for (at, counted_as) in self.counted_as.iter().enumerate() {
            let Some(same) = before.counted_as.iter().position(|before| before == counted_as) else {
                continue;
            };
            if let (Some(limiter), Some(before)) = (&mut self.rules[at], &before.rules[same]) {
                limiter.take_over(before);
            }
            if let (Some(budget), Some(before)) = (&mut self.budgets[at], &before.budgets[same]) {
                budget.take_over(before);
            }
        }
    }

    /// Returns the limits on requests: the limit of the site, which has no rule, and the limits of these rules, each
    /// with its rule.
    pub(crate) fn limiters(
        &self,
        rules: impl Iterator<Item = usize>,
    ) -> impl Iterator<Item = (Option<usize>, &Limiter)> {
        let of_rule = |rule: usize| Some((Some(rule), self.rules.get(rule)?.as_ref()?));
        self.site.iter().map(|limiter| (None, limiter)).chain(rules.filter_map(of_rule))
    }

    /// Returns the limit on the forwards of a rule.
    pub(crate) fn budget(&self, rule: usize) -> Option<&Budget> {
        self.budgets.get(rule)?.as_ref()
    }

    fn all(&self) -> impl Iterator<Item = &Limiter> {
        self.site.iter().chain(self.rules.iter().flatten())
    }
}

impl Limiter {
    fn new(policy: &str, limit: &RateLimit) -> Self {
        let clients = Arc::new(Clients::new(limit.clients_max));
        Self { policy: policy.to_owned(), limit: limit.clone(), clients }
    }

    fn take_over(&mut self, before: &Self) {
        if self.limit.counts_like(&before.limit) {
            self.clients = Arc::clone(&before.clients);
        }
    }

    /// Counts a request if this limit applies to it. Returns `None` if the limit doesn't apply, for example to an
    /// exempt client.
    pub(crate) fn count(&self, counted: CountedRequests, client: IpAddr, now: Instant) -> Option<Verdict> {
        let is_for = self.limit.count == counted && !is_within(&self.limit.exempt, client);
        is_for.then(|| self.clients.count(&self.limit, client, now))
    }

    /// Returns members for the fields `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-10).
    pub(crate) fn fields(&self, verdict: Verdict) -> [(&'static str, String); 2] {
        let Self { policy, limit, .. } = self;
        let (remaining, after_ns) = match verdict {
            Verdict::Admitted(quota) => (quota.remaining, quota.full_after_ns),
            Verdict::Refused { retry_after_ns } => (0, retry_after_ns),
        };
        let (requests, window_s) = (limit.rate.requests, limit.rate.window.as_secs());
        [
            ("ratelimit-policy", format!("\"{policy}\";q={requests};w={window_s}")),
            ("ratelimit", format!("\"{policy}\";r={remaining};t={}", whole_seconds(after_ns))),
        ]
    }
}

/// A rate that all requests of a rule share.
pub(crate) struct Budget {
    rate: Rate,
    spent: Arc<Spent>,
}

/// Time at which the forwards so far would end if they were evenly spaced.
struct Spent {
    expected: Mutex<Nanoseconds>,
    begun: Instant,
}

impl Budget {
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate, spent: Arc::new(Spent { expected: Mutex::default(), begun: Instant::now() }) }
    }

    /// Takes over the count of forwards if the rate is unchanged.
    pub(crate) fn take_over(&mut self, before: &Self) {
        if self.rate == before.rate {
            self.spent = Arc::clone(&before.spent);
        }
    }

    /// Counts a forward if the budget allows it.
    pub(crate) fn spend(&self, now: Instant) -> Verdict {
        let mut expected = self.spent.expected.lock();
        let now = nanoseconds(now.saturating_duration_since(self.spent.begun));
        let (verdict, next) = self.rate.decide(*expected, now);
        *expected = next;
        verdict
    }
}

/// Rounds up to whole seconds, so that a client that waits this long is admitted.
pub(crate) fn whole_seconds(time: Nanoseconds) -> u64 {
    time.div_ceil(1_000_000_000)
}
