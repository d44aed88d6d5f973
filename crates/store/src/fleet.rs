//! Membership of the instances that share a tier, and the position up to which each of them has read its log. Acknowledgements of purges
//! depend on both.
//!
//! Each instance writes its own record with a time to live, and adds its id to a shared list. A tier may lose anything, so an instance that
//! was seen recently counts until its record has expired, whether it is in the list or not. A new list is incomplete until all instances
//! have had time to add themselves.
//!
//! `docs/internals/coherence.md` specifies the bytes.

mod bytes;
mod carried;
mod region;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

pub use self::bytes::{FormatError, MEMBERS_MAX, Member, NAME_BYTES_MAX};
pub(crate) use self::bytes::{decode_list, encode_list};
pub use self::carried::{Carried, CarriedWhat, LogEntry};
pub use self::region::{
    Following, NOWHERE, PEERS_MAX, PeerRecord, REFUSAL_BYTES_MAX, REGION_NAME_BYTES_MAX, RegionRecord, cut,
};

pub use crate::address::REGION;
use crate::address::{INSTANCE, INSTANCE_ID_BYTES, LIST};
use crate::backing::{Backing, BackingError, Expected, Loaded, LogCursor, PutOutcome, Tracking, Write};

/// Id of one instance, valid from its start to its end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InstanceId(pub [u8; INSTANCE_ID_BYTES]);

/// This instance as one of those that share a tier.
pub struct Fleet {
    backing: Arc<dyn Backing>,
    me: InstanceId,
    name: Box<str>,
    verification: Duration,
    /// Number of lists created here, which makes their ids unique.
    begun_count: AtomicU32,
    known: Mutex<KnownMembers>,
    /// Held while this instance's record is written, so that no write follows the announcement that it leaves.
    membership: tokio::sync::Mutex<Membership>,
}

/// Whether this instance is a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Membership {
    Member,
    /// The instance has announced that it is leaving.
    Left,
}

/// Last known state of the other instances.
#[derive(Default)]
struct KnownMembers {
    members: HashMap<InstanceId, KnownMember>,
    /// Current list, and the time since which it is known.
    list: Option<(ListId, Instant)>,
    /// Last time at which the list was read.
    read: Option<Instant>,
}

/// Id of one list. A list that was lost and created anew has another id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListId {
    pub(crate) begun_by: InstanceId,
    pub(crate) count: u32,
}

/// Last known state of an instance.
struct KnownMember {
    name: Box<str>,
    at: Instant,
}

/// Progress of one instance toward a position in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Id of the instance.
    pub id: InstanceId,
    /// Name that the operator gave the instance.
    pub name: Box<str>,
    /// Time after which the instance had read the log up to the position; `None` if it hadn't within the limit.
    pub after: Option<Duration>,
}

/// The instances' progress toward a position in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrivals {
    /// All known instances that share the tier, including this one.
    pub instances: Vec<Arrival>,
    /// Whether the list of instances was read and is complete.
    pub is_complete: bool,
}

impl Fleet {
    /// Creates a member that others don't know before the first [`Fleet::beat`]. `verification` is the time for which copies can be relied
    /// upon; an instance whose record isn't renewed for three times as long no longer counts.
    pub fn new(backing: Arc<dyn Backing>, me: InstanceId, name: &str, verification: Duration) -> Self {
        let name = bytes::name(name);
        Self {
            backing,
            me,
            name,
            verification,
            begun_count: AtomicU32::new(0),
            known: Mutex::default(),
            membership: tokio::sync::Mutex::new(Membership::Member),
        }
    }

    /// Returns the time for which an instance counts after its last record.
    pub fn lifetime(&self) -> Duration {
        3 * self.verification
    }

    /// Announces that this instance is alive, and the position up to which it has read the log. Call it often within its lifetime, and
    /// immediately after reading further.
    ///
    /// # Errors
    /// The error of the tier. The other instances then see no progress.
    pub async fn beat(&self, read: LogCursor) -> Result<(), BackingError> {
        let membership = self.membership.lock().await;
        match *membership {
            Membership::Member => self.write_record(read).await,
            Membership::Left => Ok(()),
        }
    }

    async fn write_record(&self, read: LogCursor) -> Result<(), BackingError> {
        let member = Member { id: self.me, read, name: self.name.clone() };
        let write = Write {
            bytes: member.encode().into(),
            expected: Expected::Any,
            ttl: self.lifetime(),
            lease: None,
        };
        match self.backing.put(&key_of(self.me), write).await? {
            // Others don't wait for an instance whose record has expired.
            PutOutcome::NotStored(_) => Err(BackingError::Full),
            PutOutcome::Stored(_) | PutOutcome::Conflict(_) | PutOutcome::LeaseLost => Ok(()),
        }
    }

    /// Ensures that this instance is in the list, and reads the other members. Call it twice within the verification time.
    ///
    /// # Errors
    /// The error of the tier; [`BackingError::Full`] if the list has no room. In that case, this instance may be missing from the list.
    pub async fn enlist(&self) -> Result<(), BackingError> {
        if *self.membership.lock().await == Membership::Left {
            return Ok(());
        }
        let (listed, members) = self.read_members().await?;
        let is_known = |id: &InstanceId| *id == self.me || members.iter().any(|member| member.id == *id);
        // Only instances of the list that was read can be gone; later ones have no record in `members` yet.
        let gone: Vec<_> = listed.ids.iter().filter(|id| !is_known(id)).collect();
        if listed.ids.contains(&self.me) && gone.is_empty() {
            return Ok(());
        }
        let ids = self.change(|ids| {
            ids.retain(|id| !gone.contains(&id));
            if !ids.contains(&self.me) && ids.len() < MEMBERS_MAX {
                ids.push(self.me);
            }
        });
        ids.await?.contains(&self.me).then_some(()).ok_or(BackingError::Full)
    }

    /// Announces that this instance is leaving, so that no other instance waits for it. The record stays until all other instances have
    /// stopped counting this one, because they would take a missing record for a loss by the tier. No record is written after that, even if
    /// this instance still reads the log.
    ///
    /// # Errors
    /// The error of the tier. The other instances then wait until the record expires.
    pub async fn leave(&self) -> Result<(), BackingError> {
        let mut membership = self.membership.lock().await;
        *membership = Membership::Left;
        self.write_record(bytes::HAS_LEFT).await?;
        self.change(|ids| ids.retain(|id| *id != self.me)).await.map(drop)
    }

    /// Returns the position up to which each instance has read the log, by its own record.
    ///
    /// # Errors
    /// The error of the tier.
    pub async fn said(&self) -> Result<Vec<LogCursor>, BackingError> {
        let (_, members) = self.read_members().await?;
        Ok(members.into_iter().map(|member| member.read).collect())
    }

    /// Waits up to `limit` until all instances have read the log up to a position, and returns the progress of each. An instance that has
    /// known the list for less than the verification time waits until that time is over.
    pub async fn reach(&self, place: LogCursor, limit: Duration) -> Arrivals {
        let begun = Instant::now();
        let mut after: HashMap<InstanceId, Duration> = HashMap::new();
        loop {
            // With this pause, the result is late by at most a quarter of the elapsed time.
            let pause = (begun.elapsed() / 4).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            let looked = self.read_members().await;
            let is_complete = looked.is_ok() && self.is_list_complete();
            if let Ok((_, members)) = looked {
                for member in members.iter().filter(|member| has_reached(member.read, place)) {
                    after.entry(member.id).or_insert_with(|| begun.elapsed());
                }
            }
            let instances = self.instances(&after);
            // A list without this instance has lost members.
            let is_complete = is_complete && instances.iter().any(|reach| reach.id == self.me);
            let is_over = begun.elapsed() + pause > limit;
            if is_over || (is_complete && instances.iter().all(|reach| reach.after.is_some())) {
                return Arrivals { instances, is_complete };
            }
            sleep_until(Instant::now() + pause).await;
        }
    }

    /// Returns the number of known instances that share the tier.
    pub fn known(&self) -> usize {
        let now = Instant::now();
        self.known.lock().members.values().filter(|seen| now < seen.at + self.lifetime()).count()
    }

    /// Returns whether the list is old enough to be complete.
    fn is_list_complete(&self) -> bool {
        let now = Instant::now();
        self.known.lock().list.is_some_and(|(_, since)| now >= since + self.verification)
    }

    fn instances(&self, after: &HashMap<InstanceId, Duration>) -> Vec<Arrival> {
        let mut known = self.known.lock();
        known.forget(Instant::now(), self.lifetime());
        let mut instances: Vec<Arrival> = known
            .members
            .iter()
            .map(|(id, seen)| Arrival { id: *id, name: seen.name.clone(), after: after.get(id).copied() })
            .collect();
        instances.sort_by(|a, b| (&a.name, a.id).cmp(&(&b.name, b.id)));
        instances
    }

    /// Reads the list, and the records of all instances that are in it or known here; the records of known instances are loaded together
    /// with the list.
    async fn read_members(&self) -> Result<(Listed, Vec<Member>), BackingError> {
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

    /// Loads the records with these keys, followed by the records of these instances.
    async fn load(&self, keys: &[&[u8]], ids: &[InstanceId]) -> Result<Vec<Option<Loaded>>, BackingError> {
        let of_instances: Vec<Vec<u8>> = ids.iter().map(|id| key_of(*id)).collect();
        let keys: Vec<&[u8]> = keys.iter().copied().chain(of_instances.iter().map(Vec::as_slice)).collect();
        self.backing.load(&keys, Tracking::Off).await
    }

    /// Changes the list, which others may change concurrently, and returns it.
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
            // The list must outlive each of its members.
            let write = Write { bytes, expected, ttl: LIST_LIFETIME.max(2 * self.lifetime()), lease: None };
            match self.backing.put(LIST, write).await? {
                PutOutcome::Conflict(_) => {}
                PutOutcome::Stored(_) => return Ok(ids),
                PutOutcome::NotStored(_) => return Err(BackingError::Full),
                PutOutcome::LeaseLost => return Ok(listed.ids),
            }
        }
        Err(BackingError::Contended { attempts: ATTEMPTS })
    }

    fn next_list(&self) -> ListId {
        ListId { begun_by: self.me, count: self.begun_count.fetch_add(1, Ordering::Relaxed) }
    }
}

impl KnownMembers {
    fn note(&mut self, listed: &Listed, members: &[Member], now: Instant, lifetime: Duration) {
        for member in members {
            self.members.insert(member.id, KnownMember { name: member.name.clone(), at: now });
        }
        self.forget(now, lifetime);
        // After a long silence of the tier, other instances return at about the same time, and their records have expired.
        let was_silent = self.read.replace(now).is_none_or(|read| now >= read + lifetime);
        self.list = match (listed.id, self.list) {
            (Some(id), Some((known, since))) if id == known && !was_silent => Some((id, since)),
            (id, _) => id.map(|id| (id, now)),
        };
    }

    fn forget(&mut self, now: Instant, lifetime: Duration) {
        self.members.retain(|_, seen| now < seen.at + lifetime);
    }
}

struct Listed {
    loaded: Option<Loaded>,
    /// `None` if there is no readable list.
    id: Option<ListId>,
    ids: Vec<InstanceId>,
}

impl Listed {
    fn of(loaded: Option<Loaded>) -> Self {
        // An unreadable list is replaced.
        let read = loaded.as_ref().and_then(|loaded| decode_list(&loaded.bytes).ok());
        let (id, ids) = read.map_or((None, Vec::new()), |(id, ids)| (Some(id), ids));
        Self { loaded, id, ids }
    }
}

/// Decodes the records of these instances, and skips missing and unreadable ones.
fn members(
    ids: &[InstanceId],
    records: impl IntoIterator<Item = Option<Loaded>>,
) -> impl Iterator<Item = Member> {
    let said = |(id, record): (&InstanceId, Option<Loaded>)| {
        Member::decode(&record?.bytes).ok().filter(|member| member.id == *id)
    };
    ids.iter().zip(records).filter_map(said)
}

/// Returns whether an instance that has read up to `read` knows everything before `place`.
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

const ATTEMPTS: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// Long enough that the list outlives a pause of all instances.
const LIST_LIFETIME: Duration = Duration::from_secs(24 * 3600);

#[cfg(test)]
mod tests;
