//! The tiers behind memory.

pub(crate) mod segments;
