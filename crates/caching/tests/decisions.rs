//! Runs the case files of `conformance/decisions`. A file is a list of cases; each has a `name`, some of the members
//! that [`Case`] reads, and under `expect` the expected result. Times are seconds from Sun, 06 Nov 1994 08:49:37 GMT.

use caching::facts::ExchangeTimes;
use caching::invalidation::{self, Target};
use caching::validation::{self, Answer, First};
use caching::vary::VaryUnusable;
use caching::{
    CacheKey, CacheName, CacheStatus, Failure, FieldLine, FwdReason, Heuristic, KeyParts, KeyRules,
    MethodClass, Miss, Negotiation, NominatedFields, NotReused, Outcome, Precondition, Profile, QueryOrder,
    QueryParameters, Ranges, RequestFacts, ResponseFacts, Reuse, Rules, Selecting, StaleLimit, StatusMatch,
    StorageFilter, StoredFacts, Timestamp, TtlTable, Validators, conditional, freshness, may_serve_stale,
    may_store, on_miss, range, refresh_ahead, reuse, target,
};
use serde_json::{Value, json};

const EPOCH: Timestamp = Timestamp::from_seconds(784_111_777);

/// Runs every case of a file, and fails with a list of the cases whose results differ.
fn check(file: &str, outcome: fn(&Case<'_>) -> Value) {
    let cases: Vec<Value> = serde_json::from_str(file).unwrap();
    assert!(!cases.is_empty());
    let differing: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            let (actual, expected) = (outcome(&Case(case)), &case["expect"]);
            (actual != *expected).then(|| format!("{}: {actual}, expected {expected}", case["name"]))
        })
        .collect();
    assert!(differing.is_empty(), "\n{}", differing.join("\n"));
}

macro_rules! groups {
    ($($group:ident: $file:literal => $outcome:ident;)+) => {
        $(
            #[test]
            fn $group() {
                check(include_str!(concat!("../../../conformance/decisions/", $file)), $outcome);
            }
        )+
    };
}

groups! {
    freshness_cases: "freshness.json" => freshness_outcome;
    age_cases: "age.json" => age_outcome;
    storing_cases: "storing.json" => storing_outcome;
    stored_fields_cases: "stored-fields.json" => stored_fields_outcome;
    reuse_cases: "reuse.json" => reuse_outcome;
    serve_stale_cases: "serve-stale.json" => serve_stale_outcome;
    vary_cases: "vary.json" => vary_outcome;
    conditional_cases: "conditional.json" => conditional_outcome;
    validation_cases: "validation.json" => validation_outcome;
    freshening_cases: "freshening.json" => freshening_outcome;
    range_cases: "range.json" => range_outcome;
    invalidation_cases: "invalidation.json" => invalidation_outcome;
    cache_status_cases: "cache-status.json" => cache_status_outcome;
    key_cases: "key.json" => key_outcome;
}

fn freshness_outcome(case: &Case<'_>) -> Value {
    let lifetime = freshness::lifetime(&case.request(), &case.response(), &case.rules());
    json!([lifetime.source.as_str(), lifetime.ms])
}

fn age_outcome(case: &Case<'_>) -> Value {
    let stored = case.stored();
    json!([stored.corrected_initial_age_ms(), stored.current_age_ms(case.now())])
}

fn storing_outcome(case: &Case<'_>) -> Value {
    match may_store(&case.request(), &case.response(), &case.rules(), case.now()) {
        Ok(_) => json!("stored"),
        Err(reason) => json!(reason.as_str()),
    }
}

fn stored_fields_outcome(case: &Case<'_>) -> Value {
    let lines = case.lines("response");
    StorageFilter::of(&lines, &case.rules()).kept().map(|(name, _)| name).collect()
}

fn reuse_outcome(case: &Case<'_>) -> Value {
    let (request, rules) = (case.request(), case.rules());
    let outcome = match case.0["miss"].as_str() {
        Some("uri") => on_miss(&request, &rules, Miss::Uri),
        Some("vary") => on_miss(&request, &rules, Miss::Vary),
        Some(_) => on_miss(&request, &rules, Miss::Unknown),
        None => {
            let (stored, now) = (case.stored(), case.now());
            let draw = || u16::try_from(case.0["draw"].as_u64().unwrap()).unwrap();
            refresh_ahead(reuse(&request, &stored, &rules, now), &request, &stored, &rules, now, draw)
        }
    };
    let with = |what: &str, reason: NotReused| json!([what, reason.fwd().as_str(), reason.as_str()]);
    match outcome {
        Reuse::Fresh => json!("fresh"),
        Reuse::RefreshAhead => json!("refresh-ahead"),
        Reuse::Stale => json!("stale"),
        Reuse::StaleWhileRevalidate => json!("stale-while-revalidate"),
        Reuse::Validate(reason) => with("validate", reason),
        Reuse::Forward(reason) => with("forward", reason),
        Reuse::Unavailable(reason) => with("unavailable", reason),
    }
}

fn serve_stale_outcome(case: &Case<'_>) -> Value {
    let failure = match case.0["failure"].as_u64() {
        Some(status) => Failure::Status(u16::try_from(status).unwrap()),
        None => Failure::Unreachable,
    };
    json!(may_serve_stale(&case.request(), &case.stored(), &case.rules(), case.now(), failure))
}

fn vary_outcome(case: &Case<'_>) -> Value {
    let nominated = match NominatedFields::parse(&case.lines("response")) {
        Ok(nominated) => nominated,
        Err(VaryUnusable::Any) => return json!("star"),
        Err(_) => return json!("unusable"),
    };
    let (first, second) = (case.lines("request"), case.lines("other"));
    let [first, second] =
        [&first, &second].map(|request| Selecting::new(request, negotiation(&case.0["negotiation"])));
    let captured = nominated.capture(first);
    let (mut first_key, mut second_key) = (Vec::new(), Vec::new());
    nominated.write_variant_key(first, &mut first_key);
    nominated.write_variant_key(second, &mut second_key);
    let matches = nominated.matches(&captured, second);
    assert_eq!(matches, captured == nominated.capture(second));
    assert_eq!(matches, first_key == second_key);
    assert!(nominated.matches(&captured, first));
    let is_certain = nominated.is_certain(&captured, second, &case.lines("response"));
    let outcome = match (matches, is_certain) {
        (true, _) => "matches",
        (false, true) => "certain",
        (false, false) => "differs",
    };
    json!([nominated.as_str(), outcome])
}

fn conditional_outcome(case: &Case<'_>) -> Value {
    let (request, response) = (case.lines("request"), case.lines("response"));
    let validators = Validators::parse(&response, case.now());
    let method = case.request().method;
    match conditional::evaluate(method, &request, &case.stored(), &validators, case.now()) {
        Precondition::Proceed => json!("proceed"),
        Precondition::NotModified => json!("not-modified"),
    }
}

fn validation_outcome(case: &Case<'_>) -> Value {
    let sections: Vec<_> = case.list("candidates").iter().map(lines_of).collect();
    let candidates: Vec<_> = sections.iter().map(|lines| Validators::parse(lines, case.now())).collect();
    let first = match case.0["selected"] {
        Value::Bool(false) => First::Other,
        _ => First::Selected,
    };
    match validation::judge(case.status(), &case.lines("response"), &candidates, first, case.now()) {
        Answer::Freshen(indexes) => json!(indexes.to_vec()),
        Answer::Unidentified => json!("unidentified"),
        Answer::ServerError => json!("server-error"),
        Answer::Replace => json!("replace"),
    }
}

fn freshening_outcome(case: &Case<'_>) -> Value {
    let (stored, not_modified) = (case.lines("stored"), case.lines("not_modified"));
    let freshened = validation::freshen(200, &stored, &not_modified, case.times(), &case.rules());
    let facts = StoredFacts::new(&case.request(), &freshened.response, &case.rules());
    let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
    let fields: Vec<_> = freshened.fields.iter().map(|(name, value)| json!([name, text(value)])).collect();
    json!({ "fields": fields, "age_ms": facts.corrected_initial_age_ms(), "lifetime_ms": facts.freshness_lifetime_ms() })
}

fn range_outcome(case: &Case<'_>) -> Value {
    let (request, response) = (case.lines("request"), case.lines("response"));
    let validators = Validators::parse(&response, case.now());
    let method = case.request().method;
    let complete_bytes = case.0["complete_bytes"].as_u64().unwrap();
    match range::evaluate(method, &request, &case.stored(), &validators, complete_bytes, case.now()) {
        Ranges::Whole => json!("whole"),
        Ranges::Single(range) => json!([[range.first, range.last]]),
        Ranges::Multi(ranges) => ranges.iter().map(|range| json!([range.first, range.last])).collect(),
        Ranges::Unsatisfiable => json!("unsatisfiable"),
    }
}

fn invalidation_outcome(case: &Case<'_>) -> Value {
    let target = Target {
        scheme: case.text("scheme").unwrap_or("http").as_bytes(),
        authority: case.text("authority").unwrap_or("a.example").as_bytes(),
        path: case.text("path").unwrap_or("/").as_bytes(),
        query: case.text("query").map(str::as_bytes),
    };
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    invalidation::invalidated(case.request().method, case.status(), &target, &case.lines("response"))
        .iter()
        .map(|uri| match &uri.query {
            Some(query) => format!("{}?{}", text(&uri.path), text(query)),
            None => text(&uri.path),
        })
        .collect()
}

fn cache_status_outcome(case: &Case<'_>) -> Value {
    let flag = |name: &str| case.0[name].as_bool().unwrap_or(false);
    let outcome = match case.text("fwd") {
        Some(fwd) => Outcome::Forwarded {
            reason: fwd_reason(fwd),
            status: case.0["fwd_status"].as_u64().map(|status| u16::try_from(status).unwrap()),
            stored: flag("stored"),
            collapsed: flag("collapsed"),
        },
        None if flag("hit") => Outcome::Hit,
        None => Outcome::Generated,
    };
    let status = CacheStatus {
        outcome,
        ttl_s: case.0["ttl_s"].as_i64(),
        key: case.text("key").map(str::as_bytes),
        detail: case.text("detail"),
    };
    let name = CacheName::new(case.text("cache").unwrap_or("larder")).unwrap();
    let mut out = Vec::new();
    status.write(&name, &mut out);
    json!(String::from_utf8(out).unwrap())
}

fn key_outcome(case: &Case<'_>) -> Value {
    let patterns =
        |name: &str| case.list(name).iter().map(|name| name.as_str().unwrap().as_bytes().into()).collect();
    let parameters = match (case.0.get("ignore"), case.0.get("keep")) {
        (Some(_), _) => QueryParameters::Ignore(patterns("ignore")),
        (None, Some(_)) => QueryParameters::Keep(patterns("keep")),
        (None, None) => QueryParameters::All,
    };
    let order = if case.0["sorted"] == true { QueryOrder::Sorted } else { QueryOrder::AsSent };
    let rules = KeyRules { parameters, order };
    let same = key_of(&case.0["a"], &rules) == key_of(&case.0["b"], &rules);
    json!(if same { "same" } else { "different" })
}

/// `target` is path and query; other parts have defaults.
fn key_of(parts: &Value, rules: &KeyRules) -> CacheKey {
    let text = |name: &str, default: &'static str| parts[name].as_str().unwrap_or(default);
    let target = text("target", "/");
    let normal = target::normal_form(target);
    let target = normal.as_deref().unwrap_or(target);
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let extra: Vec<&[u8]> = parts["extra"]
        .as_array()
        .map_or_else(Vec::new, |extra| extra.iter().map(|part| part.as_str().unwrap().as_bytes()).collect());
    let parts = KeyParts {
        site: text("site", "s").as_bytes(),
        scheme: text("scheme", "http").as_bytes(),
        authority: text("authority", "a.example").as_bytes(),
        path: path.as_bytes(),
        query: query.map(str::as_bytes),
        method: text("method", "GET"),
        extra: &extra,
    };
    CacheKey::new(&parts, rules)
}

fn fwd_reason(token: &str) -> FwdReason {
    use FwdReason::{Bypass, Method, Miss, Partial, Request, Stale, UriMiss, VaryMiss};
    let all = [Bypass, Method, UriMiss, VaryMiss, Miss, Request, Stale, Partial];
    all.into_iter().find(|reason| reason.as_str() == token).unwrap()
}

fn lines_of(list: &Value) -> Vec<FieldLine<'_>> {
    list.as_array().map_or_else(Vec::new, |list| {
        list.iter().map(|line| (line[0].as_str().unwrap(), line[1].as_str().unwrap().as_bytes())).collect()
    })
}

/// One case. `request` and `response` are lists of field lines, `method` and `status` are separate, `rules` changes the
/// default rules, `requested_s`, `responded_s` and `now_s` are times.
struct Case<'a>(&'a Value);

impl Case<'_> {
    fn text(&self, name: &str) -> Option<&str> {
        self.0[name].as_str()
    }

    fn list(&self, name: &str) -> &[Value] {
        self.0[name].as_array().map_or(&[], Vec::as_slice)
    }

    fn lines(&self, name: &str) -> Vec<FieldLine<'_>> {
        lines_of(&self.0[name])
    }

    fn status(&self) -> u16 {
        u16::try_from(self.0["status"].as_u64().unwrap_or(200)).unwrap()
    }

    fn time(&self, name: &str) -> Option<Timestamp> {
        Some(EPOCH.plus_ms((self.0[name].as_f64()? * 1000.0) as i64))
    }

    fn now(&self) -> Timestamp {
        self.time("now_s").unwrap_or(EPOCH)
    }

    fn times(&self) -> ExchangeTimes {
        let response = self.time("responded_s").unwrap_or(EPOCH);
        ExchangeTimes { request: self.time("requested_s").unwrap_or(response), response, clock_ahead_ms: 0 }
    }

    fn request(&self) -> RequestFacts {
        RequestFacts::parse(self.text("method").unwrap_or("GET"), &self.lines("request"))
    }

    fn response(&self) -> ResponseFacts {
        ResponseFacts::parse(self.status(), &self.lines("response"), self.times(), &self.rules())
    }

    fn stored(&self) -> StoredFacts {
        StoredFacts::new(&self.request(), &self.response(), &self.rules())
    }

    fn rules(&self) -> Rules {
        let rules = &self.0["rules"];
        let flag = |name: &str, default: bool| rules[name].as_bool().unwrap_or(default);
        let base = Rules::for_profile(match rules["profile"].as_str() {
            Some("rfc9111") => Profile::Rfc9111,
            Some(other) => panic!("profile {other}"),
            None => Profile::Safe,
        });
        Rules {
            enabled: flag("enabled", base.enabled),
            override_ttl: ttl_table(&rules["override_ttl_ms"]),
            default_ttl: ttl_table(&rules["default_ttl_ms"]),
            heuristic: match &rules["heuristic"] {
                Value::Null => base.heuristic,
                Value::Bool(false) => None,
                heuristic => Some(Heuristic {
                    percent: u8::try_from(heuristic["percent"].as_u64().unwrap()).unwrap(),
                    max_ms: heuristic["max_ms"].as_u64().unwrap(),
                    ..base.heuristic.unwrap()
                }),
            },
            store_set_cookie: flag("store_set_cookie", base.store_set_cookie),
            honour_request_directives: flag("honour_request_directives", base.honour_request_directives),
            refresh_ahead_percent: u8::try_from(rules["refresh_ahead_percent"].as_u64().unwrap_or(0))
                .unwrap(),
            stale_while_revalidate: stale_limit(
                &rules["stale_while_revalidate"],
                base.stale_while_revalidate,
            ),
            stale_if_error: stale_limit(&rules["stale_if_error"], base.stale_if_error),
            stale_if_unreachable_ms: rules["stale_if_unreachable_ms"]
                .as_u64()
                .unwrap_or(base.stale_if_unreachable_ms),
            max_stale_max_ms: rules["max_stale_max_ms"].as_u64().unwrap_or(base.max_stale_max_ms),
            ..base
        }
    }
}

/// Parses a negotiation by its name in case files; `AsSent` if there is none.
fn negotiation(name: &Value) -> Negotiation {
    match name.as_str() {
        None => Negotiation::AsSent,
        Some("normalised") => Negotiation::Normalised,
        Some("selecting") => Negotiation::Selecting,
        Some(other) => panic!("unknown negotiation {other}"),
    }
}

fn ttl_table(table: &Value) -> TtlTable {
    let entries = table.as_object().into_iter().flatten().map(|(status, ttl_ms)| {
        let status = match status.as_str() {
            "any" => StatusMatch::Any,
            class if class.ends_with("xx") => StatusMatch::Class(class[..1].parse().unwrap()),
            code => StatusMatch::Exact(code.parse().unwrap()),
        };
        (status, ttl_ms.as_u64().unwrap())
    });
    TtlTable::new(entries)
}

fn stale_limit(limit: &Value, base: StaleLimit) -> StaleLimit {
    StaleLimit {
        default_ms: limit["default_ms"].as_u64().unwrap_or(base.default_ms),
        max_ms: limit["max_ms"].as_u64().unwrap_or(base.max_ms),
    }
}

/// Methods are compared by their exact names.
//= RFC 9110 section 9.1: methods are case-sensitive
#[test]
fn methods() {
    for (name, expected) in [
        ("GET", MethodClass::Get),
        ("HEAD", MethodClass::Head),
        ("OPTIONS", MethodClass::OtherSafe),
        ("POST", MethodClass::Unsafe),
        ("get", MethodClass::Unsafe),
        ("", MethodClass::Unsafe),
    ] {
        assert_eq!(MethodClass::parse(name), expected, "{name}");
    }
}
