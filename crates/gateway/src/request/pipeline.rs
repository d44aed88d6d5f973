//! The life of a request, as a state machine:
//!
//! | step | action | code | next |
//! |---|---|---|---|
//! | RECEIVE | the header section becomes a [`RequestHead`] | `server` | ROUTE |
//! | ROUTE | site and rule are chosen; clients and path spellings that the site doesn't allow are refused | here, [`crate::routing`] | REWRITE, or DELIVER a refusal |
//! | REWRITE | rules of the site change the request, redirect or answer it | [`shape`], [`crate::rewrite`] | ADMIT, or DELIVER |
//! | ADMIT | denials, rate limits and sizes | `admit` | KEY, or DELIVER a refusal |
//! | KEY | the cache key is written, for a QUERY after reading its content | [`lookup`] | LOOKUP |
//! | LOOKUP | a stored response is selected and evaluated; missing records are loaded from the tier | [`lookup`], [`load`] | DELIVER a hit, or FETCH |
//! | FETCH | the request is forwarded, once for all requests that may share the response | [`collapse`], [`hit_for_miss`], [`private`], [`crate::request::fetch`] | STORE |
//! | STORE | the response is evaluated, and stored while it is read; stored responses are completed, invalidated or purged | [`crate::request::fetch`], [`assemble`], [`purge`], [`crate::request::invalidate`] | DELIVER |
//! | DELIVER | a default response replaces a failure, the form for the client is chosen, and response rules apply; the bytes are sent | [`respond`], [`compress`], [`shape`], `server` | ACCOUNT |
//! | ACCOUNT | metrics, access log, spans | [`account`], [`otel`] | |
//!
//! [`begin`] runs the steps that don't wait, and returns a reply or a [`Plan`]. [`finish`] carries out a plan: each step returns the
//! [`Next`] step, and no step calls another. `caching` makes the decisions, and these steps carry them out.

use std::sync::Arc;

use caching::explain::Finding;
use caching::{MaxForwards, MethodClass, RequestFacts};
use message::client::{UnknownClient, address_of, known_address_of};
use message::explain_record::note;
use message::fields::PackedFields;
use message::head::{Content, RequestHead};
use origin::RequestBody;
use tokio::time::Instant;

use crate::active::ActiveConfig;
use crate::config::{Site, StoreIndex};
use crate::events::{self, Event};
use crate::request::context::{RequestContext, SiteContext};
use crate::request::fetch::fetch_spec::TierLookUp;
use crate::request::lookup::{self, Lookup};
use crate::request::plan::Interims;
use crate::request::plan::{self, Next, Plan, Step};
use crate::request::reply::Reply;
use crate::request::respond::{self, Problem};
use crate::request::steps::compress::{self, Compressing};
use crate::request::steps::hit_for_miss::HitForMiss;
use crate::request::steps::shape::{self, Shaping};
use crate::request::steps::{assemble, collapse, load, purge};
use crate::request::{account, otel, private};
use crate::rewrite::credential_taint;
use crate::rewrite::reading::{self, Terms};
use crate::rewrite::rules::Matching;
use crate::routing::{Ambiguity, LiveSite, Readings, Routed, spelled_part};
use crate::worker::Worker;

/// Runs the steps that don't wait. `key` is a buffer of the connection. `started` is the time at which the header section was
/// complete.
//= RFC 9111 section 2: reuse is the default
pub(crate) fn begin(
    worker: &Arc<Worker>,
    live: &Arc<ActiveConfig>,
    request: &RequestHead<'_>,
    key: &mut Vec<u8>,
    started: Instant,
) -> Step {
    let Some(site) = live.routes.site(request.authority, request.path_and_query) else {
        let problem = Problem::no_site(request.authority);
        note(request.record, || Finding::new("route", "no site serves this host and path", ""));
        return Step::Reply(respond::reply(&problem, None, started, worker));
    };
    let at = SiteContext { worker, live, site, started };
    let readings = live.routes.readings(site, request.path_and_query);
    let readings = readings.as_deref();
    if let Some(problem) = refusal(&at, request, readings) {
        let mut reply = at.reply(&problem);
        shape::overlay(worker, (request, address_of(request, &live.config.trusted_proxies)), &mut reply);
        return Step::Reply(reply);
    }
    if site.has_transforms() {
        return rewrite(at, (request, readings), key);
    }
    choose_rule(at, (request, readings), None, key)
}

/// REWRITE: applies the rules of the site, which may change or answer the request.
fn rewrite(at: SiteContext<'_>, (request, readings): Spelled<'_>, key: &mut Vec<u8>) -> Step {
    let SiteContext { worker, live, site, .. } = at;
    let client = address_of(request, &live.config.trusted_proxies);
    let mut step = match shape::run(&at, (request, client)) {
        Shaping::AsSent => choose_rule(at, (request, readings), None, key),
        Shaping::Reply(reply) => Step::Reply(*reply),
        Shaping::Changed(shaped) => {
            let lines = shaped.fields.to_lines();
            let changed = shaped.over(request, &lines);
            let changed_readings = live.routes.readings(site, changed.path_and_query);
            let changed_readings = changed_readings.as_deref();
            match changed_readings.and_then(|readings| misspelt(site, &changed, readings)) {
                Some(problem) => Step::Reply(at.reply(&problem)),
                None => {
                    let asked = Some(((request, readings), &shaped.matching));
                    choose_rule(at, (&changed, changed_readings), asked, key)
                }
            }
        }
    };
    if let Step::Reply(reply) = &mut step {
        shape::overlay(worker, (request, client), reply);
    }
    step
}

/// A request, with the possible interpretations of its path if origins may interpret it in different ways.
type Spelled<'a> = (&'a RequestHead<'a>, Option<&'a Readings>);

/// ROUTE: finds the rule. `asked` is the request that the client sent, with the rules that have changed it.
#[inline(always)]
fn choose_rule(
    at: SiteContext<'_>,
    (request, readings): Spelled<'_>,
    asked: Option<(Spelled<'_>, &Matching)>,
    key: &mut Vec<u8>,
) -> Step {
    let facts = reading::facts(request, &at.site.config);
    if let Some(problem) = not_forwarded(request, &facts) {
        return Step::Reply(at.reply(&problem));
    }
    let RequestHead { method, path_and_query, .. } = *request;
    let asked_path = asked.map(|((asked, readings), _)| (asked.path_and_query, readings));
    let matched = at.site.rule_for(&Routed { method, path_and_query, readings, asked: asked_path });
    let asked = asked.map(|((asked, _), matching)| (asked, matching));
    let context = RequestContext::new(at, matched, request, &facts);
    note_route(&context);
    let compression = context.rule.compression.as_deref();
    let read =
        compression.and_then(|compression| compress::with_tags_of_origin(request, &facts, compression));
    let Some(read) = read else {
        return look_up(context, asked, key);
    };
    let lines = read.to_lines();
    let changed = RequestHead { fields: &lines, ..*request };
    let unchanged = Matching::new();
    look_up(RequestContext { request: &changed, ..context }, asked.or(Some((request, &unchanged))), key)
}

/// Records findings about the site and rule of a request.
fn note_route(context: &RequestContext<'_>) {
    let RequestContext { at: SiteContext { live, site, .. }, matched, rule, request, .. } = *context;
    let Some(record) = request.record else { return };
    let found = Finding::new("route", "the first site and rule that fit", "")
        .with("site", site.config.name.as_str(), "")
        .with("rule", rule.name.as_str(), "")
        .with("origin", site.config.origin.name.as_str(), "");
    record.note(found);
    if rule.is_lenient() {
        let says =
            "the rule is a restriction: its path matches in any case, with any query and a trailing slash";
        record.note(Finding::new("route", says, ""));
    }
    if !matched.is_certain() {
        let names = site.limiting_rules(matched).map(|rule| rule.name.as_str()).collect::<Vec<_>>();
        let says = "origins may interpret the path differently, under other rules: nothing is stored";
        record.note(Finding::new("route", says, "").with("limits", names.join(", "), ""));
    }
    if site.config.store != StoreIndex::default() {
        let name = live.config.store(&site.config).name.as_str();
        record.note(Finding::new("route", "the site has its own store", "").with("store", name, ""));
    }
}

/// Returns the refusal of a request before its rule is chosen.
fn refusal(at: &SiteContext<'_>, request: &RequestHead<'_>, readings: Option<&Readings>) -> Option<Problem> {
    let ambiguous = readings.and_then(|readings| ambiguous(at, request, readings));
    ambiguous.or_else(|| denied(at.live, &at.site.config, request))
}

/// Returns the refusal of a path that origins may interpret in different ways, or as a path of another site, whose access list and
/// rules the request would bypass.
fn ambiguous(at: &SiteContext<'_>, request: &RequestHead<'_>, readings: &Readings) -> Option<Problem> {
    misspelt(at.site, request, readings).or_else(|| {
        let read = at.live.routes.read_as_of_another(at.site, request.authority, readings)?;
        Some(refused_path(request, Ambiguity::OtherSite(read)))
    })
}

/// Returns the refusal of a path of this site that origins interpret in different ways, unless its rule allows the spellings.
fn misspelt(site: &LiveSite, request: &RequestHead<'_>, readings: &Readings) -> Option<Problem> {
    let spellings = site.refused_spellings((request.method, request.path_and_query), readings)?;
    Some(refused_path(request, Ambiguity::Spelled(spelled_part(request.path_and_query), spellings)))
}

fn refused_path(request: &RequestHead<'_>, ambiguity: Ambiguity<'_>) -> Problem {
    let problem = Problem::ambiguous_path(ambiguity);
    note(request.record, || {
        Finding::new("route", "origins may interpret the path differently: refused", "").with(
            "why",
            problem.text.as_str(),
            "",
        )
    });
    problem
}

/// Returns the refusal of a client that the site doesn't admit.
fn denied(live: &ActiveConfig, site: &Site, request: &RequestHead<'_>) -> Option<Problem> {
    if site.clients.are_open() {
        return None;
    }
    let client = known_address_of(request, &live.config.trusted_proxies);
    if client.as_ref().is_ok_and(|client| site.clients.admit(*client)) {
        return None;
    }
    let client = client.map_or_else(
        |UnknownClient| "a client whose address can't be read".to_owned(),
        |client| client.to_string(),
    );
    note(request.record, || {
        Finding::new("route", "the site does not answer this client", "").with("client", client.as_str(), "")
    });
    let text = format!("this site does not answer requests from {client}");
    Some(Problem::new(403, "client-denied", text))
}

/// Returns the reply to a request that must not be forwarded further. The gateway answers OPTIONS for itself, without information
/// about the resource. TRACE is refused, because it would reveal fields to scripts that browsers hide from them.
//= RFC 9110 section 7.6.2: Max-Forwards of TRACE and OPTIONS
fn not_forwarded(request: &RequestHead<'_>, facts: &RequestFacts) -> Option<Problem> {
    let is_last = facts.method == MethodClass::OtherSafe
        && MaxForwards::parse(request.method, request.fields) == MaxForwards::Answer;
    let status = if request.method == "OPTIONS" { 200 } else { 501 };
    is_last.then(|| Problem::new(status, "max-forwards", "Max-Forwards is 0: the request is not forwarded"))
}

/// ADMIT, KEY and LOOKUP: replies from the cache, or creates the plan for the remaining steps.
#[inline]
fn look_up(
    context: RequestContext<'_>,
    asked: Option<(&RequestHead<'_>, &Matching)>,
    key: &mut Vec<u8>,
) -> Step {
    let RequestContext { at: SiteContext { live, site, .. }, rule, matched, request, facts, .. } = context;
    let mut quota = match admit_request(&context) {
        Ok(quota) => quota,
        Err(refusal) => return Step::Reply(*refusal),
    };
    let terms = Terms { site: &site.config, rule };
    let facts = reading::with_credentials(*facts, request, terms);
    let facts = asked.map_or(facts, |(asked, matching)| {
        credential_taint::with_credentials(facts, asked.fields, matching, terms)
    });
    let keyed = reading::keyed_fields(request, facts.method, terms, &live.config.trusted_proxies);
    if !keyed.is_empty() {
        // Entries under such a key are invalidated through the key of their URL alone.
        context.cache().invalidations.watch_keys();
    }
    let request = &RequestHead { keyed: &keyed, ..*request };
    let context = RequestContext { request, facts: &facts, ..context };
    let mode = match lookup::settle(&Lookup::new(context), key) {
        Ok(mut reply) => {
            reply.account.rule = site.rule_metrics(matched);
            if quota.is_empty() && reply.status < 400 && rule.compression.is_none() {
                // The reply is returned by value here, because taking its address costs one more copy per hit.
                return Step::Reply(reply);
            }
            let reply = deliver(&context, reply);
            return Step::Reply(tell_quota(&quota, reply));
        }
        Err(mode) => mode,
    };
    if site.protection.is_some()
        && mode.asks_origin()
        && let Err(refusal) = context.admit_forward(&mut quota)
    {
        return Step::Reply(*refusal);
    }
    let asked = asked.map(|(asked, _)| Arc::new(asked.into_owned()));
    let started = context.started;
    Step::Forward(Box::new(Plan { owned: context.into_owned(), started, mode, quota, asked, loaded: None }))
}

/// Checks the declared length of the content, and the limits of the site, if any.
///
/// # Errors
/// Returns the refusal, as a reply.
#[inline]
fn admit_request(context: &RequestContext<'_>) -> Result<PackedFields, Box<Reply>> {
    let told = match context.site.protection {
        None => PackedFields::default(),
        Some(_) => context.admit_request()?,
    };
    if let Content::Length(bytes) = context.request.content {
        context.admit_content(bytes)?;
    }
    Ok(told)
}

/// Adds the quota fields to a reply.
fn tell_quota(quota: &PackedFields, mut reply: Reply) -> Reply {
    quota.lines().for_each(|(name, members)| reply.extra.push(name, members));
    reply
}

/// DELIVER: replaces a failure by the default response, and chooses the form for the client.
fn deliver(context: &RequestContext<'_>, mut reply: Reply) -> Reply {
    // The condition is true for all failures, and for few hits.
    if reply.status >= 400 {
        respond::replace_failure(context, &mut reply);
    }
    if let Some(compression) = context.rule.compression.as_deref() {
        Compressing { context: *context, compression }.apply(&mut reply);
    }
    reply
}

/// Carries out a plan: forwards the request, or waits for the response to another request.
pub(crate) async fn finish(plan: &Plan, body: RequestBody, interims: &Interims) -> Reply {
    let mut quota = plan.quota.clone();
    let reply = carry_out(plan, body, interims, &mut quota).await;
    if reply.status < 400 && plan.rule().compression.is_none() {
        return finished(plan, &quota, reply);
    }
    let reply = plan.with_context(|context| deliver(&context, reply));
    finished(plan, &quota, reply)
}

/// Returns the reply to a request whose content can't be read while its plan is carried out.
pub(crate) fn refuse_content(plan: &Plan, problem: &Problem) -> Reply {
    match problem.status {
        408 => {
            account::record_cut(&plan.worker, &plan.live, (Some(&plan.site), plan.asked()), problem.reason)
        }
        _ => plan.worker.recorder.client_error(problem.reason),
    }
    finished(plan, &plan.quota, with_timings(plan, plan.at().reply(problem)))
}

/// Completes a reply: sets the rule for metrics, adds the quota fields, and applies the response rules of the site.
fn finished(plan: &Plan, quota: &PackedFields, mut reply: Reply) -> Reply {
    reply.account.rule = plan.site.rule_metrics(plan.rule);
    let mut reply = tell_quota(quota, reply);
    if plan.site.has_transforms() {
        let lines = plan.asked().fields.to_lines();
        let request = plan.asked().borrow(&lines);
        let client = address_of(&request, &plan.live.config.trusted_proxies);
        shape::overlay(&plan.worker, (&request, client), &mut reply);
    }
    reply
}

async fn carry_out(plan: &Plan, body: RequestBody, interims: &Interims, quota: &mut PackedFields) -> Reply {
    if plan.worker.shared.instance.goes_in_circles(&plan.request, &plan.live.config.server_name) {
        return circle(plan);
    }
    if plan.facts.method == MethodClass::Unsafe
        && plan.request.method == "PURGE"
        && let Some(method) = &plan.live.config.purge_method
    {
        return Box::pin(purge::answer(plan, method)).await;
    }
    let mut next = plan.mode.first(plan::Content::Unread(body));
    let mut is_admitted = plan.site.protection.is_none() || plan.mode.asks_origin();
    let mut anew: Option<Box<Plan>> = None;
    loop {
        let plan = anew.as_deref().unwrap_or(plan);
        if !is_admitted && next.asks_origin() {
            is_admitted = true;
            if let Err(refusal) = plan.with_context(|context| context.admit_forward(quota)) {
                return with_timings(plan, *refusal);
            }
        }
        // Rare steps are boxed, because otherwise the future of every exchange would contain them.
        next = match next {
            Next::Reply(reply) => return with_timings(plan, reply),
            Next::Query(body) => Box::pin(lookup::read_content(plan, body)).await,
            Next::LookUp(content) => lookup::by_content(plan, content, TierLookUp::Unasked),
            Next::Load { key, content } => {
                let (plan, next) = Box::pin(load::run(plan, &key, content)).await;
                anew = Some(plan);
                next
            }
            Next::Forward { body, reason } => private::forward(plan, body, reason, interims).await,
            Next::Fetch(fetch) => match fetch.known_uncacheable() {
                Some(known) => HitForMiss::new(plan, &fetch, known).run(interims).await,
                None => Box::pin(collapse::run(plan, &fetch, interims)).await,
            },
            Next::Assemble(asked) => Box::pin(assemble::run(plan, &asked)).await,
            Next::Follow { fetch, waiter } => {
                Box::pin(collapse::follow(plan, &fetch, waiter, interims)).await
            }
        };
    }
}

/// Adds the timings to a reply if its client requested them.
fn with_timings(plan: &Plan, mut reply: Reply) -> Reply {
    plan.request.timeline.iter().for_each(|timeline| otel::tell_in(timeline, &mut reply));
    reply
}

/// Returns the reply to a request in a forwarding loop.
fn circle(plan: &Plan) -> Reply {
    let problem =
        Problem::new(508, "proxy-loop-detected", "request loop: CDN-Loop or Via names this gateway");
    plan.worker.recorder.origin_error(plan.site.origin_metrics, problem.reason);
    events::emit(&plan.site, &plan.request.path_and_query, &Event::Loop);
    plan.at().reply(&problem)
}
