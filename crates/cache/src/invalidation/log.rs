//! The last purges, which explain why a response was removed.

use std::collections::VecDeque;
use std::sync::Arc;

use caching::Timestamp;
use parking_lot::Mutex;
use store::purge::{Clause, Name, PurgeRecord, PurgeTarget, ResponseUrl};

/// A recorded purge.
#[derive(Debug)]
pub struct PurgeEntry {
    /// Number among the invalidations of this process.
    pub number: u64,
    /// Time at which the purge took effect in this process, by its own clock. The record contains the time by the purging instance's clock.
    pub noted_at: Timestamp,
    pub record: PurgeRecord,
    pub reach: Reach,
}

/// Responses of this process that a purge applies to.
#[derive(Debug)]
pub enum Reach {
    /// Entries under these cache keys, and under keys that differ only in scheme and port. There are several keys if the rules of several
    /// sites may have written the URL.
    Keys(Box<[Box<[u8]>]>),
    /// Entries under this key, and under keys of the same URL in other sites or with other queries.
    Url(Box<[u8]>),
    /// Entries that match one of these clauses.
    Clauses(Vec<Clause>),
}

impl Reach {
    /// Returns whether the purge removes a response with these tags under this key. If `tags` is `None`, returns whether it removes the
    /// response regardless of tags.
    pub fn takes(&self, key: &[u8], tags: Option<&[Name]>) -> bool {
        match self {
            Self::Keys(all) => {
                let place = place_of_key(key);
                all.iter().any(|own| is_of_url(&place_of_key(own), &place))
            }
            Self::Url(own) => place_of_key(own).is_same_url(&place_of_key(key)),
            Self::Clauses(clauses) => {
                let place = place_of_key(key);
                clauses.iter().any(|clause| clause.takes(&place, tags))
            }
        }
    }
}

/// Returns whether a key begins with the key of a URL, regardless of scheme and port. In a key, the method and other parts follow the URL.
fn is_of_url(own: &ResponseUrl<'_>, other: &ResponseUrl<'_>) -> bool {
    let query = own.rest.strip_suffix(b"\x03GET\0").unwrap_or(own.rest);
    own.site == other.site && own.is_same_url(other) && other.rest.starts_with(query)
}

/// Returns the parts of a key. Bytes that aren't a key have no parts, and only a purge of everything matches them.
pub(super) fn place_of_key(key: &[u8]) -> ResponseUrl<'_> {
    let Some(place) = caching::key::place(key) else {
        return ResponseUrl { rest: key, ..ResponseUrl::default() };
    };
    ResponseUrl {
        site: place.site,
        scheme: place.scheme,
        authority: place.authority,
        path: place.path,
        rest: place.rest,
    }
}

/// The last purges, newest last.
#[derive(Default)]
pub(super) struct Recent {
    kept: Mutex<VecDeque<Arc<PurgeEntry>>>,
}

/// Limits on the memory for purges. A purge takes 16 KiB with the longest URL, and usually about a hundred bytes.
const KEPT_MAX: usize = 256;
const KEPT_BYTES_MAX: usize = 256 << 10;

impl Recent {
    pub(super) fn keep(&self, kept: PurgeEntry) -> Arc<PurgeEntry> {
        let kept = Arc::new(kept);
        let mut list = self.kept.lock();
        list.push_back(Arc::clone(&kept));
        while list.len() > KEPT_MAX || list.iter().map(|kept| kept.bytes()).sum::<usize>() > KEPT_BYTES_MAX {
            list.pop_front();
        }
        kept
    }

    pub(super) fn numbered(&self, number: u64) -> Option<Arc<PurgeEntry>> {
        let list = self.kept.lock();
        let index = list.binary_search_by_key(&number, |kept| kept.number).ok()?;
        list.get(index).cloned()
    }

    pub(super) fn last(&self, is_it: impl Fn(&PurgeEntry) -> bool) -> Option<Arc<PurgeEntry>> {
        self.kept.lock().iter().rev().find(|kept| is_it(kept)).cloned()
    }
}

impl PurgeEntry {
    fn bytes(&self) -> usize {
        let of_what = match &self.record.what {
            PurgeTarget::Url(url) => 2 * url.len(),
            PurgeTarget::Everything => 0,
            PurgeTarget::Selected(selection) => {
                let texts = selection.site.iter().chain(&selection.host).chain(&selection.prefix);
                let tags = selection.tags.iter();
                2 * tags.chain(texts).map(|text| text.len() + size_of::<String>()).sum::<usize>()
            }
        };
        size_of::<Self>() + of_what
    }
}
