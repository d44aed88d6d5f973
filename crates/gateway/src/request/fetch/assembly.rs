//! Bodies of replies whose bytes come from several places: memory, the tier behind it, and the origin. The parts are read in order,
//! and each only when the reply reaches it.
//!
//! The first missing part is requested before the head of the reply is sent, so that a changed representation is detected in time. If
//! the tier may have bytes that memory lacks, the first of these bytes are loaded before the head, too. Each later part is requested
//! when the reply reaches it, and not at all if the client leaves earlier. If a part belongs to a different representation, the reply
//! is aborted: a mixture of two representations must never look like a complete response.
//!
//! Only the current piece and the result of one load are held for the client. Bytes that are evicted before they are needed are loaded
//! or fetched again.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;

use cache::collapse::answer::{Answer, Filling};
use cache::collapse::table::{LeaderGuard, Learned, News, Waiter, Waiting};
use cache::entry::segmented::{Absent, KnownFrom, Segmented};
use cache::entry::stored::Hit;
use cache::fill::FillReader;
use cache::readers::HeldBody;
use caching::partial::{Description, is_described_alike, may_combine, same_complete_length};
use caching::{ByteRange, ContentRange};
use fleet::segments::LOAD_BYTES_MAX;
use message::piece::PieceMax;
use store::{Segment, SegmentId, Slice};

use crate::request::fetch::fetch_spec::Fetch;
use crate::request::fetch::fetch_spec::{FetchScope, MissingRange, ReplyOfParts};
use crate::request::fetch::job::Job;
use crate::request::fetch::job::{Part, join_or_lead};
use crate::request::reply::BrokenBody;
use crate::request::serve::Extent;

/// A body in parts.
pub(crate) struct Assembly {
    /// Job that fetches missing parts.
    job: Job,
    hit: Hit,
    position: u64,
    end: u64,
    /// Missing part that was requested in advance, if any.
    ahead: Option<Arriving>,
    from_tier: FromTier,
    now: Now,
}

/// A missing part that is being read.
pub(crate) struct Arriving {
    range: ByteRange,
    reader: FillReader,
}

/// Source of the byte at the position.
enum Now {
    /// Not known yet.
    Next,
    /// The bytes have been requested from the tier.
    Loading(Absent, Load),
    /// The bytes have been requested from the origin.
    Asked(Waiter),
    /// Another request has been forwarded for the bytes. If the forward fails, this request may be forwarded.
    Waiting(Waiting, Box<Job>),
    Arriving(Arriving),
}

/// Segments from the tier, in the order of the request; `None` if the tier doesn't answer. The future is stored, so that the load
/// continues if the client stops polling for a moment.
type Load = Pin<Box<dyn Future<Output = Option<Vec<Option<Segment>>>> + Send>>;

impl Arriving {
    /// Creates a reader of the part that arrives in `filling`, up to `end`.
    pub(crate) fn new(filling: &Filling, part: &ContentRange, end: u64) -> Option<Self> {
        let last = part.range.last.min(end.checked_sub(1)?);
        let range = ByteRange { first: part.range.first, last };
        let reader = filling.fill.reader(0, Some(range.len_bytes()))?;
        Some(Self { range, reader })
    }
}

impl Assembly {
    /// Creates a body with the bytes of `extent`. `first` is the part that is arriving, if any; `job` has requested it, or fetches
    /// further parts. Returns `None` if the extent isn't a single range.
    pub(crate) fn new(job: Job, hit: Hit, extent: Extent, first: Option<Arriving>) -> Option<Self> {
        let wanted = extent.bytes()?;
        let (position, end) = (wanted.first, wanted.last + 1);
        let from_tier = FromTier::new();
        Some(Self { job, hit, position, end, ahead: first, from_tier, now: Now::Next })
    }

    /// Loads the first bytes that aren't in memory. Call it before the head of the reply is sent.
    ///
    /// # Errors
    /// Returns the range that must be fetched first, if the tier lacks it.
    pub(crate) async fn begin(&mut self) -> Result<(), ByteRange> {
        let Some(body) = self.hit.body.segmented() else { return Ok(()) };
        let Some(position) = body.first_not_held(self.position, self.end) else { return Ok(()) };
        if let Some(Turn::Absent(absent)) = self.from_tier.turn(body, position, self.end) {
            let answer = load(&self.job, absent.clone()).await;
            self.from_tier.take(body, &absent, answer);
        }
        match self.from_tier.turn(body, position, self.end) {
            Some(Turn::Missing(range)) => Err(range),
            Some(Turn::Held(_) | Turn::Absent(_)) | None => Ok(()),
        }
    }

    /// Returns the memory held for a client that has stopped reading.
    pub(crate) fn held(&self) -> Option<HeldBody> {
        self.from_tier.held().map(|(last, bytes)| HeldBody::Segments { last, bytes })
    }

    /// Returns the next bytes; `None` at the end. Cancel-safe.
    ///
    /// # Errors
    /// Returns an error if a missing part is cut short or can't be fetched.
    pub(crate) async fn data(&mut self, piece_max: PieceMax) -> Result<Option<Slice>, BrokenBody> {
        loop {
            match &mut self.now {
                Now::Next if self.position >= self.end => return Ok(None),
                Now::Next => {
                    if let Some(piece) = self.next(piece_max)? {
                        return Ok(Some(piece));
                    }
                }
                Now::Loading(absent, load) => {
                    let answer = load.await;
                    if let Some(body) = self.hit.body.segmented() {
                        self.from_tier.take(body, absent, answer);
                    }
                    self.now = Now::Next;
                }
                Now::Asked(waiter) => {
                    let answer = loop {
                        if let News::Answer(answer) = waiter.news().await {
                            break answer;
                        }
                    };
                    self.now = Now::Arriving(self.arriving(&answer).ok_or(BrokenBody::Rest)?);
                }
                Now::Waiting(waiting, job) => match waiting.learn().await {
                    Learned::Answer(answer) => {
                        if waiting.is_kept(&answer).await {
                            self.now = Now::Arriving(self.arriving(&answer).ok_or(BrokenBody::Rest)?);
                        }
                    }
                    Learned::Turn(leader) => {
                        leader.begins_now();
                        let waiter = leader.waiter();
                        tokio::spawn(Job::clone(job).run(None, leader));
                        self.now = Now::Asked(waiter);
                    }
                    Learned::NoTurn(_) => return Err(BrokenBody::Rest),
                    Learned::Interim(_) | Learned::Failure(_) => {}
                },
                Now::Arriving(arriving) => match arriving.reader.chunk(piece_max).await? {
                    Some(data) => {
                        self.position += data.len() as u64;
                        return Ok(Some(data));
                    }
                    None => self.now = Now::Next,
                },
            }
        }
    }

    /// Returns the piece at the position if it is held; otherwise starts loading or fetching it.
    fn next(&mut self, piece_max: PieceMax) -> Result<Option<Slice>, BrokenBody> {
        if let Some(ahead) = self.ahead.take_if(|ahead| ahead.range.first <= self.position) {
            self.now = Now::Arriving(ahead);
            return Ok(None);
        }
        let turn = match self.turn()? {
            Some(Turn::Held(piece)) => Some(Turn::Held(piece)),
            _ => {
                self.look_again();
                self.turn()?
            }
        };
        match turn {
            Some(Turn::Held(piece)) => {
                let piece = piece_max.limit(piece);
                self.position += piece.len() as u64;
                return Ok(Some(piece));
            }
            Some(Turn::Absent(absent)) => {
                let load = Box::pin(load(&self.job, absent.clone()));
                self.now = Now::Loading(absent, load);
            }
            Some(Turn::Missing(range)) => self.now = self.ask(range),
            None => {}
        }
        Ok(None)
    }

    fn turn(&mut self) -> Result<Option<Turn>, BrokenBody> {
        let end = self.ahead.as_ref().map_or(self.end, |ahead| ahead.range.first);
        let body: &Segmented = self.hit.body.segmented().ok_or(BrokenBody::Rest)?;
        Ok(self.from_tier.turn(body, self.position, end))
    }

    /// Looks up the response again, because other requests may have stored more parts of the same representation.
    fn look_again(&mut self) {
        let entry = self.job.cache().look_up(&self.job.fetch.key);
        let request = self.job.request.sent().to_lines();
        let newest = entry.and_then(|entry| entry.select(self.job.rule().selecting(&request)));
        let is_same = |hit: &Hit| match (hit.body.segmented(), self.hit.body.segmented()) {
            (Some(newest), Some(own)) => newest.is_same_representation(own),
            _ => false,
        };
        if let Some(newest) = newest.filter(is_same) {
            self.hit = newest;
        }
    }

    /// Joins the forward for a missing part, or starts it.
    fn ask(&self, range: ByteRange) -> Now {
        let hole = MissingRange { hit: self.hit.clone(), range, reply: ReplyOfParts::Begun };
        let fetch = self.job.fetch.with_scope(FetchScope::MissingRange(hole));
        // The reply continues with the response with which it began, even if this response is purged in the meantime.
        let look_up = fetch.look_up.at(self.job.cache().invalidations.stamp());
        let job = Job { fetch: Arc::new(Fetch { look_up, ..fetch }), ..self.job.clone() };
        match join_or_lead(&job, &job.fetch.variant) {
            Part::Leads(waiter) => {
                let leader = LeaderGuard::new(&waiter, &job.cache().fetches);
                tokio::spawn(job.run(None, leader));
                Now::Asked(waiter)
            }
            Part::Waits(waiting) => Now::Waiting(waiting, Box::new(job)),
        }
    }

    fn arriving(&self, answer: &Answer) -> Option<Arriving> {
        let Answer::Filling(filling) = answer else { return None };
        match &filling.part {
            Some(part) if part.range.first == self.position => Arriving::new(filling, part, self.end),
            Some(_) => None,
            None => self.arriving_in_whole(filling),
        }
    }

    /// Creates a reader of a whole response, because an origin may answer a range request with one. The reader skips the bytes before
    /// the position.
    //= RFC 9111 section 3.4: the same strong validator
    fn arriving_in_whole(&self, whole: &Filling) -> Option<Arriving> {
        let (own, new) = (&self.hit.head, &whole.head);
        let is_same = new.facts.status == 200
            && may_combine(&own.validators(), &new.validators())
            && is_described_alike(&own.fields.to_lines(), &new.fields.to_lines(), Description::Full)
            && same_complete_length(self.hit.body.complete_bytes(), new.declared_bytes());
        let range = ByteRange { first: self.position, last: self.end.checked_sub(1)? };
        let reader = whole.fill.reader(self.position, Some(self.end)).filter(|_| is_same)?;
        Some(Arriving { range, reader })
    }
}

/// Loads segments from the tier in a separate task, because other requests may wait for the same segments, and this client may pause.
fn load(job: &Job, absent: Absent) -> impl Future<Output = Option<Vec<Option<Segment>>>> + Send + use<> {
    let (worker, site, place) = (Arc::clone(&job.worker), Arc::clone(&job.site), job.place());
    let load = tokio::spawn(async move {
        worker.store(&site).tier.as_ref()?.segments.load_together(&absent, place).await
    });
    async move { load.await.ok().flatten() }
}

/// Source of the byte at a position.
#[derive(Debug)]
enum Turn {
    /// In memory, with some of the following bytes.
    Held(Slice),
    /// Absent from memory, with some of the following bytes. The tier may have them.
    Absent(Absent),
    /// Missing, with the following bytes that are also missing. Missing bytes have to be fetched from the origin.
    Missing(ByteRange),
}

/// Segments that one reply has loaded. The reply reads them in order.
#[derive(Debug)]
struct FromTier {
    /// Segments that the reply still needs, each with the position of its first byte. Memory may have refused or evicted these
    /// segments.
    loaded: VecDeque<(u64, Segment)>,
    /// Position before which no further load from the tier is tried.
    known: KnownFrom,
    /// Number of consecutive loads without a result.
    in_vain: u32,
}

impl FromTier {
    fn new() -> Self {
        Self { loaded: VecDeque::new(), known: KnownFrom::START, in_vain: 0 }
    }

    /// Returns the source of the byte at `position`. Returns `None` if the source is changing; the caller should then retry.
    fn turn(&mut self, body: &Segmented, position: u64, end: u64) -> Option<Turn> {
        self.loaded.retain(|(first, segment)| position < first + segment.len() as u64);
        if let Some(piece) = body.piece_at(position, end).or_else(|| self.piece_at(position, end)) {
            return Some(Turn::Held(piece));
        }
        if KnownFrom(position) >= self.known
            && let Some(absent) = body.absent_at(position, end, LOAD_BYTES_MAX)
        {
            return Some(Turn::Absent(absent));
        }
        body.hole_at(position, end, self.known).map(Turn::Missing)
    }

    fn piece_at(&self, position: u64, end: u64) -> Option<Slice> {
        let (first, segment) = self
            .loaded
            .iter()
            .find(|(first, segment)| *first <= position && position < first + segment.len() as u64)?;
        let to = (end - first).min(segment.len() as u64);
        Some(segment.slice((position - first) as usize, to as usize))
    }

    /// Processes the tier's answer for `absent`. If the tier gave no answer (`None`), no further load is tried for this reply.
    fn take(&mut self, body: &Segmented, absent: &Absent, answer: Option<Vec<Option<Segment>>>) {
        let Some(answer) = answer else {
            self.known = KnownFrom::NOWHERE;
            return;
        };
        let mut first_found = None;
        for ((index, range), segment) in absent.segments.iter().zip(answer) {
            let Some(segment) = segment else { continue };
            first_found.get_or_insert(range.first);
            body.keep(SegmentId { fill: absent.fill, index: *index }, segment.clone());
            self.loaded.push_back((range.first, segment));
        }
        let asked_from = absent.segments.first().map_or(0, |(_, range)| range.first);
        self.known = KnownFrom(first_found.unwrap_or_else(|| self.skipped(asked_from)));
        self.in_vain = if first_found.is_some() { 0 } else { self.in_vain + 1 };
    }

    /// Returns the position from which loads are tried again after a load without a result. The distance doubles each time: if a tier
    /// has lost most of a body, the origin receives few requests for large parts, not one for each load.
    fn skipped(&self, from: u64) -> u64 {
        from.saturating_add(LOAD_BYTES_MAX.saturating_mul(2_u64.saturating_pow(self.in_vain)))
    }

    /// Returns the last of the loaded segments, which are held for the client even if memory drops them, and their total size.
    fn held(&self) -> Option<(Slice, u64)> {
        let (_, last) = self.loaded.back()?;
        let bytes = self.loaded.iter().map(|(_, segment)| segment.len() as u64).sum();
        Some((last.slice(0, last.len()), bytes))
    }
}
