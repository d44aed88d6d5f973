//! Chooses the cache rule of a request.
//!
//! Origins may interpret a path differently from its written form ([`super::spelling`]). Settings for one path must not apply to
//! another, and the protection of a path must apply to all its spellings. So if the readings of a path have different rules, or match
//! different transformation rules, the limits of all these rules apply, and responses are neither stored nor reused. The same is true
//! for an ambiguous spelling that a rule allows.

use cache::imprint::Imprint;

use super::spelling::{READINGS_MAX, Readings};
use crate::config::{CacheRule, Conditions, PathSpellings, Phase, Site, Spelling, path_of};

/// Position of a request's rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RuleMatch {
    /// Position in the list of all rules.
    place: u32,
    /// Rules whose limits apply, as positions among the rules of the site: the rule of the path as written, and the rules of its other
    /// readings.
    limiting: [u32; READINGS_MAX],
}

impl RuleMatch {
    fn certain(rule: usize) -> Self {
        Self { place: compact(rule), limiting: [compact(rule); READINGS_MAX] }
    }

    /// Returns the rule of a path whose readings have different rules. The result is the rule of the path as written, but stores
    /// nothing.
    fn uncertain(written: usize, others: impl Iterator<Item = usize>, rule_count: usize) -> Self {
        let mut index = Self { place: compact(rule_count + written), ..Self::certain(written) };
        index.limiting[1..].iter_mut().zip(others).for_each(|(place, rule)| *place = compact(rule));
        index
    }

    pub(super) fn place(self) -> usize {
        self.place as usize
    }

    /// Returns the positions of the rules whose limits apply, without duplicates.
    pub(super) fn limiting(self) -> impl Iterator<Item = usize> {
        let is_first = move |at: &usize| !self.limiting[..*at].contains(&self.limiting[*at]);
        (0..READINGS_MAX).filter(is_first).map(move |at| self.limiting[at] as usize)
    }

    /// Returns whether all readings of the path have this rule, and match the same transformation rules.
    pub(crate) fn is_certain(self) -> bool {
        self.limiting[0] == self.place
    }
}

/// Returns a position in 32 bits, which suffice because no file has four billion rules.
fn compact(rule: usize) -> u32 {
    u32::try_from(rule).unwrap_or(u32::MAX)
}

/// Properties of a site on which the choice depends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chooser {
    /// Number of rules, including the built-in one for all remaining requests.
    count: usize,
    /// Whether the spelling of a path may matter, because rules have path patterns or change paths for the origin.
    pub(super) has_paths: bool,
    /// Whether responses to some requests are never stored, regardless of the rule.
    has_uncertain: bool,
    /// Whether transformation rules have path patterns.
    transforms_paths: bool,
}

impl Chooser {
    pub(super) fn new(site: &Site) -> Self {
        let mut transforms = Phase::ALL.iter().flat_map(|phase| site.transforms.of(*phase));
        let transforms_paths = transforms.any(|rule| rule.on.path.is_some());
        let mut changes = site.transforms.client_request.iter().flat_map(|rule| &rule.actions);
        let moves_paths =
            !site.origin.base_path.is_empty() || changes.any(|action| action.as_rewrite().is_some());
        let has_paths = transforms_paths || moves_paths || site.rules.iter().any(|rule| rule.path.is_some());
        let allows = |rule: &CacheRule| rule.spellings_allowed != PathSpellings::default();
        let has_uncertain = has_paths || site.rules.iter().any(allows);
        Self { count: site.rules.len() + 1, has_paths, has_uncertain, transforms_paths }
    }

    /// Returns the site's rules, followed by the built-in one. If the spelling of paths may matter, copies of all these rules follow
    /// that store nothing, for paths whose readings have different rules.
    pub(super) fn all_rules(self, site: &Site) -> Vec<CacheRule> {
        let mut rules = site.rules.clone();
        let compression = site.compression.clone();
        rules.push(CacheRule { compression, ..CacheRule::built_in(site.profile) });
        let changes = site.transforms.origin_response.iter();
        // The imprint doesn't contain the names of rules.
        let changes: Vec<_> = changes.map(|rule| (&rule.on, &rule.actions)).collect();
        let imprint = Imprint::of(&site.request_fields_keyed, &site.response_fields_hidden, &changes);
        for rule in &mut rules {
            rule.tags = site.tags.clone();
            rule.imprint = imprint;
            let own = rule.protection.request_body_bytes_max;
            rule.protection.request_body_bytes_max = own.or(site.protection.request_body_bytes_max);
        }
        if self.has_uncertain {
            let mut storing_nothing = rules.clone();
            storing_nothing.iter_mut().for_each(|rule| rule.caching.enabled = false);
            rules.append(&mut storing_nothing);
        }
        rules
    }

    /// Returns the rules without the copies that store nothing.
    pub(super) fn distinct(self, rules: &[CacheRule]) -> &[CacheRule] {
        &rules[..self.count]
    }

    /// Chooses the rule for a request among those that [`Self::all_rules`] lists.
    pub(super) fn choose(self, site: &Site, rules: &[CacheRule], request: &Routed<'_>) -> RuleMatch {
        let Routed { method, path_and_query, readings, asked } = *request;
        let rules = self.distinct(rules);
        let written = fit(rules, method, path_and_query);
        let is_plain = readings.is_none() && asked.is_none();
        if is_plain || !self.has_uncertain {
            return RuleMatch::certain(written);
        }
        let others = others_of(readings).iter().map(|read| fit(rules, method, read));
        let asked = asked.and_then(|(_, readings)| readings);
        let is_refused_elsewhere = |readings: &Readings| readings.spellings != PathSpellings::default();
        let is_certain = !readings.into_iter().chain(asked).any(is_refused_elsewhere)
            && others.clone().all(|rule| rule == written)
            && !(self.transforms_paths && is_transformed_otherwise(site, request));
        match is_certain {
            true => RuleMatch::certain(written),
            false => RuleMatch::uncertain(written, others, self.count),
        }
    }

    /// Returns the rule for a path as written.
    pub(super) fn of_written<'a>(
        self,
        rules: &'a [CacheRule],
        (method, path_and_query): (&str, &str),
    ) -> &'a CacheRule {
        let rules = self.distinct(rules);
        &rules[fit(rules, method, path_and_query)]
    }
}

/// Properties of a request that determine its rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Routed<'a> {
    pub(crate) method: &'a str,
    pub(crate) path_and_query: &'a str,
    /// Other readings of the path.
    pub(crate) readings: Option<&'a Readings>,
    /// Path that the client sent, with its readings, if rules have changed the path.
    pub(crate) asked: Option<(&'a str, Option<&'a Readings>)>,
}

impl<'a> Routed<'a> {
    /// Creates the properties of a request whose path has only one reading.
    pub(super) fn plain(method: &'a str, path_and_query: &'a str) -> Self {
        Self { method, path_and_query, readings: None, asked: None }
    }
}

fn others_of(readings: Option<&Readings>) -> &[String] {
    readings.map_or(&[], |readings| &readings.others)
}

/// Returns whether transformation rules match one reading of a path but not another. Rules for client messages match the path that the
/// client sent.
fn is_transformed_otherwise(site: &Site, request: &Routed<'_>) -> bool {
    let Routed { method, path_and_query, readings, asked } = *request;
    let differs = |phase: Phase, (path_and_query, readings): (&str, Option<&Readings>)| {
        let is_shared = phase == Phase::OriginResponse;
        let seen = |whole| if is_shared { path_of(whole) } else { whole };
        // Rules treat the origin's response to HEAD like a response to GET.
        let method = if is_shared && method == "HEAD" { "GET" } else { method };
        let matches = |on: &Conditions, whole| {
            on.path.as_ref().is_none_or(|pattern| pattern.matches(seen(whole), Spelling::AsWritten))
        };
        let rules = site.transforms.of(phase).iter().filter(|rule| rule.on.methods.contains(method));
        let mut conditions = rules.map(|rule| &rule.on);
        conditions.any(|on| {
            let written = matches(on, path_and_query);
            others_of(readings).iter().any(|read| matches(on, read) != written)
        })
    };
    let changed = (path_and_query, readings);
    let asked = asked.unwrap_or(changed);
    [Phase::OriginRequest, Phase::OriginResponse].into_iter().any(|phase| differs(phase, changed))
        || [Phase::ClientRequest, Phase::ClientResponse].into_iter().any(|phase| differs(phase, asked))
}

fn fit(rules: &[CacheRule], method: &str, path_and_query: &str) -> usize {
    rules.iter().position(|rule| rule.fits(method, path_and_query)).unwrap_or(rules.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{MethodSet, PathPattern, TransformRule, sample};

    /// Rules for GET apply to the origin's response to HEAD.
    #[test]
    fn methods_of_transformation_rules_count_as_the_rules_see_them() {
        let check = |phase: Phase, method: &str, expected: bool| {
            let on = Conditions {
                path: Some(PathPattern::Prefix("/a/b".to_owned())),
                methods: MethodSet::Only(["GET".to_owned()].into()),
                ..Conditions::default()
            };
            let mut site = sample::site(([127, 0, 0, 1], 1).into());
            let rule = TransformRule { name: "one".to_owned(), on, actions: Vec::new() };
            site.transforms.of_mut(phase).push(rule);
            let readings = crate::routing::spelling::readings("/a%2Fb");
            let routed = Routed { readings: readings.as_deref(), ..Routed::plain(method, "/a%2Fb") };
            let found = is_transformed_otherwise(&site, &routed);
            assert_eq!(found, expected, "{phase:?} {method}");
        };
        check(Phase::OriginResponse, "GET", true);
        check(Phase::OriginResponse, "HEAD", true);
        check(Phase::OriginResponse, "POST", false);
        check(Phase::ClientResponse, "GET", true);
        check(Phase::ClientResponse, "HEAD", false);
    }
}
