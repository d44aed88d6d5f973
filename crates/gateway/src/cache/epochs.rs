//! When stored responses were last taken out of use by other than their own key: purges by operators, and groups that unsafe
//! requests invalidate (RFC 9875). Nobody looks for the responses; whoever finds one asks here.
//!
//! Invalidations are numbered: the number is the place of a record in the log of purges, which is in this process for now
//! (`docs/design/purge-log.md`). A stored response keeps the number up to which it is known to be good. If that is the last one, it is
//! current: one comparison. If not, [`store::purge::PurgeIndex`] and a table of groups are asked, and if nothing takes it, the number moves on.

mod log;
pub(crate) mod membership;
mod places;
pub(crate) mod shared;
mod tags_seen;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use caching::Timestamp;
use caching::groups::{Group, Groups, write_identity};
use caching::invalidation::Target;
use parking_lot::Mutex;
use store::backing::{LogCursor, LogId, LogOffset};
use store::purge::{
    Force, Name, NameTable, PurgeId, PurgeIndex, PurgeMode, PurgeRecord, Selection, Subject, TagsMatch, What,
};

pub(crate) use self::log::{Kept, Reach, UrlKeys};

use self::log::{Recent, place_of_key};
use self::membership::{LookUp, Membership, Stamp};
use crate::cache::record::stored::StoredHead;
use crate::clock::now;

/// What was taken out of use.
pub(crate) struct Epochs {
    /// Names this list of invalidations among those of other processes, and of this one before it was started anew.
    log: LogId,
    /// Moves only when all that it counts can be found.
    count: AtomicU64,
    /// Held by whoever adds to it.
    turn: Mutex<()>,
    purges: PurgeIndex,
    groups: NameTable,
    tags_seen: tags_seen::TagsSeen,
    /// Whether anything depends on keys.
    keys_watched: AtomicBool,
    /// Whether a URL may have had another key than it has now.
    urls_moved: AtomicBool,
    recent: Recent,
    purgers: Purgers,
    shared: shared::Shared,
    hasher: RandomState,
}

/// Who purges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purgers {
    /// This instance alone. The records under the keys of a URL are changed when the URL is purged, unless it was asked for with a port.
    This,
    /// Others too, and the tier has what was stored before. What lies under a key is judged by purges of its URL.
    Several,
}

/// What was done to a stored response since it was last looked at. The numbers are those of purges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing.
    Current,
    /// It was purged softly: it is stale.
    Stale(u64),
    /// An unsafe request has changed a group of its: it is used only after validation.
    Invalidated,
    /// It was purged: no validation makes it usable, and no part completes it.
    Removed(u64),
}

impl Epochs {
    pub(crate) fn new(purgers: Purgers) -> Self {
        let drawn = || u128::from(RandomState::new().hash_one(0));
        Self {
            log: LogId((drawn() << 64 | drawn()).to_le_bytes()),
            count: AtomicU64::new(0),
            turn: Mutex::new(()),
            purges: PurgeIndex::default(),
            groups: NameTable::default(),
            tags_seen: tags_seen::TagsSeen::default(),
            keys_watched: AtomicBool::new(false),
            urls_moved: AtomicBool::new(false),
            recent: Recent::default(),
            purgers,
            shared: shared::Shared::default(),
            hasher: RandomState::new(),
        }
    }

    /// To be taken before a request is sent: what is invalidated while it is under way is newer than its response.
    pub(crate) fn stamp(&self) -> Stamp {
        Stamp(self.count.load(Ordering::Acquire))
    }

    /// A stamp as it is kept with a response.
    pub(crate) fn place_of(&self, stamp: Stamp) -> LogCursor {
        LogCursor { id: self.log, offset: LogOffset(stamp.0) }
    }

    /// The same in the log that several share, as soon as that was read.
    pub(crate) fn shared_place(&self, place: LogCursor) -> LogCursor {
        let shared = if place.id == self.log { self.shared.place_of(place.offset.0) } else { None };
        shared.unwrap_or(place)
    }

    /// The stamp of a response that was asked for at this place; all invalidations that came since have greater ones. `None` where nobody
    /// here knows what came since: the place is in the list of another process, or in a part of the log that is gone.
    pub(crate) fn stamp_at(&self, place: LogCursor) -> Option<Stamp> {
        match self.purgers {
            _ if place.id == self.log => Some(Stamp(place.offset.0)),
            Purgers::Several => self.shared.number_at(place).map(Stamp),
            // What was written by an earlier run of this process; it is older than all that is known here.
            Purgers::This => Some(Stamp::OLDEST),
        }
    }

    /// Whether nothing at all came since a response was last looked at.
    #[inline]
    pub(crate) fn is_checked(&self, head: &StoredHead) -> bool {
        head.checked().stamp() >= self.stamp()
    }

    /// What was done to the response under a key since it was last looked at. Allocates nothing.
    #[inline]
    pub(crate) fn judge(&self, key: &[u8], head: &StoredHead) -> Verdict {
        if self.is_checked(head) { Verdict::Current } else { self.look_closer(key, head) }
    }

    /// Whether a response is an answer to a request that began with this look-up: what was done to it since then is for requests that came later.
    pub(crate) fn answers(&self, look_up: LookUp, key: &[u8], head: &StoredHead) -> bool {
        head.checked().stamp() >= look_up.stamp || self.judge(key, head) == Verdict::Current
    }

    #[cold]
    fn look_closer(&self, key: &[u8], head: &StoredHead) -> Verdict {
        // What comes while it is being looked at counts next time.
        let (upto, since) = (self.stamp(), head.checked().stamp());
        let verdict = self.judge_since(key, head.membership(), since);
        if verdict == Verdict::Current {
            head.checked().0.fetch_max(upto.0, Ordering::Relaxed);
        }
        verdict
    }

    fn judge_since(&self, key: &[u8], membership: Option<&Membership>, since: Stamp) -> Verdict {
        let judged = self.purges.judge(&self.subject(key, membership), since.0);
        let is_outdated = |groups: &[Name]| groups.iter().any(|name| self.groups.last(*name) > since.0);
        if judged.hard > 0 {
            Verdict::Removed(judged.hard)
        } else if membership.is_some_and(|membership| is_outdated(&membership.groups)) {
            Verdict::Invalidated
        } else if judged.last > 0 {
            Verdict::Stale(judged.last)
        } else {
            Verdict::Current
        }
    }

    /// What a response to a request for `target` belongs to; `None` where that is nothing.
    pub(crate) fn membership(
        &self,
        groups: &Groups,
        tags: &Groups,
        target: &Target<'_>,
    ) -> Option<Membership> {
        let name = |group: Group<'_>| self.group(target, group);
        let groups = match groups {
            Groups::Named(names) if names.is_empty() => Box::default(),
            Groups::Named(names) => {
                let named = names.iter().map(|named| name(Group::Named(named)));
                std::iter::once(name(Group::All)).chain(named).collect()
            }
            Groups::TooMany => Box::new([name(Group::Any)]) as Box<[Name]>,
        };
        let tags: Option<Box<[Name]>> = match tags {
            Groups::Named(tags) => Some(tags.iter().map(|tag| self.purges.tag(tag)).collect()),
            Groups::TooMany => None,
        };
        self.tags_seen.see(tags.as_deref());
        let is_none = groups.is_empty() && tags.as_ref().is_some_and(|tags| tags.is_empty());
        (!is_none).then_some(Membership { groups, tags, key: None })
    }

    /// Whether no response that was stored here can have the tags that a purge names. What others have stored nobody here knows.
    pub(crate) fn lacks(&self, what: &What) -> bool {
        let What::Selected(Selection { tags, tags_match, .. }) = what else { return false };
        let is_absent = |tag: &String| !self.tags_seen.may_have(self.purges.tag(tag));
        let is_lacking = match tags_match {
            TagsMatch::Any => tags.iter().all(is_absent),
            TagsMatch::All => tags.iter().any(is_absent),
        };
        self.purgers == Purgers::This && !tags.is_empty() && is_lacking
    }

    /// With it, a response is outdated when what lies under this cache key is invalidated. For responses of the same
    /// URI that lie under other keys, of which there is no list. [`Self::watch_keys`] comes first.
    pub(crate) fn with_key(&self, membership: Option<Membership>, key: &[u8]) -> Membership {
        Membership { key: Some(self.name(key)), ..membership.unwrap_or_default() }
    }

    /// A look-up under the cache key of a URL, or under one that has this one as a part. The stamp is one from before it.
    pub(crate) fn look_up(&self, url_key: &[u8], stamp: Stamp) -> LookUp {
        LookUp { url: self.name(url_key), stamp }
    }

    /// Whether what the look-up found is to be as if it had never been stored.
    pub(crate) fn is_taken_away(&self, look_up: LookUp) -> bool {
        self.purges.last_of_key(look_up.url).hard > look_up.stamp.0
    }

    /// Whether what the look-up found was invalidated by its key, and what was asked for then is.
    pub(crate) fn is_overtaken(&self, look_up: LookUp) -> bool {
        self.purges.last_of_key(look_up.url).last > look_up.stamp.0
    }

    /// To be called before the stamp of the first response that depends on a key.
    pub(crate) fn watch_keys(&self) {
        self.keys_watched.store(true, Ordering::Release);
    }

    /// Whether there can be anything that depends on a key beside its own.
    pub(crate) fn watches_keys(&self) -> bool {
        self.keys_watched.load(Ordering::Acquire)
    }

    /// Invalidates what depends on the cache key of a URL, by whatever scheme and port. With an id, others are to be told.
    pub(crate) fn invalidate_key(&self, key: &[u8], force: Force, id: Option<PurgeId>) {
        if self.watches_keys() || force == Force::Hard {
            self.note(|number| {
                self.begin_own(id, number);
                self.purges.mark_key(self.name(key), force, number);
            });
        }
    }

    /// What lay under a key that was invalidated is gone now. Look-ups that began after that was noted may have found it, unless they judge what
    /// they find by its key.
    pub(crate) fn key_is_removed(&self, key: &[u8]) {
        if self.purgers == Purgers::This {
            self.invalidate_key(key, Force::Hard, None);
        }
    }

    /// Notes a purge. `keys` are those of a URL: what lies under them is the caller's to change.
    pub(crate) fn purge(&self, record: PurgeRecord, keys: &[&[u8]]) -> Arc<Kept> {
        self.purge_at(record, keys, None)
    }

    /// The same, where its record ends at a place in the log that several share.
    fn purge_at(&self, record: PurgeRecord, keys: &[&[u8]], end: Option<LogOffset>) -> Arc<Kept> {
        let force = if record.mode == PurgeMode::Hard { Force::Hard } else { Force::Soft };
        let reach = self.reach(&record.what, keys);
        self.note(|number| {
            match &reach {
                Reach::Keys(keys) => {
                    keys.iter().for_each(|key| self.purges.mark_key(self.name(key), force, number));
                }
                Reach::Url(key) => {
                    self.purges.mark_key(self.name(key), force, number);
                    self.purges.mark_url(&place_of_key(key), force, number);
                }
                Reach::Clauses(clauses) => {
                    clauses.iter().for_each(|clause| self.purges.add(clause.clone(), force, number));
                }
            }
            match end {
                Some(_) => self.note_place(end, number),
                None => self.begin_own(Some(record.id), number),
            }
            self.recent.keep(Kept { number, noted_at: now(), record, reach })
        })
    }

    /// What a purge would take.
    pub(crate) fn reach(&self, what: &What, keys: &[&[u8]]) -> Reach {
        Reach::of(what, (keys, self.url_keys()), &self.purges)
    }

    /// A reload gives URLs other keys: what is stored under those of before is still there if another one gives them back.
    pub(crate) fn urls_move(&self) {
        self.urls_moved.store(true, Ordering::Release);
    }

    fn url_keys(&self) -> UrlKeys {
        if self.urls_moved.load(Ordering::Acquire) { UrlKeys::Several } else { UrlKeys::One }
    }

    /// The purge of a number, as long as it is remembered.
    pub(crate) fn purge_of(&self, number: u64) -> Option<Arc<Kept>> {
        self.recent.numbered(number)
    }

    /// The last purge that took whatever was under a key, as far as the key tells.
    pub(crate) fn last_purge_of(&self, key: &[u8]) -> Option<Arc<Kept>> {
        self.recent.last(|kept| kept.reach.takes(key, Some(&[])))
    }

    /// Since when a response is stale that a purge has made so: since the purge, or if that is forgotten, since ever. By the clock of an instance
    /// that is ahead, the purge is still to come; to every request that begins after it took effect here, the response is stale all the same.
    pub(crate) fn stale_since(&self, number: u64, head: &StoredHead) -> Timestamp {
        let purged = self.purge_of(number).and_then(|kept| {
            let at_ms = i64::try_from(kept.record.at_ms).ok()?;
            Some(Timestamp::from_ms(at_ms).min(kept.noted_at))
        });
        purged.unwrap_or(head.facts.response_time).max(head.facts.response_time)
    }

    /// Invalidates these groups of the target's origin. With an id, others are to be told.
    pub(crate) fn invalidate(&self, groups: &Groups, target: &Target<'_>, id: Option<PurgeId>) {
        let names: Vec<Name> = match groups {
            Groups::Named(names) if names.is_empty() => return,
            Groups::Named(names) => names.iter().map(|name| self.group(target, Group::Named(name))).collect(),
            Groups::TooMany => vec![self.group(target, Group::All)],
        };
        self.mark_groups(&names, target, id);
    }

    fn mark_groups(&self, names: &[Name], target: &Target<'_>, id: Option<PurgeId>) {
        let any = self.group(target, Group::Any);
        self.note(|number| {
            self.begin_own(id, number);
            names.iter().chain([&any]).for_each(|name| self.groups.mark(*name, number));
        });
    }

    fn group(&self, target: &Target<'_>, group: Group<'_>) -> Name {
        let mut identity = Vec::new();
        write_identity(target, group, &mut identity);
        Name(self.hasher.hash_one(identity))
    }

    /// A stored response as purges see it.
    fn subject<'a>(&self, key: &'a [u8], membership: Option<&'a Membership>) -> Subject<'a> {
        let tags = membership.map_or(Some(&[][..]), Membership::tags);
        let of_url = membership.and_then(|membership| membership.key);
        let place = place_of_key(key);
        // A purge of a URL can't list the ports that it may have been stored for.
        let has_port = place.authority.len() > place.host().len();
        let own = || (has_port || self.purgers == Purgers::Several).then(|| self.purges.key(&place));
        Subject { place, tags, key: of_url.or_else(own) }
    }

    fn name(&self, key: &[u8]) -> Name {
        self.purges.key(&place_of_key(key))
    }

    /// Gives the next number away. It counts once all that it stands for can be found: a response that is looked at
    /// meanwhile stays where it is.
    fn note<T>(&self, mark: impl FnOnce(u64) -> T) -> T {
        let _turn = self.turn.lock();
        let number = self.count.load(Ordering::Relaxed) + 1;
        let marked = mark(number);
        self.count.store(number, Ordering::Release);
        marked
    }
}

#[cfg(test)]
mod tests;
