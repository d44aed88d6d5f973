//! Findings of the cache's steps, in words, for `larder explain`. Makes no decisions.

use std::time::Duration;

use cache::entry::stored::{CacheEntry, Hit, StoredHead};
use cache::failure::FailureCause;
use caching::explain::{self, Finding};
use caching::partial::HoleAnswer;
use caching::{NotStored, Rules, Selecting, Storable, Timestamp, date};
use fleet::answer::Said;
use message::reason::Detail;
use store::purge::{PurgeMode, PurgeRecord};

use crate::request::reply::Reply;
use crate::request::serve::Use;
use crate::rewrite::reading;

/// Adds the request fields that are part of the key. For credentials, it shows the name but not the value.
pub(crate) fn keyed(finding: Finding, keyed: &[u8], rules: &Rules) -> Finding {
    reading::keyed_lines(keyed).into_iter().fold(finding, |finding, (name, value)| {
        let shown =
            if rules.is_credential(&name) { "part of it".into() } else { String::from_utf8_lossy(value) };
        finding.with(&name, shown, "")
    })
}

/// Returns findings about the stored responses under the key: which response the request selects, or why each
/// doesn't match.
pub(crate) fn selection(
    entry: Option<&CacheEntry>,
    selected: Option<&Hit>,
    request: Selecting<'_>,
    rules: &Rules,
) -> Vec<Finding> {
    let variants = entry.map(CacheEntry::variants).unwrap_or_default();
    let section = "RFC 9111 section 4.1";
    let Some(hit) = selected else {
        let differs = |(number, head): (usize, &StoredHead)| {
            let says = format!("stored response {number} of {} is for other requests (Vary)", variants.len());
            explain::mismatch(
                Finding::new("select", says, section),
                head.nominated(),
                head.nominated_values(),
                request,
                rules,
            )
        };
        let heads = variants.iter().map(|variant| &*variant.head);
        let nothing =
            || vec![Finding::new("select", "nothing is stored under the key", "RFC 9111 section 4")];
        return if variants.is_empty() { nothing() } else { (1..).zip(heads).map(differs).collect() };
    };
    let which = match hit.head.is_selected_by(request) {
        true => "matches",
        false => "is certainly the response that the origin selects for this request",
    };
    let says = match variants.len() {
        1 => format!("the stored response {which}"),
        count => format!("1 of {count} stored responses {which}"),
    };
    let finding = Finding::new("select", says, section);
    vec![explain::mismatch(finding, hit.head.nominated(), hit.head.nominated_values(), request, rules)]
}

/// Returns a finding about the tier's reply for the key.
pub(crate) fn tier(said: Said, since_start: Duration) -> Finding {
    let says = match said {
        Said::Unasked => "the contents of the shared store are already known",
        Said::Failed => "the shared store isn't available: treated as a miss",
        Said::Nothing => "the shared store has nothing under the key",
        Said::Unchanged => "the shared store has the same record as memory",
        Said::Unusable => {
            "the shared store has no usable response under the key, for example only notes of failed requests"
        }
        Said::Found => "the shared store has a record for the key",
        Said::Changing => "the record in the shared store keeps changing: treated as a miss",
    };
    let finding = Finding::new("tier", says, "");
    match said {
        Said::Failed => finding,
        _ => finding.with("answered after", format!("{} ms", since_start.as_millis()), ""),
    }
}

/// Returns a finding about an operator's purge.
pub(crate) fn purged(purge: &PurgeRecord) -> Finding {
    let at = Timestamp::from_ms(i64::try_from(purge.at_ms).unwrap_or(i64::MAX));
    let at = String::from_utf8_lossy(&date::format(at)).into_owned();
    let says = match purge.mode {
        PurgeMode::Hard => "purged: responses stored before the purge are not used",
        PurgeMode::Soft | PurgeMode::Refresh => "purged softly: responses stored before the purge are stale",
    };
    Finding::new("purge", says, "")
        .with("by", purge.what.to_string(), "")
        .with("mode", purge.mode.as_str(), "")
        .with("at", at, "")
        .with("id", purge.id.to_string(), "")
}

/// Returns a finding with the reason why the cache isn't used for a request.
pub(crate) fn because(step: &'static str, says: &str, detail: Detail) -> Finding {
    Finding::new(step, format!("{says}: {}", explain::sentence(detail.meaning())), detail.section()).with(
        "reason",
        detail.as_str(),
        "",
    )
}

/// Returns a finding about whether a response of the origin is stored.
pub(crate) fn storing(outcome: Result<&Storable, Detail>, now: Timestamp) -> Finding {
    match outcome {
        Ok(storable) => explain::storing(Ok(storable), now),
        Err(Detail::Store(reason)) => explain::storing(Err::<_, NotStored>(reason), now),
        Err(detail) => because("store", "not stored", detail),
    }
}

/// Returns a finding about the response to a request for bytes that a stored response lacks.
pub(crate) fn missing_part(answer: HoleAnswer) -> Finding {
    let says = match answer {
        HoleAnswer::Splice(_) => "the origin's 206 completes the stored response",
        HoleAnswer::Replace => "the origin's 200 replaces the stored response",
        HoleAnswer::Failed => "the origin's response doesn't affect the stored response",
        HoleAnswer::Discard => "the origin's response doesn't match the stored response, which is removed",
    };
    Finding::new("combine", says, "RFC 9111 section 3.4")
}

/// Returns a finding about a 304 of the origin that freshened a stored response.
pub(crate) fn freshened(hit: &Hit, storing: Result<(), Detail>, now: Timestamp) -> Finding {
    let says = match storing {
        Ok(()) => "the origin's 304 updates the stored response",
        Err(_) => "after the origin's 304, the stored response answers this request; the update isn't stored",
    };
    explain::with_freshness(Finding::new("freshen", says, "RFC 9111 section 4.3.4"), &hit.head.facts, now)
}

/// Returns a finding about a failure of the origin, and whether a stale response may be used instead.
pub(crate) fn failure(stale: Option<&Hit>, has_stored: bool, cause: FailureCause, now: Timestamp) -> Finding {
    let (cause, section) = match cause.status {
        None => (cause.detail.as_str().to_owned(), "RFC 9111 section 4.2.4"),
        Some(status) => (format!("status {status}"), "RFC 5861 section 4"),
    };
    match stale {
        Some(hit) => {
            let finding = Finding::new("stale", "the stale response is used in place of the error", section);
            explain::with_freshness(finding.with("cause", cause, ""), &hit.head.facts, now)
        }
        None => {
            let which = if has_stored { "the stored response may not" } else { "no stored response may" };
            Finding::new("stale", format!("{which} be used in place of the error"), section)
                .with("cause", cause, "")
        }
    }
}

/// Returns a finding about a client's reply from a stored response.
pub(crate) fn delivered(reply: &Reply, used: Use) -> Finding {
    let (says, section) = match reply.status {
        304 => ("the client's own copy is still valid", "RFC 9111 section 4.3.2"),
        206 => ("the client gets the requested ranges", "RFC 9110 section 14.2"),
        416 => ("none of the requested ranges exists", "RFC 9110 section 15.5.17"),
        _ => ("the client gets the response", "RFC 9111 section 4"),
    };
    let finding = Finding::new("deliver", says, section).with("status", reply.status.to_string(), "");
    let finding = match used {
        Use::Stale(reason) => finding.with("stale because of", reason.as_str(), reason.section()),
        Use::Fresh
        | Use::RefreshAhead
        | Use::StaleWhileRevalidate
        | Use::Asked { .. }
        | Use::FoundElsewhere(_) => finding,
    };
    match reply.age_s {
        Some(age_s) => finding.with("age", format!("{age_s} s"), "RFC 9111 section 5.1"),
        None => finding,
    }
}
