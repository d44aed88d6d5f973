//! Damage to valid bytes.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// Changes to bytes, applied in the order of the fields.
#[derive(Clone, Debug)]
pub(crate) struct Damage {
    replaced: Vec<(Index, u8)>,
    inserted: Vec<(Index, u8)>,
    removed: Vec<Index>,
}

/// Generates up to two changes of each kind.
pub(crate) fn damage() -> impl Strategy<Value = Damage> {
    let changes = (vec(placed_byte(), 0..3), vec(placed_byte(), 0..3), vec(any::<Index>(), 0..3));
    changes.prop_map(|(replaced, inserted, removed)| Damage { replaced, inserted, removed })
}

/// Generates bytes with a meaning to the codec, so that damage is likely to break a rule.
fn placed_byte() -> impl Strategy<Value = (Index, u8)> {
    let byte =
        prop_oneof![proptest::sample::select(b"\r\n \t:;,=\"\\0aF/#*\0\x7f\x80".to_vec()), any::<u8>()];
    (any::<Index>(), byte)
}

impl Damage {
    /// Damages these bytes, which must not be empty.
    pub(crate) fn apply(self, bytes: &mut Vec<u8>) {
        for (at, byte) in self.replaced {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        for (at, byte) in self.inserted {
            bytes.insert(at.index(bytes.len() + 1), byte);
        }
        for at in self.removed {
            bytes.remove(at.index(bytes.len()));
        }
    }
}
