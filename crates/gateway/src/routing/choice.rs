//! Which cache rule of its site a request belongs to.
//!
//! Origins may read a path otherwise than it is written ([`super::spelling`]): what the operator says of one path must not hold for another, and what
//! protects a path must hold however it is spelled. So where the readings of a path have different rules, or are changed by different
//! transformation rules, nothing is stored and nothing stored answers, and the limits of all these rules hold. The same goes for a spelling that is
//! refused unless the rule allows it.

use super::spelling::{READINGS_MAX, Readings};
use crate::config::{Action, CacheRule, Conditions, Imprint, PathSpellings, Phase, Site, Spelling, path_of};

/// Names the rule of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RuleIndex {
    /// In the list of all rules.
    place: u32,
    /// Those whose limits hold, in the first part of that list: the rule of the path as it is written, and those of its other readings.
    limiting: [u32; READINGS_MAX],
}

impl RuleIndex {
    fn certain(rule: usize) -> Self {
        Self { place: compact(rule), limiting: [compact(rule); READINGS_MAX] }
    }

    /// Nothing is stored. The rule of the path as it is written is the one that counts otherwise.
    fn uncertain(written: usize, others: impl Iterator<Item = usize>, rule_count: usize) -> Self {
        let mut index = Self { place: compact(rule_count + written), ..Self::certain(written) };
        index.limiting[1..].iter_mut().zip(others).for_each(|(place, rule)| *place = compact(rule));
        index
    }

    pub(super) fn place(self) -> usize {
        self.place as usize
    }

    /// The places of the rules whose limits hold, each once.
    pub(super) fn limiting(self) -> impl Iterator<Item = usize> {
        let is_first = move |at: &usize| !self.limiting[..*at].contains(&self.limiting[*at]);
        (0..READINGS_MAX).filter(is_first).map(move |at| self.limiting[at] as usize)
    }

    /// Whether all readings of the path have this rule, and are changed by the same ones.
    pub(crate) fn is_certain(self) -> bool {
        self.limiting[0] == self.place
    }
}

/// No file has four thousand million rules.
fn compact(rule: usize) -> u32 {
    u32::try_from(rule).unwrap_or(u32::MAX)
}

/// What a choice depends on beside the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chooser {
    /// How many rules the site has, with the built-in one that takes what is left.
    count: usize,
    /// Whether rules say of which paths they are, or paths are put below another one, so that spelling may make a difference.
    has_paths: bool,
    /// Whether there are requests that store nothing whatever their rule says.
    has_uncertain: bool,
    /// Whether transformation rules do.
    transforms_paths: bool,
}

impl Chooser {
    pub(super) fn new(site: &Site) -> Self {
        let mut transforms = PHASES.iter().flat_map(|phase| site.transforms.of(*phase));
        let transforms_paths = transforms.any(|rule| rule.on.path.is_some());
        let mut changes = site.transforms.client_request.iter().flat_map(|rule| &rule.actions);
        let moves_paths =
            !site.origin.base_path.is_empty() || changes.any(|action| matches!(action, Action::Rewrite(_)));
        let has_paths = transforms_paths || moves_paths || site.rules.iter().any(|rule| rule.path.is_some());
        let allows = |rule: &CacheRule| rule.spellings_allowed != PathSpellings::default();
        let has_uncertain = has_paths || site.rules.iter().any(allows);
        Self { count: site.rules.len() + 1, has_paths, has_uncertain, transforms_paths }
    }

    pub(super) fn has_paths(self) -> bool {
        self.has_paths
    }

    /// The site's rules, behind them the built-in one, and then, where spelling may make a difference, the same once more for paths with several
    /// readings: they store nothing.
    pub(super) fn all_rules(self, site: &Site) -> Vec<CacheRule> {
        let mut rules = site.rules.clone();
        let compression = site.compression.clone();
        rules.push(CacheRule { compression, ..CacheRule::built_in(site.profile) });
        let changes = site.transforms.origin_response.iter();
        // Names of rules make no difference.
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

    /// Each rule once.
    pub(super) fn distinct(self, rules: &[CacheRule]) -> &[CacheRule] {
        &rules[..self.count]
    }

    /// The rule for method and path of a request, of those that [`Self::all_rules`] lists.
    pub(super) fn choose(self, site: &Site, rules: &[CacheRule], request: &Routed<'_>) -> RuleIndex {
        let Routed { method, path_and_query, readings, asked } = *request;
        let rules = self.distinct(rules);
        let written = fit(rules, method, path_and_query);
        let is_plain = readings.is_none() && asked.is_none();
        if is_plain || !self.has_uncertain {
            return RuleIndex::certain(written);
        }
        let others = others_of(readings).iter().map(|read| fit(rules, method, read));
        let asked = asked.and_then(|(_, readings)| readings);
        let is_refused_elsewhere = |readings: &Readings| readings.spellings != PathSpellings::default();
        let is_certain = !readings.into_iter().chain(asked).any(is_refused_elsewhere)
            && others.clone().all(|rule| rule == written)
            && !(self.transforms_paths && is_transformed_otherwise(site, request));
        match is_certain {
            true => RuleIndex::certain(written),
            false => RuleIndex::uncertain(written, others, self.count),
        }
    }

    /// The rule for a path as it is written.
    pub(super) fn of_written<'a>(
        self,
        rules: &'a [CacheRule],
        (method, path_and_query): (&str, &str),
    ) -> &'a CacheRule {
        let rules = self.distinct(rules);
        &rules[fit(rules, method, path_and_query)]
    }
}

/// What rules are chosen by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Routed<'a> {
    pub(crate) method: &'a str,
    pub(crate) path_and_query: &'a str,
    /// How its path may be read otherwise.
    pub(crate) readings: Option<&'a Readings>,
    /// The path that its client sent, where rules have changed it, with its readings.
    pub(crate) asked: Option<(&'a str, Option<&'a Readings>)>,
}

impl<'a> Routed<'a> {
    /// A path that is read in one way.
    pub(super) fn plain(method: &'a str, path_and_query: &'a str) -> Self {
        Self { method, path_and_query, readings: None, asked: None }
    }
}

fn others_of(readings: Option<&Readings>) -> &[String] {
    readings.map_or(&[], |readings| &readings.others)
}

/// Whether transformation rules match one reading of a path and not another. Those for clients see the path that was sent.
fn is_transformed_otherwise(site: &Site, request: &Routed<'_>) -> bool {
    let Routed { method, path_and_query, readings, asked } = *request;
    let differs = |phase: Phase, (path_and_query, readings): (&str, Option<&Readings>)| {
        let is_shared = phase == Phase::OriginResponse;
        let seen = |whole| if is_shared { path_of(whole) } else { whole };
        // As the rules themselves see it.
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

const PHASES: [Phase; 4] =
    [Phase::ClientRequest, Phase::OriginRequest, Phase::OriginResponse, Phase::ClientResponse];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{MethodSet, PathPattern, TransformRule, sample};

    /// What the origin answers to HEAD is changed by the rules for GET.
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
