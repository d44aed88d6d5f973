//! Counters of one worker since the last scrape, and the totals that scrapes add up.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::declarations::Metric;
use crate::exposition::{Number, Sample};
use crate::histogram::{Buckets, Histogram};
use crate::labels::{CacheResult, Method, OriginId, OriginOutcome, RuleId, SiteId};

/// The facts about one answered request.
#[derive(Debug, Clone, Copy)]
pub struct RequestOutcome {
    /// The site that the request matched; [`SiteId::NONE`] if none.
    pub site: SiteId,
    /// The rule of the site that applied; [`RuleId::NONE`] if none was selected.
    pub rule: RuleId,
    /// The request method.
    pub method: Method,
    /// The status sent; values outside 100 to 999 count as 0.
    pub status: u16,
    /// The result of the cache.
    pub cache: CacheResult,
    /// Time from the complete request head until the kernel has accepted the last byte.
    pub duration_ns: u64,
    /// Body bytes sent, without framing.
    pub body_bytes_sent: u64,
    /// Body bytes received, without framing.
    pub body_bytes_received: u64,
}

/// The facts about one request to an origin, once the response head is complete or the request has failed.
#[derive(Debug, Clone, Copy)]
pub struct OriginAnswer {
    /// The origin.
    pub origin: OriginId,
    /// The method of the request to the origin.
    pub method: Method,
    /// The final status; `None` without a complete head.
    pub status: Option<u16>,
    /// Time from the first attempt to the complete head.
    pub duration_ns: u64,
}

const CACHE_RESULTS: usize = CacheResult::ALL.len();

/// A counter outside of the fast path: the metric, the origin (if it has such a label), and the value of its
/// other label (if it has one). Label values are `'static`, which bounds their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Event {
    pub(crate) metric: Metric,
    pub(crate) origin: OriginId,
    pub(crate) value: &'static str,
}

/// A counter with the labels site and rule, outside of the fast path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SiteEvent {
    pub(crate) metric: Metric,
    pub(crate) site: SiteId,
    pub(crate) rule: RuleId,
    pub(crate) value: &'static str,
}

/// Counters of one worker, or the totals of all.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    /// Keyed by `request_key`. A cleared table keeps its capacity, so that filling it again doesn't allocate.
    requests: HashMap<u64, Answers, FixedState>,
    /// Indexed by site.
    sites: Vec<SiteCells>,
    /// Indexed by origin.
    origins: Vec<Histogram>,
    /// Keyed by `origin_key`.
    origin_answers: HashMap<u64, Answers, FixedState>,
    /// Keyed by `transform_key`.
    transforms: HashMap<u32, u64, FixedState>,
    purges: Histogram,
    events: HashMap<Event, u64, FixedState>,
    site_events: HashMap<SiteEvent, u64, FixedState>,
}

/// The names of sites, rules and origins, indexed by the numbers in the tables.
pub(crate) struct Names<'a> {
    pub(crate) sites: &'a [String],
    pub(crate) rules: &'a [String],
    pub(crate) origins: &'a [String],
}

/// The counters of requests with the same labels.
#[derive(Debug, Clone, Copy, Default)]
struct Answers {
    count: u64,
    duration_ns: u64,
    body_bytes: u64,
}

#[derive(Debug, Clone, Default)]
struct SiteCells {
    received_bytes: u64,
    durations: [Histogram; CACHE_RESULTS],
}

impl Tables {
    pub(crate) fn request(&mut self, outcome: &RequestOutcome) {
        self.requests.entry(request_key(outcome)).or_default().add(&Answers {
            count: 1,
            duration_ns: outcome.duration_ns,
            body_bytes: outcome.body_bytes_sent,
        });
        let site = cell(&mut self.sites, outcome.site.0);
        site.received_bytes += outcome.body_bytes_received;
        site.durations[outcome.cache as usize].record(outcome.duration_ns);
    }

    pub(crate) fn origin_answer(&mut self, answer: &OriginAnswer) {
        let OriginAnswer { origin, duration_ns, .. } = *answer;
        cell(&mut self.origins, origin.0).record(duration_ns);
        let more = Answers { count: 1, duration_ns, body_bytes: 0 };
        self.origin_answers.entry(origin_key(answer)).or_default().add(&more);
    }

    pub(crate) fn transform(&mut self, site: SiteId, rule: RuleId) {
        *self.transforms.entry(transform_key(site, rule)).or_default() += 1;
    }

    pub(crate) fn purge_duration(&mut self, duration_ns: u64) {
        self.purges.record(duration_ns);
    }

    pub(crate) fn site_event(&mut self, event: SiteEvent) {
        *self.site_events.entry(event).or_default() += 1;
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.count(event, 1);
    }

    /// Adds `amount` to the counter of an event.
    pub(crate) fn count(&mut self, event: Event, amount: u64) {
        *self.events.entry(event).or_default() += amount;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (key, answers) in &other.requests {
            self.requests.entry(*key).or_default().add(answers);
        }
        for (key, answers) in &other.origin_answers {
            self.origin_answers.entry(*key).or_default().add(answers);
        }
        for (key, count) in &other.transforms {
            *self.transforms.entry(*key).or_default() += count;
        }
        self.purges.merge(&other.purges);
        for (event, count) in &other.events {
            *self.events.entry(*event).or_default() += count;
        }
        for (event, count) in &other.site_events {
            *self.site_events.entry(*event).or_default() += count;
        }
        for (index, theirs) in (0..).zip(&other.sites) {
            cell(&mut self.sites, index).merge(theirs);
        }
        for (index, theirs) in (0..).zip(&other.origins) {
            cell(&mut self.origins, index).merge(theirs);
        }
    }

    /// Sets all counters to zero, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.origin_answers.clear();
        self.transforms.clear();
        self.purges = Histogram::default();
        self.events.clear();
        self.site_events.clear();
        self.sites.fill(SiteCells::default());
        self.origins.fill(Histogram::default());
    }

    pub(crate) fn collect(&self, names: &Names<'_>, sample: &mut Sample) {
        for (key, answers) in &self.requests {
            collect_requests(*key, answers, names, sample);
        }
        for (event, count) in &self.events {
            event.collect(*count, names, sample);
        }
        for (event, count) in &self.site_events {
            event.collect(*count, names, sample);
        }
        for (name, cells) in names.sites.iter().zip(&self.sites) {
            cells.collect(name, sample);
        }
        for (name, durations) in names.origins.iter().zip(&self.origins) {
            collect_origin(name, durations, sample);
        }
        for (key, answers) in &self.origin_answers {
            collect_origin_answers(*key, answers, names, sample);
        }
        for (key, count) in &self.transforms {
            let [site_high, site_low, rule_high, rule_low] = key.to_be_bytes();
            let site = name_at(names.sites, u16::from_be_bytes([site_high, site_low]));
            let rule = name_at(names.rules, u16::from_be_bytes([rule_high, rule_low]));
            sample.add(Metric::TransformsTotal, &[site, rule], *count);
        }
        sample.histogram(Metric::PurgeDurationSeconds, &[], &Buckets::from(&self.purges));
    }
}

impl Answers {
    fn add(&mut self, more: &Self) {
        self.count += more.count;
        self.duration_ns = self.duration_ns.saturating_add(more.duration_ns);
        self.body_bytes += more.body_bytes;
    }
}

impl SiteCells {
    fn merge(&mut self, other: &Self) {
        self.received_bytes += other.received_bytes;
        for (mine, theirs) in self.durations.iter_mut().zip(&other.durations) {
            mine.merge(theirs);
        }
    }

    fn collect(&self, name: &str, sample: &mut Sample) {
        sample.add(Metric::RequestBytesTotal, &[name], self.received_bytes);
        for (result, durations) in CacheResult::ALL.iter().zip(&self.durations) {
            let labels = [name, result.as_str()];
            sample.histogram(Metric::ResponseDurationSeconds, &labels, &Buckets::from(durations));
        }
    }
}

impl Event {
    fn collect(&self, count: u64, names: &Names<'_>, sample: &mut Sample) {
        let origin = name_at(names.origins, self.origin.0);
        match self.metric.declaration().labels {
            [] => sample.add(self.metric, &[], count),
            ["origin"] => sample.add(self.metric, &[origin], count),
            ["origin", _] => sample.add(self.metric, &[origin, self.value], count),
            _ => sample.add(self.metric, &[self.value], count),
        }
    }
}

impl SiteEvent {
    fn collect(&self, count: u64, names: &Names<'_>, sample: &mut Sample) {
        let (site, rule) = (name_at(names.sites, self.site.0), name_at(names.rules, self.rule.0));
        match self.metric.declaration().labels {
            ["site", "rule"] => sample.add(self.metric, &[site, rule], count),
            _ => sample.add(self.metric, &[site, rule, self.value], count),
        }
    }
}

fn collect_requests(key: u64, answers: &Answers, names: &Names<'_>, sample: &mut Sample) {
    let [rule_high, rule_low, site_high, site_low, status_high, status_low, method, cache] =
        key.to_be_bytes();
    let rule = name_at(names.rules, u16::from_be_bytes([rule_high, rule_low]));
    let site = name_at(names.sites, u16::from_be_bytes([site_high, site_low]));
    let status = u16::from_be_bytes([status_high, status_low]).to_string();
    let method = Method::ALL[usize::from(method)].as_str();
    let cache = CacheResult::ALL[usize::from(cache)].as_str();
    let Answers { count, duration_ns, body_bytes } = *answers;
    let exact = [site, method, &status, cache];
    sample.add(Metric::RequestsTotal, &exact, count);
    sample.add(Metric::ResponseSecondsTotal, &exact, Number::Nanoseconds(duration_ns));
    sample.add(Metric::ResponseBytesTotal, &[site, cache], body_bytes);
    sample.add(Metric::RuleRequestsTotal, &[site, rule, cache], count);
    sample.add(Metric::RuleResponseBytesTotal, &[site, rule, cache], body_bytes);
}

/// Adds all outcomes of an origin that has been used, because `rate()` misses an event that creates a series.
fn collect_origin(name: &str, durations: &Histogram, sample: &mut Sample) {
    sample.histogram(Metric::OriginFetchDurationSeconds, &[name], &Buckets::from(durations));
    if durations.count() > 0 {
        for outcome in OriginOutcome::ALL {
            sample.add(Metric::OriginRequestsTotal, &[name, outcome.as_str()], 0);
        }
    }
}

fn collect_origin_answers(key: u64, answers: &Answers, names: &Names<'_>, sample: &mut Sample) {
    let [.., origin_high, origin_low, status_high, status_low, method] = key.to_be_bytes();
    let origin = name_at(names.origins, u16::from_be_bytes([origin_high, origin_low]));
    let status = u16::from_be_bytes([status_high, status_low]).to_string();
    let labels = [origin, Method::ALL[usize::from(method)].as_str(), &status];
    sample.add(Metric::OriginResponsesTotal, &labels, answers.count);
    sample.add(Metric::OriginResponseSecondsTotal, &labels, Number::Nanoseconds(answers.duration_ns));
}

/// Packs rule, site, status, method and cache result into one number, which hashes in one step.
fn request_key(outcome: &RequestOutcome) -> u64 {
    u64::from(outcome.rule.0) << 48
        | u64::from(outcome.site.0) << 32
        | u64::from(status_label(outcome.status)) << 16
        | u64::from(outcome.method as u8) << 8
        | u64::from(outcome.cache as u8)
}

/// Packs site and rule.
fn transform_key(site: SiteId, rule: RuleId) -> u32 {
    u32::from(site.0) << 16 | u32::from(rule.0)
}

/// Packs origin, status and method.
fn origin_key(answer: &OriginAnswer) -> u64 {
    u64::from(answer.origin.0) << 24
        | u64::from(status_label(answer.status.unwrap_or(0))) << 8
        | u64::from(answer.method as u8)
}

/// Returns 0 for numbers that aren't status codes: origins choose them, and every new value would be a new
/// series.
fn status_label(status: u16) -> u16 {
    if (100..=999).contains(&status) { status } else { 0 }
}

/// Returns the cell of an index; the table grows once per new site or origin.
fn cell<T: Clone + Default>(cells: &mut Vec<T>, index: u16) -> &mut T {
    let index = usize::from(index);
    if cells.len() <= index {
        cells.resize(index + 1, T::default());
    }
    &mut cells[index]
}

fn name_at(names: &[String], index: u16) -> &str {
    names.get(usize::from(index)).map_or("none", String::as_str)
}
