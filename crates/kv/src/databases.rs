//! Which database of the engine a client means by a number: SWAPDB lets two numbers change places.

use engine::Database;

use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number of the engine for each number of clients, four bits each, so that both change places at once.
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
    /// For [`Databases::restore`].
    pub(crate) fn note(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// As they were when this was noted; whether that is possible. Nobody else may be executing commands.
    pub(crate) fn restore(&self, note: u64) -> bool {
        let is_named =
            |number: u64| (0..Database::COUNT).any(|chosen| note >> (chosen * BITS) & MASK == number);
        let is_possible = (0..Database::COUNT as u64).all(is_named);
        if is_possible {
            self.0.store(note, Relaxed);
        }
        is_possible
    }

    /// The one of the engine.
    pub(crate) fn of_engine(&self, chosen: Database) -> Database {
        let number = self.0.load(Relaxed) >> (chosen.number() * BITS) & MASK;
        Database::new(number as usize).unwrap_or_default()
    }

    /// The number by which clients know one of the engine.
    pub(crate) fn of_clients(&self, database: Database) -> Database {
        let is_it = |chosen: &Database| self.of_engine(*chosen) == database;
        (0..Database::COUNT).filter_map(Database::new).find(is_it).unwrap_or_default()
    }

    /// Two numbers change places. Nobody else may be executing commands.
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
