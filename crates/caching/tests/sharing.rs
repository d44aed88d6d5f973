//! Computes the table of permitted uses, and compares it with `sharing.txt`. The table has the uses of responses to
//! requests without credentials, with `Cookie` and with `Authorization`, in both profiles.
//!
//! Each cell has two groups of marks: one for clients without credentials, and one for a user with credentials of
//! their own. Each mark stands for one use:
//!
//! - `F`: the client gets the response immediately.
//! - `S`: the client gets the response a minute later, by `max-stale`.
//! - `D`: the client gets the response a minute later, while the origin is down.
//! - `V`: a request of the client, now or a minute later, causes a validation that names the response, so that a
//!   304 discloses it.
//!
//! `.` means that none of these uses is possible. A dash in place of a cell means that the response isn't stored.

use caching::{
    ExchangeTimes, Failure, FieldLine, Profile, RequestFacts, ResponseFacts, Reuse, Rules, StatusMatch,
    StoredFacts, Timestamp, TtlTable, may_serve_stale, may_store, reuse,
};

const NOW: Timestamp = Timestamp::from_seconds(784_111_777);
const DATE: FieldLine<'static> = ("date", b"Sun, 06 Nov 1994 08:49:37 GMT");

/// The source of a response's lifetime.
struct Lifetime {
    name: &'static str,
    directive: &'static str,
    fields: &'static [FieldLine<'static>],
    rule: Option<fn(&mut Rules)>,
}

const fn said(name: &'static str) -> Lifetime {
    Lifetime { name, directive: name, fields: &[], rule: None }
}

const fn expires(name: &'static str, fields: &'static [FieldLine<'static>]) -> Lifetime {
    Lifetime { name, directive: "", fields, rule: None }
}

const fn of_rule(name: &'static str, rule: fn(&mut Rules)) -> Lifetime {
    Lifetime { name, directive: "", fields: &[], rule: Some(rule) }
}

fn one_minute() -> TtlTable {
    TtlTable::new([(StatusMatch::Any, 60_000)])
}

const LIFETIMES: [Lifetime; 10] = [
    Lifetime { name: "none", directive: "", fields: &[], rule: None },
    said("max-age=60"),
    said("max-age=0"),
    said("max-age=x"),
    said("s-maxage=60"),
    said("s-maxage=0, max-age=60"),
    expires("Expires in a minute", &[("expires", b"Sun, 06 Nov 1994 08:50:37 GMT")]),
    expires("Expires: 0", &[("expires", b"0")]),
    of_rule("ttl_default", |rules| rules.default_ttl = one_minute()),
    of_rule("ttl_override", |rules| rules.override_ttl = one_minute()),
];

const DIRECTIVES: [&str; 9] = [
    "",
    "public",
    "must-revalidate",
    "no-cache",
    "no-cache=\"x-a\"",
    "stale-while-revalidate=60",
    "stale-if-error=60",
    "private",
    "no-store",
];

const VALIDATORS: [&[FieldLine<'static>]; 4] = [
    &[],
    &[("etag", b"\"a\"")],
    &[("etag", b"W/\"a\"")],
    &[("last-modified", b"Thu, 27 Oct 1994 08:49:37 GMT")],
];

const VARY: [&[FieldLine<'static>]; 2] = [&[], &[("vary", b"cookie, authorization, x-api-key")]];

fn request(credential: &str, directive: &'static str) -> RequestFacts {
    let lines: [FieldLine<'_>; 2] = [("cache-control", directive.as_bytes()), (credential, b"other")];
    let used = if credential.is_empty() { 1 } else { 2 };
    RequestFacts::parse("GET", &lines[..used])
}

/// Returns the marks for the uses of a stored response by a request with these credentials.
fn uses(credential: &str, stored: &StoredFacts, rules: &Rules) -> String {
    let plain = request(credential, "");
    // Responses that are fresh now are checked again a second after they have become stale.
    let later = NOW.plus_ms(61_000);
    let max_stale = request(credential, "max-stale");
    let is_named = |now| matches!(reuse(&plain, stored, rules, now), Reuse::Validate(_));
    let marks = [
        ('F', matches!(reuse(&plain, stored, rules, NOW), Reuse::Fresh | Reuse::StaleWhileRevalidate)),
        ('S', reuse(&max_stale, stored, rules, later) == Reuse::Stale),
        ('D', may_serve_stale(&plain, stored, rules, later, Failure::Unreachable)),
        ('V', is_named(NOW) || is_named(later)),
    ];
    let marks: String = marks.iter().filter(|(_, is_set)| *is_set).map(|(mark, _)| mark).collect();
    if marks.is_empty() { ".".to_owned() } else { marks }
}

/// Returns the cell of a response to a request with `credential`.
fn cell(credential: &str, response: &[FieldLine<'_>], rules: &Rules) -> String {
    let times = ExchangeTimes { request: NOW, response: NOW, clock_ahead_ms: 0 };
    let facts = ResponseFacts::parse(200, response, times, rules);
    match may_store(&request(credential, ""), &facts, rules, NOW) {
        Err(_) => "-".to_owned(),
        Ok(stored) => {
            let [nobody, other] = ["", "cookie"].map(|credential| uses(credential, &stored.facts, rules));
            format!("{nobody} {other}")
        }
    }
}

struct Row<'a> {
    lifetime: &'a Lifetime,
    directive: &'static str,
    validator: &'static [FieldLine<'static>],
}

impl Row<'_> {
    fn cell(&self, profile: Profile, credential: &str, vary: &[FieldLine<'static>]) -> String {
        let mut rules = Rules::for_profile(profile);
        if let Some(change) = self.lifetime.rule {
            change(&mut rules);
        }
        let directives = [self.lifetime.directive, self.directive];
        let directives: Vec<_> = directives.into_iter().filter(|directive| !directive.is_empty()).collect();
        let directives = directives.join(", ");
        let control: FieldLine<'_> = ("cache-control", directives.as_bytes());
        let own = [&[DATE, control], self.lifetime.fields, self.validator, vary].concat();
        cell(credential, &own, &rules)
    }
}

/// Returns the cells for a lifetime and a directive: for each credential, one cell per validator.
fn line(lifetime: &Lifetime, directive: &'static str, profile: Profile) -> String {
    let cell = |credential: &str, index: usize| {
        let row = Row { lifetime, directive, validator: VALIDATORS[index] };
        let cell = row.cell(profile, credential, VARY[0]);
        assert_eq!(cell, row.cell(profile, credential, VARY[1]), "Vary opens nothing");
        cell
    };
    let of_credential = |credential: &&str| {
        assert_eq!(cell(credential, 1), cell(credential, 2), "a weak tag validates like a strong one");
        [0, 1, 3].map(|index| format!("{:<10}", cell(credential, index))).join("")
    };
    let api_key = of_credential(&"x-api-key");
    assert_eq!(of_credential(&"cookie"), api_key, "credentials are credentials");
    let cells = ["", "cookie", "authorization"].iter().map(of_credential).collect::<Vec<_>>();
    format!("{:<23}{directive:<27}| {}", lifetime.name, cells.join("| ")).trim_end().to_owned()
}

fn table(profile: Profile) -> String {
    let validators = ["none", "ETag", "Last-Mod."].map(|name| format!("{name:<10}")).join("");
    let head = format!(
        "{:<50}| {:<30}| {:<30}| Authorization",
        "answer to a request with", "no credentials", "Cookie"
    );
    let names = format!("{:<23}{:<27}| {validators}| {validators}| {validators}", "lifetime", "directive",);
    let lines = LIFETIMES
        .iter()
        .flat_map(|lifetime| DIRECTIVES.iter().map(move |directive| line(lifetime, directive, profile)));
    let lines: Vec<String> = [head, names.trim_end().to_owned()].into_iter().chain(lines).collect();
    lines.join("\n")
}

#[test]
fn who_may_have_what_is_as_written() {
    let text = format!(
        "profile safe\n\n{}\n\nprofile rfc9111\n\n{}\n",
        table(Profile::Safe),
        table(Profile::Rfc9111)
    );
    let written = include_str!("sharing.txt");
    let differing = text.lines().zip(written.lines()).find(|(now, written)| now != written);
    assert!(text == written, "{differing:#?}, in:\n{text}");
}

/// The rule behind the table: in profile `safe`, the response to a request with credentials is used for others only
/// if it has `public` or a lifetime, and without a lifetime only after a validation.
#[test]
fn nothing_personal_is_used_unless_somebody_opened_it() {
    for lifetime in &LIFETIMES {
        for (directive, validator) in
            DIRECTIVES.iter().flat_map(|directive| VALIDATORS.map(|validator| (directive, validator)))
        {
            let row = Row { lifetime, directive, validator };
            let has_lifetime = lifetime.name.contains("60") && !lifetime.name.contains("s-maxage=0")
                || matches!(lifetime.name, "Expires in a minute" | "ttl_default" | "ttl_override");
            for (credential, vary) in
                [("cookie", VARY[0]), ("authorization", VARY[1]), ("x-api-key", VARY[0])]
            {
                let cell = row.cell(Profile::Safe, credential, vary);
                let is_open = *directive == "public" || (has_lifetime && *directive != "no-cache");
                assert!(is_open || cell == "-", "{cell}: {directive} {}", lifetime.name);
                let is_unvalidated = cell.contains(['F', 'S', 'D']);
                assert!(has_lifetime || !is_unvalidated, "{cell}: {directive} {}", lifetime.name);
            }
        }
    }
}
