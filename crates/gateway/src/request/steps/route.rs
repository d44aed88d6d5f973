//! Routing: refuses clients that a site doesn't admit and paths that origins read in several ways, and tells which rule applies.

use caching::explain::Finding;
use caching::{MaxForwards, MethodClass, RequestFacts};
use message::client::{UnknownClient, known_address_of};
use message::explain_record::note;
use message::head::RequestHead;

use crate::active::ActiveConfig;
use crate::config::{Site, StoreIndex};
use crate::request::context::{RequestContext, SiteContext};
use crate::request::respond::Problem;
use crate::routing::{Ambiguity, LiveSite, Readings, spelled_part};

/// Findings about the site and rule of a request.
pub(crate) fn note_route(context: &RequestContext<'_>) {
    let RequestContext { live, site, matched, rule, request, .. } = *context;
    let Some(record) = request.record else { return };
    let found = Finding::new("route", "the first site and rule that fit", "")
        .with("site", site.config.name.as_str(), "")
        .with("rule", rule.name.as_str(), "")
        .with("origin", site.config.origin.name.as_str(), "");
    record.note(found);
    if rule.is_lenient() {
        let says =
            "the rule restricts, so its path matches in any case, with any query and with a slash at the end";
        record.note(Finding::new("route", says, ""));
    }
    if !matched.is_certain() {
        let names = site.limiting_rules(matched).map(|rule| rule.name.as_str()).collect::<Vec<_>>();
        let says = "origins may read the path otherwise, with other rules: nothing is stored";
        record.note(Finding::new("route", says, "").with("limits", names.join(", "), ""));
    }
    if site.config.store != StoreIndex::default() {
        let name = live.config.store(&site.config).name.as_str();
        record.note(Finding::new("route", "the site has a store of its own", "").with("store", name, ""));
    }
}

/// Refusal of a request before any rule is looked at.
pub(crate) fn refusal(
    at: &SiteContext<'_>,
    request: &RequestHead<'_>,
    readings: Option<&Readings>,
) -> Option<Problem> {
    let ambiguous = readings.and_then(|readings| ambiguous(at, request, readings));
    ambiguous.or_else(|| denied(at.live, &at.site.config, request))
}

/// Refusal of a path that origins read in several ways, or as a path of another site, whose access list and rules would not hold.
fn ambiguous(at: &SiteContext<'_>, request: &RequestHead<'_>, readings: &Readings) -> Option<Problem> {
    misspelt(at.site, request, readings).or_else(|| {
        let read = at.live.routes.read_as_of_another(at.site, request.authority, readings)?;
        Some(refused_path(request, Ambiguity::OtherSite(read)))
    })
}

/// Refusal of a path of this site that origins read in several ways, unless its rule allows them.
pub(crate) fn misspelt(site: &LiveSite, request: &RequestHead<'_>, readings: &Readings) -> Option<Problem> {
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
pub(crate) fn not_forwarded(request: &RequestHead<'_>, facts: &RequestFacts) -> Option<Problem> {
    let is_last = facts.method == MethodClass::OtherSafe
        && MaxForwards::parse(request.method, request.fields) == MaxForwards::Answer;
    is_last.then(|| Problem::not_forwarded(request.method))
}
