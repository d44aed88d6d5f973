//! Purges of instances that share a store, and what becomes of copies.

use testkit::Larder;

pub(crate) fn doubts(gateway: &Larder, reason: &str) -> f64 {
    gateway.metric("larder_tier_doubts_total", &[&format!("reason=\"{reason}\"")])
}

/// Answer to a purge.
pub(crate) struct Purged {
    pub(crate) is_complete: bool,
    pub(crate) text: String,
}

/// Asks a gateway for a purge.
#[track_caller]
pub(crate) fn purge(gateway: &Larder, query: &str) -> Purged {
    let answer = gateway.ask_admin("POST", &format!("/purge?{query}"), "");
    let text = answer.text();
    assert_eq!(answer.status(), 200, "{query}: {text}");
    Purged { is_complete: text.contains("\"complete\":true"), text }
}
