//! What one purge takes, as far as a list of names does not tell.

use super::names::Name;
use super::record::UrlScheme;

/// Where a stored response is, as its cache key says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place<'a> {
    /// The name of its site.
    pub site: &'a [u8],
    /// `http` or `https`.
    pub scheme: &'a [u8],
    /// Host in lower case, and port unless it is that of the scheme.
    pub authority: &'a [u8],
    /// As requested.
    pub path: &'a [u8],
    /// What its key has behind that, such as the query.
    pub rest: &'a [u8],
}

impl<'a> Place<'a> {
    /// Whether both are of one URL, but for scheme, port and query.
    pub fn is_same_url(&self, other: &Self) -> bool {
        (self.host(), self.path) == (other.host(), other.path)
    }

    /// Without the port.
    pub fn host(&self) -> &'a [u8] {
        host_of(self.authority)
    }
}

/// Which places are meant: those that fit each thing that is said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    /// The name of a site.
    pub site: Option<Box<str>>,
    /// A scheme.
    pub scheme: Option<UrlScheme>,
    /// A host; with a port, or with a scheme and its port, that port alone.
    pub host: Option<Box<str>>,
    /// With what the path begins.
    pub prefix: Option<Box<str>>,
}

impl Limits {
    /// Whether a place is meant.
    pub fn fit(&self, place: &Place<'_>) -> bool {
        let is_site = self.site.as_deref().is_none_or(|site| site.as_bytes() == place.site);
        let is_scheme = self.scheme.is_none_or(|scheme| scheme.as_str().as_bytes() == place.scheme);
        let prefix = self.prefix.as_deref().unwrap_or_default();
        is_site && is_scheme && self.is_host_of(place) && place.path.starts_with(prefix.as_bytes())
    }

    fn is_host_of(&self, place: &Place<'_>) -> bool {
        let Some(host) = self.host.as_deref().map(str::as_bytes) else { return true };
        let is_any_port = self.scheme.is_none() && host_of(host).len() == host.len();
        host == place.authority || (is_any_port && host == place.host())
    }

    /// What fits the one or the other fits this.
    fn joined(&self, other: &Self) -> Self {
        let prefix = self.prefix.as_deref().zip(other.prefix.as_deref());
        let prefix = prefix.map(|(one, other)| common_prefix(one, other)).filter(|prefix| !prefix.is_empty());
        Self {
            site: same(&self.site, &other.site),
            scheme: same(&self.scheme, &other.scheme),
            host: same(&self.host, &other.host),
            prefix: prefix.map(Into::into),
        }
    }

    /// How much of what both say would stay.
    fn likeness(&self, other: &Self) -> usize {
        let joined = self.joined(other);
        let own = |limits: &Self| {
            8 * usize::from(limits.site.is_some())
                + 8 * usize::from(limits.host.is_some())
                + limits.prefix.as_deref().map_or(0, str::len).min(7)
        };
        own(&joined)
    }
}

/// A set of responses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Clause {
    /// They have all of these.
    pub tags: Box<[Name]>,
    /// And are there.
    pub limits: Limits,
}

impl Clause {
    /// Whether a response at this place with these tags is one of them; `None`: it has more tags than are told apart.
    pub fn takes(&self, place: &Place<'_>, tags: Option<&[Name]>) -> bool {
        let has_tags = tags.is_none_or(|tags| self.tags.iter().all(|tag| tags.contains(tag)));
        has_tags && self.limits.fit(place)
    }

    /// What the one or the other takes, this takes.
    fn joined(&self, other: &Self) -> Self {
        let tags = self.tags.iter().filter(|tag| other.tags.contains(tag)).copied().collect();
        Self { tags, limits: self.limits.joined(&other.limits) }
    }

    fn likeness(&self, other: &Self) -> usize {
        let tags = self.tags.iter().filter(|tag| other.tags.contains(tag)).count();
        32 * tags + self.limits.likeness(&other.limits)
    }
}

/// Clauses that are told apart.
pub const CLAUSES_MAX: usize = 128;

/// Clauses with the numbers of their last purges.
#[derive(Debug)]
pub(super) struct Clauses {
    /// That with the greatest number first.
    list: Vec<Numbered>,
    max: usize,
}

#[derive(Debug, Clone)]
struct Numbered {
    clause: Clause,
    /// Of any purge.
    last: u64,
    /// Of a hard one.
    hard: u64,
}

impl Clauses {
    pub(super) fn new(max: usize) -> Self {
        Self { list: Vec::new(), max: max.max(1) }
    }

    /// Notes a purge with a number greater than all before; `hard` is the same number, or 0.
    pub(super) fn add(&mut self, clause: Clause, last: u64, hard: u64) {
        let known = self.list.iter().position(|numbered| numbered.clause == clause);
        let before = known.map(|index| self.list.remove(index).hard).unwrap_or_default();
        self.list.insert(0, Numbered { clause, last, hard: hard.max(before) });
        if self.list.len() > self.max {
            self.join_two();
        }
    }

    /// Makes one of the oldest clause and the one most like it.
    fn join_two(&mut self) {
        let Some(oldest) = self.list.pop() else { return };
        let alike = |index: &usize| oldest.clause.likeness(&self.list[*index].clause);
        // Of several the last, which is the oldest.
        let Some(index) = (0..self.list.len()).max_by_key(alike) else { return };
        let other = &mut self.list[index];
        other.clause = other.clause.joined(&oldest.clause);
        // Ordered by the greater number, which is the other's.
        other.hard = other.hard.max(oldest.hard);
    }

    /// The number of the last purge, and of the last hard one, that takes the response, as far as they are greater
    /// than `since`; else 0.
    pub(super) fn last(&self, place: &Place<'_>, tags: Option<&[Name]>, since: u64) -> (u64, u64) {
        let newer = self.list.iter().take_while(|numbered| numbered.last > since);
        let taking = newer.filter(|numbered| numbered.clause.takes(place, tags));
        taking.fold((0, 0), |(last, hard), numbered| {
            let hard_now = if numbered.hard > since { numbered.hard } else { 0 };
            (last.max(numbered.last), hard.max(hard_now))
        })
    }
}

fn same<T: Clone + PartialEq>(one: &Option<T>, other: &Option<T>) -> Option<T> {
    one.clone().filter(|_| one == other)
}

fn common_prefix<'a>(one: &'a str, other: &str) -> &'a str {
    let same = one.char_indices().zip(other.chars()).find(|((_, one), other)| one != other);
    let end = same.map_or_else(|| one.len().min(other.len()), |((at, _), _)| at);
    &one[..end]
}

/// Without a port; an IPv6 address keeps its brackets.
fn host_of(authority: &[u8]) -> &[u8] {
    let colon = authority.iter().rposition(|byte| *byte == b':');
    match colon {
        Some(colon)
            if authority[colon + 1..].iter().all(u8::is_ascii_digit) && !is_inside(authority, colon) =>
        {
            &authority[..colon]
        }
        _ => authority,
    }
}

fn is_inside(authority: &[u8], colon: usize) -> bool {
    authority[colon..].contains(&b']')
}
