//! Purges by instances that share a store, and doubts about copies.

use testkit::Larder;

pub(crate) fn doubts(gateway: &Larder, reason: &str) -> f64 {
    gateway.metric("larder_tier_doubts_total", &[&format!("reason=\"{reason}\"")])
}

pub(crate) struct Purged {
    pub(crate) is_complete: bool,
    pub(crate) text: String,
}

#[track_caller]
pub(crate) fn purge(gateway: &Larder, query: &str) -> Purged {
    let answer = gateway.ask_admin("POST", &format!("/purge?{query}"), "");
    let text = answer.text();
    assert_eq!(answer.status(), 200, "{query}: {text}");
    Purged { is_complete: text.contains("\"complete\":true"), text }
}
