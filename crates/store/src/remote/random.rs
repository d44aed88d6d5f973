//! Random numbers.

use ring::rand::{SecureRandom, SystemRandom};

/// Returns an unpredictable id.
pub(super) fn id() -> [u8; 16] {
    let mut id = [0; 16];
    SystemRandom::new().fill(&mut id).expect("the OS provides random numbers");
    id
}

pub(super) fn number() -> u32 {
    u32::from_le_bytes(*id().first_chunk().expect("an id has 16 bytes"))
}
