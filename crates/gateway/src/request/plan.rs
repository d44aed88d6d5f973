//! What an exchange carries from step to step.

use std::sync::Arc;

use bytes::Bytes;
use caching::RequestFacts;
use message::client::Client;
use message::fields::PackedFields;
use message::head::OwnedRequest;
use message::reason::Detail;
use origin::RequestBody;
use tokio::time::Instant;

use crate::active::ActiveConfig;
use crate::cache::epochs::membership::LookUp;
use crate::cache::failure::FailureCause;
use crate::cache::inflight::table::Waiter;
use crate::cache::inflight::wanted::Fetch;
use crate::cache::record::stored::{CacheEntry, Hit};
use crate::cache::using::Use;
use crate::pace::BodyLimits;
use crate::request::reply::Reply;
use crate::rewrite::reading::Inbound;
use crate::routing::{LiveSite, RuleIndex};

/// How the first half of an exchange ends. A reply is not boxed: a hit allocates nothing.
#[expect(clippy::large_enum_variant, reason = "a box would be an allocation per hit")]
pub(crate) enum Step {
    Reply(Reply),
    Forward(Box<Plan>),
}

/// What is to be done for a request that can't be answered at once.
pub(crate) struct Plan {
    pub(crate) live: Arc<ActiveConfig>,
    pub(crate) site: Arc<LiveSite>,
    pub(crate) rule: RuleIndex,
    pub(crate) request: Arc<Inbound>,
    pub(crate) facts: RequestFacts,
    pub(crate) started: Instant,
    pub(crate) mode: ForwardMode,
    /// What limits have to say to the client, with whatever response.
    pub(crate) quota: PackedFields,
    /// The request as its client sent it, where rules have changed it.
    pub(crate) asked: Option<Arc<OwnedRequest>>,
    /// Kept in use while the exchange lasts: memory may forget it at any time.
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
    /// Looked up again once the tier behind memory has said what it has under this key.
    Load(Box<[u8]>),
}

/// A stored response that may stand in for a failure of the origin.
#[derive(Debug)]
pub(crate) struct StandIn {
    pub(crate) hit: Hit,
    /// What found it.
    pub(crate) look_up: LookUp,
}

/// A stored response that answers, and of which memory lacks bytes that the tier behind it may have.
#[derive(Debug)]
pub(crate) struct Assemble {
    pub(crate) hit: Hit,
    pub(crate) used: Use,
    /// The failure of the origin that it stands in for.
    pub(crate) cause: Option<FailureCause>,
    /// What asks the origin for bytes that the tier lacks, but for its scope.
    pub(crate) fetch: Arc<Fetch>,
}

/// What is to be done next for a request that a plan was made for.
pub(crate) enum Next {
    /// It is answered.
    Reply(Reply),
    /// The content of a QUERY is read.
    Query(RequestBody),
    /// It is looked up by its content.
    LookUp(Bytes),
    /// The tier behind memory is asked, and then it is looked up again.
    Load { key: Box<[u8]>, content: Content },
    /// It is forwarded for its client alone.
    Forward { body: RequestBody, reason: ForwardReason },
    /// It gets a response that others may share.
    Fetch(Arc<Fetch>),
    /// It is answered with a stored response that is loaded.
    Assemble(Arc<Assemble>),
    /// Its own forward has brought a response, which is on its way into the cache.
    Follow { fetch: Arc<Fetch>, waiter: Waiter },
}

/// The content of a request.
pub(crate) enum Content {
    /// To be read, if there is any.
    Unread(RequestBody),
    /// That of a QUERY, which is part of its key.
    Read(Bytes),
}

/// Why a request has nothing to do with the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ForwardReason {
    pub(crate) fwd: caching::FwdReason,
    pub(crate) detail: Detail,
}

impl ForwardMode {
    /// Whether no stored response answers; of others it is known later.
    pub(crate) fn asks_origin(&self) -> bool {
        matches!(self, Self::Alone { .. } | Self::Fetch(_))
    }
}

impl Next {
    /// The same of what is next.
    pub(crate) fn asks_origin(&self) -> bool {
        matches!(self, Self::Forward { .. } | Self::Fetch(_))
    }
}

impl Plan {
    /// The first thing to be done.
    pub(crate) fn first(&self, body: RequestBody) -> Next {
        match &self.mode {
            ForwardMode::Alone { reason, .. } => Next::Forward { body, reason: *reason },
            ForwardMode::Fetch(fetch) => Next::Fetch(Arc::clone(fetch)),
            ForwardMode::Assemble(asked) => Next::Assemble(Arc::clone(asked)),
            ForwardMode::Query => Next::Query(body),
            ForwardMode::Load(key) => Next::Load { key: key.clone(), content: Content::Unread(body) },
        }
    }

    /// The same request on another way, now that the tier has been asked.
    pub(crate) fn with(&self, mode: ForwardMode, loaded: Option<Arc<CacheEntry>>) -> Box<Self> {
        Box::new(Self {
            live: Arc::clone(&self.live),
            site: Arc::clone(&self.site),
            rule: self.rule,
            request: Arc::clone(&self.request),
            facts: self.facts,
            started: self.started,
            mode,
            quota: self.quota.clone(),
            asked: self.asked.clone(),
            loaded,
        })
    }

    /// The request as its client sent it.
    pub(crate) fn asked(&self) -> &OwnedRequest {
        self.asked.as_deref().unwrap_or_else(|| self.request())
    }

    /// Whom its forward is counted for.
    pub(crate) fn client(&self) -> Option<Client> {
        Client::of_request(&self.request, &self.live.config.trusted_proxies)
    }

    /// What the content of its request may take.
    pub(crate) fn body_limits(&self) -> BodyLimits {
        self.site.body_limits(self.rule, self.live.config.limits.body_limits())
    }

    pub(crate) fn request(&self) -> &OwnedRequest {
        &self.request
    }
}
