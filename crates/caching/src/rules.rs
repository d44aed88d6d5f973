//! What the operator decided for the requests that matched.

/// The operator's decisions that bear on storing and reuse. The defaults follow RFC 9111 and refuse
/// what it leaves open and what often goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Whether anything is stored or reused at all.
    pub enabled: bool,
    /// Lifetimes from the arrival that count in place of whatever the response says. What the response forbids
    /// (`no-store`, `private`, `no-cache`) stays forbidden.
    pub override_ttl: TtlTable,
    /// Lifetimes from the arrival of responses that say nothing about theirs.
    pub default_ttl: TtlTable,
    /// Lifetime guessed from `Last-Modified` where nothing else is known.
    pub heuristic: Option<Heuristic>,
    /// Whether responses with `Set-Cookie` are stored, the field included.
    pub store_set_cookie: bool,
    /// Whether `Cache-Control` and `Pragma` of requests count.
    pub honour_request_directives: bool,
    /// Stale responses while a validation runs.
    pub stale_while_revalidate: StaleLimit,
    /// Stale responses when the origin server fails or cannot be reached.
    pub stale_if_error: StaleLimit,
    /// The longest that a request's `max-stale` is granted, in milliseconds past expiry.
    pub max_stale_max_ms: u64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            enabled: true,
            override_ttl: TtlTable::default(),
            default_ttl: TtlTable::default(),
            heuristic: None,
            store_set_cookie: false,
            honour_request_directives: true,
            stale_while_revalidate: StaleLimit::default(),
            stale_if_error: StaleLimit::default(),
            max_stale_max_ms: DAY_MS,
        }
    }
}

/// How long past its expiry a response may be used, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaleLimit {
    /// Where neither response nor request says.
    pub default_ms: u64,
    /// At most, whatever they say.
    pub max_ms: u64,
}

impl StaleLimit {
    /// What is granted when `asked_ms` is asked for.
    pub(crate) fn grant_ms(self, asked_ms: Option<u64>) -> u64 {
        asked_ms.unwrap_or(self.default_ms).min(self.max_ms)
    }
}

impl Default for StaleLimit {
    fn default() -> Self {
        Self { default_ms: 0, max_ms: DAY_MS }
    }
}

/// A guessed lifetime: a share of the time since the last modification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heuristic {
    /// The share in percent; 10 is usual.
    pub percent: u8,
    /// At most, in milliseconds.
    pub max_ms: u64,
}

/// Which status codes an entry of a [`TtlTable`] is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatusMatch {
    /// This code.
    Exact(u16),
    /// All codes with this first digit.
    Class(u8),
    /// All codes.
    Any,
}

impl StatusMatch {
    fn matches(self, status: u16) -> bool {
        match self {
            Self::Exact(code) => status == code,
            Self::Class(digit) => status / 100 == u16::from(digit),
            Self::Any => true,
        }
    }
}

/// Lifetimes by status code; the most specific entry counts, and of equal ones the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TtlTable {
    entries: Vec<(StatusMatch, u64)>,
}

impl TtlTable {
    /// From pairs of status match and lifetime in milliseconds.
    pub fn new(entries: impl IntoIterator<Item = (StatusMatch, u64)>) -> Self {
        let mut entries: Vec<_> = entries.into_iter().collect();
        entries.sort_by_key(|(status, _)| match status {
            StatusMatch::Exact(_) => 0,
            StatusMatch::Class(_) => 1,
            StatusMatch::Any => 2,
        });
        Self { entries }
    }

    /// The lifetime for `status` in milliseconds, if the table has one.
    pub fn ttl_ms(&self, status: u16) -> Option<u64> {
        self.entries.iter().find(|(matcher, _)| matcher.matches(status)).map(|(_, ttl_ms)| *ttl_ms)
    }
}

const DAY_MS: u64 = 86_400_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_entry_counts() {
        let table = TtlTable::new([
            (StatusMatch::Any, 1),
            (StatusMatch::Class(4), 2),
            (StatusMatch::Exact(404), 3),
            (StatusMatch::Exact(404), 4),
        ]);
        assert_eq!([200, 403, 404].map(|status| table.ttl_ms(status)), [Some(1), Some(2), Some(3)]);
        assert_eq!(TtlTable::default().ttl_ms(200), None);
    }
}
