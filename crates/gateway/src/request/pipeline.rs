//! The life of a request, as a list of steps:
//!
//! `receive -> route -> shape -> admit -> read -> key -> lookup -> (serve fresh | serve stale and refresh |
//! validate | collapse | load from a tier | forward) -> store -> compress -> transform -> deliver -> account`
//!
//! [`begin`] takes the steps that wait for nothing: it ends with a reply or with a [`Plan`]. [`finish`] carries out a plan step by
//! step: each step says which one is next, and none calls another. `caching` makes the decisions; this module acts on them.
//!
//! | step | where |
//! |---|---|
//! | receive, deliver | `server` |
//! | route | [`crate::routing`] |
//! | change by the rules of the site | [`crate::request::steps::shape`] |
//! | admit | [`crate::request::steps::admit`] |
//! | read | [`crate::rewrite::reading`] |
//! | key, lookup, serve | [`crate::request::steps::look_up`] |
//! | load from a tier | [`crate::request::steps::load`] |
//! | collapse, validate, store | [`crate::request::steps::collapse`], [`crate::request::steps::hit_for_miss`] |
//! | forward | [`crate::request::steps::forward`] |
//! | purge | [`crate::request::steps::purge`] |
//! | serve from the tier behind memory | [`crate::request::steps::assemble`] |
//! | write a response for an origin that fails | [`crate::request::steps::stand_in`] |
//! | compress the reply | [`crate::request::steps::compress`] |
//! | account | [`crate::request::account`] |

use std::sync::Arc;

use caching::explain::Finding;
use caching::{MaxForwards, MethodClass, RequestFacts};
use message::client::{UnknownClient, address_of, known_address_of};
use message::explain_record::note;
use message::fields::PackedFields;
use message::head::RequestHead;
use origin::RequestBody;
use tokio::time::Instant;

use crate::active::ActiveConfig;
use crate::config::{Site, StoreIndex};
use crate::events::{self, Event};
use crate::request::fetch::fetch_spec::Tier;
use crate::request::interims::Interims;
use crate::request::lookup::Lookup;
use crate::request::plan::{Next, Plan, Step};
use crate::request::reply::Reply;
use crate::request::respond::{self, Problem};
use crate::request::steps::admit::Admission;
use crate::request::steps::compress::{self, Compressing};
use crate::request::steps::hit_for_miss::HitForMiss;
use crate::request::steps::shape::{self, Shaping};
use crate::request::steps::stand_in::FailedRequest;
use crate::request::steps::{admit, assemble, collapse, forward, load, look_up, purge, query, stand_in};
use crate::request::{account, otel};
use crate::rewrite::credential_taint;
use crate::rewrite::reading::{self, Inbound, Terms};
use crate::rewrite::rules::Matching;
use crate::routing::{Ambiguity, LiveSite, Readings, Routed, RuleMatch, spelled_part};
use crate::worker::Worker;

/// Routes a request, looks it up, and replies if that needs no waiting. `key` is scratch space of the connection, `started` is when the
/// head was complete.
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
        note(request.record, || Finding::new("route", "no site is for this host and path", ""));
        return Step::Reply(respond::reply(&problem, None, started, worker));
    };
    let readings = live.routes.readings(site, request.path_and_query);
    let ambiguous = readings.as_deref().and_then(|readings| ambiguous(live, site, request, readings));
    if let Some(problem) = ambiguous.or_else(|| denied(live, &site.config, request)) {
        let mut reply = respond::reply(&problem, Some(site), started, worker).locally();
        let client = address_of(request, &live.config.trusted_proxies);
        shape::overlay(worker, (request, client), &mut reply);
        return Step::Reply(reply);
    }
    let readings = readings.as_deref();
    if site.has_transforms() {
        return begin_changed(worker, (live, site), (request, readings), key, started);
    }
    begin_at_site(worker, (live, site), (request, readings), None, key, started)
}

/// [`begin`] for a site whose rules may change or answer the request.
fn begin_changed(
    worker: &Arc<Worker>,
    (live, site): (&Arc<ActiveConfig>, &Arc<LiveSite>),
    (request, readings): (&RequestHead<'_>, Option<&Readings>),
    key: &mut Vec<u8>,
    started: Instant,
) -> Step {
    let client = address_of(request, &live.config.trusted_proxies);
    let mut step = match shape::run(worker, (live, site), (request, client), started) {
        Shaping::AsSent => begin_at_site(worker, (live, site), (request, readings), None, key, started),
        Shaping::Reply(reply) => Step::Reply(*reply),
        Shaping::Changed(shaped) => {
            let lines = shaped.fields.to_lines();
            let changed = shaped.over(request, &lines);
            let changed_readings = live.routes.readings(site, changed.path_and_query);
            let changed_readings = changed_readings.as_deref();
            match changed_readings.and_then(|readings| misspelt(site, &changed, readings)) {
                Some(problem) => Step::Reply(respond::reply(&problem, Some(site), started, worker).locally()),
                None => {
                    let asked = Some((request, readings, &shaped.matching));
                    begin_at_site(worker, (live, site), (&changed, changed_readings), asked, key, started)
                }
            }
        }
    };
    if let Step::Reply(reply) = &mut step {
        shape::overlay(worker, (request, client), reply);
    }
    step
}

/// [`begin`] once the site is known. `asked` is the request as its client sent it, with the rules that have changed it.
#[inline(always)]
fn begin_at_site(
    worker: &Arc<Worker>,
    (live, site): (&Arc<ActiveConfig>, &Arc<LiveSite>),
    (request, readings): (&RequestHead<'_>, Option<&Readings>),
    asked: Option<(&RequestHead<'_>, Option<&Readings>, &Matching)>,
    key: &mut Vec<u8>,
    started: Instant,
) -> Step {
    let facts = reading::facts(request, &site.config);
    if let Some(problem) = not_forwarded(request, &facts) {
        return Step::Reply(respond::reply(&problem, Some(site), started, worker).locally());
    }
    let RequestHead { method, path_and_query, .. } = *request;
    let asked_path = asked.map(|(asked, readings, _)| (asked.path_and_query, readings));
    let rule = site.rule_for(&Routed { method, path_and_query, readings, asked: asked_path });
    let asked = asked.map(|(asked, _, matching)| (asked, matching));
    note_route(live, site, rule, request);
    let compression = site.rule_at(rule).compression.as_deref();
    let read =
        compression.and_then(|compression| compress::with_tags_of_origin(request, &facts, compression));
    let Some(read) = read else {
        return begin_by_rule(worker, (live, site, rule), (request, facts), asked, key, started);
    };
    let lines = read.to_lines();
    let changed = RequestHead { fields: &lines, ..*request };
    let unchanged = Matching::new();
    let asked = asked.or(Some((request, &unchanged)));
    begin_by_rule(worker, (live, site, rule), (&changed, facts), asked, key, started)
}

/// [`begin`] once the rule is known.
#[inline]
fn begin_by_rule(
    worker: &Arc<Worker>,
    (live, site, rule): (&Arc<ActiveConfig>, &Arc<LiveSite>, RuleMatch),
    (request, facts): (&RequestHead<'_>, RequestFacts),
    asked: Option<(&RequestHead<'_>, &Matching)>,
    key: &mut Vec<u8>,
    started: Instant,
) -> Step {
    let asking = Admission { worker, live, site, rule, request, started };
    let mut quota = match asking.admit_request() {
        Ok(quota) => quota,
        Err(refusal) => return Step::Reply(*refusal),
    };
    let terms = Terms { site: &site.config, rule: site.rule_at(rule) };
    let facts = reading::with_credentials(facts, request, terms);
    let facts = asked.map_or(facts, |(asked, matching)| {
        credential_taint::with_credentials(facts, asked.fields, matching, terms)
    });
    let keyed = reading::keyed_fields(request, facts.method, terms, &live.config.trusted_proxies);
    if !keyed.is_empty() {
        // Entries under such a key are invalidated by the key of their URL alone.
        worker.cache(site).watch_keys();
    }
    let request = &RequestHead { keyed: &keyed, ..*request };
    let lookup = Lookup {
        worker,
        live,
        site,
        rule,
        request,
        facts: &facts,
        now: worker.now(),
        stamp: worker.cache(site).stamp(),
        content: None,
        tier: Tier::Unasked,
    };
    let mode = match look_up::settle(&lookup, key, started) {
        Ok(mut reply) => {
            let by_rule = site.rule_at(rule);
            reply.account.rule = site.rule_metrics(rule);
            if quota.is_empty() && reply.status < 400 && by_rule.compression.is_none() {
                // Returned by value: if its address were taken, the reply would be copied once more with each hit.
                return Step::Reply(reply);
            }
            let asked = FailedRequest { rule: by_rule, method: facts.method, record: request.record };
            let mut reply = stand_in::replace_failure(worker, &asked, reply);
            if let Some(compression) = by_rule.compression.as_deref() {
                Compressing { worker, live, site, rule: by_rule, compression, request, facts: &facts }
                    .apply(&mut reply);
            }
            return Step::Reply(admit::tell_quota(&quota, reply));
        }
        Err(mode) => mode,
    };
    if let Err(refusal) = asking.admit_forward(&mode, &mut quota) {
        return Step::Reply(*refusal);
    }
    Step::Forward(Box::new(Plan {
        live: Arc::clone(live),
        site: Arc::clone(site),
        rule,
        request: Arc::new(Inbound::new(request, live, site, rule)),
        facts,
        started,
        mode,
        quota,
        asked: asked.map(|(asked, _)| Arc::new(asked.into_owned())),
        loaded: None,
    }))
}

fn note_route(live: &ActiveConfig, site: &LiveSite, index: RuleMatch, request: &RequestHead<'_>) {
    let rule = site.rule_at(index);
    note(request.record, || {
        Finding::new("route", "the first site and rule that fit", "")
            .with("site", site.config.name.as_str(), "")
            .with("rule", rule.name.as_str(), "")
            .with("origin", site.config.origin.name.as_str(), "")
    });
    if request.record.is_some() && rule.is_lenient() {
        note(request.record, || {
            let says = "the rule restricts, so its path matches in any case, with any query and with a slash at the end";
            Finding::new("route", says, "")
        });
    }
    if !index.is_certain() {
        note(request.record, || {
            let names = site.limiting_rules(index).map(|rule| rule.name.as_str()).collect::<Vec<_>>();
            Finding::new(
                "route",
                "origins may read the path otherwise, with other rules: nothing is stored",
                "",
            )
            .with("limits", names.join(", "), "")
        });
    }
    if site.config.store != StoreIndex::default() {
        note(request.record, || {
            let name = live.config.store(&site.config).name.as_str();
            Finding::new("route", "the site has a store of its own", "").with("store", name, "")
        });
    }
}

/// Refusal of a path that origins read in several ways, or as a path of another site, whose access list and rules would not hold.
fn ambiguous(
    live: &ActiveConfig,
    site: &Arc<LiveSite>,
    request: &RequestHead<'_>,
    readings: &Readings,
) -> Option<Problem> {
    misspelt(site, request, readings).or_else(|| {
        let read = live.routes.read_as_of_another(site, request.authority, readings)?;
        Some(refused_path(request, Ambiguity::OtherSite(read)))
    })
}

/// Refusal of a path of this site that origins read in several ways, unless its rule allows them.
fn misspelt(site: &LiveSite, request: &RequestHead<'_>, readings: &Readings) -> Option<Problem> {
    let spellings = site.refused_spellings((request.method, request.path_and_query), readings)?;
    Some(refused_path(request, Ambiguity::Spelled(spelled_part(request.path_and_query), spellings)))
}

fn refused_path(request: &RequestHead<'_>, ambiguity: Ambiguity<'_>) -> Problem {
    let problem = Problem::ambiguous_path(ambiguity);
    note(request.record, || {
        Finding::new("route", "origins may read the path otherwise: refused", "").with(
            "why",
            problem.text.as_str(),
            "",
        )
    });
    problem
}

/// Refusal of a client that the site doesn't admit.
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
    Some(Problem::client_denied(&client))
}

//= RFC 9110 section 7.6.2: Max-Forwards of TRACE and OPTIONS
fn not_forwarded(request: &RequestHead<'_>, facts: &RequestFacts) -> Option<Problem> {
    let is_last = facts.method == MethodClass::OtherSafe
        && MaxForwards::parse(request.method, request.fields) == MaxForwards::Answer;
    is_last.then(|| Problem::not_forwarded(request.method))
}

/// Carries out a plan: asks the origin, or waits for another request that does.
pub(crate) async fn finish(
    worker: &Arc<Worker>,
    plan: &Plan,
    body: RequestBody,
    interims: &Interims,
) -> Reply {
    let mut quota = plan.quota.clone();
    let reply = carry_out(worker, plan, body, interims, &mut quota).await;
    let rule = plan.site.rule_at(plan.rule);
    let asked = FailedRequest { rule, method: plan.facts.method, record: plan.request.record.as_ref() };
    let mut reply = stand_in::replace_failure(worker, &asked, reply);
    if let Some(compression) = rule.compression.as_deref() {
        let (live, site, facts) = (&plan.live, &plan.site, &plan.facts);
        let lines = plan.request.fields.to_lines();
        let request = &plan.request.borrow(&lines);
        Compressing { worker, live, site, rule, compression, request, facts }.apply(&mut reply);
    }
    finished(worker, plan, &quota, reply)
}

/// Reply to a request whose content turns out unreadable while its plan is carried out.
pub(crate) fn refuse_content(worker: &Worker, plan: &Plan, problem: &Problem) -> Reply {
    match problem.status {
        408 => account::record_cut(worker, &plan.live, (Some(&plan.site), plan.asked()), problem.reason),
        _ => worker.recorder.client_error(problem.reason),
    }
    let reply = respond::reply(problem, Some(&plan.site), plan.started, worker);
    finished(worker, plan, &plan.quota, told(plan, reply.locally()))
}

/// Finishes any reply: sets the rule for metrics, adds the quota fields, and applies the response rules of the site.
fn finished(worker: &Worker, plan: &Plan, quota: &PackedFields, mut reply: Reply) -> Reply {
    reply.account.rule = plan.site.rule_metrics(plan.rule);
    let mut reply = admit::tell_quota(quota, reply);
    if plan.site.has_transforms() {
        let lines = plan.asked().fields.to_lines();
        let request = plan.asked().borrow(&lines);
        let client = address_of(&request, &plan.live.config.trusted_proxies);
        shape::overlay(worker, (&request, client), &mut reply);
    }
    reply
}

async fn carry_out(
    worker: &Arc<Worker>,
    plan: &Plan,
    body: RequestBody,
    interims: &Interims,
    quota: &mut PackedFields,
) -> Reply {
    if worker.shared.instance.goes_in_circles(&plan.request, &plan.live.config.server_name) {
        return circle(worker, plan);
    }
    if let Some(method) = purge::method(plan) {
        return Box::pin(purge::answer(worker, plan, method)).await;
    }
    let mut next = plan.first(body);
    let mut is_admitted = plan.site.protection.is_none() || plan.mode.asks_origin();
    let mut anew: Option<Box<Plan>> = None;
    loop {
        let plan = anew.as_deref().unwrap_or(plan);
        if !is_admitted && next.asks_origin() {
            is_admitted = true;
            if let Err(refusal) = admit::late(worker, plan, quota) {
                return told(plan, *refusal);
            }
        }
        // Rare steps are boxed, since every exchange would have to hold room for them.
        next = match next {
            Next::Reply(reply) => return told(plan, reply),
            Next::Query(body) => Box::pin(query::run(worker, plan, body)).await,
            Next::LookUp(content) => look_up::by_content(worker, plan, content, Tier::Unasked),
            Next::Load { key, content } => {
                let (plan, next) = Box::pin(load::run(worker, plan, &key, content)).await;
                anew = Some(plan);
                next
            }
            Next::Forward { body, reason } => forward::run(worker, plan, body, reason, interims).await,
            Next::Fetch(fetch) => match HitForMiss::new(worker, plan, &fetch) {
                Some(lone) => lone.run(interims).await,
                None => Box::pin(collapse::run(worker, plan, &fetch, interims)).await,
            },
            Next::Assemble(asked) => Box::pin(assemble::run(worker, plan, &asked)).await,
            Next::Follow { fetch, waiter } => {
                Box::pin(collapse::follow(worker, plan, &fetch, waiter, interims)).await
            }
        };
    }
}

/// Adds the timings to a reply, if its client wants them.
fn told(plan: &Plan, mut reply: Reply) -> Reply {
    plan.request.timeline.iter().for_each(|timeline| otel::tell_in(timeline, &mut reply));
    reply
}

/// Reply to a request in a forwarding loop.
fn circle(worker: &Worker, plan: &Plan) -> Reply {
    let problem = Problem::circle();
    worker.recorder.origin_error(plan.site.origin_metrics, problem.reason);
    events::emit(&plan.site, &plan.request.path_and_query, &Event::Loop);
    respond::reply(&problem, Some(&plan.site), plan.started, worker).locally()
}
