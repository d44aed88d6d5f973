//! Evaluates a request and a response in files, and the next request.

use std::time::SystemTime;

use anyhow::{Context, bail};
use caching::explain::{self, Finding};
use caching::{
    ExchangeTimes, FieldLine, Miss, NominatedFields, Profile, RequestFacts, ResponseFacts, Rules, Selecting,
    StorageFilter, StoredFacts, Timestamp, date, fields, file_type, may_store, on_miss, reuse,
};
use terminal::quantity::parse_duration;

use super::message::{Message, RequestLine};
use crate::cli::PairArguments;
use crate::config::{self, Input, Overrides, Program};
use crate::problems;

/// Returns the decisions, in the order in which a cache makes them, and the path of the request.
pub(super) fn findings(arguments: &PairArguments) -> anyhow::Result<(Vec<Finding>, String)> {
    let (Some(request), Some(response)) = (&arguments.request, &arguments.response) else {
        bail!("give both --request and --response");
    };
    let first = Request::of(Message::read(request)?, request)?;
    let response = Message::read(response)?;
    let next = arguments.again.as_deref().map(|path| Request::of(Message::read(path)?, path)).transpose()?;
    let (rules, route) = rules(arguments, &first.line)?;
    let received = received(arguments, &response)?;
    let pair = Pair { first: &first, response: &response, rules: &rules, received };
    let mut findings = vec![route];
    let stored = pair.store(&mut findings)?;
    let after = parse_duration(&arguments.after)
        .with_context(|| format!("--after {:?} isn't a duration: write 90s or 1h", arguments.after))?;
    let now = received.plus_ms(i64::try_from(after.as_millis()).unwrap_or(i64::MAX));
    pair.reuse(stored.as_ref(), next.as_ref().unwrap_or(&first), now, &mut findings);
    let path = first.line.path_and_query.split('?').next().unwrap_or_default();
    Ok((findings, path.to_owned()))
}

struct Request {
    message: Message,
    line: RequestLine,
}

impl Request {
    fn of(message: Message, path: &std::path::Path) -> anyhow::Result<Self> {
        let line = message.request_line().with_context(|| format!("{} can't be used", path.display()))?;
        Ok(Self { message, line })
    }

    fn facts(&self) -> RequestFacts {
        RequestFacts::parse(&self.line.method, &self.message.lines())
    }
}

/// A request, its response, and the rules that apply to them.
struct Pair<'a> {
    first: &'a Request,
    response: &'a Message,
    rules: &'a Rules,
    received: Timestamp,
}

impl Pair<'_> {
    fn store(&self, findings: &mut Vec<Finding>) -> anyhow::Result<Option<StoredFacts>> {
        let lines = self.response.lines();
        let times = ExchangeTimes { request: self.received, response: self.received, clock_ahead_ms: 0 };
        let facts = ResponseFacts::parse(self.response.status()?, &lines, times, self.rules);
        let outcome = may_store(&self.first.facts(), &facts, self.rules, self.received);
        let path_and_query = &self.first.line.path_and_query;
        let outcome = outcome.and_then(|storable| {
            let content_types = fields::values(&lines, "content-type");
            file_type::permits(self.rules, path_and_query, facts.status, content_types).map(|()| storable)
        });
        findings.push(explain::storing(outcome.as_ref().map_err(|reason| *reason), self.received));
        let Ok(storable) = outcome else { return Ok(None) };
        findings.extend(self.left_out(&lines));
        Ok(Some(storable.facts))
    }

    /// Reports the fields that are not stored.
    fn left_out(&self, lines: &[FieldLine<'_>]) -> Option<Finding> {
        let filter = StorageFilter::of(lines, self.rules);
        let names: Vec<_> = lines.iter().map(|(name, _)| *name).filter(|name| !filter.keeps(name)).collect();
        let says = "these header fields are not stored";
        (!names.is_empty())
            .then(|| Finding::new("store", says, "RFC 9111 section 3.1").with("fields", names.join(", "), ""))
    }

    fn reuse(
        &self,
        stored: Option<&StoredFacts>,
        next: &Request,
        now: Timestamp,
        findings: &mut Vec<Finding>,
    ) {
        let facts = next.facts();
        let same_target = (&next.line.authority, &next.line.path_and_query)
            == (&self.first.line.authority, &self.first.line.path_and_query);
        let Some(stored) = stored.filter(|_| same_target) else {
            let says = if same_target { "nothing is stored" } else { "no stored response for this target" };
            findings.push(Finding::new("select", says, "RFC 9111 section 4"));
            findings.push(explain::reuse(on_miss(&facts, self.rules, Miss::Uri), None, now));
            return;
        };
        let decision = match self.selection(next, findings) {
            Selected::Yes => reuse(&facts, stored, self.rules, now),
            Selected::No => {
                return findings.push(explain::reuse(on_miss(&facts, self.rules, Miss::Vary), None, now));
            }
        };
        findings.push(explain::reuse(decision, Some(stored), now));
    }

    fn selection(&self, next: &Request, findings: &mut Vec<Finding>) -> Selected {
        let (first, again, response) =
            (self.first.message.lines(), next.message.lines(), self.response.lines());
        let section = "RFC 9111 section 4.1";
        let Ok(nominated) = NominatedFields::parse(&response) else {
            findings.push(Finding::new("select", "no request fits the stored response", section));
            return Selected::No;
        };
        let [first, again] = [&first, &again].map(|request| Selecting::new(request, self.rules.negotiation));
        let captured = nominated.capture(first);
        let fits = nominated.matches(&captured, again) || nominated.is_certain(&captured, again, &response);
        let says = if fits {
            "the stored response is for this request"
        } else {
            "the stored response is for other requests (Vary)"
        };
        findings.push(explain::mismatch(
            Finding::new("select", says, section),
            &nominated,
            &captured,
            again,
            self.rules,
        ));
        if fits { Selected::Yes } else { Selected::No }
    }
}

enum Selected {
    Yes,
    No,
}

fn rules(arguments: &PairArguments, line: &RequestLine) -> anyhow::Result<(Rules, Finding)> {
    let Some(file) = &arguments.config else {
        let name = arguments.profile.as_deref().unwrap_or("safe");
        let profile = Profile::from_name(name)
            .with_context(|| format!("--profile: expected safe or rfc9111; found {name:?}"))?;
        let route =
            Finding::new("route", "no configuration: the rules of the profile", "").with("profile", name, "");
        return Ok((Rules::for_profile(profile), route));
    };
    let checked = config::check(Some(Input::given(file)), &Overrides::to_look(Program::Serve, None));
    problems::to_stderr(&checked);
    let Some(settings) = checked.settings else { bail!("{} can't be used", file.display()) };
    let Some(gateway) = &settings.gateway else { bail!("{} has no site", file.display()) };
    let chosen = gateway::route_of(gateway, &line.authority, &line.method, &line.path_and_query);
    let Some((site, rule)) = chosen else {
        bail!("{}: no site serves host {:?} and path {}", file.display(), line.authority, line.path_and_query)
    };
    let route = Finding::new("route", "the first site and rule that fit", "").with("site", site, "").with(
        "rule",
        rule.name.as_str(),
        "",
    );
    Ok((rule.caching, route))
}

fn received(arguments: &PairArguments, response: &Message) -> anyhow::Result<Timestamp> {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = Timestamp::from_ms(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX));
    if let Some(text) = &arguments.received {
        return date::parse(text.as_bytes(), now).with_context(|| {
            format!("--received {text:?} isn't a date: write Sun, 06 Nov 1994 08:49:37 GMT")
        });
    }
    let lines = response.lines();
    let date = lines.iter().find(|(name, _)| name.eq_ignore_ascii_case("date"));
    Ok(date.and_then(|(_, value)| date::parse(value, now)).unwrap_or(now))
}
