//! What the note of a forward that failed says, for those who waited for that very one.

/// How long the cause is at most: with both ids a reason has 64 bytes.
pub const FAILURE_CAUSE_BYTES_MAX: usize = 30;

/// How a forward failed, in the reason of a note that its holder gave up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure<'a> {
    /// A status code, or an error type of RFC 9209: digits, lower-case letters and hyphens.
    pub cause: &'a str,
    /// Which forward.
    pub forward: u64,
    /// The forward whose place it took, as that had failed.
    pub relieves: Option<u64>,
}

impl<'a> Failure<'a> {
    /// As it stands in the note; `None` for a cause that can't stand there.
    pub fn to_reason(&self) -> Option<String> {
        let relieved = self.relieves.map(|id| format!(" {id:016x}")).unwrap_or_default();
        is_cause(self.cause).then(|| format!("{} {:016x}{relieved}", self.cause, self.forward))
    }

    /// `None` where the reason says nothing, or something else.
    pub fn of_reason(reason: &'a [u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(reason).ok()?.split(' ');
        let cause = words.next().filter(|cause| is_cause(cause))?;
        let forward = forward_id(words.next()?)?;
        let relieves = match words.next() {
            None => None,
            Some(word) => Some(forward_id(word)?),
        };
        words.next().is_none().then_some(Self { cause, forward, relieves })
    }
}

/// Reads the id of a forward: 16 hexadecimal digits in lower case.
pub fn forward_id(word: &str) -> Option<u64> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_id = word.len() == 16 && word.bytes().all(is_digit);
    is_id.then(|| u64::from_str_radix(word, 16).ok()).flatten()
}

fn is_cause(word: &str) -> bool {
    let is_part = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'-');
    (1..=FAILURE_CAUSE_BYTES_MAX).contains(&word.len()) && word.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_reason_says_all_or_nothing() {
        let id = "0123456789abcdef";
        let failure = Failure { cause: "503", forward: 0x0123_4567_89ab_cdef, relieves: None };
        assert_eq!(failure.to_reason(), Some(format!("503 {id}")));
        let relief = Failure { relieves: Some(1), ..failure };
        assert_eq!(relief.to_reason(), Some(format!("503 {id} 0000000000000001")));
        let longest = "x".repeat(FAILURE_CAUSE_BYTES_MAX);
        assert_eq!(Failure { cause: &longest, ..relief }.to_reason().map(|reason| reason.len()), Some(64));
        for cause in ["", "a b", "A", "\u{e4}", &format!("{longest}x")] {
            assert_eq!(Failure { cause, ..failure }.to_reason(), None, "{cause:?}");
        }
        for reason in [
            String::new(),
            "503".to_owned(),
            format!(" {id}"),
            format!("503 {id} "),
            format!("503  {id}"),
            format!("503 {id} {id} {id}"),
            format!("503 {}", &id[1..]),
            format!("503 +{}", &id[1..]),
            format!("503 {}", id.to_uppercase()),
        ] {
            assert_eq!(Failure::of_reason(reason.as_bytes()), None, "{reason:?}");
        }
    }

    proptest! {
        #[test]
        fn a_reason_comes_back(cause in "[a-z0-9-]{1,30}", forward: u64, relieves: Option<u64>, noise: Vec<u8>) {
            let failure = Failure { cause: &cause, forward, relieves };
            let reason = failure.to_reason().unwrap();
            prop_assert_eq!(Failure::of_reason(reason.as_bytes()), Some(failure));
            if let Some(read) = Failure::of_reason(&noise) {
                prop_assert_eq!(read.to_reason().map(String::into_bytes), Some(noise));
            }
        }
    }
}
