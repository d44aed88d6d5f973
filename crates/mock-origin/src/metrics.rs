//! The origin's own metrics in Prometheus text form.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::atomic::{AtomicU64, Ordering},
};

use http::{Method, StatusCode};
use parking_lot::Mutex;

/// Totals since the start.
#[derive(Default)]
pub(crate) struct Metrics {
    requests: Mutex<BTreeMap<RequestLabels, u64>>,
    request_body_bytes: AtomicU64,
    response_body_bytes: AtomicU64,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct RequestLabels {
    route: &'static str,
    method: &'static str,
    status: u16,
}

impl Metrics {
    pub(crate) fn count_request(&self, route: &'static str, method: &Method, status: StatusCode) {
        let labels = RequestLabels { route, method: method_label(method), status: status.as_u16() };
        *self.requests.lock().entry(labels).or_default() += 1;
    }

    pub(crate) fn add_request_body_bytes(&self, bytes: usize) {
        self.request_body_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_response_body_bytes(&self, bytes: usize) {
        self.response_body_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The whole page; `counters_overflow` comes from the counters per URL.
    pub(crate) fn to_prometheus(&self, counters_overflow: u64) -> String {
        let mut page = String::new();
        describe(&mut page, "mock_origin_requests_total", "Requests by route, method and status.");
        for (labels, total) in &*self.requests.lock() {
            let RequestLabels { route, method, status } = labels;
            let series = format!("route=\"{route}\",method=\"{method}\",status=\"{status}\"");
            append(&mut page, &format!("mock_origin_requests_total{{{series}}}"), *total);
        }
        let totals = [
            (
                "request_body_bytes",
                "Bytes of request bodies.",
                self.request_body_bytes.load(Ordering::Relaxed),
            ),
            (
                "response_body_bytes",
                "Bytes of response bodies.",
                self.response_body_bytes.load(Ordering::Relaxed),
            ),
            ("counters_overflow", "Events for URLs beyond the limit of /counters.", counters_overflow),
        ];
        for (name, help, total) in totals {
            let name = format!("mock_origin_{name}_total");
            describe(&mut page, &name, help);
            append(&mut page, &name, total);
        }
        page
    }
}

/// Methods come from clients: anything else than the usual ones is one label, or the page could grow
/// without limit.
fn method_label(method: &Method) -> &'static str {
    const USUAL: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT"];
    USUAL.into_iter().find(|usual| *usual == method.as_str()).unwrap_or("other")
}

fn describe(page: &mut String, name: &str, help: &str) {
    writeln!(page, "# HELP {name} {help}\n# TYPE {name} counter").expect("a String accepts every write");
}

fn append(page: &mut String, series: &str, total: u64) {
    writeln!(page, "{series} {total}").expect("a String accepts every write");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusual_methods_share_one_label() {
        let metrics = Metrics::default();
        for name in ["BREW", "WHEN", "GET"] {
            metrics.count_request("/items/:id", &name.parse().unwrap(), StatusCode::OK);
        }
        let page = metrics.to_prometheus(3);
        let brewed = "mock_origin_requests_total{route=\"/items/:id\",method=\"other\",status=\"200\"} 2";
        assert!(page.contains(brewed), "{page}");
        assert!(page.contains("mock_origin_counters_overflow_total 3"), "{page}");
    }
}
