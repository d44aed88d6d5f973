//! Passes a body on that another instance fetches, as it comes.
//!
//! It is no more than that: what is stored comes as any other record of the tier. Where the other instance dies, stands still or gives up, or the
//! tier has forgotten a piece, the rest is asked of the origin, if that can say that it is of the same representation. Otherwise the reply
//! breaks off.

use std::collections::VecDeque;
use std::sync::Arc;

use caching::ByteRange;
use caching::explain::Finding;
use caching::partial::{self, HoleAnswer};
use store::Segment;
use store::format::{Progress, ProgressState};
use telemetry::FillState;
use tokio::time::{Instant, sleep, timeout};

use crate::cache::inflight::answer::{Answer, AskedBy, Filling};
use crate::cache::inflight::fill::{Fill, Writer, Written};
use crate::cache::inflight::scope::{FetchScope, MissingRange, ReplyOfParts};
use crate::cache::inflight::table::LeaderGuard;
use crate::cache::publish::fetch::Validation;
use crate::cache::publish::job::Job;
use crate::cache::record::stored::{CacheEntry, Hit, StoredBody, StoredResponse};
use crate::cache::tiers::Tiers;
use crate::cache::tiers::on_their_way::Announced;
use crate::cache::tiers::told::{Change, Listening};
use crate::message::fields::PackedFields;
use crate::upstream::{BodyFrame, OriginResponse, Pacing};

/// A body on its way, as far as it was read here.
pub(super) struct Following {
    /// What it will be, without its body.
    hit: Hit,
    said: Progress,
    /// Fragments that were read, and their bytes.
    fragments: u32,
    bytes: u64,
    /// Not passed on yet.
    read: VecDeque<Segment>,
    heard_at: Instant,
    listening: Listening,
    /// Taken before it was heard last how far it has come.
    told: Option<Change>,
}

/// Why a body does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Complete,
    /// The rest is the origin's to give.
    Lost,
    /// Nobody wants it any more, or it can't be taken.
    Left,
}

/// Read at once.
const FRAGMENTS_AT_ONCE: usize = 8;

impl Following {
    /// `None` where there is no room for it.
    pub(super) fn new(job: &Job, announced: Announced) -> Option<Self> {
        let cache = job.cache();
        let listening = cache.tiers()?.follow(announced.fill);
        let body = StoredBody::from(cache.open_body(announced.head.declared_bytes()));
        let response = StoredResponse { head: Arc::new(announced.head), body };
        let entry = CacheEntry::new(cache.budget(), vec![response], None).ok()?;
        let said = Progress { fill: announced.fill, state: ProgressState::GoesOn, fragments: 0, bytes: 0 };
        Some(Self {
            hit: Hit::newest(Arc::new(entry))?,
            said,
            fragments: 0,
            bytes: 0,
            read: VecDeque::new(),
            heard_at: Instant::now(),
            listening,
            told: None,
        })
    }

    /// Waits for the first bytes: before they are there, nothing is promised to anybody. `None` where they do not come.
    pub(super) async fn begun(mut self, tiers: &Tiers) -> Option<Self> {
        match self.more(tiers).await {
            Ok(()) | Err(End::Complete) => Some(self),
            Err(End::Lost | End::Left) => None,
        }
    }

    pub(super) fn hit(&self) -> &Hit {
        &self.hit
    }

    /// Waits for more to pass on.
    async fn more(&mut self, tiers: &Tiers) -> Result<(), End> {
        while self.read.is_empty() {
            if self.fragments < self.said.fragments {
                self.load(tiers).await?;
            } else if self.said.state != ProgressState::GoesOn {
                let is_all = self.said.state == ProgressState::Complete && self.bytes == self.said.bytes;
                return Err(if is_all { End::Complete } else { End::Lost });
            } else {
                self.hear(tiers).await?;
            }
        }
        Ok(())
    }

    /// Asks how far it has come, when it has come further.
    async fn hear(&mut self, tiers: &Tiers) -> Result<(), End> {
        if let Some(told) = self.told.as_mut() {
            // What is told may get lost.
            let _ = timeout(tiers.silence_max() / 2, told).await;
        }
        self.told = Some(self.listening.told());
        match tiers.progress(self.said.fill).await {
            Ok(Some(said)) if said.fragments >= self.fragments => {
                (self.said, self.heard_at) = (said, Instant::now());
                Ok(())
            }
            Ok(_) => Err(End::Lost),
            Err(_) => {
                self.told = None;
                self.try_again(tiers).await
            }
        }
    }

    async fn load(&mut self, tiers: &Tiers) -> Result<(), End> {
        let wanted: Vec<u32> = (self.fragments..self.said.fragments).take(FRAGMENTS_AT_ONCE).collect();
        let Ok(loaded) = tiers.segments().load_fragments(self.said.fill, &wanted).await else {
            return self.try_again(tiers).await;
        };
        for segment in loaded {
            let segment = segment.ok_or(End::Lost)?;
            self.fragments += 1;
            self.bytes += segment.len() as u64;
            self.read.push_back(segment);
        }
        Ok(())
    }

    /// A tier that does not answer once may do so the next time.
    async fn try_again(&self, tiers: &Tiers) -> Result<(), End> {
        if self.heard_at.elapsed() >= tiers.silence_max() {
            return Err(End::Lost);
        }
        sleep(tiers.silence_max() / 20).await;
        Ok(())
    }
}

impl Job {
    /// Passes a body on to all who wait for it here.
    pub(super) async fn follow(&self, mut following: Following, leader: LeaderGuard) {
        let cache = self.cache();
        let Some(tiers) = cache.tiers() else { return };
        let (head, promised) = (Arc::clone(&following.hit.head), leader.in_flight().promised());
        let budget = Arc::clone(cache.budget());
        let fill = Fill::new(budget, self.limits(), head.declared_bytes(), promised);
        let writer = Writer(Arc::clone(&fill));
        let filling = Filling {
            status: head.facts.status,
            head,
            fill,
            unshared: Arc::new(PackedFields::default()),
            part: None,
            asked_by: AskedBy::Another,
        };
        leader.announce(Answer::Filling(filling));
        let _streaming = self.worker.recorder.fill(FillState::Streaming);
        tiers.is_followed();
        let fill = &writer.0;
        let mut end = self.pass_on(&mut following, tiers, (fill, &leader)).await;
        if end == End::Lost {
            tiers.is_lost();
            end = self.pass_on_rest(&following.hit, (fill, &leader)).await;
        }
        match end {
            End::Complete if fill.is_as_announced() => fill.complete(None),
            End::Complete | End::Lost => self.abort(fill, "instance-lost"),
            End::Left => self.abort(fill, "abandoned"),
        }
    }

    async fn pass_on(
        &self,
        following: &mut Following,
        tiers: &Tiers,
        (fill, leader): (&Fill, &LeaderGuard),
    ) -> End {
        loop {
            while let Some(segment) = following.read.pop_front() {
                let Ok(data) = segment.to_bytes() else { return End::Lost };
                match fill.write(data, || Pacing::Allowed).await {
                    Written::Kept => {}
                    Written::All => return End::Complete,
                    Written::NoLongerKept(_) => leader.hide(),
                    Written::TooLong | Written::Abandoned | Written::TooSlow => return End::Left,
                }
            }
            // Nothing of it is kept here.
            if !fill.is_wanted() {
                return End::Left;
            }
            if let Err(end) = following.more(tiers).await {
                return end;
            }
        }
    }

    /// Asks the origin for what another instance did not bring.
    async fn pass_on_rest(&self, hit: &Hit, (fill, leader): (&Fill, &LeaderGuard)) -> End {
        let Some(complete_bytes) = hit.body.complete_bytes() else { return End::Lost };
        let says = "the instance that fetched it has stopped: the origin is asked for the rest";
        self.note(|| Finding::new("collapse", says, "RFC 9111 section 3.3"));
        while fill.arrived_bytes() < complete_bytes {
            let before = fill.arrived_bytes();
            let range = ByteRange { first: before, last: complete_bytes - 1 };
            let rest = MissingRange { hit: hit.clone(), range, reply: ReplyOfParts::ToCome };
            match self.rest(rest, leader).await {
                Some(response) => match self.splice(response, (fill, leader)).await {
                    // It may have brought less than it was asked for.
                    End::Complete if fill.arrived_bytes() > before => {}
                    End::Complete => return End::Lost,
                    end => return end,
                },
                None => return End::Lost,
            }
        }
        End::Complete
    }

    /// The answer to a request for the rest, if it is of the same representation.
    async fn rest(&self, rest: MissingRange, leader: &LeaderGuard) -> Option<Box<OriginResponse>> {
        if !MissingRange::can_be_part_of(&rest.hit) {
            return None;
        }
        let fetch = self.fetch.with_scope(FetchScope::MissingRange(rest.clone()));
        let job = Self { fetch: Arc::new(fetch), ..self.clone() };
        let (response, times) = job.ask(Validation::Without, None, leader).await.ok()?;
        let (lines, length) = (response.fields.to_lines(), response.body.content_length());
        let stored = rest.hit.head.fields.to_lines();
        let status = response.status.as_u16();
        let judgement = partial::judge(status, &lines, length, &rest.wanted(&stored), times.response);
        drop((lines, stored));
        self.worker.recorder.missing_part(judgement.as_str());
        matches!(judgement, HoleAnswer::Splice(_)).then_some(response)
    }

    async fn splice(&self, response: Box<OriginResponse>, (fill, leader): (&Fill, &LeaderGuard)) -> End {
        let mut body = response.body;
        loop {
            let data = match body.frame().await {
                Some(Ok(BodyFrame::Data(data))) => data,
                Some(Ok(BodyFrame::Trailers(_))) => continue,
                None => return End::Complete,
                Some(Err(_)) => return End::Lost,
            };
            match body.pass_on(fill.write(data, || body.wait_for_client())).await {
                None | Some(Written::Kept | Written::All) => {}
                Some(Written::NoLongerKept(_)) => leader.hide(),
                Some(Written::TooLong) => return End::Lost,
                Some(Written::Abandoned | Written::TooSlow) => return End::Left,
            }
        }
    }
}
