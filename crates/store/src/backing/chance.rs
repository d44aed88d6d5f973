//! Numbers for tests that can be had again.

/// SplitMix64: numbers that look like chance and follow from a seed.
#[derive(Debug)]
pub struct Chance(u64);

impl Chance {
    /// What follows from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next one.
    #[expect(clippy::should_implement_trait, reason = "there is no end of them")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Bytes that no two draws have in common.
    pub fn id(&mut self) -> [u8; 16] {
        (u128::from(self.next()) << 64 | u128::from(self.next())).to_le_bytes()
    }
}
