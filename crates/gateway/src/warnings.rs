//! How many warnings of one site are written.

use std::sync::atomic::{AtomicU64, Ordering};

/// Warnings of one site in a second. Requests cause them, and whoever sends many is not to fill the disk; metrics count all.
const WARNINGS_PER_SECOND_MAX: u64 = 10;

/// How many warnings a site has written, and left out.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    /// The second of the last one, and how many there were in it.
    latest: AtomicU64,
    left_out: AtomicU64,
}

impl Warnings {
    /// Room for one more: how many were left out since the last one. `None` where there were enough in this second.
    pub(crate) fn take(&self, second: u64) -> Option<u64> {
        let taken = self.latest.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |latest| {
            let written = if latest / COUNTED == second { latest % COUNTED } else { 0 };
            (written < WARNINGS_PER_SECOND_MAX).then_some(second * COUNTED + written + 1)
        });
        match taken {
            Ok(_) => Some(self.left_out.swap(0, Ordering::Relaxed)),
            Err(_) => {
                self.left_out.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }
}

/// The count stands behind the second.
const COUNTED: u64 = WARNINGS_PER_SECOND_MAX + 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_warnings_are_written_in_a_second() {
        let warnings = Warnings::default();
        for second in [7, 8, 100] {
            let before = if second == 7 { 0 } else { 90 };
            let taken: Vec<_> = (0..100).map(|_| warnings.take(second)).collect();
            assert_eq!(taken[0], Some(before), "{second}");
            assert!(taken[1..10].iter().all(|taken| *taken == Some(0)), "{second}");
            assert!(taken[10..].iter().all(Option::is_none), "{second}");
        }
    }
}
