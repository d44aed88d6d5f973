//! What one worker has counted since the last scrape, and the totals that scrapes add up.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::declarations::Metric;
use crate::exposition::Sample;
use crate::histogram::Histogram;
use crate::labels::{CacheResult, Method, OriginId};
use crate::recorder::RequestOutcome;

const CACHE_RESULTS: usize = CacheResult::ALL.len();

/// A counter away from the fast path: which, for which origin (if it has such a label), and the
/// value of its other label (if it has one). Label values are `'static`, which bounds their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Event {
    pub(crate) metric: Metric,
    pub(crate) origin: OriginId,
    pub(crate) value: &'static str,
}

/// Counters of one worker, or the totals of all.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    /// By `request_key`; a cleared table keeps its capacity, so that it fills again without allocation.
    requests: HashMap<u64, u64, FixedState>,
    /// By site.
    sites: Vec<SiteCells>,
    /// By origin.
    origins: Vec<Histogram>,
    events: HashMap<Event, u64, FixedState>,
}

/// Names for the numbers in the tables.
pub(crate) struct Names<'a> {
    pub(crate) sites: &'a [String],
    pub(crate) origins: &'a [String],
}

#[derive(Debug, Clone, Default)]
struct SiteCells {
    received_bytes: u64,
    by_cache: [CacheCells; CACHE_RESULTS],
}

#[derive(Debug, Clone, Default)]
struct CacheCells {
    sent_bytes: u64,
    durations: Histogram,
}

impl Tables {
    pub(crate) fn request(&mut self, outcome: &RequestOutcome) {
        *self.requests.entry(request_key(outcome)).or_default() += 1;
        let site = cell(&mut self.sites, outcome.site.0);
        site.received_bytes += outcome.body_bytes_received;
        let cells = &mut site.by_cache[outcome.cache as usize];
        cells.sent_bytes += outcome.body_bytes_sent;
        cells.durations.record(outcome.duration_ns);
    }

    pub(crate) fn origin_duration(&mut self, origin: OriginId, duration_ns: u64) {
        cell(&mut self.origins, origin.0).record(duration_ns);
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.count(event, 1);
    }

    /// Adds what an event counts, where that is more than itself.
    pub(crate) fn count(&mut self, event: Event, amount: u64) {
        *self.events.entry(event).or_default() += amount;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (key, count) in &other.requests {
            *self.requests.entry(*key).or_default() += count;
        }
        for (event, count) in &other.events {
            *self.events.entry(*event).or_default() += count;
        }
        for (index, theirs) in (0..).zip(&other.sites) {
            cell(&mut self.sites, index).merge(theirs);
        }
        for (index, theirs) in (0..).zip(&other.origins) {
            cell(&mut self.origins, index).merge(theirs);
        }
    }

    /// Back to zero, without giving memory back.
    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.events.clear();
        self.sites.fill(SiteCells::default());
        self.origins.fill(Histogram::default());
    }

    pub(crate) fn collect(&self, names: &Names<'_>, sample: &mut Sample) {
        for (key, count) in &self.requests {
            collect_requests(*key, *count, names, sample);
        }
        for (event, count) in &self.events {
            event.collect(*count, names, sample);
        }
        for (name, cells) in names.sites.iter().zip(&self.sites) {
            cells.collect(name, sample);
        }
        for (name, durations) in names.origins.iter().zip(&self.origins) {
            sample.histogram(Metric::OriginFetchDurationSeconds, &[name], durations);
        }
    }
}

impl SiteCells {
    fn merge(&mut self, other: &Self) {
        self.received_bytes += other.received_bytes;
        for (mine, theirs) in self.by_cache.iter_mut().zip(&other.by_cache) {
            mine.sent_bytes += theirs.sent_bytes;
            mine.durations.merge(&theirs.durations);
        }
    }

    fn collect(&self, name: &str, sample: &mut Sample) {
        sample.add(Metric::RequestBytesTotal, &[name], self.received_bytes);
        for (result, cells) in CacheResult::ALL.iter().zip(&self.by_cache) {
            let labels = [name, result.as_str()];
            sample.histogram(Metric::ResponseDurationSeconds, &labels, &cells.durations);
            if cells.durations.count() > 0 {
                sample.add(Metric::ResponseBytesTotal, &labels, cells.sent_bytes);
            }
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

fn collect_requests(key: u64, count: u64, names: &Names<'_>, sample: &mut Sample) {
    let [_, _, site_high, site_low, status_high, status_low, method, cache] = key.to_be_bytes();
    let site = name_at(names.sites, u16::from_be_bytes([site_high, site_low]));
    let status = u16::from_be_bytes([status_high, status_low]).to_string();
    let method = Method::ALL[usize::from(method)].as_str();
    let cache = CacheResult::ALL[usize::from(cache)].as_str();
    sample.add(Metric::RequestsTotal, &[site, method, &status, cache], count);
}

/// Site, status, method and cache result in one number, which hashes in one step.
fn request_key(outcome: &RequestOutcome) -> u64 {
    let status = if (100..=999).contains(&outcome.status) { outcome.status } else { 0 };
    u64::from(outcome.site.0) << 32
        | u64::from(status) << 16
        | u64::from(outcome.method as u8) << 8
        | u64::from(outcome.cache as u8)
}

/// The cell of an index; the table grows once per new site or origin.
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
