//! Limits on the warnings about a site. Clients can cause some kinds of warning at will, so each kind has its own allowance: many
//! refused purges don't suppress warnings about the origin.

use origin::OriginError;
use telemetry::Warnings;

/// Warnings that may still be written about one site.
#[derive(Debug)]
pub(crate) struct Allowances([Warnings<PER_SECOND_MAX>; KINDS]);

/// Maximum number of warnings of one kind per second.
const PER_SECOND_MAX: u64 = 10;
/// Number of kinds of warning: one for each reason why the origin gave no response, plus [`OTHERS`].
const KINDS: usize = OTHERS.len() + OriginError::REASONS.len();
const OTHERS: [&str; 4] = ["body-broken-off", "loop", "purge-refused", "upload-broken-off"];

impl Default for Allowances {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Warnings::default()))
    }
}

impl Allowances {
    /// Reserves one warning of this kind, and returns how many have been suppressed since the last one. Returns `None` if the
    /// allowance for this second is used up.
    pub(crate) fn take(&self, kind: &str, second: u64) -> Option<u64> {
        let mut kinds = OTHERS.iter().chain(&OriginError::REASONS);
        let place = kinds.position(|known| *known == kind);
        debug_assert!(place.is_some(), "{kind} has no allowance");
        self.0[place.unwrap_or_default()].take(second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_an_allowance_of_its_own() {
        let allowances = Allowances::default();
        for kind in OTHERS.iter().chain(&OriginError::REASONS) {
            let taken: Vec<_> = (0..12).map(|_| allowances.take(kind, 7)).collect();
            assert_eq!(taken.iter().filter(|taken| taken.is_some()).count(), 10, "{kind}");
        }
        assert_eq!(allowances.take("loop", 8), Some(2));
    }
}
