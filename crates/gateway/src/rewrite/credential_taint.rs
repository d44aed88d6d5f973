//! Follows credentials through a request that rules have changed: the value of a field with credentials may be in another field by
//! then, or may have decided its value. Pure.
//!
//! Fields that are part of the cache key don't count: another value has another key. Nor does a path that was chosen by credentials,
//! because the key has it. A field that is only removed leaves no trail: the origin answers without it.

use caching::{FieldLine, RequestFacts};
use smallvec::SmallVec;

use super::reading::{Terms, is_forwarded_by, is_keyed};
use super::rules::Matching;
use crate::config::{Action, Rewrite, Template, TransformRule, Variable};

/// Adds the credentials that the client sent, and that rules have moved, to the facts of a request. `asked` are its fields before the
/// rules that `matching` names.
pub(crate) fn with_credentials(
    facts: RequestFacts,
    asked: &[FieldLine<'_>],
    matching: &Matching,
    terms: Terms<'_>,
) -> RequestFacts {
    let goes_on =
        |is_source: &dyn Fn(&str) -> bool| Trail::new(asked, is_source).goes_on(matching, terms, is_source);
    RequestFacts {
        has_authorization: facts.has_authorization
            || goes_on(&|name| name.eq_ignore_ascii_case("authorization")),
        has_credentials: facts.has_credentials || goes_on(&|name| terms.rule.caching.is_credential(name)),
        ..facts
    }
}

/// Fields whose values depend on certain fields of the client.
struct Trail<'a> {
    names: SmallVec<[&'a str; 4]>,
}

impl<'a> Trail<'a> {
    fn new(asked: &[FieldLine<'a>], is_source: &dyn Fn(&str) -> bool) -> Self {
        let names = asked.iter().map(|(name, _)| *name);
        Self { names: names.filter(|name| is_source(name)).collect() }
    }

    /// Whether the origin sees any of these fields that the key lacks.
    fn goes_on(mut self, matching: &Matching, terms: Terms<'a>, is_source: &dyn Fn(&str) -> bool) -> bool {
        if self.names.is_empty() {
            return false;
        }
        let rules = &terms.site.transforms.client_request;
        for rule in matching.iter().filter_map(|place| rules.get(usize::from(*place))) {
            let is_chosen = rule.on.request_fields.iter().any(|field| is_source(field.name.as_str()));
            if is_chosen && rewrites_query(rule) {
                return true;
            }
            rule.actions.iter().for_each(|action| self.follow(action, is_chosen));
        }
        self.names.iter().any(|name| is_forwarded_by(terms.site, name) && !is_keyed(terms.site, name))
    }

    /// Follows an action. `is_chosen` tells that it is carried out because of the fields' values.
    fn follow(&mut self, action: &'a Action, is_chosen: bool) {
        match action {
            Action::Copy { from, to } if is_chosen || self.has(from.as_str()) => self.names.push(to.as_str()),
            Action::Set(name, value) | Action::Add(name, value) if is_chosen || self.is_in(value) => {
                self.names.push(name.as_str());
            }
            // A template with variables may come to nothing, and then the field stays as it is.
            Action::Set(name, value) if value.variables().next().is_none() => self.remove(name.as_str()),
            Action::Remove(name) => self.remove(name.as_str()),
            _ => {}
        }
    }

    fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known.eq_ignore_ascii_case(name))
    }

    fn is_in(&self, value: &Template) -> bool {
        let is_told =
            |variable: &Variable| matches!(variable, Variable::Field(name) if self.has(name.as_str()));
        value.variables().any(is_told)
    }

    fn remove(&mut self, name: &str) {
        self.names.retain(|known| !known.eq_ignore_ascii_case(name));
    }
}

/// Whether a rule changes the query, whose parameters the key may lack.
fn rewrites_query(rule: &TransformRule) -> bool {
    let changes = |rewrite: &Rewrite| {
        rewrite.query.is_some() || rewrite.pattern.as_ref().is_some_and(|(_, text)| text.contains('?'))
    };
    rule.actions.iter().any(|action| matches!(action, Action::Rewrite(rewrite) if changes(rewrite)))
}

#[cfg(test)]
mod tests {
    use caching::Profile;
    use http::HeaderName;

    use super::*;
    use crate::config::{CacheRule, Conditions, FieldPattern, sample};

    fn name(text: &'static str) -> HeaderName {
        HeaderName::from_static(text)
    }

    fn set(field: &'static str, value: &str) -> Action {
        Action::Set(name(field), Template::parse(value).unwrap())
    }

    fn copy(from: &'static str, to: &'static str) -> Action {
        Action::Copy { from: name(from), to: name(to) }
    }

    fn remove(field: &'static str) -> Action {
        Action::Remove(name(field))
    }

    /// Rules that apply to requests with this field; `*` for all.
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
