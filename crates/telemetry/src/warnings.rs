//! How many warnings about one thing are written.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many warnings were written about something, and left out: at most so many in a second. Clients cause them, and whoever sends much is not
/// to fill the disk; metrics count all.
#[derive(Debug, Default)]
pub struct Warnings<const PER_SECOND_MAX: u64> {
    /// The second of the last one, and how many there were in it.
    latest: AtomicU64,
    left_out: AtomicU64,
}

impl<const PER_SECOND_MAX: u64> Warnings<PER_SECOND_MAX> {
    /// The count stands behind the second.
    const COUNTED: u64 = PER_SECOND_MAX + 1;

    /// Room for one more: how many were left out since the last one. `None` where there were enough in this second.
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
