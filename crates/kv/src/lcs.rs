//! The longest common subsequence of two values, for LCS.

use thiserror::Error;

/// Maximum number of byte pairs compared: 4096 bytes of each value. The comparison blocks the worker for a
/// few hundredths of a second.
const CELLS_MAX: usize = 1 << 24;

/// Reasons for refusing to compare two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum TooLong {
    #[error("ERR the product of both lengths may be at most {CELLS_MAX}")]
    Alone,
    /// The total with earlier comparisons of the transaction is too large.
    #[error(
        "ERR the products of the lengths may be at most {CELLS_MAX} in total for the LCS commands of a transaction"
    )]
    Together,
}

/// A budget of byte pairs. A transaction has the same budget as a single command.
#[derive(Debug)]
pub(crate) struct Cells(usize);

impl Default for Cells {
    fn default() -> Self {
        Self(CELLS_MAX)
    }
}

impl Cells {
    /// Takes the byte pairs of two values with these lengths from the budget, and returns the memory that the
    /// comparison needs in addition to the values. An empty value costs nothing.
    pub(crate) fn take(&mut self, first: usize, second: usize) -> Result<usize, TooLong> {
        if first == 0 || second == 0 {
            return Ok(0);
        }
        let cells = first.saturating_mul(second);
        if cells > CELLS_MAX {
            return Err(TooLong::Alone);
        }
        self.0 = self.0.checked_sub(cells).ok_or(TooLong::Together)?;
        Ok(cells / 8 + (second + 1) * size_of::<u32>())
    }
}

/// The common subsequence of two values.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Common {
    pub(crate) bytes: Vec<u8>,
    /// The matching parts, from the last to the first.
    pub(crate) matches: Vec<Match>,
}

/// A part that occurs in both values, with its first and last index in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Match {
    pub(crate) first: (usize, usize),
    pub(crate) second: (usize, usize),
}

impl Match {
    pub(crate) fn length(self) -> usize {
        self.first.1 - self.first.0 + 1
    }
}

/// Returns only the length of the subsequence.
pub(crate) fn length(first: &[u8], second: &[u8]) -> usize {
    lengths(first, second, |_, _| ())
}

/// Returns the subsequence and its parts. If there are several subsequences, the choice is the same as in
/// Redis.
pub(crate) fn common(first: &[u8], second: &[u8]) -> Common {
    // One bit per pair suffices to trace the subsequence back.
    let mut goes_first = vec![0_u64; (first.len() * second.len()).div_ceil(64)];
    let length = lengths(first, second, |cell, is_first| {
        goes_first[cell / 64] |= u64::from(is_first) << (cell % 64);
    });
    let (mut at, mut matches) = ((first.len(), second.len()), Vec::<Match>::new());
    let mut bytes = Vec::with_capacity(length);
    while at.0 > 0 && at.1 > 0 {
        let (one, other) = (at.0 - 1, at.1 - 1);
        let cell = one * second.len() + other;
        if first[one] == second[other] {
            bytes.push(first[one]);
            match matches.last_mut() {
                Some(last) if last.first.0 == at.0 && last.second.0 == at.1 => {
                    (last.first.0, last.second.0) = (one, other);
                }
                _ => matches.push(Match { first: (one, one), second: (other, other) }),
            }
            at = (one, other);
        } else if goes_first[cell / 64] >> (cell % 64) & 1 == 1 {
            at.0 -= 1;
        } else {
            at.1 -= 1;
        }
    }
    bytes.reverse();
    Common { bytes, matches }
}

/// For each pair, reports to `tell` whether dropping the byte of the first value leaves a longer subsequence
/// than dropping the byte of the second value.
fn lengths(first: &[u8], second: &[u8], mut tell: impl FnMut(usize, bool)) -> usize {
    let mut row = vec![0_u32; second.len() + 1];
    for (line, one) in first.iter().enumerate() {
        let mut diagonal = 0;
        for (column, other) in second.iter().enumerate() {
            let (above, left) = (row[column + 1], row[column]);
            row[column + 1] = if one == other { diagonal + 1 } else { above.max(left) };
            tell(line * second.len() + column, above > left);
            diagonal = above;
        }
    }
    row.last().map_or(0, |length| *length as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_compares_no_more_than_one_command() {
        let mut cells = Cells::default();
        assert_eq!(cells.take(4096, 4097), Err(TooLong::Alone));
        assert_eq!(cells.take(4096, 2048), Ok((1 << 20) + 2049 * 4));
        assert_eq!(cells.take(4096, 4096), Err(TooLong::Together));
        assert!(cells.take(2048, 4096).is_ok(), "what was refused takes none");
        assert_eq!(cells.take(1, 1), Err(TooLong::Together));
        assert_eq!([cells.take(0, 1 << 30), cells.take(1 << 30, 0)], [Ok(0), Ok(0)]);
        assert_eq!(cells.take(usize::MAX, 2), Err(TooLong::Alone));
    }

    #[test]
    fn parts_come_from_the_last_to_the_first() {
        let found = common(b"ohmytext", b"mynewtext");
        assert_eq!(found.bytes, b"mytext");
        let expected = [((4, 7), (5, 8)), ((2, 3), (0, 1))];
        assert_eq!(found.matches, expected.map(|(first, second)| Match { first, second }));
        assert_eq!(found.matches.iter().map(|part| part.length()).collect::<Vec<_>>(), [4, 2]);
    }

    #[test]
    fn its_length_is_that_of_what_is_found() {
        let values: [&[u8]; 6] = [b"", b"a", b"abcbdab", b"bdcaba", b"xyz", b"aaaaaaaaaa"];
        for first in values {
            for second in values {
                let found = common(first, second);
                assert_eq!(found.bytes.len(), length(first, second));
                assert_eq!(found.matches.iter().map(|part| part.length()).sum::<usize>(), found.bytes.len());
            }
        }
        assert_eq!(length(b"abcbdab", b"bdcaba"), 4);
    }
}
