//! Measurement turns that other processes don't disturb.
//!
//! On a machine with other work, a core may be busy with other processes during a turn, and the caches full of their data. The result then
//! depends more on the other processes than on the server.

use std::time::Instant;

use anyhow::Context as _;
use bench::server::{ServerProbe, Spent};

use crate::output;

/// Result of a turn, and the time spent in it.
pub(crate) struct Turn<T> {
    pub(crate) outcome: T,
    pub(crate) spent: Spent,
    /// CPU time of all other processes on the machine, in percent of one core.
    pub(crate) others_percent: f64,
}

/// Limit above which a turn is repeated. On an idle machine, other processes use 1 to 3.
const OTHERS_PERCENT_MAX: f64 = 20.0;
const TRIES: u32 = 3;

/// Runs a turn, repeats it while other processes disturb it, and returns the calmest one. The choice doesn't depend on the figures of
/// the turn.
///
/// # Errors
/// Returns the errors of `make`, and an error if a measured process ended during the turn.
pub(crate) fn turn<T>(
    probe: &ServerProbe,
    mut make: impl FnMut() -> anyhow::Result<T>,
) -> anyhow::Result<Turn<T>> {
    let mut calmest = once(probe, &mut make)?;
    for _ in 1..TRIES {
        if calmest.others_percent <= OTHERS_PERCENT_MAX {
            break;
        }
        output::progress(&format!("others used {:.0} % of a core: repeating", calmest.others_percent));
        let next = once(probe, &mut make)?;
        if next.others_percent < calmest.others_percent {
            calmest = next;
        }
    }
    Ok(calmest)
}

fn once<T>(probe: &ServerProbe, make: &mut impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<Turn<T>> {
    let measuring = probe.begin()?;
    let begin = Instant::now();
    let outcome = make()?;
    let elapsed = begin.elapsed();
    let spent = measuring.end()?;
    let others = spent.others_cpu_us.context("other processes weren't measured")?;
    Ok(Turn { outcome, spent, others_percent: others / elapsed.as_micros() as f64 * 100.0 })
}
