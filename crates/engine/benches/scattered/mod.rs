//! A key order that is unpredictable for caches.

/// A number below `keys`, which is different in each step and far from the previous one.
pub(crate) fn scattered(step: u64, keys: u64) -> u64 {
    ((u128::from(step.wrapping_mul(0x9E37_79B9_7F4A_7C15)) * u128::from(keys)) >> 64) as u64
}
