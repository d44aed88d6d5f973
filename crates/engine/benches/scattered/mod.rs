//! A key order that is unpredictable for caches.

/// Returns a number below `keys` that is far from the number of the previous step.
pub(crate) fn scattered(step: u64, keys: u64) -> u64 {
    ((u128::from(step.wrapping_mul(0x9E37_79B9_7F4A_7C15)) * u128::from(keys)) >> 64) as u64
}
