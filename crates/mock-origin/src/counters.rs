//! Counts of requests, so that a test can prove which ones reached the origin.

use std::{collections::BTreeMap, fmt::Write};

use http::{Method, StatusCode};
use parking_lot::Mutex;

/// Requests by URL, for `/counters`, and by route, for `/metrics`.
#[derive(Default)]
pub(crate) struct Counters {
    urls: Mutex<Urls>,
    answers: Mutex<BTreeMap<AnswerLabels, u64>>,
}

#[derive(Default)]
struct Urls {
    /// Keyed by path and query, as received.
    requests: BTreeMap<String, u64>,
    overflow: u64,
}

/// Route, method and status.
type AnswerLabels = (&'static str, &'static str, u16);

impl Counters {
    /// Counts one request for `url`, regardless of its method and answer.
    pub(crate) fn count_request(&self, url: &str) {
        let mut urls = self.urls.lock();
        if let Some(requests) = urls.requests.get_mut(url) {
            *requests += 1;
        } else if urls.requests.len() < URLS_MAX {
            urls.requests.insert(url.to_owned(), 1);
        } else {
            urls.overflow += 1;
        }
    }

    /// Counts one answer of a route.
    pub(crate) fn count_answer(&self, route: &'static str, method: &Method, status: StatusCode) {
        let labels = (route, method_label(method), status.as_u16());
        *self.answers.lock().entry(labels).or_default() += 1;
    }

    /// Returns the requests for one URL.
    pub(crate) fn requests(&self, url: &str) -> u64 {
        self.urls.lock().requests.get(url).copied().unwrap_or_default()
    }

    /// Returns the requests for URLs beyond the limit.
    pub(crate) fn overflow(&self) -> u64 {
        self.urls.lock().overflow
    }

    /// Returns every URL with its requests, as JSON.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string_pretty(&self.urls.lock().requests)
            .expect("a map from strings to numbers always has a JSON form")
    }

    /// Returns the answers in Prometheus text format.
    pub(crate) fn to_prometheus(&self) -> String {
        let mut page = "# HELP mock_origin_requests_total Requests by route, method and status.\n\
                        # TYPE mock_origin_requests_total counter\n"
            .to_owned();
        for ((route, method, status), total) in &*self.answers.lock() {
            let series = format!("route=\"{route}\",method=\"{method}\",status=\"{status}\"");
            writeln!(page, "mock_origin_requests_total{{{series}}} {total}")
                .expect("a String accepts every write");
        }
        page
    }
}

/// Returns the label of a method. Clients choose the methods, so all but the usual ones share a label; otherwise the page could grow
/// without limit.
fn method_label(method: &Method) -> &'static str {
    const USUAL: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT"];
    USUAL.into_iter().find(|usual| *usual == method.as_str()).unwrap_or("other")
}

/// Maximum number of URLs that are counted separately.
const URLS_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_beyond_the_limit_count_as_overflow() {
        let counters = Counters::default();
        (0..URLS_MAX).for_each(|number| counters.count_request(&format!("/{number}")));
        for url in ["/0", "/b", "/c"] {
            counters.count_request(url);
        }
        assert_eq!(["/0", "/b"].map(|url| counters.requests(url)), [2, 0]);
        assert_eq!(counters.overflow(), 2);
    }

    #[test]
    fn unusual_methods_share_one_label() {
        let counters = Counters::default();
        for name in ["BREW", "WHEN", "GET"] {
            counters.count_answer("/items/:id", &name.parse().unwrap(), StatusCode::OK);
        }
        let page = counters.to_prometheus();
        let brewed = "mock_origin_requests_total{route=\"/items/:id\",method=\"other\",status=\"200\"} 2";
        assert!(page.contains(brewed), "{page}");
    }
}
