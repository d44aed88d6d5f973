//! Rate limits of warnings about one subject.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the warnings about one subject that were written and suppressed: at most `PER_SECOND_MAX` in a
/// second. Clients cause these warnings, and a client that sends many requests must not fill the disk. Metrics
/// count the causes of all warnings.
#[derive(Debug, Default)]
pub struct Warnings<const PER_SECOND_MAX: u64> {
    /// The second of the last warning, and the number of warnings in it.
    latest: AtomicU64,
    left_out: AtomicU64,
}

impl<const PER_SECOND_MAX: u64> Warnings<PER_SECOND_MAX> {
    /// Factor that packs the second and the count into one number.
    const COUNTED: u64 = PER_SECOND_MAX + 1;

    /// Returns the number of warnings suppressed since the last one if another may be written, or `None` if
    /// the limit of this second is reached.
    pub fn take(&self, second: u64) -> Option<u64> {
        let taken = self.latest.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |latest| {
            let written = if latest / Self::COUNTED == second { latest % Self::COUNTED } else { 0 };
            (written < PER_SECOND_MAX).then_some(second * Self::COUNTED + written + 1)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_warnings_are_written_in_a_second() {
        let warnings = Warnings::<10>::default();
        for second in [7, 8, 100] {
            let before = if second == 7 { 0 } else { 90 };
            let taken: Vec<_> = (0..100).map(|_| warnings.take(second)).collect();
            assert_eq!(taken[0], Some(before), "{second}");
            assert!(taken[1..10].iter().all(|taken| *taken == Some(0)), "{second}");
            assert!(taken[10..].iter().all(Option::is_none), "{second}");
        }
    }
}
