//! Clauses: conditions of purges that can't be expressed as names.

use super::names::Name;
use super::record::UrlScheme;

/// Site and URL of a stored response, from its cache key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResponseUrl<'a> {
    /// Name of the site.
    pub site: &'a [u8],
    /// `http` or `https`.
    pub scheme: &'a [u8],
    /// Host in lower case, with the port unless it is the scheme's default.
    pub authority: &'a [u8],
    /// Path as requested.
    pub path: &'a [u8],
    /// Remaining parts of the cache key, such as the query.
    pub rest: &'a [u8],
}

impl<'a> ResponseUrl<'a> {
    /// Returns whether both have the same URL, apart from scheme, port and query.
    pub fn is_same_url(&self, other: &Self) -> bool {
        (self.host(), self.path) == (other.host(), other.path)
    }

    /// Returns the host without the port.
    pub fn host(&self) -> &'a [u8] {
        host_of(self.authority)
    }
}

/// Conditions on site and URL. A response must meet every given condition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UrlConditions {
    /// Name of the site.
    pub site: Option<Box<str>>,
    /// Scheme of the URL.
    pub scheme: Option<UrlScheme>,
    /// Host of the URL. A host without a port matches any port or, if `scheme` is set, only the port of that scheme.
    pub host: Option<Box<str>>,
    /// Prefix of the path.
    pub prefix: Option<Box<str>>,
}

impl UrlConditions {
    /// Returns whether a site and URL meet all conditions.
    pub fn fit(&self, place: &ResponseUrl<'_>) -> bool {
        let is_site = self.site.as_deref().is_none_or(|site| site.as_bytes() == place.site);
        let is_scheme = self.scheme.is_none_or(|scheme| scheme.as_str().as_bytes() == place.scheme);
        let prefix = self.prefix.as_deref().unwrap_or_default();
        is_site && is_scheme && self.is_host_of(place) && place.path.starts_with(prefix.as_bytes())
    }

    fn is_host_of(&self, place: &ResponseUrl<'_>) -> bool {
        let Some(host) = self.host.as_deref().map(str::as_bytes) else { return true };
        let is_any_port = self.scheme.is_none() && host_of(host).len() == host.len();
        host == place.authority || (is_any_port && host == place.host())
    }

    /// Returns conditions that are met whenever these or `other` are met.
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

    /// Returns a number that is higher if the joined conditions would be more specific.
    fn likeness(&self, other: &Self) -> usize {
        let joined = self.joined(other);
        8 * usize::from(joined.site.is_some())
            + 8 * usize::from(joined.host.is_some())
            + joined.prefix.as_deref().map_or(0, str::len).min(7)
    }
}

/// A set of responses: those that have all of the tags and meet the conditions in `limits`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Clause {
    /// Tags that a response must have.
    pub tags: Box<[Name]>,
    /// Conditions on its site and URL.
    pub limits: UrlConditions,
}

impl Clause {
    /// Returns whether the clause matches a response with this URL and these tags; `None` for a response with too many tags to list.
    pub fn takes(&self, place: &ResponseUrl<'_>, tags: Option<&[Name]>) -> bool {
        let has_tags = tags.is_none_or(|tags| self.tags.iter().all(|tag| tags.contains(tag)));
        has_tags && self.limits.fit(place)
    }

    /// Returns a clause that matches everything that this clause or `other` matches.
    fn joined(&self, other: &Self) -> Self {
        let tags = self.tags.iter().filter(|tag| other.tags.contains(tag)).copied().collect();
        Self { tags, limits: self.limits.joined(&other.limits) }
    }

    fn likeness(&self, other: &Self) -> usize {
        let tags = self.tags.iter().filter(|tag| other.tags.contains(tag)).count();
        32 * tags + self.limits.likeness(&other.limits)
    }
}

/// Maximum number of clauses in an index.
pub const CLAUSES_MAX: usize = 128;

/// Clauses with the numbers of their last purges.
#[derive(Debug)]
pub(super) struct Clauses {
    /// Ordered by number, highest first.
    list: Vec<NumberedClause>,
    max: usize,
}

#[derive(Debug, Clone)]
struct NumberedClause {
    clause: Clause,
    /// Number of the last purge.
    last: u64,
    /// Number of the last hard purge.
    hard: u64,
}

impl Clauses {
    pub(super) fn new(max: usize) -> Self {
        Self { list: Vec::new(), max: max.max(1) }
    }

    /// Records a purge with a higher number than all earlier ones; `hard` is the same number for a hard purge, and otherwise 0.
    pub(super) fn add(&mut self, clause: Clause, last: u64, hard: u64) {
        let known = self.list.iter().position(|numbered| numbered.clause == clause);
        let before = known.map(|index| self.list.remove(index).hard).unwrap_or_default();
        self.list.insert(0, NumberedClause { clause, last, hard: hard.max(before) });
        if self.list.len() > self.max {
            self.join_two();
        }
    }

    /// Joins the oldest clause with the one most similar to it.
    fn join_two(&mut self) {
        let Some(oldest) = self.list.pop() else { return };
        let alike = |index: &usize| oldest.clause.likeness(&self.list[*index].clause);
        // If several are equally similar, this picks the last one, which is the oldest.
        let Some(index) = (0..self.list.len()).max_by_key(alike) else { return };
        let other = &mut self.list[index];
        other.clause = other.clause.joined(&oldest.clause);
        // The joined clause keeps the higher number, which is that of `other`, so the list stays ordered.
        other.hard = other.hard.max(oldest.hard);
    }

    /// Returns the numbers of the last purge and of the last hard purge that match the response, if they are greater than `since`;
    /// otherwise 0.
    pub(super) fn last(&self, place: &ResponseUrl<'_>, tags: Option<&[Name]>, since: u64) -> (u64, u64) {
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

/// Returns an authority without its port; an IPv6 address keeps its brackets.
fn host_of(authority: &[u8]) -> &[u8] {
    let Some(colon) = authority.iter().rposition(|byte| *byte == b':') else { return authority };
    // The last colon of an IPv6 address is followed by a bracket, which isn't a digit.
    if authority[colon + 1..].iter().all(u8::is_ascii_digit) { &authority[..colon] } else { authority }
}
