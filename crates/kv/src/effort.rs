//! A budget for long-running work in commands. A transaction has the same budget as a single command, because
//! no other client gets a turn during it.

use std::cell::Cell;

use engine::Stored;
use thiserror::Error;

/// Bytes of values that the commands of a transaction may process together, unless a single command needs
/// more: a tenth of a second of decompression.
const VALUE_BYTES_MAX: usize = 128 << 20;
/// Bytes of an uncompressed value that are processed in the time of one compressed byte.
const PLAIN_BYTES: usize = 8;
/// After this many bytes, which take a few hundredths of a second, other clients get a turn.
const LONG_BYTES: usize = 4 << 20;
/// Keys that the commands of a transaction may scan together, which takes a few tenths of a second.
const KEYS_MAX: usize = 1 << 20;

/// A transaction exceeds its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum TooMuch {
    #[error(
        "ERR the commands of a transaction may process at most {VALUE_BYTES_MAX} bytes of values together"
    )]
    Values,
    #[error("ERR the commands of a transaction may scan at most {KEYS_MAX} keys together")]
    Keys,
}

/// Work done since the request began.
#[derive(Debug)]
pub(crate) struct Effort {
    scope: Scope,
    value_bytes: Cell<usize>,
    keys: Cell<usize>,
}

/// The unit of work that a budget covers. Only a single command can pause for other clients' turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Command,
    Transaction,
}

impl Effort {
    pub(crate) fn new(scope: Scope) -> Self {
        Self { scope, value_bytes: Cell::new(0), keys: Cell::new(0) }
    }

    pub(crate) fn scope(&self) -> Scope {
        self.scope
    }

    /// Charges `bytes` of values; the first value may be of any length. Returns whether other clients should
    /// get a turn now.
    pub(crate) fn go_through(&self, bytes: usize) -> Result<bool, TooMuch> {
        let before = self.value_bytes.get();
        let all = before.saturating_add(bytes);
        if self.scope == Scope::Transaction && before > 0 && all > VALUE_BYTES_MAX {
            return Err(TooMuch::Values);
        }
        self.value_bytes.set(all);
        Ok(is_long(all))
    }

    pub(crate) fn look_at_keys(&self, keys: usize) -> Result<(), TooMuch> {
        self.keys.set(self.keys.get().saturating_add(keys));
        if self.scope == Scope::Transaction && self.keys.get() > KEYS_MAX {
            Err(TooMuch::Keys)
        } else {
            Ok(())
        }
    }
}

/// Returns whether compressing or decompressing this many bytes takes long enough to give other clients a
/// turn.
pub(crate) fn is_long(bytes: usize) -> bool {
    bytes >= LONG_BYTES
}

/// Cost of processing a whole value.
pub(crate) fn bytes_of(stored: &Stored) -> usize {
    match stored {
        Stored::Plain(value) => value.len() / PLAIN_BYTES,
        Stored::Packed(_) => stored.value_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_goes_through_no_more_than_one_command() {
        let command = Effort::new(Scope::Command);
        for _ in 0..2 {
            assert_eq!(command.go_through(VALUE_BYTES_MAX), Ok(true));
            assert_eq!(command.look_at_keys(KEYS_MAX), Ok(()));
        }
        let transaction = Effort::new(Scope::Transaction);
        assert_eq!(transaction.go_through(LONG_BYTES - 1), Ok(false));
        assert_eq!(transaction.go_through(VALUE_BYTES_MAX), Err(TooMuch::Values));
        assert_eq!(
            transaction.go_through(VALUE_BYTES_MAX - LONG_BYTES),
            Ok(true),
            "what was refused takes none"
        );
        assert_eq!(
            Effort::new(Scope::Transaction).go_through(VALUE_BYTES_MAX * 2),
            Ok(true),
            "a value may be longer"
        );
        assert_eq!(transaction.look_at_keys(KEYS_MAX), Ok(()));
        assert_eq!(transaction.look_at_keys(1), Err(TooMuch::Keys));
    }
}
