//! State that an exchange carries from step to step, and the responses that come while its plan is carried out.

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

/// Outcome of the first half of an exchange. A reply is not boxed: a hit allocates nothing.
#[expect(clippy::large_enum_variant, reason = "a box would be an allocation per hit")]
pub(crate) enum Step {
    Reply(Reply),
    Forward(Box<Plan>),
}

/// Remaining work for a request that can't be answered at once.
pub(crate) struct Plan {
    pub(crate) owned: OwnedContext,
    pub(crate) started: Instant,
    pub(crate) mode: ForwardMode,
    /// Rate limit fields for the client, sent with any response.
    pub(crate) quota: PackedFields,
    /// The request as its client sent it, if rules have changed it.
    pub(crate) asked: Option<Arc<OwnedRequest>>,
    /// Entry loaded from the tier, held during the exchange: memory may evict it at any time.
    #[expect(dead_code, reason = "to be held is what it is for")]
    pub(crate) loaded: Option<Arc<CacheEntry>>,
}

/// How a request gets its response from the origin.
pub(crate) enum ForwardMode {
    /// Forwarded as it is; the answer is for this client alone. A stored response may stand in for a failure.
    Alone { reason: ForwardReason, stale: Option<StandIn> },
    /// Forwarded so that the answer can be stored and shared.
    Fetch(Arc<Fetch>),
    /// Answered with a stored response, once bytes of it are loaded.
    Assemble(Arc<Assemble>),
    /// A QUERY: looked up once its content is read.
    Query,
    /// Looked up again once the tier behind memory has answered for this key.
    Load(Box<[u8]>),
}

/// A stored response that may stand in for a failure of the origin.
#[derive(Debug)]
pub(crate) struct StandIn {
    pub(crate) hit: Hit,
    /// Look-up that found it.
    pub(crate) look_up: LookUp,
}

/// A stored response to reply with, of which memory lacks bytes that the tier behind it may have.
#[derive(Debug)]
pub(crate) struct Assemble {
    pub(crate) hit: Hit,
    pub(crate) used: Use,
    /// Failure of the origin that it stands in for.
    pub(crate) cause: Option<FailureCause>,
    /// Fetch of the bytes that the tier lacks, except for its scope.
    pub(crate) fetch: Arc<Fetch>,
}

/// Next step for a request with a plan.
pub(crate) enum Next {
    /// Ends the exchange with a reply.
    Reply(Reply),
    /// Reads the content of a QUERY.
    Query(RequestBody),
    /// Looks the request up by its content.
    LookUp(Bytes),
    /// Asks the tier behind memory, then looks the request up again.
    Load { key: Box<[u8]>, content: Content },
    /// Forwards the request for its client alone.
    Forward { body: RequestBody, reason: ForwardReason },
    /// Gets a response that others may share.
    Fetch(Arc<Fetch>),
    /// Replies with a stored response, once it is loaded.
    Assemble(Arc<Assemble>),
    /// Follows the request's own forward, whose response is on its way into the cache.
    Follow { fetch: Arc<Fetch>, waiter: Waiter },
}

/// The content of a request.
pub(crate) enum Content {
    /// Not read yet; may be empty.
    Unread(RequestBody),
    /// Content of a QUERY, which is part of its key.
    Read(Bytes),
}

/// Why a request is forwarded, as `Cache-Status` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ForwardReason {
    pub(crate) fwd: FwdReason,
    pub(crate) detail: Detail,
}

impl ForwardMode {
    /// First step in this mode.
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

    /// Whether the origin is asked. For other modes, that is known later.
    pub(crate) fn asks_origin(&self) -> bool {
        matches!(self, Self::Alone { .. } | Self::Fetch(_))
    }
}

impl Next {
    /// Whether this step asks the origin.
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
    /// Copies the plan with another mode, after the tier was asked.
    pub(crate) fn with(&self, mode: ForwardMode, loaded: Option<Arc<CacheEntry>>) -> Box<Self> {
        let (quota, asked) = (self.quota.clone(), self.asked.clone());
        Box::new(Self { owned: self.owned.clone(), started: self.started, mode, quota, asked, loaded })
    }

    /// The request as its client sent it.
    pub(crate) fn asked(&self) -> &OwnedRequest {
        self.asked.as_deref().unwrap_or_else(|| self.request())
    }

    /// Limits on the content of the request.
    pub(crate) fn body_limits(&self) -> BodyLimits {
        self.site.body_limits(self.rule, self.live.config.limits.body_limits())
    }

    pub(crate) fn request(&self) -> &OwnedRequest {
        &self.request
    }

    /// Resolves when another request waits for the place of this one at the origin, or for its turn to fetch the same: until then, the
    /// forward of a client that may be gone costs nobody anything.
    pub(crate) async fn others_wait(&self) {
        tokio::select! {
            () = self.site.upstream.permit_wanted(self.client()) => {}
            _ = self.request.place_wanted.wait() => {}
        }
    }

    /// Passes on the call for the place of this request, after its forward has ended because others wait: another may have to end too.
    pub(crate) fn place_given_up(&self) {
        self.site.upstream.permit_given_up(self.client());
    }

    /// Context before a rule is known.
    pub(crate) fn at(&self) -> SiteContext<'_> {
        let OwnedContext { worker, live, site, .. } = &self.owned;
        SiteContext { worker, live, site, started: self.started }
    }

    /// Context of the request for steps that borrow it; `request` is the head of [`Self::request`].
    pub(crate) fn context<'a>(&'a self, request: &'a RequestHead<'a>) -> RequestContext<'a> {
        RequestContext::new(self.at(), self.rule, request, &self.facts)
    }

    /// Acts on the request as it is forwarded.
    pub(crate) fn with_context<T>(&self, act: impl FnOnce(RequestContext<'_>) -> T) -> T {
        let lines = self.request.fields.to_lines();
        act(self.context(&self.request.borrow(&lines)))
    }
}

/// Interim responses kept for a slow client. More are dropped: they are only hints.
const INTERIMS_MAX: usize = 16;

/// Interim responses between a forward and the connection of the request that waits for it. One task puts them in and takes them out,
/// so no wake-up is needed.
#[derive(Default)]
pub(crate) struct Interims(Mutex<VecDeque<Arc<Interim>>>);

impl Interims {
    /// Adds an interim response, from inside the future that brings the reply; drops it if the queue is full.
    pub(crate) fn push(&self, interim: Arc<Interim>) {
        let mut waiting = self.0.lock();
        if waiting.len() < INTERIMS_MAX {
            waiting.push_back(interim);
        }
    }
}

/// A reply on its way, and the interim responses before it.
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

    /// Waits for the next response. Interim responses go before a final one that arrives with them. Cancel-safe.
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
