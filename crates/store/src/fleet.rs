//! Who shares a tier, and how far each has read its log: what an acknowledgement of a purge rests on.
//!
//! Each instance keeps a record of its own with a time to live, and its id in a list that all share. A tier may forget anything, so an
//! instance that was seen lately counts until its record has ended, whether the list has it or not; and a list that was begun anew
//! says nothing until all had time to come back to it.
//!
//! The bytes are in `docs/design/coherence.md`.

mod bytes;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

pub use self::bytes::{FormatError, MEMBERS_MAX, Member, NAME_BYTES_MAX};
pub(crate) use self::bytes::{decode_list, encode_list};

use crate::backing::{Backing, BackingError, Expected, Loaded, LogCursor, Put, Tracking, Write};

/// Names one instance, from its start to its end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InstanceId(pub [u8; 16]);

/// One instance among those that share a tier.
pub struct Fleet {
    backing: Arc<dyn Backing>,
    me: InstanceId,
    name: Box<str>,
    verification: Duration,
    /// The ids of lists that were begun here differ by it.
    begun_count: AtomicU32,
    known: Mutex<Known>,
    /// Held by whoever tells the others of this instance: the last word is the last that they hear.
    standing: tokio::sync::Mutex<Standing>,
}

/// What this instance is to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Member,
    /// It has said that it ends.
    Left,
}

/// What was last known of the others.
#[derive(Default)]
struct Known {
    members: HashMap<InstanceId, Seen>,
    /// Which list there is, and since when.
    list: Option<(ListId, Instant)>,
}

/// Names one list: one that was lost and begun anew has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListId {
    pub(crate) begun_by: InstanceId,
    pub(crate) count: u32,
}

/// What was last known of an instance.
struct Seen {
    name: Box<str>,
    at: Instant,
}

/// How far an instance came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Which one.
    pub id: InstanceId,
    /// What its operator calls it.
    pub name: Box<str>,
    /// After how long it was known to have read the log that far; `None`: it was not, in time.
    pub after: Option<Duration>,
}

/// What is known of a place in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    /// All instances that share the tier, this one among them.
    pub instances: Vec<Reach>,
    /// Whether these are all: the list could be read.
    pub is_complete: bool,
}

impl Fleet {
    /// Not yet known to others: [`Fleet::beat`]. `verification` is how long copies are relied upon; an instance that says nothing for three
    /// times as long is one no more.
    pub fn new(backing: Arc<dyn Backing>, me: InstanceId, name: &str, verification: Duration) -> Self {
        let name = bytes::name(name);
        Self {
            backing,
            me,
            name,
            verification,
            begun_count: AtomicU32::new(0),
            known: Mutex::default(),
            standing: tokio::sync::Mutex::new(Standing::Member),
        }
    }

    /// How long an instance counts that says nothing any more.
    pub fn lifetime(&self) -> Duration {
        3 * self.verification
    }

    /// Tells the others that this instance lives, and how far it has read the log. To be called often in its lifetime, and at once
    /// when it has read on.
    ///
    /// # Errors
    /// What the tier answered: the others know nothing new then.
    pub async fn beat(&self, read: LogCursor) -> Result<(), BackingError> {
        let standing = self.standing.lock().await;
        match *standing {
            Standing::Member => self.say(read).await,
            Standing::Left => Ok(()),
        }
    }

    async fn say(&self, read: LogCursor) -> Result<(), BackingError> {
        let member = Member { id: self.me, read, name: self.name.clone() };
        let write = Write {
            bytes: member.encode().into(),
            expected: Expected::Any,
            ttl: self.lifetime(),
            lease: None,
        };
        self.backing.put(&key_of(self.me), write).await?;
        Ok(())
    }

    /// Sees to it that this instance is in the list, and looks who else is. To be called twice in the time of verification.
    ///
    /// # Errors
    /// What the tier answered; [`BackingError::Full`] where the list has no place left. This instance may not be in it then.
    pub async fn enlist(&self) -> Result<(), BackingError> {
        if *self.standing.lock().await == Standing::Left {
            return Ok(());
        }
        let (listed, members) = self.look().await?;
        let gone = |id: &InstanceId| *id != self.me && !members.iter().any(|member| member.id == *id);
        let is_right = listed.ids.contains(&self.me) && !listed.ids.iter().any(gone);
        if is_right {
            return Ok(());
        }
        self.change(|ids| {
            ids.retain(|id| !gone(id));
            if !ids.contains(&self.me) && ids.len() < MEMBERS_MAX {
                ids.push(self.me);
            }
        })
        .await?
        .contains(&self.me)
        .then_some(())
        .ok_or(BackingError::Full)
    }

    /// Tells the others that this instance ends: nobody is to wait for it. Its record says so to those that have seen it, as long as they
    /// would count on it: that it is gone could mean that the tier has forgotten it. It says nothing else from then on, whoever goes on reading
    /// the log here.
    ///
    /// # Errors
    /// What the tier answered: the others wait for its record to end.
    pub async fn leave(&self) -> Result<(), BackingError> {
        let mut standing = self.standing.lock().await;
        *standing = Standing::Left;
        self.say(bytes::HAS_LEFT).await?;
        self.change(|ids| ids.retain(|id| *id != self.me)).await.map(drop)
    }

    /// How far each instance says now that it has read the log.
    ///
    /// # Errors
    /// What the tier answered.
    pub async fn said(&self) -> Result<Vec<LogCursor>, BackingError> {
        let (_, members) = self.look().await?;
        Ok(members.into_iter().map(|member| member.read).collect())
    }

    /// Waits until all instances have read the log up to a place, but not longer than `limit`, and says which have. An instance that
    /// has known the list for less than the time of verification waits for that time too.
    pub async fn reach(&self, place: LogCursor, limit: Duration) -> Reached {
        let begun = Instant::now();
        let mut after: HashMap<InstanceId, Duration> = HashMap::new();
        loop {
            // Who waits is told at most a quarter too late.
            let pause = (begun.elapsed() / 4).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            let looked = self.look().await;
            let is_complete = looked.is_ok() && self.knows_all();
            if let Ok((_, members)) = looked {
                for member in members.iter().filter(|member| has_reached(member.read, place)) {
                    after.entry(member.id).or_insert_with(|| begun.elapsed());
                }
            }
            let instances = self.instances(&after);
            let is_over = begun.elapsed() + pause > limit;
            if is_over || (is_complete && instances.iter().all(|reach| reach.after.is_some())) {
                return Reached { instances, is_complete };
            }
            sleep_until(Instant::now() + pause).await;
        }
    }

    /// All that share the tier, as far as is known here: how many.
    pub fn known(&self) -> usize {
        let now = Instant::now();
        self.known.lock().members.values().filter(|seen| now < seen.at + self.lifetime()).count()
    }

    /// Whether the list is old enough for all to be in it.
    fn knows_all(&self) -> bool {
        let now = Instant::now();
        self.known.lock().list.is_some_and(|(_, since)| now >= since + self.verification)
    }

    fn instances(&self, after: &HashMap<InstanceId, Duration>) -> Vec<Reach> {
        let mut known = self.known.lock();
        known.forget(Instant::now(), self.lifetime());
        let mut instances: Vec<Reach> = known
            .members
            .iter()
            .map(|(id, seen)| Reach { id: *id, name: seen.name.clone(), after: after.get(id).copied() })
            .collect();
        instances.sort_by(|a, b| (&a.name, a.id).cmp(&(&b.name, b.id)));
        instances
    }

    /// The list, and the records of all whom it or this instance knows: those that are known are asked for with the list.
    async fn look(&self) -> Result<(Listed, Vec<Member>), BackingError> {
        let mut known: Vec<InstanceId> = self.known.lock().members.keys().copied().collect();
        known.sort();
        let mut records = self.load(&[LIST], &known).await?.into_iter();
        let listed = Listed::of(records.next().flatten());
        let mut members: Vec<Member> = members(&known, records).collect();
        let new: Vec<InstanceId> = listed.ids.iter().filter(|id| !known.contains(id)).copied().collect();
        if !new.is_empty() {
            members.extend(self::members(&new, self.load(&[], &new).await?));
        }
        let (left, members): (Vec<_>, Vec<_>) = members.into_iter().partition(Member::has_left);
        let mut known = self.known.lock();
        left.iter().for_each(|member| drop(known.members.remove(&member.id)));
        known.note(&listed, &members, Instant::now(), self.lifetime());
        drop(known);
        Ok((listed, members))
    }

    async fn list(&self) -> Result<Listed, BackingError> {
        Ok(Listed::of(self.load(&[LIST], &[]).await?.pop().flatten()))
    }

    /// The records with these keys, and behind them those of these instances.
    async fn load(&self, keys: &[&[u8]], ids: &[InstanceId]) -> Result<Vec<Option<Loaded>>, BackingError> {
        let of_instances: Vec<Vec<u8>> = ids.iter().map(|id| key_of(*id)).collect();
        let keys: Vec<&[u8]> = keys.iter().copied().chain(of_instances.iter().map(Vec::as_slice)).collect();
        self.backing.load(&keys, Tracking::Off).await
    }

    /// Changes the list, which others change too, and returns it.
    async fn change(&self, change: impl Fn(&mut Vec<InstanceId>)) -> Result<Vec<InstanceId>, BackingError> {
        for _ in 0..ATTEMPTS {
            let listed = self.list().await?;
            let mut ids = listed.ids.clone();
            change(&mut ids);
            if ids == listed.ids && listed.id.is_some() {
                return Ok(ids);
            }
            let id = listed.id.unwrap_or_else(|| self.next_list());
            let expected = listed.loaded.as_ref().map_or(Expected::Absent, Expected::Is);
            let bytes = encode_list(id, &ids).into();
            // The list outlives each of its members.
            let write = Write { bytes, expected, ttl: LIST_LIFETIME.max(2 * self.lifetime()), lease: None };
            match self.backing.put(LIST, write).await? {
                Put::Conflict(_) => {}
                Put::Stored(_) => return Ok(ids),
                Put::LeaseLost | Put::NotStored(_) => return Ok(listed.ids),
            }
        }
        Err(BackingError::Contended { attempts: ATTEMPTS })
    }

    fn next_list(&self) -> ListId {
        ListId { begun_by: self.me, count: self.begun_count.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Known {
    fn note(&mut self, listed: &Listed, members: &[Member], now: Instant, lifetime: Duration) {
        for member in members {
            self.members.insert(member.id, Seen { name: member.name.clone(), at: now });
        }
        self.forget(now, lifetime);
        self.list = match (listed.id, self.list) {
            (Some(id), Some((known, since))) if id == known => Some((id, since)),
            (id, _) => id.map(|id| (id, now)),
        };
    }

    fn forget(&mut self, now: Instant, lifetime: Duration) {
        self.members.retain(|_, seen| now < seen.at + lifetime);
    }
}

struct Listed {
    loaded: Option<Loaded>,
    /// Without it, there is no list that can be read.
    id: Option<ListId>,
    ids: Vec<InstanceId>,
}

impl Listed {
    fn of(loaded: Option<Loaded>) -> Self {
        // What can't be read is replaced.
        let read = loaded.as_ref().and_then(|loaded| decode_list(&loaded.bytes).ok());
        let (id, ids) = read.map_or((None, Vec::new()), |(id, ids)| (Some(id), ids));
        Self { loaded, id, ids }
    }
}

/// What these instances say, as far as they do.
fn members(
    ids: &[InstanceId],
    records: impl IntoIterator<Item = Option<Loaded>>,
) -> impl Iterator<Item = Member> {
    let said = |(id, record): (&InstanceId, Option<Loaded>)| {
        Member::decode(&record?.bytes).ok().filter(|member| member.id == *id)
    };
    ids.iter().zip(records).filter_map(said)
}

/// Whether somebody who has read up to `read` knows what stands before `place`.
fn has_reached(read: LogCursor, place: LogCursor) -> bool {
    read.id == place.id && read.offset >= place.offset
}

fn key_of(id: InstanceId) -> Vec<u8> {
    [INSTANCE, &id.0].concat()
}

impl fmt::Debug for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What records of the fleet are called among those of the gateway, which begin with other letters.
const LIST: &[u8] = b"m";
const INSTANCE: &[u8] = b"i";
const ATTEMPTS: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// A fleet that stands still is not forgotten.
const LIST_LIFETIME: Duration = Duration::from_secs(24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backing::double::{Behaviour, DoubleLimits, DoubleServer};
    use crate::backing::{LogId, LogOffset};

    fn cursor(offset: u64) -> LogCursor {
        LogCursor { id: LogId([7; 16]), offset: LogOffset(offset) }
    }

    fn fleet(server: &DoubleServer, number: u8) -> Fleet {
        let backing = Arc::new(server.connect(Behaviour::default()));
        let name = format!("cache-{number}");
        Fleet::new(backing, InstanceId([number; 16]), &name, Duration::from_secs(2))
    }

    async fn joined(server: &DoubleServer, number: u8, offset: u64) -> Fleet {
        let fleet = fleet(server, number);
        fleet.beat(cursor(offset)).await.unwrap();
        fleet.enlist().await.unwrap();
        fleet
    }

    fn names(reached: &Reached) -> Vec<(&str, bool)> {
        reached.instances.iter().map(|reach| (&*reach.name, reach.after.is_some())).collect()
    }

    const LIMIT: Duration = Duration::from_secs(3);

    #[tokio::test(start_paused = true)]
    async fn all_that_share_a_tier_are_asked() {
        let server = DoubleServer::new(DoubleLimits::default(), 1);
        let one = joined(&server, 1, 10).await;
        let two = joined(&server, 2, 10).await;
        let _three = joined(&server, 3, 9).await;
        let reached = one.reach(cursor(10), LIMIT).await;
        assert!(reached.is_complete);
        assert_eq!(names(&reached), [("cache-1", true), ("cache-2", true), ("cache-3", false)]);
        two.leave().await.unwrap();
        two.beat(cursor(11)).await.unwrap();
        two.enlist().await.unwrap();
        let reached = one.reach(cursor(9), LIMIT).await;
        assert_eq!(names(&reached), [("cache-1", true), ("cache-3", true)], "it has said that it ends");
        assert!(reached.is_complete);
        one.enlist().await.unwrap();
        assert!(!one.list().await.unwrap().ids.contains(&two.me));
        tokio::time::sleep(Duration::from_secs(7)).await;
        one.beat(cursor(10)).await.unwrap();
        one.enlist().await.unwrap();
        assert_eq!(names(&one.reach(cursor(10), LIMIT).await), [("cache-1", true)], "the others have ended");
    }

    /// A purge waits for it, and the tier may be far away.
    #[tokio::test(start_paused = true)]
    async fn those_that_are_known_are_asked_with_the_list() {
        let latency = Duration::from_millis(20);
        let server = DoubleServer::new(DoubleLimits::default(), 1);
        let backing = server.connect(Behaviour { latency, ..Behaviour::default() });
        let one = Fleet::new(Arc::new(backing), InstanceId([1; 16]), "a", Duration::from_secs(2));
        let (_two, _three) = (joined(&server, 2, 10).await, joined(&server, 3, 10).await);
        for expected in [2 * latency, latency] {
            let begun = Instant::now();
            assert_eq!(one.said().await.unwrap().len(), 2);
            let took = begun.elapsed();
            assert!((expected..expected + latency / 4).contains(&took), "{took:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn another_log_is_not_reached() {
        let server = DoubleServer::new(DoubleLimits::default(), 1);
        let one = joined(&server, 1, 10).await;
        let place = LogCursor { id: LogId([8; 16]), offset: LogOffset(1) };
        assert_eq!(names(&one.reach(place, LIMIT).await), [("cache-1", false)]);
    }

    /// Whatever the tier forgets, an instance that lives is asked.
    #[tokio::test(start_paused = true)]
    async fn a_list_that_was_lost_hides_nobody_who_was_seen() {
        for seed in 0..200 {
            let server = DoubleServer::new(DoubleLimits::default(), seed);
            let one = joined(&server, 1, 10).await;
            let _two = joined(&server, 2, 5).await;
            one.enlist().await.unwrap();
            (0..3).for_each(|which| server.evict(seed * 31 + which));
            let reached = one.reach(cursor(6), LIMIT).await;
            assert!(names(&reached).contains(&("cache-2", false)), "{seed}: {reached:?}");
            // Nobody else has come back to the list yet, so somebody who is new knows too little.
            let late = joined(&server, 3, 10).await;
            assert!(!late.reach(cursor(6), Duration::from_secs(1)).await.is_complete);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn all_find_their_way_into_the_list_at_once() {
        let server = DoubleServer::new(DoubleLimits::default(), 3);
        let fleets: Vec<_> = (1..=20).map(|number| fleet(&server, number)).collect();
        for fleet in &fleets {
            fleet.beat(cursor(1)).await.unwrap();
        }
        let mut tries = tokio::task::JoinSet::new();
        for fleet in fleets {
            tries.spawn(async move {
                while fleet.enlist().await.is_err() {}
                fleet
            });
        }
        let fleets = tries.join_all().await;
        for fleet in &fleets {
            assert_eq!(fleet.reach(cursor(1), LIMIT).await.instances.len(), 20);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_tier_that_fails_makes_the_answer_incomplete() {
        let server = DoubleServer::new(DoubleLimits::default(), 1);
        let backing = server.connect(Behaviour { unreachable_permille: 1000, ..Behaviour::default() });
        let alone = Fleet::new(Arc::new(backing), InstanceId([1; 16]), "a", Duration::from_secs(2));
        assert!(alone.beat(cursor(1)).await.is_err());
        let reached = alone.reach(cursor(1), LIMIT).await;
        assert_eq!(reached, Reached { instances: Vec::new(), is_complete: false });
    }
}
