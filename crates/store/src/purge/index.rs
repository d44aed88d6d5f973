//! Was this response, asked for at offset N, purged since?

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use super::clause::{CLAUSES_MAX, Clause, Clauses, Limits, Place};
use super::names::{Name, NameTable, SETS};
use super::record::{Selection, TagsMatch, What};

/// What one process remembers of the purges that it knows.
///
/// Purges have numbers that grow: the places of their records in the log. A purge by one tag of a site or of a host, and one of a
/// cache key, costs a place in a table of 32,768; every other costs one of [`CLAUSES_MAX`] clauses.
#[derive(Debug)]
pub struct PurgeIndex {
    names: NameTable,
    /// Of those, what was purged hard.
    hard_names: NameTable,
    clauses: RwLock<Clauses>,
    /// The greatest number of a clause: most look-ups need no lock.
    last_clause: AtomicU64,
    /// The number of the last purge of a URL without regard to site and query.
    last_url: AtomicU64,
    hasher: RandomState,
}

/// Whether a purge leaves something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    /// Nothing.
    Hard,
    /// Stale responses.
    Soft,
}

/// A stored response, as far as purges ask.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Where it is.
    pub place: Place<'a>,
    /// By [`PurgeIndex::tag`]; `None`: more than are told apart.
    pub tags: Option<&'a [Name]>,
    /// By [`PurgeIndex::key`], where it is purged with another cache key than its own.
    pub key: Option<Name>,
}

/// The purges since; 0: none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Judgement {
    /// The number of the last one, or a greater one.
    pub last: u64,
    /// The number of the last hard one, or a greater one.
    pub hard: u64,
}

impl Default for PurgeIndex {
    fn default() -> Self {
        Self::with_limits(SETS, CLAUSES_MAX)
    }
}

impl PurgeIndex {
    /// With other limits than the usual ones.
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

    /// The name of a tag, wherever it is.
    pub fn tag(&self, text: &str) -> Name {
        Name(self.hasher.hash_one(text.as_bytes()))
    }

    /// The name of a cache key, and of those that differ in scheme and port alone: proxies in front and clients inside ask for one URL by several.
    pub fn key(&self, place: &Place<'_>) -> Name {
        let (site, host) = (place.site, place.host());
        let mut hasher = self.hasher.build_hasher();
        // Each look-up of what isn't stored comes here: one number for all lengths takes half the time of one for each.
        hasher.write_usize(site.len() << 48 ^ host.len() << 32 ^ place.path.len());
        [site, host, place.path, place.rest].iter().for_each(|part| hasher.write(part));
        Name(hasher.finish())
    }

    /// Notes a purge of what is stored with a cache key as a part of its own.
    pub fn mark_key(&self, key: Name, force: Force, number: u64) {
        self.mark(key, force, number);
    }

    /// Notes a purge of a URL whose site is not known, or not what it was: of what is stored for it in any
    /// site, whatever scheme, port and query.
    pub fn mark_url(&self, place: &Place<'_>, force: Force, number: u64) {
        self.mark(self.url(place), force, number);
        self.last_url.store(number, Ordering::Release);
    }

    /// What a purge takes that is not of one URL: what one of these takes.
    pub fn clauses(&self, what: &What) -> Vec<Clause> {
        let Selection { tags, tags_match, site, host, scheme, prefix } = match what {
            What::Url(_) => return Vec::new(),
            What::Everything => return vec![Clause::default()],
            What::Selected(selection) => selection,
        };
        let text = |text: &Option<String>| text.as_deref().map(Into::into);
        let limits = Limits { site: text(site), scheme: *scheme, host: text(host), prefix: text(prefix) };
        let clause = |tags: &[String]| Clause {
            tags: tags.iter().map(|tag| self.tag(tag)).collect(),
            limits: limits.clone(),
        };
        match tags_match {
            TagsMatch::Any if tags.len() > 1 => tags.chunks(1).map(clause).collect(),
            TagsMatch::Any | TagsMatch::All => vec![clause(tags)],
        }
    }

    /// The last purges of a cache key.
    pub fn last_of_key(&self, key: Name) -> Judgement {
        let hard = self.hard_names.last(key);
        Judgement { last: self.names.last(key).max(hard), hard }
    }

    /// Notes a purge. Numbers never fall.
    pub fn add(&self, clause: Clause, force: Force, number: u64) {
        if let Some(names) = self.as_names(&clause) {
            return names.into_iter().for_each(|name| self.mark(name, force, number));
        }
        let hard = if force == Force::Hard { number } else { 0 };
        self.clauses.write().add(clause, number, hard);
        self.last_clause.store(number, Ordering::Release);
    }

    /// The purges since `since` that take a response. Allocates nothing.
    pub fn judge(&self, subject: &Subject<'_>, since: u64) -> Judgement {
        let mut judged = Judgement::default();
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

    fn mark(&self, name: Name, force: Force, number: u64) {
        self.names.mark(name, number);
        if force == Force::Hard {
            self.hard_names.mark(name, number);
        }
    }

    /// Names that say the same as a clause of one tag with a site or a host. The second one is for those with more tags than are told apart.
    fn as_names(&self, clause: &Clause) -> Option<[Name; 2]> {
        let [tag] = clause.tags[..] else { return None };
        let scope = match &clause.limits {
            Limits { site: Some(site), host: None, scheme: None, prefix: None } => self.site(site.as_bytes()),
            Limits { site: None, host: Some(host), scheme: None, prefix: None } => self.host(host.as_bytes()),
            _ => return None,
        };
        Some([scope.of(tag), scope.of(ANY_TAG)])
    }

    /// Those that [`Self::as_names`] may have marked for what takes this response.
    fn each_name(&self, (subject, url): (&Subject<'_>, Option<Name>), mut look: impl FnMut(Name)) {
        subject.key.into_iter().chain(url).for_each(&mut look);
        let tags = subject.tags.unwrap_or(&[ANY_TAG]);
        if tags.is_empty() {
            return;
        }
        let Place { site, authority, .. } = subject.place;
        let host = subject.place.host();
        let with_port = (authority.len() > host.len()).then(|| self.host(authority));
        for scope in [Some(self.site(site)), Some(self.host(host)), with_port].into_iter().flatten() {
            tags.iter().for_each(|tag| look(scope.of(*tag)));
        }
    }

    fn url(&self, place: &Place<'_>) -> Name {
        Name(self.hasher.hash_one((b"url", place.host(), place.path)))
    }

    fn site(&self, site: &[u8]) -> Scope {
        Scope(self.hasher.hash_one((b"site", site)))
    }

    fn host(&self, host: &[u8]) -> Scope {
        Scope(self.hasher.hash_one((b"host", host)))
    }
}

/// Where a tag is meant.
#[derive(Clone, Copy)]
struct Scope(u64);

impl Scope {
    /// Both are hashes that nobody can foretell, and so is their sum.
    fn of(self, tag: Name) -> Name {
        Name(self.0.wrapping_add(tag.0.rotate_left(32)))
    }
}

/// Stands for any tag. No hash is more likely to be another's than this one.
const ANY_TAG: Name = Name(0);
