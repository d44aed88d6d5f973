//! Index of purges: has this response, fetched at offset N of the log, been purged since?

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use super::clause::{CLAUSES_MAX, Clause, Clauses, ResponseUrl, UrlConditions};
use super::names::{Name, NameTable, SETS};
use super::record::{PurgeTarget, Selection, TagsMatch};

/// The purges known to one process.
///
/// Purges have increasing numbers: the offsets of their records in the log. A purge of a cache key, or by one tag within a site or a host,
/// takes an entry in a table of 32,768; any other purge takes one of [`CLAUSES_MAX`] clauses.
#[derive(Debug)]
pub struct PurgeIndex {
    names: NameTable,
    /// Names with the numbers of their last hard purges.
    hard_names: NameTable,
    clauses: RwLock<Clauses>,
    /// Highest number of a clause, so that most look-ups need no lock.
    last_clause: AtomicU64,
    /// Number of the last purge that covered a URL in all sites and with any query.
    last_url: AtomicU64,
    hasher: RandomState,
}

/// Effect of a purge on the responses that it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PurgeEffect {
    /// They are removed.
    Hard,
    /// They become stale.
    Soft,
}

/// The properties of a stored response against which purges match.
#[derive(Debug, Clone, Copy)]
pub struct PurgeSubject<'a> {
    /// Site and URL of the response.
    pub place: ResponseUrl<'a>,
    /// Its tags, as returned by [`PurgeIndex::tag`]; `None` if there are too many to list.
    pub tags: Option<&'a [Name]>,
    /// Name from [`PurgeIndex::key`] of another cache key by which the response is purged too, if there is one.
    pub key: Option<Name>,
}

/// Numbers of the last purges that match a response; 0 if there are none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LastPurges {
    /// Number of the last purge, or a higher one.
    pub last: u64,
    /// Number of the last hard purge, or a higher one.
    pub hard: u64,
}

impl Default for PurgeIndex {
    fn default() -> Self {
        Self::with_limits(SETS, CLAUSES_MAX)
    }
}

impl PurgeIndex {
    /// Creates an index with limits other than the defaults.
    pub fn with_limits(sets: usize, clauses_max: usize) -> Self {
        Self {
            names: NameTable::with_sets(sets),
            hard_names: NameTable::with_sets(sets),
            clauses: RwLock::new(Clauses::new(clauses_max)),
            last_clause: AtomicU64::new(0),
            last_url: AtomicU64::new(0),
            hasher: RandomState::new(),
        }
    }

    /// Returns the name of a tag, in any site.
    pub fn tag(&self, text: &str) -> Name {
        Name(self.hasher.hash_one(text.as_bytes()))
    }

    /// Returns the name of a cache key. Keys that differ only in scheme and port share a name, because clients and proxies may request the
    /// same URL with different schemes and ports.
    pub fn key(&self, place: &ResponseUrl<'_>) -> Name {
        let (site, host) = (place.site, place.host());
        let mut hasher = self.hasher.build_hasher();
        // Every look-up of a missing key runs this code. Hashing one number that combines all lengths takes half the time of hashing each
        // length.
        hasher.write_usize(site.len() << 48 ^ host.len() << 32 ^ place.path.len());
        [site, host, place.path, place.rest].iter().for_each(|part| hasher.write(part));
        Name(hasher.finish())
    }

    /// Records a purge of all responses whose keys contain this cache key.
    pub fn mark_key(&self, key: Name, force: PurgeEffect, number: u64) {
        self.mark(key, force, number);
    }

    /// Records a purge of a URL whose site is unknown or has changed. It matches all responses stored for the URL in any site, with any
    /// scheme, port and query.
    pub fn mark_url(&self, place: &ResponseUrl<'_>, force: PurgeEffect, number: u64) {
        self.mark(self.url(place), force, number);
        self.last_url.store(number, Ordering::Release);
    }

    /// Returns the clauses of a purge. The purge matches each response that one of them matches. The list is empty for a purge of one URL.
    pub fn clauses(&self, what: &PurgeTarget) -> Vec<Clause> {
        let Selection { tags, tags_match, site, host, scheme, prefix } = match what {
            PurgeTarget::Url(_) => return Vec::new(),
            PurgeTarget::Everything => return vec![Clause::default()],
            PurgeTarget::Selected(selection) => selection,
        };
        let text = |text: &Option<String>| text.as_deref().map(Into::into);
        let limits =
            UrlConditions { site: text(site), scheme: *scheme, host: text(host), prefix: text(prefix) };
        let clause = |tags: &[String]| Clause {
            tags: tags.iter().map(|tag| self.tag(tag)).collect(),
            limits: limits.clone(),
        };
        match tags_match {
            TagsMatch::Any if tags.len() > 1 => tags.chunks(1).map(clause).collect(),
            TagsMatch::Any | TagsMatch::All => vec![clause(tags)],
        }
    }

    /// Returns the last purges of a cache key.
    pub fn last_of_key(&self, key: Name) -> LastPurges {
        let hard = self.hard_names.last(key);
        LastPurges { last: self.names.last(key).max(hard), hard }
    }

    /// Records a purge. Numbers never decrease.
    pub fn add(&self, clause: Clause, force: PurgeEffect, number: u64) {
        if let Some(names) = self.as_names(&clause) {
            return names.into_iter().for_each(|name| self.mark(name, force, number));
        }
        let hard = if force == PurgeEffect::Hard { number } else { 0 };
        self.clauses.write().add(clause, number, hard);
        self.last_clause.store(number, Ordering::Release);
    }

    /// Returns the purges after `since` that match a response. Doesn't allocate.
    pub fn judge(&self, subject: &PurgeSubject<'_>, since: u64) -> LastPurges {
        let mut judged = LastPurges::default();
        if self.last_clause.load(Ordering::Acquire) > since {
            (judged.last, judged.hard) = self.clauses.read().last(&subject.place, subject.tags, since);
        }
        let url = || (self.last_url.load(Ordering::Acquire) > since).then(|| self.url(&subject.place));
        self.each_name((subject, url()), |name| {
            let (last, hard) = (self.names.last(name), self.hard_names.last(name));
            judged.last = judged.last.max(if last > since { last } else { 0 });
            judged.hard = judged.hard.max(if hard > since { hard } else { 0 });
        });
        judged.last = judged.last.max(judged.hard);
        judged
    }

    fn mark(&self, name: Name, force: PurgeEffect, number: u64) {
        self.names.mark(name, number);
        if force == PurgeEffect::Hard {
            self.hard_names.mark(name, number);
        }
    }

    /// Returns the names that represent a clause, if it has one tag with a site or a host. The second name is for responses with too many
    /// tags to list.
    fn as_names(&self, clause: &Clause) -> Option<[Name; 2]> {
        let [tag] = clause.tags[..] else { return None };
        let scope = match &clause.limits {
            UrlConditions { site: Some(site), host: None, scheme: None, prefix: None } => {
                self.site(site.as_bytes())
            }
            UrlConditions { site: None, host: Some(host), scheme: None, prefix: None } => {
                self.host(host.as_bytes())
            }
            _ => return None,
        };
        Some([scope.of(tag), scope.of(ANY_TAG)])
    }

    /// Calls `look` with each name by which a purge of this response may have been recorded.
    fn each_name(&self, (subject, url): (&PurgeSubject<'_>, Option<Name>), mut look: impl FnMut(Name)) {
        subject.key.into_iter().chain(url).for_each(&mut look);
        let tags = subject.tags.unwrap_or(&[ANY_TAG]);
        if tags.is_empty() {
            return;
        }
        let ResponseUrl { site, authority, .. } = subject.place;
        let host = subject.place.host();
        let with_port = (authority.len() > host.len()).then(|| self.host(authority));
        for scope in [Some(self.site(site)), Some(self.host(host)), with_port].into_iter().flatten() {
            tags.iter().for_each(|tag| look(scope.of(*tag)));
        }
    }

    fn url(&self, place: &ResponseUrl<'_>) -> Name {
        Name(self.hasher.hash_one((b"url", place.host(), place.path)))
    }

    fn site(&self, site: &[u8]) -> Scope {
        Scope(self.hasher.hash_one((b"site", site)))
    }

    fn host(&self, host: &[u8]) -> Scope {
        Scope(self.hasher.hash_one((b"host", host)))
    }
}

/// Site or host within which a tag is purged.
#[derive(Clone, Copy)]
struct Scope(u64);

impl Scope {
    /// Returns the name of a tag in this scope. Scope and tag are unpredictable hashes, and so is their sum.
    fn of(self, tag: Name) -> Name {
        Name(self.0.wrapping_add(tag.0.rotate_left(32)))
    }
}

/// Represents any tag. A tag has this hash with no higher probability than any other.
const ANY_TAG: Name = Name(0);
