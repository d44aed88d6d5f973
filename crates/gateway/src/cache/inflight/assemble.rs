//! The body of a reply whose bytes are held in part: what is held and what is fetched, in order, each when its turn
//! comes.
//!
//! The first missing part has been asked for before the head of the reply is sent, so that a representation that
//! changed is found out in time. Each later one is asked for when the client has got there, and not if it leaves
//! before. Should it turn out to be of another representation, the reply breaks off: half of one and half of another
//! must never look like a response.
//!
//! Nothing is held for the client beyond the piece that it is getting: what is evicted before its turn is a missing
//! part like any other.

use std::sync::Arc;

use caching::{ByteRange, ContentRange};
use store::Slice;

use crate::cache::inflight::fill::FillReader;
use crate::cache::inflight::joining::{Role, join_or_lead};
use crate::cache::inflight::scope::{FetchScope, MissingRange};
use crate::cache::inflight::table::{Answer, Filling, LeaderGuard, News, Waiter};
use crate::cache::publish::job::Job;
use crate::cache::record::segmented::KnownFrom;
use crate::cache::record::stored::Hit;
use crate::cache::using::Extent;
use crate::message::piece::PieceMax;
use crate::message::reply::{BodySource, BrokenBody, NextData, RestFailed};

/// A body in parts.
pub(crate) struct Assembly {
    /// What it takes to fetch.
    job: Job,
    hit: Hit,
    position: u64,
    end: u64,
    /// The missing part that was asked for ahead.
    ahead: Option<Arriving>,
    now: Now,
}

/// A missing part that is being read.
pub(crate) struct Arriving {
    range: ByteRange,
    reader: FillReader,
}

/// What the byte at the position comes from.
enum Now {
    /// To be found out.
    Next,
    /// Asked for.
    Asked(Waiter),
    Arriving(Arriving),
}

impl Arriving {
    /// A reader of the part that `filling` brings, as far as `end`.
    pub(crate) fn new(filling: &Filling, part: &ContentRange, end: u64) -> Option<Self> {
        let last = part.range.last.min(end.checked_sub(1)?);
        let range = ByteRange { first: part.range.first, last };
        let reader = filling.fill.reader(0, Some(range.len_bytes()))?;
        Some(Self { range, reader })
    }
}

impl BodySource for Assembly {
    /// # Errors
    /// When a missing part breaks off, or can't be had.
    fn data(&mut self, piece_max: PieceMax) -> NextData<'_> {
        Box::pin(self.next_data(piece_max))
    }
}

impl Assembly {
    /// The bytes of `extent`, the first missing ones of which are arriving. `job` is the one that asked for those.
    /// `None` where the extent is not of one part.
    pub(crate) fn new(job: Job, hit: Hit, extent: Extent, first: Arriving) -> Option<Self> {
        let wanted = extent.bytes()?;
        let (position, end) = (wanted.first, wanted.last + 1);
        Some(Self { job, hit, position, end, ahead: Some(first), now: Now::Next })
    }

    async fn next_data(&mut self, piece_max: PieceMax) -> Result<Option<Slice>, BrokenBody> {
        loop {
            match &mut self.now {
                Now::Next if self.position >= self.end => return Ok(None),
                Now::Next => {
                    if let Some(piece) = self.next(piece_max)? {
                        return Ok(Some(piece));
                    }
                }
                Now::Asked(waiter) => {
                    let answer = loop {
                        if let News::Answer(answer) = waiter.news().await {
                            break answer;
                        }
                    };
                    self.now = Now::Arriving(self.arriving(&answer).ok_or(RestFailed)?);
                }
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

    /// The piece at the position where it is held; otherwise sees to it that it comes.
    fn next(&mut self, piece_max: PieceMax) -> Result<Option<Slice>, RestFailed> {
        if let Some(ahead) = self.ahead.take_if(|ahead| ahead.range.first <= self.position) {
            self.now = Now::Arriving(ahead);
            return Ok(None);
        }
        let end = self.ahead.as_ref().map_or(self.end, |ahead| ahead.range.first);
        let body = self.hit.body.segmented().ok_or(RestFailed)?;
        if let Some(piece) = body.piece_at(self.position, end).map(|piece| piece_max.limit(piece)) {
            self.position += piece.len() as u64;
            return Ok(Some(piece));
        }
        self.look_again();
        let body = self.hit.body.segmented().ok_or(RestFailed)?;
        if let Some(range) = body.hole_at(self.position, end, KnownFrom::START) {
            self.now = Now::Asked(self.ask(range));
        }
        Ok(None)
    }

    /// Others may have stored more of the same representation since.
    fn look_again(&mut self) {
        let entry = self.job.worker.shared.cache.look_up(&self.job.fetch.key);
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
    fn ask(&self, range: ByteRange) -> Waiter {
        let hole = MissingRange { hit: self.hit.clone(), range };
        let job = Job {
            fetch: Arc::new(self.job.fetch.with_scope(FetchScope::MissingRange(hole))),
            ..self.job.clone()
        };
        let (waiter, role) = join_or_lead(&job, &job.fetch.variant);
        if role == Role::Leader {
            let leader = LeaderGuard::new(&waiter, job.worker.shared.cache.fetches());
            tokio::spawn(job.run(leader));
        }
        waiter
    }

    fn arriving(&self, answer: &Answer) -> Option<Arriving> {
        let Answer::Filling(filling) = answer else { return None };
        let part = filling.part.as_ref().filter(|part| part.range.first == self.position)?;
        Arriving::new(filling, part, self.end)
    }
}
