//! What a forward costs the miss budget of its rule.

use std::sync::Arc;

use caching::explain::Finding;
use tokio::time::Instant;

use crate::protection::rate::Verdict;
use crate::protection::whole_seconds;
use crate::route::{LiveSite, RuleIndex};
use crate::trace::{Record, note};
use crate::upstream::OriginError;
use crate::worker::Worker;

/// Takes a forward out of the budget of its rule.
///
/// # Errors
/// [`OriginError::MissBudget`], where nothing is left.
pub(crate) fn spend(
    worker: &Worker,
    site: &LiveSite,
    rule: RuleIndex,
    record: Option<&Arc<Record>>,
) -> Result<(), OriginError> {
    let Some(budget) = site.budget(rule) else { return Ok(()) };
    let Verdict::Refused { retry_after_ns } = budget.spend(Instant::now()) else { return Ok(()) };
    worker.recorder.miss_refused(site.metrics, site.rule_metrics(rule));
    note(record, || Finding::new("limit", "the miss budget of the rule is used up: not forwarded", ""));
    Err(OriginError::MissBudget { retry_after_s: whole_seconds(retry_after_ns) })
}
