//! Admission: applies denials and limits before the look-up, and limits on forwards before the request is forwarded.

use caching::explain::{Finding, seconds};
use message::client::named_address_of;
use message::explain_record::note;
use message::fields::PackedFields;
use telemetry::RuleId;

use crate::config::{CountedRequests, Enforcement, QuotaFields};
use crate::protection::rate::Verdict;
use crate::protection::{Limiter, whole_seconds};
use crate::request::context::RequestContext;
use crate::request::reply::Reply;
use crate::request::respond::Problem;

impl RequestContext<'_> {
    /// Admits a request to a site with limits, before the look-up. Returns the rate limit fields for the response.
    ///
    /// # Errors
    /// Returns the refusal, if a rule denies the request or the client exceeds its rate limit.
    pub(crate) fn admit_request(&self) -> Result<PackedFields, Box<Reply>> {
        self.admit_by_rule()?;
        self.admit(CountedRequests::All)
    }

    /// # Errors
    /// Returns the refusal, if a rule denies the path in one of its possible interpretations.
    fn admit_by_rule(&self) -> Result<(), Box<Reply>> {
        let denying = self.site.limiting_rules(self.matched).find(|rule| rule.protection.is_denied);
        let Some(rule) = denying else { return Ok(()) };
        note(self.request.record, || {
            Finding::new("deny", "refused: the rule has `deny = true`", "RFC 9110 section 15.5.4").with(
                "rule",
                rule.name.as_str(),
                "",
            )
        });
        Err(self.refused(&Problem::new(403, "rule-denied", "a rule of this site refuses the request")))
    }

    /// Permits forwarding a request that no stored response answers.
    ///
    /// # Errors
    /// Returns the refusal, if the client exceeds its rate limit.
    pub(crate) fn admit_forward(&self, quota: &mut PackedFields) -> Result<(), Box<Reply>> {
        let more = self.admit(CountedRequests::Forwarded)?;
        more.lines().for_each(|(name, member)| quota.append_to_list(name, &[member]));
        Ok(())
    }

    /// Counts the request for the limits that apply to it, and returns the rate limit fields for the response.
    ///
    /// # Errors
    /// Returns the refusal, if the request exceeds a limit. The request still counts for the limits that were checked
    /// before.
    fn admit(&self, counted: CountedRequests) -> Result<PackedFields, Box<Reply>> {
        let mut told = PackedFields::default();
        if !self.site.limiters(self.matched).any(|(_, limiter)| limiter.limit.count == counted) {
            return Ok(told);
        }
        let Some(client) = named_address_of(self.request, &self.live.config.trusted_proxies) else {
            return Ok(told);
        };
        for (rule, limiter) in self.site.limiters(self.matched) {
            let Some(verdict) = limiter.count(counted, client, self.started) else { continue };
            self.note_limit(limiter, verdict);
            if let Verdict::Refused { retry_after_ns } = verdict {
                self.count_limited(rule, limiter);
                if limiter.limit.enforcement == Enforcement::Refuse {
                    return Err(self.refusal(limiter, verdict, whole_seconds(retry_after_ns)));
                }
            }
            if limiter.limit.fields == QuotaFields::Always {
                tell(limiter, verdict, &mut told);
            }
        }
        Ok(told)
    }

    /// Checks the declared length of the content, before any of it is read.
    ///
    /// # Errors
    /// Returns the refusal, if the length exceeds the limit of the rule or the global limit.
    pub(crate) fn admit_content(&self, bytes: u64) -> Result<(), Box<Reply>> {
        let of_rule = self.site.request_body_bytes_max(self.matched);
        let bytes_max = of_rule.unwrap_or(u64::MAX).min(self.live.config.limits.body_bytes_max);
        if bytes <= bytes_max {
            return Ok(());
        }
        let problem = Problem::request_body_too_large(bytes_max);
        self.worker.recorder.client_error(problem.reason);
        Err(self.refused(&problem))
    }

    fn refused(&self, problem: &Problem) -> Box<Reply> {
        let mut reply = self.at.reply(problem);
        reply.account.rule = self.site.rule_metrics(self.matched);
        Box::new(reply)
    }

    //= RFC 6585 section 4: 429 for too many requests
    //= RFC 6585 section 4: 429 with Retry-After
    fn refusal(&self, limiter: &Limiter, verdict: Verdict, retry_after_s: u64) -> Box<Reply> {
        let mut reply =
            self.refused(&Problem::new(429, "rate-limited", "this client exceeds its rate limit"));
        reply.extra.push("retry-after", retry_after_s.to_string().as_bytes());
        tell(limiter, verdict, &mut reply.extra);
        reply
    }

    /// Counts the verdict for the rule that has the limit. If a path has several interpretations, the request itself may
    /// belong to a different rule.
    fn count_limited(&self, rule: RuleId, limiter: &Limiter) {
        let outcome = match limiter.limit.enforcement {
            Enforcement::DryRun => "dry_run",
            Enforcement::Refuse => "refused",
        };
        self.worker.recorder.rate_limited(self.site.metrics, rule, outcome);
    }

    fn note_limit(&self, limiter: &Limiter, verdict: Verdict) {
        note(self.request.record, || {
            let rate = limiter.limit.rate;
            let (says, name, value) = match (verdict, limiter.limit.enforcement) {
                (Verdict::Admitted(quota), _) => {
                    ("within the rate limit of the client", "left", quota.remaining.to_string())
                }
                (Verdict::Refused { retry_after_ns }, enforcement) => {
                    let says = match enforcement {
                        Enforcement::DryRun => "beyond the rate limit of the client; `dry_run` lets it pass",
                        Enforcement::Refuse => "beyond the rate limit of the client: refused",
                    };
                    (says, "admitted after", seconds(retry_after_ns / 1_000_000))
                }
            };
            let limit = format!("{} requests in {} s", rate.requests, rate.window.as_secs());
            Finding::new("limit", says, "RFC 6585 section 4")
                .with("policy", limiter.policy.as_str(), "")
                .with("limit", limit, "")
                .with("burst", rate.burst.to_string(), "")
                .with(name, value, "")
        });
    }
}

/// Adds the quota of a limit to fields that several limits share.
fn tell(limiter: &Limiter, verdict: Verdict, fields: &mut PackedFields) {
    for (name, member) in limiter.fields(verdict) {
        fields.append_to_list(name, &[member.as_bytes()]);
    }
}
