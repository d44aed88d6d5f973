//! State that an exchange carries from step to step, and the responses that arrive while its plan is carried out.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use cache::collapse::table::Waiter;
use cache::entry::stored::{CacheEntry, Hit};
use cache::failure::FailureCause;
use cache::membership::LookUp;
use caching::FwdReason;
use message::fields::PackedFields;
use message::head::{OwnedRequest, RequestHead};
use message::reason::{Detail, Reason};
use origin::{Interim, RequestBody};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::pace::BodyLimits;
use crate::request::context::{OwnedContext, RequestContext, SiteContext};
use crate::request::fetch::fetch_spec::Fetch;
use crate::request::reply::Reply;
use crate::request::serve::Use;

/// Outcome of the first half of an exchange. A reply isn't boxed, so a hit allocates no memory.
#[expect(clippy::large_enum_variant, reason = "a box would cost one allocation per hit")]
pub(crate) enum Step {
    Reply(Reply),
    Forward(Box<Plan>),
}

/// Remaining work for a request that can't be answered immediately.
pub(crate) struct Plan {
    pub(crate) owned: OwnedContext,
    pub(crate) started: Instant,
    pub(crate) mode: ForwardMode,
    /// Rate limit fields for the client, sent with any response.
    pub(crate) quota: PackedFields,
    /// The request as its client sent it, if rules have changed it.
    pub(crate) asked: Option<Arc<OwnedRequest>>,
    /// Entry loaded from the tier. The entry is held during the exchange, because memory may evict it at any time.
    #[expect(dead_code, reason = "held to keep the entry in use")]
    pub(crate) loaded: Option<Arc<CacheEntry>>,
}

/// Way of getting the response to a request.
pub(crate) enum ForwardMode {
    /// The request is forwarded unchanged, and its response is for this client alone. A stored response may be used if the origin
    /// fails.
    Alone { reason: ForwardReason, stale: Option<StandIn> },
    /// The request is forwarded, and its response may be stored and shared.
    Fetch(Arc<Fetch>),
    /// A stored response answers the request, after its missing bytes have been loaded.
    Assemble(Arc<Assemble>),
    /// The request is a QUERY, and is looked up after its content has been read.
    Query,
    /// The request is looked up again after the tier behind memory has answered for this key.
    Load(Box<[u8]>),
}

/// A stored response that may be used if the origin fails.
#[derive(Debug)]
pub(crate) struct StandIn {
    pub(crate) hit: Hit,
    /// Look-up that returned the response.
    pub(crate) look_up: LookUp,
}

/// A stored response to reply with. Memory lacks bytes of the response that the tier behind memory may have.
#[derive(Debug)]
pub(crate) struct Assemble {
    pub(crate) hit: Hit,
    pub(crate) used: Use,
    /// Failure of the origin that the stored response replaces, if any.
    pub(crate) cause: Option<FailureCause>,
    /// Fetch of the bytes that the tier lacks. The scope of the fetch is set later.
    pub(crate) fetch: Arc<Fetch>,
}

/// Next step for a request with a plan.
pub(crate) enum Next {
    /// Ends the exchange with a reply.
    Reply(Reply),
    /// Reads the content of a QUERY.
    Query(RequestBody),
    /// Looks up the request by its content.
    LookUp(Bytes),
    /// Loads the record from the tier behind memory, then looks up the request again.
    Load { key: Box<[u8]>, content: Content },
    /// Forwards the request for its client alone.
    Forward { body: RequestBody, reason: ForwardReason },
    /// Fetches a response that others may share.
    Fetch(Arc<Fetch>),
    /// Replies with a stored response after it is loaded.
    Assemble(Arc<Assemble>),
    /// Replies from the request's own forward, whose response is being stored.
    Follow { fetch: Arc<Fetch>, waiter: Waiter },
}

/// The content of a request.
pub(crate) enum Content {
    /// Content that has not been read yet, and may be empty.
    Unread(RequestBody),
    /// Content of a QUERY, which is part of its key.
    Read(Bytes),
}

/// Reason for forwarding a request, as shown in `Cache-Status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ForwardReason {
    pub(crate) fwd: FwdReason,
    pub(crate) detail: Detail,
}

impl ForwardMode {
    /// Returns the first step in this mode.
    pub(crate) fn first(&self, content: Content) -> Next {
        match (self, content) {
            (Self::Fetch(fetch), _) => Next::Fetch(Arc::clone(fetch)),
            (Self::Assemble(asked), _) => Next::Assemble(Arc::clone(asked)),
            (Self::Load(key), content) => Next::Load { key: key.clone(), content },
            (Self::Query, Content::Unread(body)) => Next::Query(body),
            (Self::Query, Content::Read(content)) => {
                let reason = ForwardReason { fwd: FwdReason::Bypass, detail: Reason::RequestContent.into() };
                Next::Forward { body: content.into(), reason }
            }
            (Self::Alone { reason, .. }, Content::Unread(body)) => Next::Forward { body, reason: *reason },
            (Self::Alone { reason, .. }, Content::Read(content)) => {
                Next::Forward { body: content.into(), reason: *reason }
            }
        }
    }

    /// Returns whether the request is certain to be forwarded. In the other modes, a later step decides this.
    pub(crate) fn asks_origin(&self) -> bool {
        matches!(self, Self::Alone { .. } | Self::Fetch(_))
    }
}

impl Next {
    /// Returns whether this step forwards the request.
    pub(crate) fn asks_origin(&self) -> bool {
        matches!(self, Self::Forward { .. } | Self::Fetch(_))
    }
}

impl Deref for Plan {
    type Target = OwnedContext;

    fn deref(&self) -> &OwnedContext {
        &self.owned
    }
}

impl Plan {
    /// Copies the plan with a new mode, after the tier has answered.
    pub(crate) fn with(&self, mode: ForwardMode, loaded: Option<Arc<CacheEntry>>) -> Box<Self> {
        let (quota, asked) = (self.quota.clone(), self.asked.clone());
        Box::new(Self { owned: self.owned.clone(), started: self.started, mode, quota, asked, loaded })
    }

    /// Returns the request as sent by its client.
    pub(crate) fn asked(&self) -> &OwnedRequest {
        self.asked.as_deref().unwrap_or_else(|| self.request())
    }

    /// Returns the limits on the content of the request.
    pub(crate) fn body_limits(&self) -> BodyLimits {
        self.site.body_limits(self.rule, self.live.config.limits.body_limits())
    }

    pub(crate) fn request(&self) -> &OwnedRequest {
        &self.request
    }

    /// Completes when another request waits for the permit of this one, or for its turn to fetch the same response. Until then, this
    /// forward delays no other request, even if its client may have left.
    pub(crate) async fn others_wait(&self) {
        tokio::select! {
            () = self.site.upstream.permit_wanted(self.client()) => {}
            _ = self.request.place_wanted.wait() => {}
        }
    }

    /// Signals that the permit of this request has been released, after its forward ended because others were waiting. Another forward
    /// may have to end, too.
    pub(crate) fn place_given_up(&self) {
        self.site.upstream.permit_given_up(self.client());
    }

    /// Returns the context before a rule is known.
    pub(crate) fn at(&self) -> SiteContext<'_> {
        let OwnedContext { worker, live, site, .. } = &self.owned;
        SiteContext { worker, live, site, started: self.started }
    }

    /// Returns the context of the request for steps that borrow it; `request` is the head of [`Self::request`].
    pub(crate) fn context<'a>(&'a self, request: &'a RequestHead<'a>) -> RequestContext<'a> {
        RequestContext::new(self.at(), self.rule, request, &self.facts)
    }

    /// Calls `act` with the context of the forwarded request.
    pub(crate) fn with_context<T>(&self, act: impl FnOnce(RequestContext<'_>) -> T) -> T {
        let lines = self.request.fields.to_lines();
        act(self.context(&self.request.borrow(&lines)))
    }
}

/// Maximum number of interim responses kept for a slow client. Further interim responses are dropped, because they are only hints.
const INTERIMS_MAX: usize = 16;

/// Interim responses between a forward and the connection of the request that waits for it. The same task adds and removes the
/// responses, so no wake-up is needed.
#[derive(Default)]
pub(crate) struct Interims(Mutex<VecDeque<Arc<Interim>>>);

impl Interims {
    /// Adds an interim response. Call this inside the future that returns the reply. If the queue is full, the response is dropped.
    pub(crate) fn push(&self, interim: Arc<Interim>) {
        let mut waiting = self.0.lock();
        if waiting.len() < INTERIMS_MAX {
            waiting.push_back(interim);
        }
    }
}

/// A pending reply, and the interim responses that precede it.
pub(crate) struct Awaited<'a, F> {
    reply: Pin<&'a mut F>,
    interims: &'a Interims,
    arrived: Option<Box<Reply>>,
}

/// Next response for a request.
pub(crate) enum Coming {
    Interim(Arc<Interim>),
    /// The final response.
    Reply(Box<Reply>),
}

impl<'a, F: Future<Output = Reply>> Awaited<'a, F> {
    pub(crate) fn new(reply: Pin<&'a mut F>, interims: &'a Interims) -> Self {
        Self { reply, interims, arrived: None }
    }

    /// Waits for the next response. If interim responses and the final response have both arrived, returns the interim ones first.
    /// Cancel-safe.
    pub(crate) async fn next(&mut self) -> Coming {
        poll_fn(|context| {
            if self.arrived.is_none()
                && let Poll::Ready(reply) = self.reply.as_mut().poll(context)
            {
                self.arrived = Some(Box::new(reply));
            }
            let coming = match self.interims.0.lock().pop_front() {
                Some(interim) => Some(Coming::Interim(interim)),
                None => self.arrived.take().map(Coming::Reply),
            };
            coming.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}
