//! Vocabulary of the option table: the types of the crate `option_table`, and rows that several tables share.

pub(super) use option_table::Kind::*;
pub(super) use option_table::{FIELD_NAMES, KeyForm, Kind, PARAMETERS, Section, row, section};

use crate::config::words::Word;

/// Returns the kind of a value that must be one of the words of `T`.
pub(super) const fn one_of<T: Word>() -> Kind {
    Choice(T::WORDS)
}

const SECOND_MS: u64 = 1_000;
pub(super) const HOUR_MS: u64 = 3_600 * SECOND_MS;
pub(super) const DAY_MS: u64 = 24 * HOUR_MS;
pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
pub(super) const TIB: u64 = 1 << 40;

/// A time limit: never zero, which could mean "at once" or "never".
pub(super) const LIMIT: Kind = Duration(1..=DAY_MS);
pub(super) const FILE: Kind = Text("path of a file, relative to the configuration file");
pub(super) const NETWORKS: Kind = List(&Text("IP address or network, such as `10.0.0.0/8`"));
pub(super) const STATUSES: Kind = List(&Status);
