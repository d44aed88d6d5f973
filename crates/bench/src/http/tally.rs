//! Counts the outcomes of one worker's requests.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::load::Detail;
use super::prepare::Prepared;
use crate::result::{Latencies, UrlFigures};

/// Counts of an HTTP worker, in addition to the counts that every kind of load has.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) statuses: Vec<u64>,
    pub(super) urls: Vec<UrlTally>,
    pub(super) first_bytes: Latencies,
    detail: Detail,
}

impl Tally {
    pub(super) fn new(detail: Detail, figures: usize) -> Self {
        let urls = vec![UrlTally::default(); if detail == Detail::PerUrl { figures } else { 0 }];
        Self { statuses: vec![0; 1000], urls, first_bytes: Latencies::default(), detail }
    }

    pub(super) fn right(&mut self, prepared: &Prepared, latency: Duration) {
        if self.detail == Detail::PerUrl {
            self.urls[prepared.figure].record(latency);
        }
    }

    pub(super) fn error(&mut self, prepared: &Prepared) {
        if self.detail == Detail::PerUrl {
            self.urls[prepared.figure].errors += 1;
        }
    }

    /// Adds the counts of another worker.
    pub(super) fn add(&mut self, other: &Self) {
        for (sum, count) in self.statuses.iter_mut().zip(&other.statuses) {
            *sum += count;
        }
        for (sum, part) in self.urls.iter_mut().zip(&other.urls) {
            sum.add(part);
        }
        self.first_bytes.add(&other.first_bytes);
    }
}

/// The latencies of one URL, to two significant digits. Uses only the memory that their range requires.
#[derive(Clone, Debug)]
pub(super) struct UrlTally {
    errors: u64,
    histogram: Histogram<u32>,
}

impl Default for UrlTally {
    fn default() -> Self {
        let mut histogram = Histogram::new(2).expect("two digits are allowed");
        histogram.auto(true);
        Self { errors: 0, histogram }
    }
}

impl UrlTally {
    fn record(&mut self, latency: Duration) {
        self.histogram.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
    }

    fn add(&mut self, other: &Self) {
        self.errors += other.errors;
        self.histogram.add(&other.histogram).expect("an automatic one grows");
    }

    pub(super) fn figures(&self, url: &str) -> UrlFigures {
        UrlFigures {
            url: url.into(),
            requests: self.histogram.len(),
            errors: self.errors,
            mean_us: self.histogram.mean(),
            sd_us: self.histogram.stdev(),
            p50_us: self.histogram.value_at_percentile(50.0),
            p99_us: self.histogram.value_at_percentile(99.0),
            max_us: self.histogram.max(),
        }
    }
}
