//! Follows credentials through a request that rules have changed. A rule may have copied credentials to another field, or have chosen
//! the value of a field because of them. The functions are pure.
//!
//! Fields that are part of the cache key don't count, because different values have different keys. The same is true for a path that
//! depends on credentials. If a rule only removes credentials, the response doesn't depend on them.

use caching::{FieldLine, RequestFacts};

use super::reading::{Terms, is_forwarded_by, is_keyed};
use super::rules::Matching;
use crate::config::TransformRule;
use crate::transform::Trail;
use crate::transform::actions::rewrite::Rewrite;

/// Adds credentials to the facts of a request, if rules have moved the client's credentials to other fields. `asked` has the fields of
/// the request before the rules in `matching`.
pub(crate) fn with_credentials(
    facts: RequestFacts,
    asked: &[FieldLine<'_>],
    matching: &Matching,
    terms: Terms<'_>,
) -> RequestFacts {
    let goes_on =
        |is_source: &dyn Fn(&str) -> bool| goes_on(Trail::new(asked, is_source), matching, terms, is_source);
    RequestFacts {
        has_authorization: facts.has_authorization
            || goes_on(&|name| name.eq_ignore_ascii_case("authorization")),
        has_credentials: facts.has_credentials || goes_on(&|name| terms.rule.caching.is_credential(name)),
        ..facts
    }
}

/// Returns whether the origin receives a field that depends on a source and isn't part of the key.
fn goes_on<'a>(
    mut trail: Trail<'a>,
    matching: &Matching,
    terms: Terms<'a>,
    is_source: &dyn Fn(&str) -> bool,
) -> bool {
    if trail.names().is_empty() {
        return false;
    }
    let rules = &terms.site.transforms.client_request;
    for rule in matching.iter().filter_map(|place| rules.get(usize::from(*place))) {
        trail.is_chosen = rule.on.request_fields.iter().any(|field| is_source(field.name.as_str()));
        if trail.is_chosen && rewrites_query(rule) {
            return true;
        }
        rule.actions.iter().for_each(|action| action.follow(&mut trail));
    }
    trail.names().iter().any(|name| is_forwarded_by(terms.site, name) && !is_keyed(terms.site, name))
}

/// Returns whether a rule changes the query, whose parameters may be missing from the key.
fn rewrites_query(rule: &TransformRule) -> bool {
    rule.actions.iter().any(|action| action.as_rewrite().is_some_and(Rewrite::changes_query))
}

#[cfg(test)]
mod tests {
    use caching::Profile;
    use http::HeaderName;

    use super::*;
    use crate::config::{Action, CacheRule, Conditions, FieldPattern, Phase, sample};
    use crate::transform::actions::copy::Copy;
    use crate::transform::actions::remove::Remove;
    use crate::transform::actions::set::Set;
    use crate::transform::{ChosenBy, RuleTerms};

    const TERMS: RuleTerms<'_> = RuleTerms {
        phase: Phase::ClientRequest,
        chosen_by: Some(ChosenBy::NothingPlain),
        credential_fields: &[],
    };

    fn name(text: &'static str) -> HeaderName {
        HeaderName::from_static(text)
    }

    fn set(field: &'static str, value: &str) -> Action {
        Action::Set(Set::new(field, value, &TERMS).unwrap())
    }

    fn copy(from: &'static str, to: &'static str) -> Action {
        Action::Copy(Copy::new(to, from, &TERMS).unwrap())
    }

    fn remove(field: &'static str) -> Action {
        Action::Remove(Remove::new(field, &TERMS).unwrap())
    }

    /// Returns a rule for requests with this field; `*` stands for all requests.
    fn rule(field: &'static str, actions: Vec<Action>) -> TransformRule {
        let value = globset::Glob::new("*").unwrap().compile_matcher();
        let request_fields = match field {
            "*" => Vec::new(),
            field => vec![FieldPattern { name: name(field), value }],
        };
        let on = Conditions { request_fields, ..Conditions::default() };
        TransformRule { name: "one".to_owned(), on, actions }
    }

    #[test]
    fn credentials_are_followed_through_rules() {
        let rewrite = |to: &str| {
            let pattern = Some((regex::Regex::new("^/").unwrap(), to.to_owned()));
            Action::Rewrite(Rewrite { pattern, ..Rewrite::default() })
        };
        let gone = || remove("cookie");
        let check = |what: &str, rules: Vec<TransformRule>, expected: bool| {
            let mut site = sample::site(([127, 0, 0, 1], 1).into());
            let matching: Matching = (0..rules.len()).map(|place| u16::try_from(place).unwrap()).collect();
            site.transforms.client_request = rules;
            site.request_fields_keyed = vec![name("x-keyed")];
            site.request_fields_hidden = vec![name("x-hidden")];
            let rule = CacheRule::built_in(Profile::default());
            let terms = Terms { site: &site, rule: &rule };
            let lines: [FieldLine<'_>; 2] = [("Cookie", b"a=b"), ("X-Plain", b"c")];
            let facts = with_credentials(RequestFacts::parse("GET", &[]), &lines, &matching, terms);
            assert_eq!((facts.has_credentials, facts.has_authorization), (expected, false), "{what}");
        };
        let all = |actions| vec![rule("*", actions)];
        check("nothing", all(vec![]), true);
        check("taken out", all(vec![gone()]), false);
        check("renamed", all(vec![copy("cookie", "x-a"), gone()]), true);
        check("quoted", all(vec![set("x-a", "v {header.Cookie}"), gone()]), true);
        check(
            "renamed twice",
            all(vec![copy("cookie", "x-a"), copy("x-a", "x-b"), remove("x-a"), gone()]),
            true,
        );
        check("renamed and taken out", all(vec![copy("cookie", "x-a"), gone(), remove("x-a")]), false);
        check("written over", all(vec![copy("cookie", "x-a"), gone(), set("x-a", "v")]), false);
        check("perhaps written over", all(vec![copy("cookie", "x-a"), gone(), set("x-a", "{query}")]), true);
        check("another field", all(vec![copy("x-plain", "x-a"), gone()]), false);
        check("in the key", all(vec![copy("cookie", "x-keyed"), gone()]), false);
        check("not forwarded", all(vec![copy("cookie", "x-hidden"), gone()]), false);
        check("chosen by it", vec![rule("cookie", vec![gone(), set("x-a", "v")])], true);
        check("chosen by another", vec![rule("x-plain", vec![gone(), set("x-a", "v")])], false);
        check("a path chosen by it", vec![rule("cookie", vec![gone(), rewrite("/b/")])], false);
        check("a query chosen by it", vec![rule("cookie", vec![gone(), rewrite("/b?c=")])], true);
    }
}
