//! Which cache rule of its site a request belongs to.
//!
//! Origins may read a path otherwise than it is written ([`spelling`]): what the operator says of one path must not hold for another, and what
//! protects a path must hold however it is spelled. So where the readings of a path have different rules, or are changed by different
//! transformation rules, nothing is stored and nothing stored answers, and the limits of all these rules hold.

use super::spelling::{self, READINGS_MAX, Readings};
use crate::config::{CacheRule, Conditions, Phase, Site, Spelling, path_of};

/// Names the rule of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RuleIndex {
    /// In the list of all rules.
    place: u32,
    /// How many of the following there are.
    count: u8,
    /// Those whose limits hold, in the first part of that list: the rule of the path as most origins read it, and other ones of other readings.
    limiting: [u32; READINGS_MAX],
}

impl RuleIndex {
    fn certain(rule: usize) -> Self {
        Self { place: compact(rule), count: 1, limiting: [compact(rule); READINGS_MAX] }
    }

    /// Nothing is stored. The first of the rules is the one that counts otherwise.
    fn uncertain(first: usize, others: impl Iterator<Item = usize>, rule_count: usize) -> Self {
        let mut index = Self { place: compact(rule_count + first), ..Self::certain(first) };
        for rule in others.map(compact) {
            let count = usize::from(index.count);
            if !index.limiting[..count].contains(&rule) && count < READINGS_MAX {
                index.limiting[count] = rule;
                index.count += 1;
            }
        }
        index
    }

    pub(super) fn place(self) -> usize {
        self.place as usize
    }

    /// The places of the rules whose limits hold.
    pub(super) fn limiting(self) -> impl Iterator<Item = usize> {
        self.limiting.into_iter().take(usize::from(self.count)).map(|rule| rule as usize)
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
    /// Whether rules say of which paths they are, so that spelling may make a difference.
    has_paths: bool,
    /// Whether transformation rules do.
    transforms_paths: bool,
}

impl Chooser {
    pub(super) fn new(site: &Site) -> Self {
        let mut transforms = PHASES.iter().flat_map(|phase| site.transforms.of(*phase));
        let transforms_paths = transforms.any(|rule| rule.on.path.is_some());
        let has_paths = transforms_paths || site.rules.iter().any(|rule| rule.path.is_some());
        Self { count: site.rules.len() + 1, has_paths, transforms_paths }
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
        for rule in &mut rules {
            rule.tags = site.tags.clone();
            let own = rule.protection.request_body_bytes_max;
            rule.protection.request_body_bytes_max = own.or(site.protection.request_body_bytes_max);
        }
        if self.has_paths {
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

    /// The rule for method and path of a request, of those that [`Self::all_rules`] lists. `asked` is the path that its client sent, where that is another one.
    pub(super) fn choose(
        self,
        site: &Site,
        rules: &[CacheRule],
        (method, path_and_query): (&str, &str),
        asked: Option<&str>,
    ) -> RuleIndex {
        let rules = self.distinct(rules);
        let written = fit(rules, method, path_and_query);
        if !self.has_paths {
            return RuleIndex::certain(written);
        }
        // What has no meaning was refused before.
        let readings = spelling::other_readings(path_and_query).unwrap_or_default();
        let rule_of = |read: &str| fit(rules, method, read);
        let others = readings.iter().map(rule_of);
        let is_certain = others.clone().all(|rule| rule == written)
            && !(self.transforms_paths
                && is_transformed_otherwise(site, method, (path_and_query, &readings), asked));
        if is_certain {
            return RuleIndex::certain(written);
        }
        let usual = readings.usual.as_deref().map_or(written, rule_of);
        RuleIndex::uncertain(usual, others.chain([written]), self.count)
    }
}

/// Whether transformation rules match one reading of a path and not another. Those for clients see the path that was sent.
fn is_transformed_otherwise(
    site: &Site,
    method: &str,
    changed: (&str, &Readings),
    asked: Option<&str>,
) -> bool {
    let differs = |phase: Phase, (path_and_query, readings): (&str, &Readings)| {
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
            readings.iter().any(|read| matches(on, read) != written)
        })
    };
    let of_asked = asked.map(|asked| (asked, spelling::other_readings(asked).unwrap_or_default()));
    let asked = of_asked.as_ref().map_or(changed, |(asked, readings)| (*asked, readings));
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
            let readings = spelling::other_readings("/a%2Fb").unwrap();
            let found = is_transformed_otherwise(&site, method, ("/a%2Fb", &readings), None);
            assert_eq!(found, expected, "{phase:?} {method}");
        };
        check(Phase::OriginResponse, "GET", true);
        check(Phase::OriginResponse, "HEAD", true);
        check(Phase::OriginResponse, "POST", false);
        check(Phase::ClientResponse, "GET", true);
        check(Phase::ClientResponse, "HEAD", false);
    }
}
