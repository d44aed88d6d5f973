//! Counts and findings for the transformation rules that messages match.

use std::sync::Arc;

use caching::explain::Finding;
use message::explain_record::{Record, note};
use telemetry::WorkerRecorder;

use super::rules::Matching;
use crate::config::{Action, Phase};
use crate::routing::LiveSite;

/// Counts the rules that a message has matched, and records their effects.
pub(crate) fn tell(
    recorder: &WorkerRecorder,
    record: Option<&Arc<Record>>,
    site: &LiveSite,
    phase: Phase,
    matching: &Matching,
) {
    let rules = site.config.transforms.of(phase);
    for place in matching {
        let place = usize::from(*place);
        let (Some(rule), Some(id)) = (rules.get(place), site.transform_metrics(phase, place)) else {
            continue;
        };
        recorder.transform(site.metrics, id);
        note(record, || {
            let finding = Finding::new("transform", said(phase), "").with("rule", rule.name.as_str(), "");
            let changes = rule.actions.iter().map(Action::described);
            changes.fold(finding, |finding, (what, how)| finding.with(what, how, ""))
        });
    }
}

fn said(phase: Phase) -> &'static str {
    match phase {
        Phase::ClientRequest => "a rule changes the request of the client",
        Phase::OriginRequest => "a rule changes the request to the origin",
        Phase::OriginResponse => "a rule changes the response of the origin",
        Phase::ClientResponse => "a rule changes the response to the client",
    }
}
