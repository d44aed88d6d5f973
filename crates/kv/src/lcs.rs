//! The longest common subsequence of two values.

use thiserror::Error;

/// Pairs of bytes that are compared at most: 4096 of each value. Everybody on the worker waits for it, some hundredths of a second.
const CELLS_MAX: usize = 1 << 24;

/// Why two values are not compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum TooLong {
    #[error("ERR LCS compares values whose lengths, multiplied, are at most {CELLS_MAX}")]
    Alone,
    /// With those that the transaction has compared before.
    #[error(
        "ERR the LCS of a transaction compare values whose lengths, multiplied, are at most {CELLS_MAX} together"
    )]
    Together,
}

/// Pairs of bytes that may still be compared before others have their turn: a transaction has as many as one command.
#[derive(Debug)]
pub(crate) struct Cells(usize);

impl Default for Cells {
    fn default() -> Self {
        Self(CELLS_MAX)
    }
}

impl Cells {
    /// Takes those of values of these lengths; the memory that comparing them takes beside them. A value without bytes has nothing in common with
    /// any.
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

/// What two values have in common.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Common {
    pub(crate) bytes: Vec<u8>,
    /// Where, from the last to the first.
    pub(crate) matches: Vec<Match>,
}

/// A part of both values, with first and last index of each.
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

/// Only how long it is.
pub(crate) fn length(first: &[u8], second: &[u8]) -> usize {
    lengths(first, second, |_, _| ())
}

/// The subsequence, and where its parts lie. Where there are several, that of Redis.
pub(crate) fn common(first: &[u8], second: &[u8]) -> Common {
    // A bit per pair says where the longer one is: all that the way back needs.
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

/// Tells for each pair whether leaving out the byte of the first keeps more than leaving out that of the second.
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
