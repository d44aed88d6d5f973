//! An order of keys that no cache can predict.

/// A number below `keys` for each step: different each time, and far from the one before.
pub(crate) fn scattered(step: u64, keys: u64) -> u64 {
    ((u128::from(step.wrapping_mul(0x9E37_79B9_7F4A_7C15)) * u128::from(keys)) >> 64) as u64
}
