//! Requests per URL, so that a test can prove what reached the origin.

use std::collections::BTreeMap;

use http::HeaderMap;
use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, RANGE};
use parking_lot::Mutex;
use serde::Serialize;

/// What happened to one URL.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct UrlCounts {
    /// All requests, whatever the method and the answer.
    pub(crate) requests: u64,
    /// Requests with any conditional field except If-Range.
    pub(crate) conditional: u64,
    /// Requests with a Range field.
    pub(crate) range: u64,
    /// Responses that the `close` or `fail=drop` knob broke.
    pub(crate) connections_broken: u64,
}

/// A bounded map from URL (path and query, as received) to counts.
pub(crate) struct Counters {
    urls_max: usize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    by_url: BTreeMap<String, UrlCounts>,
    overflow: u64,
}

impl Counters {
    pub(crate) fn new(urls_max: usize) -> Self {
        Self { urls_max, table: Mutex::default() }
    }

    /// Counts one request for `url`.
    pub(crate) fn count_request(&self, url: &str, headers: &HeaderMap) {
        let conditions = [IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE];
        let conditional = conditions.iter().any(|name| headers.contains_key(name));
        let range = headers.contains_key(RANGE);
        self.update(url, |counts| {
            counts.requests += 1;
            counts.conditional += u64::from(conditional);
            counts.range += u64::from(range);
        });
    }

    /// Counts one response that was broken on purpose.
    pub(crate) fn count_broken(&self, url: &str) {
        self.update(url, |counts| counts.connections_broken += 1);
    }

    /// The counts of one URL; all zero when it was never asked for.
    pub(crate) fn of(&self, url: &str) -> UrlCounts {
        self.table.lock().by_url.get(url).copied().unwrap_or_default()
    }

    /// Every URL with its counts, as JSON.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string_pretty(&self.table.lock().by_url)
            .expect("a map from strings to plain numbers always has a JSON form")
    }

    /// Events that found the map full.
    pub(crate) fn overflow(&self) -> u64 {
        self.table.lock().overflow
    }

    /// Forgets everything.
    pub(crate) fn reset(&self) {
        let forgotten = std::mem::take(&mut *self.table.lock());
        drop(forgotten);
    }

    fn update(&self, url: &str, change: impl FnOnce(&mut UrlCounts)) {
        let mut table = self.table.lock();
        if let Some(counts) = table.by_url.get_mut(url) {
            return change(counts);
        }
        if table.by_url.len() >= self.urls_max {
            table.overflow += 1;
            return;
        }
        change(table.by_url.entry(url.to_owned()).or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_beyond_the_limit_count_as_overflow() {
        let counters = Counters::new(1);
        for url in ["/a", "/b", "/a", "/c"] {
            counters.count_request(url, &HeaderMap::new());
        }
        assert_eq!(counters.of("/a").requests, 2);
        assert_eq!(counters.of("/b"), UrlCounts::default());
        assert_eq!(counters.overflow(), 2);
        counters.reset();
        assert_eq!((counters.of("/a").requests, counters.overflow()), (0, 0));
    }

    #[test]
    fn conditional_and_range_requests_are_told_apart() {
        let counters = Counters::new(10);
        let mut headers = HeaderMap::new();
        headers.insert(IF_NONE_MATCH, "\"a\"".parse().unwrap());
        counters.count_request("/a", &headers);
        headers.insert(RANGE, "bytes=0-".parse().unwrap());
        counters.count_request("/a", &headers);
        let expected = UrlCounts { requests: 2, conditional: 2, range: 1, connections_broken: 0 };
        assert_eq!(counters.of("/a"), expected);
    }
}
