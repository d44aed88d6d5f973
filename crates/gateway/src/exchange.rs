//! The life of a request, as a list of steps:
//!
//! `receive -> route -> read -> key -> lookup -> (serve fresh | serve stale and refresh | validate | collapse |
//! forward) -> store -> transform -> deliver -> account`
//!
//! [`begin`] takes the steps that need nobody else: it ends with a reply or with a [`Plan`]. [`finish`] carries a
//! plan out. Decisions are made in `caching`; here they are only acted on.
//!
//! | step | where |
//! |---|---|
//! | receive, deliver | `server` |
//! | route | [`crate::route`] |
//! | read | [`crate::reading`] |
//! | key, lookup | [`crate::cache::lookup`] |
//! | serve | [`crate::cache::serve`] |
//! | validate, collapse, forward, store | [`crate::cache::fetch`], [`crate::cache::flight`] |
//! | account | [`crate::account`] |

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use caching::explain::Finding;
use caching::{MaxForwards, MethodClass, NotReused, RequestFacts};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::cache::collapse;
use crate::cache::fetch::Fetch;
use crate::cache::findings;
use crate::cache::lookup::{Found, Lookup};
use crate::cache::query;
use crate::cache::serve::Serving;
use crate::cache::stored::Hit;
use crate::client::Client;
use crate::events::{self, Event};
use crate::explain::note;
use crate::forward;
use crate::head::{OwnedRequest, RequestHead};
use crate::origin::{Interim, RequestBody};
use crate::reading::{self, Inbound, Terms};
use crate::reason::Detail;
use crate::reply::Reply;
use crate::respond::{self, Problem};
use crate::route::{LiveSite, RuleIndex};
use crate::worker::{Live, Worker};

/// Interim responses that wait for a slow client; more are dropped, because they are only hints.
const INTERIMS_MAX: usize = 16;

/// Interim responses between a forward and the connection of the request that waits for it. One task puts them in and
/// takes them out, so that nobody has to be woken.
#[derive(Default)]
pub(crate) struct Interims(Mutex<VecDeque<Arc<Interim>>>);

impl Interims {
    /// From inside of the future that brings the reply.
    pub(crate) fn push(&self, interim: Arc<Interim>) {
        let mut waiting = self.0.lock();
        if waiting.len() < INTERIMS_MAX {
            waiting.push_back(interim);
        }
    }

    fn take(&self) -> Option<Arc<Interim>> {
        self.0.lock().pop_front()
    }
}

/// A reply on its way, and the interim responses before it.
pub(crate) struct Awaited<'a, F> {
    reply: Pin<&'a mut F>,
    interims: &'a Interims,
    arrived: Option<Box<Reply>>,
}

/// What a request gets next.
pub(crate) enum Coming {
    Interim(Arc<Interim>),
    /// The last.
    Reply(Box<Reply>),
}

impl<'a, F: Future<Output = Reply>> Awaited<'a, F> {
    pub(crate) fn new(reply: Pin<&'a mut F>, interims: &'a Interims) -> Self {
        Self { reply, interims, arrived: None }
    }

    /// Interim responses that arrive together with the final one go before it. May be dropped, and called again.
    pub(crate) async fn next(&mut self) -> Coming {
        poll_fn(|context| {
            if self.arrived.is_none()
                && let Poll::Ready(reply) = self.reply.as_mut().poll(context)
            {
                self.arrived = Some(Box::new(reply));
            }
            let coming = match self.interims.take() {
                Some(interim) => Some(Coming::Interim(interim)),
                None => self.arrived.take().map(Coming::Reply),
            };
            coming.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// How the first half of an exchange ends. A reply is not boxed: a hit allocates nothing.
#[expect(clippy::large_enum_variant, reason = "a box would be an allocation per hit")]
pub(crate) enum Step {
    Reply(Reply),
    Forward(Box<Plan>),
}

/// What is to be done for a request that can't be answered at once.
pub(crate) struct Plan {
    pub(crate) live: Arc<Live>,
    pub(crate) site: Arc<LiveSite>,
    pub(crate) rule: RuleIndex,
    pub(crate) request: Arc<Inbound>,
    pub(crate) facts: RequestFacts,
    pub(crate) started: Instant,
    pub(crate) way: Way,
}

/// How a request gets its response from the origin.
pub(crate) enum Way {
    /// Forwarded as it is; the answer is for this client alone. A stored response may stand in for a failure.
    Pass { reason: PassReason, stale: Option<Hit> },
    /// Forwarded so that the answer can be stored and shared.
    Fetch(Arc<Fetch>),
    /// A QUERY: looked up once its content is read.
    Query,
}

/// Why a request has nothing to do with the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PassReason {
    pub(crate) fwd: caching::FwdReason,
    pub(crate) detail: Detail,
}

impl Plan {
    /// Whom its forward is counted for.
    pub(crate) fn client(&self) -> Option<Client> {
        Client::of_request(&self.request, &self.live.config.trusted_proxies)
    }

    pub(crate) fn request(&self) -> &OwnedRequest {
        &self.request
    }
}

/// Route, key, lookup, and the reply if one is at hand. `key` is scratch space of the connection, `started` is when the
/// head was complete.
//= RFC 9111 section 2: reuse is the default
pub(crate) fn begin(
    worker: &Arc<Worker>,
    live: &Arc<Live>,
    request: &RequestHead<'_>,
    key: &mut Vec<u8>,
    started: Instant,
) -> Step {
    let Some(site) = live.routes.site(request.authority, request.path_and_query) else {
        let problem = Problem::no_site(request.authority);
        note(request.record, || Finding::new("route", "no site is for this host and path", ""));
        return Step::Reply(respond::reply(&problem, None, started, worker));
    };
    let facts = reading::facts(request, &site.config);
    if facts.method == MethodClass::OtherSafe
        && MaxForwards::parse(request.method, request.fields) == MaxForwards::Answer
    {
        let problem = Problem::not_forwarded(request.method);
        return Step::Reply(respond::reply(&problem, Some(site), started, worker));
    }
    let rule = site.rule(request.method, request.path_and_query);
    note(request.record, || {
        Finding::new("route", "the first site and rule that fit", "")
            .with("site", site.config.name.as_str(), "")
            .with("rule", site.rule_at(rule).name.as_str(), "")
            .with("origin", site.config.origin.name.as_str(), "")
    });
    let terms = Terms { site: &site.config, rule: site.rule_at(rule) };
    let facts = reading::with_credentials(facts, request, terms);
    let keyed = reading::keyed_fields(request, facts.method, terms);
    if !keyed.is_empty() {
        // What lies under such a key is invalidated by the key of its URL alone.
        worker.shared.epochs.watch_keys();
    }
    let request = &RequestHead { keyed: &keyed, ..*request };
    let plan = |way: Way| {
        Step::Forward(Box::new(Plan {
            live: Arc::clone(live),
            site: Arc::clone(site),
            rule,
            request: Arc::new(Inbound::new(request, live, site, rule)),
            facts,
            started,
            way,
        }))
    };
    let lookup =
        Lookup { worker, live, site, rule, request, facts: &facts, now: worker.now(), content: None };
    settle(&lookup, key, started).map_or_else(plan, Step::Reply)
}

/// Look-up, and the reply if one is at hand.
///
/// # Errors
/// The way to go for one, where none is.
pub(crate) fn settle(lookup: &Lookup<'_>, key: &mut Vec<u8>, started: Instant) -> Result<Reply, Way> {
    let Lookup { site, request, facts, now, .. } = *lookup;
    let unavailable = |reason: NotReused| {
        let mut reply = respond::reply(&Problem::only_if_cached(), Some(site), started, lookup.worker);
        reply.cache_status.detail = Some(reason.as_str());
        reply
    };
    match lookup.run(key) {
        Found::Pass(reason, stale) => {
            note(request.record, || {
                findings::because("pass", "forwarded for this client alone", reason.detail)
            });
            Err(Way::Pass { reason, stale })
        }
        Found::Use(hit, use_) => {
            let serving = Serving { site, request, facts, now, started };
            match serving.stored(&hit, use_) {
                Some(reply) => {
                    lookup.refresh_if_stale(use_, &hit, key);
                    Ok(reply)
                }
                None => match lookup.way_to_rest(&serving, &hit, key) {
                    Ok(way) => Err(way),
                    Err(reason) => Ok(unavailable(reason)),
                },
            }
        }
        Found::Fetch(fetch) => Err(Way::Fetch(fetch)),
        Found::NeedContent => Err(Way::Query),
        Found::Unavailable(reason) => Ok(unavailable(reason)),
    }
}

/// Carries out a plan: asks the origin, or waits for somebody who does.
pub(crate) async fn finish(
    worker: &Arc<Worker>,
    plan: &Plan,
    body: RequestBody,
    interims: &Interims,
) -> Reply {
    if worker.shared.instance.goes_in_circles(&plan.request, &plan.live.config.server_name) {
        return circle(worker, plan);
    }
    match &plan.way {
        Way::Pass { reason, .. } => forward::pass(worker, plan, body, *reason, interims).await,
        Way::Fetch(fetch) => collapse::run(worker, plan, fetch, interims).await,
        Way::Query => Box::pin(query::run(worker, plan, body, interims)).await,
    }
}

/// The answer to a request that this process has forwarded before, or that goes round for ever.
fn circle(worker: &Worker, plan: &Plan) -> Reply {
    let problem = Problem::circle();
    worker.recorder.origin_error(plan.site.origin_metrics, problem.reason);
    events::emit(&plan.site, &plan.request.path_and_query, &Event::Loop);
    respond::reply(&problem, Some(&plan.site), plan.started, worker)
}
