//! Sampling of traces.

use super::context::{TraceContext, TraceFlags};
use super::ids::TraceId;

/// The sampling of traces without a decision by the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// One in this number of traces is recorded; 0 for none.
    pub one_in: u32,
}

impl Sampling {
    /// Returns whether a trace is recorded: as its sender decided, or else by its id, so that all processes
    /// with the same rate choose the same traces.
    pub fn flags(self, parent: Option<&TraceContext>, trace_id: TraceId) -> TraceFlags {
        match parent {
            Some(parent) => parent.flags,
            None if self.takes(trace_id) => TraceFlags::SAMPLED,
            None => TraceFlags::NOT_SAMPLED,
        }
    }

    fn takes(self, trace_id: TraceId) -> bool {
        match self.one_in {
            0 => false,
            one_in => trace_id.lot() <= u64::MAX / u64::from(one_in),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_new_traces_and_what_the_parent_says_of_others() {
        let taken = |one_in: u32| {
            let sampling = Sampling { one_in };
            (0..100_000).filter(|_| sampling.flags(None, TraceId::draw()).is_sampled()).count()
        };
        assert_eq!((taken(0), taken(1)), (0, 100_000));
        assert!((9_000..11_000).contains(&taken(10)), "{}", taken(10));
        for flags in [TraceFlags::SAMPLED, TraceFlags::NOT_SAMPLED] {
            let parent = TraceContext::root(flags);
            for one_in in [0, 1] {
                assert_eq!(Sampling { one_in }.flags(Some(&parent), parent.trace_id), flags);
            }
        }
    }

    #[test]
    fn a_larger_share_has_what_a_smaller_one_has() {
        for trace_id in (0..10_000).map(|_| TraceId::draw()) {
            let takes = |one_in: u32| Sampling { one_in }.takes(trace_id);
            assert!(!takes(100) || takes(10));
        }
    }
}
