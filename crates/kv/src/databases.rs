//! Maps database numbers of clients to databases of the engine. SWAPDB swaps two of them.

use engine::Database;

use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The engine's number for each of the clients' numbers, four bits each in one word, so that SWAPDB is a
/// single store.
#[derive(Debug)]
pub(crate) struct Databases(AtomicU64);

const BITS: usize = 4;
const MASK: u64 = (1 << BITS) - 1;
const _: () = assert!(Database::COUNT * BITS == u64::BITS as usize);

impl Default for Databases {
    fn default() -> Self {
        Self(AtomicU64::new(0xFEDC_BA98_7654_3210))
    }
}

impl Databases {
    /// A copy of the mapping, for [`Databases::restore`].
    pub(crate) fn note(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Restores a mapping saved by [`Databases::note`]; returns false if it is invalid. No other thread may
    /// be executing commands.
    pub(crate) fn restore(&self, note: u64) -> bool {
        let is_named =
            |number: u64| (0..Database::COUNT).any(|chosen| note >> (chosen * BITS) & MASK == number);
        let is_possible = (0..Database::COUNT as u64).all(is_named);
        if is_possible {
            self.0.store(note, Relaxed);
        }
        is_possible
    }

    /// The engine's database for a client's database number.
    pub(crate) fn of_engine(&self, chosen: Database) -> Database {
        let number = self.0.load(Relaxed) >> (chosen.number() * BITS) & MASK;
        Database::new(number as usize).unwrap_or_default()
    }

    /// The clients' number for a database of the engine.
    pub(crate) fn of_clients(&self, database: Database) -> Database {
        let is_it = |chosen: &Database| self.of_engine(*chosen) == database;
        (0..Database::COUNT).filter_map(Database::new).find(is_it).unwrap_or_default()
    }

    /// Swaps two numbers. No other thread may be executing commands.
    pub(crate) fn swap(&self, one: Database, other: Database) {
        let (first, second) = (self.of_engine(one).number() as u64, self.of_engine(other).number() as u64);
        let difference = first ^ second;
        let change = difference << (one.number() * BITS) ^ difference << (other.number() * BITS);
        if one != other {
            self.0.fetch_xor(change, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_swapped_twice_is_as_before() {
        let databases = Databases::default();
        let all = || (0..Database::COUNT).filter_map(Database::new);
        let numbers = || all().map(|database| databases.of_engine(database).number()).collect::<Vec<_>>();
        let [zero, three, fifteen] = [0, 3, 15].map(|number| Database::new(number).expect("it is below 16"));
        let before = numbers();
        databases.swap(zero, fifteen);
        databases.swap(fifteen, three);
        databases.swap(three, three);
        assert_eq!((numbers()[0], numbers()[3], numbers()[15]), (15, 0, 3));
        assert!(all().all(|database| databases.of_clients(databases.of_engine(database)) == database));
        let note = databases.note();
        databases.swap(fifteen, three);
        databases.swap(zero, fifteen);
        assert_eq!(numbers(), before);
        assert!(!databases.restore(0x1EDC_BA98_7654_3210), "two are the same");
        assert_eq!(numbers(), before);
        assert!(databases.restore(note));
        assert_eq!((numbers()[0], numbers()[3], numbers()[15]), (15, 0, 3));
    }
}
