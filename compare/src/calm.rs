//! Turns that nobody disturbs.
//!
//! On a machine with other work, a turn may meet it: a core is then busy with something else, and caches are full of it. Such a
//! turn says less about the server than about its neighbours, whoever's turn it is.

use std::time::Instant;

use anyhow::Context as _;
use bench::server::{ServerProbe, Spent};

use crate::output;

/// A turn and what was spent in it.
pub(crate) struct Turn<T> {
    pub(crate) outcome: T,
    pub(crate) spent: Spent,
    /// What everybody else on the machine had, of one core.
    pub(crate) others_percent: f64,
}

/// With more than this for others, a turn is made again. On a machine with nothing else to do they had 1 to 3.
const OTHERS_PERCENT_MAX: f64 = 20.0;
const TRIES: u32 = 3;

/// Makes a turn, again while others disturb it, and gives the calmest: which one it is does not depend on its figures.
///
/// # Errors
/// Those of the turn, and when a process has ended in it.
pub(crate) fn turn<T>(
    probe: &ServerProbe,
    mut make: impl FnMut() -> anyhow::Result<T>,
) -> anyhow::Result<Turn<T>> {
    let mut calmest = once(probe, &mut make)?;
    for _ in 1..TRIES {
        if calmest.others_percent <= OTHERS_PERCENT_MAX {
            break;
        }
        output::progress(&format!("others had {:.0} % of a core: once more", calmest.others_percent));
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
    let others = spent.others_cpu_us.context("the processes were watched")?;
    Ok(Turn { outcome, spent, others_percent: others / elapsed.as_micros() as f64 * 100.0 })
}
