//! Finds the site of a request, its cache rule and its cache key.

mod choice;
mod sites;
mod spelling;

use std::collections::BTreeSet;
use std::sync::Arc;

use caching::explain::Finding;
use caching::key::write_key;
use caching::{CacheKey, KeyParts, KeyRules, StoredCredentialed, Timestamp};
use message::explain_record::{Record, note};
use message::head::Scheme;
use origin::{OriginError, Upstream};
use telemetry::{OriginId, RuleId, SiteId, Telemetry, WorkerRecorder};
use tokio::time::Instant;

use self::choice::Chooser;
use crate::allowances::Allowances;
use crate::config::{CacheRule, PathSpelling, PathSpellings, Phase, PrefixHandling, Site, TransformRule};
use crate::pace::{BodyLimits, PaceLimits};
use crate::protection::rate::Verdict;
use crate::protection::{Limiter, Protection, whole_seconds};

pub(crate) use self::choice::{Routed, RuleMatch};
pub(crate) use self::sites::Routes;
pub use self::sites::route_of;
pub(crate) use self::spelling::{Readings, spelled_part};
pub(crate) use crate::urls::{host_of, strip_prefix};

/// A site with its runtime state.
pub(crate) struct LiveSite {
    pub(crate) config: Arc<Site>,
    /// Rules in the order of [`Chooser::all_rules`].
    rules: Vec<CacheRule>,
    chooser: Chooser,
    /// Metrics labels of the rules.
    rule_metrics: Vec<RuleId>,
    /// Limits on clients and forwards; `None` if the site has none.
    pub(crate) protection: Option<Box<Protection>>,
    /// Metrics labels of the transformation rules; `None` if the site changes nothing.
    transforms: Option<Box<LiveTransforms>>,
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) metrics: SiteId,
    pub(crate) origin_metrics: OriginId,
    pub(crate) warnings: Allowances,
}

/// Metrics labels of the transformation rules, by phase.
struct LiveTransforms {
    /// In the order of [`Phase`].
    metrics: [Vec<RuleId>; Phase::ALL.len()],
    /// Whether rules make responses depend on request fields.
    answers_by_fields: bool,
}

impl LiveTransforms {
    fn new(config: &Site, telemetry: &Telemetry) -> Option<Box<Self>> {
        let transforms = &config.transforms;
        let of = |phase| {
            let rules = transforms.of(phase).iter();
            rules.map(|rule| telemetry.register_rule(&rule.name)).collect::<Vec<_>>()
        };
        let metrics = Phase::ALL.map(of);
        let answers_by_fields = [Phase::ClientRequest, Phase::ClientResponse]
            .into_iter()
            .any(|phase| transforms.of(phase).iter().any(|rule| !rule.deciding_fields(phase).is_empty()));
        let has_any = metrics.iter().any(|labels| !labels.is_empty());
        let is_live = has_any || config.cors.is_some() || config.maintenance.is_some();
        is_live.then(|| Box::new(Self { metrics, answers_by_fields }))
    }
}

impl LiveSite {
    pub(crate) fn new(config: &Arc<Site>, upstream: Arc<Upstream>, telemetry: &Telemetry) -> Self {
        let chooser = Chooser::new(config);
        let rules = chooser.all_rules(config);
        Self {
            config: Arc::clone(config),
            rule_metrics: rules.iter().map(|rule| telemetry.register_rule(&rule.name)).collect(),
            protection: Protection::new(config, chooser.distinct(&rules)).map(Box::new),
            chooser,
            rules,
            transforms: LiveTransforms::new(config, telemetry),
            upstream,
            metrics: telemetry.register_site(&config.name),
            origin_metrics: telemetry.register_origin(&config.origin.name),
            warnings: Allowances::default(),
        }
    }

    /// Takes over state from the site that this one replaces: the counts of clients, and the time since which its definition of
    /// credentials is valid. If both sites have the same definition for all requests, this time is kept. Otherwise, the time of
    /// the reload replaces it.
    pub(crate) fn replacing(mut self, before: Option<&Self>, now: Timestamp) -> Self {
        let answer = credentials_of_all(&self.rules);
        let same = before.filter(|before| answer.is_some() && credentials_of_all(&before.rules) == answer);
        let judged_since = match same {
            Some(before) => before.rules[0].caching.judged_since,
            None => now,
        };
        self.rules.iter_mut().for_each(|rule| rule.caching.judged_since = judged_since);
        if let (Some(protection), Some(before)) = (&mut self.protection, before) {
            before.protection.iter().for_each(|before| protection.take_over(before));
        }
        self
    }

    /// Returns whether both sites assign the same keys to the same URLs.
    fn has_keys_of(&self, other: &Self) -> bool {
        let place = |site: &Self| {
            let config = &site.config;
            (config.name.clone(), config.hosts.clone(), config.path_prefix.clone(), config.spelling)
        };
        let rules = |site: &Self| {
            let of_rule = |rule: &CacheRule| {
                (rule.path.clone(), rule.spelling, rule.methods.clone(), rule.query.clone())
            };
            site.rules.iter().map(of_rule).collect::<Vec<_>>()
        };
        // Purges look for responses under rewritten paths only in sites that rewrite paths.
        let is_looked_for = self.config.transforms.write_paths() || !other.config.transforms.write_paths();
        place(self) == place(other) && rules(self) == rules(other) && is_looked_for
    }

    /// Returns the first matching rule, in file order, for a path as written.
    pub(crate) fn rule(&self, method: &str, path_and_query: &str) -> RuleMatch {
        self.rule_for(&Routed::plain(method, path_and_query))
    }

    /// Chooses the rule of a request.
    pub(crate) fn rule_for(&self, request: &Routed<'_>) -> RuleMatch {
        self.chooser.choose(&self.config, &self.rules, request)
    }

    /// Returns the ambiguous spellings in a path, if its rule doesn't allow them. The rule is that of the path as written.
    pub(crate) fn refused_spellings(
        &self,
        request: (&str, &str),
        readings: &Readings,
    ) -> Option<PathSpellings> {
        let rule = self.chooser.of_written(&self.rules, request);
        // After the prefix is removed, a path may begin with two slashes, too.
        let Site { prefix, path_prefix, .. } = &*self.config;
        let spellings = match prefix {
            PrefixHandling::Strip if strip_prefix(request.1, path_prefix).starts_with("//") => {
                readings.spellings.with(PathSpelling::Never)
            }
            PrefixHandling::Strip | PrefixHandling::Keep => readings.spellings,
        };
        (!rule.spellings_allowed.permit(spellings)).then_some(spellings)
    }

    pub(crate) fn rule_at(&self, index: RuleMatch) -> &CacheRule {
        &self.rules[index.place()]
    }

    /// Returns the rules whose limits apply: the rules of all readings of the path.
    pub(crate) fn limiting_rules(&self, index: RuleMatch) -> impl Iterator<Item = &CacheRule> {
        index.limiting().map(|rule| &self.rules[rule])
    }

    /// Returns the maximum content size that the site and its rules permit in a request.
    pub(crate) fn request_body_bytes_max(&self, index: RuleMatch) -> Option<u64> {
        self.limiting_rules(index).filter_map(|rule| rule.protection.request_body_bytes_max).min()
    }

    /// Returns the limits on the content of a request, each from the strictest of its rules. `limits` are the limits for all
    /// clients.
    pub(crate) fn body_limits(&self, index: RuleMatch, limits: BodyLimits) -> BodyLimits {
        let rules = || self.limiting_rules(index).map(|rule| &rule.protection);
        let stall_max = rules().map(|rule| rule.body_read_timeout.unwrap_or(limits.pace.stall_max)).min();
        let rate_min = rules().map(|rule| rule.body_rate_min.unwrap_or(limits.pace.rate_min)).max();
        BodyLimits {
            bytes_max: self
                .request_body_bytes_max(index)
                .map_or(limits.bytes_max, |max| max.min(limits.bytes_max)),
            pace: PaceLimits {
                stall_max: stall_max.unwrap_or(limits.pace.stall_max),
                rate_min: rate_min.unwrap_or(limits.pace.rate_min),
            },
            ..limits
        }
    }

    /// Returns the maximum content size that the rules permit in a response.
    pub(crate) fn response_body_bytes_max(&self, index: RuleMatch) -> Option<u64> {
        self.limiting_rules(index).filter_map(|rule| rule.protection.response_body_bytes_max).min()
    }

    /// Returns the rate limits of the rules, each with the metrics label of its rule.
    pub(crate) fn limiters(&self, rule: RuleMatch) -> impl Iterator<Item = (RuleId, &Limiter)> {
        let limiters =
            self.protection.iter().flat_map(move |protection| protection.limiters(rule.limiting()));
        limiters.map(|(rule, limiter)| (rule.map_or(RuleId::NONE, |place| self.rule_metrics[place]), limiter))
    }

    /// Takes one forward from the miss budget of a rule.
    ///
    /// # Errors
    /// [`OriginError::MissBudget`], if the budget is used up.
    pub(crate) fn spend(
        &self,
        rule: RuleMatch,
        recorder: &WorkerRecorder,
        record: Option<&Arc<Record>>,
    ) -> Result<(), OriginError> {
        let Some(protection) = &self.protection else { return Ok(()) };
        let mut budgets = rule.limiting().filter_map(|rule| Some((rule, protection.budget(rule)?)));
        let refused = budgets.find_map(|(rule, budget)| match budget.spend(Instant::now()) {
            Verdict::Refused { retry_after_ns } => Some((rule, retry_after_ns)),
            Verdict::Admitted(_) => None,
        });
        let Some((refusing, retry_after_ns)) = refused else { return Ok(()) };
        recorder.miss_refused(self.metrics, self.rule_metrics[refusing]);
        note(record, || Finding::new("limit", "the miss budget of the rule is used up: not forwarded", ""));
        Err(OriginError::MissBudget { retry_after_s: whole_seconds(retry_after_ns) })
    }

    /// Returns whether the site changes messages or answers requests itself.
    #[inline]
    pub(crate) fn has_transforms(&self) -> bool {
        self.transforms.is_some()
    }

    /// Returns the transformation rules of a phase. For a site without any, this costs one comparison.
    #[inline]
    pub(crate) fn transforms(&self, phase: Phase) -> &[TransformRule] {
        if self.transforms.is_some() { self.config.transforms.of(phase) } else { &[] }
    }

    /// Returns whether rules make responses depend on request fields.
    pub(crate) fn answers_by_fields(&self) -> bool {
        self.transforms.as_ref().is_some_and(|transforms| transforms.answers_by_fields)
    }

    /// Metrics label of a transformation rule.
    pub(crate) fn transform_metrics(&self, phase: Phase, place: usize) -> Option<RuleId> {
        self.transforms.as_ref()?.metrics[phase as usize].get(place).copied()
    }

    /// Metrics label of a rule.
    pub(crate) fn rule_metrics(&self, index: RuleMatch) -> RuleId {
        self.rule_metrics[index.place()]
    }
}

/// Returns the credential fields and the treatment of responses to requests with credentials, if all rules agree.
fn credentials_of_all(rules: &[CacheRule]) -> Option<(StoredCredentialed, BTreeSet<String>)> {
    let names = |rule: &CacheRule| {
        rule.caching.credential_fields.iter().map(|name| name.to_ascii_lowercase()).collect::<BTreeSet<_>>()
    };
    let mut answers = rules.iter().map(|rule| (rule.caching.credentialed, names(rule)));
    let first = answers.next()?;
    answers.all(|answer| answer == first).then_some(first)
}

/// Returns the spellings in a path in normal form that origins interpret in different ways.
pub fn path_spellings(path: &str) -> PathSpellings {
    spelling::readings(path).map(|readings| readings.spellings).unwrap_or_default()
}

/// Reason why the rules of a path are ambiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ambiguity<'a> {
    /// Origins interpret this part of the path in different ways because of these spellings, which its rule doesn't allow.
    Spelled(&'a str, PathSpellings),
    /// Origins may interpret the path as this path, which belongs to another site or to no site.
    OtherSite(&'a str),
}

/// Parts of a cache key except path and query.
#[derive(Clone, Copy)]
pub(crate) struct Keyed<'a> {
    pub(crate) site: &'a LiveSite,
    pub(crate) scheme: Scheme,
    pub(crate) authority: &'a str,
    /// Field lines that are part of the key.
    pub(crate) fields: &'a [u8],
}

/// Writes the cache key of a URL of a site.
//= RFC 9111 section 4: the target URIs match
pub(crate) fn write_site_key(keyed: &Keyed<'_>, path_and_query: &str, rules: &KeyRules, key: &mut Vec<u8>) {
    let extra = [keyed.fields];
    let extra = if keyed.fields.is_empty() { &[][..] } else { &extra };
    write_key(&KeyParts { extra, ..keyed.parts(path_and_query) }, rules, key);
}

impl<'a> Keyed<'a> {
    pub(crate) fn parts(&self, path_and_query: &'a str) -> KeyParts<'a> {
        let target = path_and_query.as_bytes();
        let (path, query) = match memchr::memchr(b'?', target) {
            Some(mark) => (&target[..mark], Some(&target[mark + 1..])),
            None => (target, None),
        };
        KeyParts {
            site: self.site.config.name.as_bytes(),
            scheme: self.scheme.as_str().as_bytes(),
            authority: self.authority.as_bytes(),
            path,
            query,
            method: "GET",
            extra: &[],
        }
    }
}

/// Returns the key of a URL that belongs to no site. No responses are stored under this key.
pub(crate) fn key_without_site(scheme: Scheme, authority: &str, path: &str) -> Vec<u8> {
    let parts = KeyParts {
        site: b"",
        scheme: scheme.as_str().as_bytes(),
        authority: authority.as_bytes(),
        path: path.as_bytes(),
        query: None,
        method: "GET",
        extra: &[],
    };
    CacheKey::new(&parts, &KeyRules::default()).as_bytes().to_vec()
}

/// Returns the key under which the response to a GET is stored.
pub(crate) fn key_of(site: &LiveSite, scheme: Scheme, authority: &str, path_and_query: &str) -> Vec<u8> {
    let mut key = Vec::new();
    let rule = site.rule_at(site.rule("GET", path_and_query));
    let plain = Keyed { site, scheme, authority, fields: &[] };
    write_site_key(&plain, path_and_query, &rule.query, &mut key);
    key
}
