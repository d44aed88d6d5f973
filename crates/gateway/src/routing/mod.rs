//! Finds the site of a request, and its cache rule.

mod choice;
pub(crate) mod key;
mod sites;
mod spelling;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use caching::explain::Finding;
use caching::{StoredCredentialed, Timestamp, target, unkeyed};
use telemetry::{OriginId, RuleId, SiteId, Telemetry, WorkerRecorder};
use tokio::time::Instant;

use self::choice::{Chooser, PHASES};

pub(crate) use self::choice::{Routed, RuleMatch};
use self::sites::SiteIndex;
pub(crate) use self::spelling::{Readings, spelled_part};
use message::explain_record::{Record, note};
use origin::{OriginError, Upstream};

use crate::allowances::Allowances;
use crate::config::{
    CacheRule, Config, PathSpelling, PathSpellings, Phase, PrefixHandling, Site, StoreIndex, TransformRule,
};
use crate::pace::{BodyLimits, PaceLimits};
use crate::protection::rate::Verdict;
use crate::protection::{Limiter, Protection, whole_seconds};
pub(crate) use crate::urls::{host_of, strip_prefix};

/// A site with its state at run time.
pub(crate) struct LiveSite {
    pub(crate) config: Arc<Site>,
    /// Rules in the order of [`Chooser::all_rules`].
    rules: Vec<CacheRule>,
    chooser: Chooser,
    /// Metrics labels of the rules.
    rule_metrics: Vec<RuleId>,
    /// Limits on clients and forwards; `None` if the site has none.
    pub(crate) protection: Option<Box<Protection>>,
    /// Metrics labels of the transformation rules; `None` if the site changes nothing.
    transforms: Option<Box<LiveTransforms>>,
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) metrics: SiteId,
    pub(crate) origin_metrics: OriginId,
    pub(crate) warnings: Allowances,
}

/// Metrics labels of the transformation rules, by phase.
struct LiveTransforms {
    /// In the order of [`PHASES`].
    metrics: [Vec<RuleId>; PHASES.len()],
    /// Whether rules make responses depend on request fields.
    answers_by_fields: bool,
}

impl LiveTransforms {
    fn new(config: &Site, telemetry: &Telemetry) -> Option<Box<Self>> {
        let transforms = &config.transforms;
        let of = |phase| {
            let rules = transforms.of(phase).iter();
            rules.map(|rule| telemetry.register_rule(&rule.name)).collect::<Vec<_>>()
        };
        let metrics = PHASES.map(of);
        let answers_by_fields = [Phase::ClientRequest, Phase::ClientResponse]
            .into_iter()
            .any(|phase| transforms.of(phase).iter().any(|rule| !rule.deciding_fields(phase).is_empty()));
        let has_any = metrics.iter().any(|labels| !labels.is_empty());
        let is_live = has_any || config.cors.is_some() || config.maintenance.is_some();
        is_live.then(|| Box::new(Self { metrics, answers_by_fields }))
    }

    fn of(&self, phase: Phase) -> Option<&[RuleId]> {
        let place = PHASES.iter().position(|known| *known == phase)?;
        Some(&self.metrics[place])
    }
}

impl LiveSite {
    pub(crate) fn new(config: &Arc<Site>, upstream: Arc<Upstream>, telemetry: &Telemetry) -> Self {
        let chooser = Chooser::new(config);
        let rules = chooser.all_rules(config);
        Self {
            config: Arc::clone(config),
            rule_metrics: rules.iter().map(|rule| telemetry.register_rule(&rule.name)).collect(),
            protection: Protection::new(config, chooser.distinct(&rules)).map(Box::new),
            chooser,
            rules,
            transforms: LiveTransforms::new(config, telemetry),
            upstream,
            metrics: telemetry.register_site(&config.name),
            origin_metrics: telemetry.register_origin(&config.origin.name),
            warnings: Allowances::default(),
        }
    }

    /// Takes over from the site that this one replaces: the counts of clients, and the time since when its rules define which requests
    /// have credentials. That time is kept if both sites have one and the same definition for all requests; otherwise it is the time of
    /// the reload.
    pub(crate) fn replacing(mut self, before: Option<&Self>, now: Timestamp) -> Self {
        let answer = credentials_of_all(&self.rules);
        let same = before.filter(|before| answer.is_some() && credentials_of_all(&before.rules) == answer);
        let judged_since = match same {
            Some(before) => before.rules[0].caching.judged_since,
            None => now,
        };
        self.rules.iter_mut().for_each(|rule| rule.caching.judged_since = judged_since);
        if let (Some(protection), Some(before)) = (&mut self.protection, before) {
            before.protection.iter().for_each(|before| protection.take_over(before));
        }
        self
    }

    /// Whether both sites give the same URLs the same keys.
    fn has_keys_of(&self, other: &Self) -> bool {
        let place = |site: &Self| {
            let config = &site.config;
            (config.name.clone(), config.hosts.clone(), config.path_prefix.clone(), config.spelling)
        };
        let rules = |site: &Self| {
            let of_rule = |rule: &CacheRule| {
                (rule.path.clone(), rule.spelling, rule.methods.clone(), rule.query.clone())
            };
            site.rules.iter().map(of_rule).collect::<Vec<_>>()
        };
        // Responses under rewritten paths are looked for only in sites that rewrite.
        let is_looked_for = self.config.transforms.write_paths() || !other.config.transforms.write_paths();
        place(self) == place(other) && rules(self) == rules(other) && is_looked_for
    }

    /// First rule that fits, in file order, for a path as it is written.
    pub(crate) fn rule(&self, method: &str, path_and_query: &str) -> RuleMatch {
        self.rule_for(&Routed::plain(method, path_and_query))
    }

    /// Chooses the rule of a request.
    pub(crate) fn rule_for(&self, request: &Routed<'_>) -> RuleMatch {
        self.chooser.choose(&self.config, &self.rules, request)
    }

    /// Spellings of a path, if its rule doesn't allow them. The rule is that of the path as it is written.
    pub(crate) fn refused_spellings(
        &self,
        request: (&str, &str),
        readings: &Readings,
    ) -> Option<PathSpellings> {
        let rule = self.chooser.of_written(&self.rules, request);
        // A path may also begin with two slashes once its prefix is cut off.
        let Site { prefix, path_prefix, .. } = &*self.config;
        let spellings = match prefix {
            PrefixHandling::Strip if strip_prefix(request.1, path_prefix).starts_with("//") => {
                readings.spellings.with(PathSpelling::Never)
            }
            PrefixHandling::Strip | PrefixHandling::Keep => readings.spellings,
        };
        (!rule.spellings_allowed.permit(spellings)).then_some(spellings)
    }

    pub(crate) fn rule_at(&self, index: RuleMatch) -> &CacheRule {
        &self.rules[index.place()]
    }

    /// Rules whose limits apply: those of all readings of the path.
    pub(crate) fn limiting_rules(&self, index: RuleMatch) -> impl Iterator<Item = &CacheRule> {
        index.limiting().map(|rule| &self.rules[rule])
    }

    /// Largest content that the site and its rules permit in a request.
    pub(crate) fn request_body_bytes_max(&self, index: RuleMatch) -> Option<u64> {
        self.limiting_rules(index).filter_map(|rule| rule.protection.request_body_bytes_max).min()
    }

    /// Limits on the content of a request, by the strictest of its rules. `limits` are those of all clients.
    pub(crate) fn body_limits(&self, index: RuleMatch, limits: BodyLimits) -> BodyLimits {
        let rules = || self.limiting_rules(index).map(|rule| &rule.protection);
        let stall_max = rules().map(|rule| rule.body_read_timeout.unwrap_or(limits.pace.stall_max)).min();
        let rate_min = rules().map(|rule| rule.body_rate_min.unwrap_or(limits.pace.rate_min)).max();
        BodyLimits {
            bytes_max: self
                .request_body_bytes_max(index)
                .map_or(limits.bytes_max, |max| max.min(limits.bytes_max)),
            pace: PaceLimits {
                stall_max: stall_max.unwrap_or(limits.pace.stall_max),
                rate_min: rate_min.unwrap_or(limits.pace.rate_min),
            },
            ..limits
        }
    }

    /// Largest content that the rules permit in a response.
    pub(crate) fn response_body_bytes_max(&self, index: RuleMatch) -> Option<u64> {
        self.limiting_rules(index).filter_map(|rule| rule.protection.response_body_bytes_max).min()
    }

    /// Rate limits of the rules, each with the metrics label of its rule.
    pub(crate) fn limiters(&self, rule: RuleMatch) -> impl Iterator<Item = (RuleId, &Limiter)> {
        let limiters =
            self.protection.iter().flat_map(move |protection| protection.limiters(rule.limiting()));
        limiters.map(|(rule, limiter)| (rule.map_or(RuleId::NONE, |place| self.rule_metrics[place]), limiter))
    }

    /// Spends one forward of the miss budget of a rule.
    ///
    /// # Errors
    /// [`OriginError::MissBudget`], if nothing is left.
    pub(crate) fn spend(
        &self,
        rule: RuleMatch,
        recorder: &WorkerRecorder,
        record: Option<&Arc<Record>>,
    ) -> Result<(), OriginError> {
        let Some(protection) = &self.protection else { return Ok(()) };
        let mut budgets = rule.limiting().filter_map(|rule| Some((rule, protection.budget(rule)?)));
        let refused = budgets.find_map(|(rule, budget)| match budget.spend(Instant::now()) {
            Verdict::Refused { retry_after_ns } => Some((rule, retry_after_ns)),
            Verdict::Admitted(_) => None,
        });
        let Some((refusing, retry_after_ns)) = refused else { return Ok(()) };
        recorder.miss_refused(self.metrics, self.rule_metrics[refusing]);
        note(record, || Finding::new("limit", "the miss budget of the rule is used up: not forwarded", ""));
        Err(OriginError::MissBudget { retry_after_s: whole_seconds(retry_after_ns) })
    }

    /// Whether the site changes messages, or answers requests itself.
    #[inline]
    pub(crate) fn has_transforms(&self) -> bool {
        self.transforms.is_some()
    }

    /// Transformation rules of a phase; none for most sites, at the cost of one comparison.
    #[inline]
    pub(crate) fn transforms(&self, phase: Phase) -> &[TransformRule] {
        if self.transforms.is_some() { self.config.transforms.of(phase) } else { &[] }
    }

    /// Whether rules make responses depend on request fields.
    pub(crate) fn answers_by_fields(&self) -> bool {
        self.transforms.as_ref().is_some_and(|transforms| transforms.answers_by_fields)
    }

    /// Metrics label of a transformation rule.
    pub(crate) fn transform_metrics(&self, phase: Phase, place: usize) -> Option<RuleId> {
        self.transforms.as_ref()?.of(phase)?.get(place).copied()
    }

    /// Metrics label of a rule.
    pub(crate) fn rule_metrics(&self, index: RuleMatch) -> RuleId {
        self.rule_metrics[index.place()]
    }
}

/// Request fields that a site names for keys and credentials, and those that its transformation rules read.
fn fields_read(site: &Site) -> impl Iterator<Item = &str> {
    let credentials = site.rules.iter().flat_map(|rule| &rule.caching.credential_fields);
    let of_rules = site.transforms.request_fields_read();
    let names = site.request_fields_keyed.iter().chain(of_rules).map(http::HeaderName::as_str);
    names.chain(credentials.map(|name| &**name))
}

/// Credential fields, and the treatment of responses to such requests, if all rules agree.
fn credentials_of_all(rules: &[CacheRule]) -> Option<(StoredCredentialed, BTreeSet<String>)> {
    let names = |rule: &CacheRule| {
        rule.caching.credential_fields.iter().map(|name| name.to_ascii_lowercase()).collect::<BTreeSet<_>>()
    };
    let mut answers = rules.iter().map(|rule| (rule.caching.credentialed, names(rule)));
    let first = answers.next()?;
    answers.all(|answer| answer == first).then_some(first)
}

/// Features of a path in normal form that origins read in several ways.
pub fn path_spellings(path: &str) -> PathSpellings {
    spelling::readings(path).map(|readings| readings.spellings).unwrap_or_default()
}

/// Name of the site that a request belongs to under a configuration, and the cache rule.
pub fn route_of(
    config: &Config,
    authority: &str,
    method: &str,
    path_and_query: &str,
) -> Option<(String, CacheRule)> {
    let sites = SiteIndex::new(config.sites.iter().map(AsRef::as_ref));
    let normal = target::normal_form(path_and_query);
    let path_and_query = normal.as_deref().unwrap_or(path_and_query);
    let site = &config.sites[sites.closest(host_of(authority), path_and_query)?];
    let chooser = Chooser::new(site);
    let mut rules = chooser.all_rules(site);
    let readings = spelling::readings(path_and_query);
    let request = Routed { readings: readings.as_deref(), ..Routed::plain(method, path_and_query) };
    let rule = chooser.choose(site, &rules, &request);
    Some((site.name.clone(), rules.swap_remove(rule.place())))
}

/// All sites, indexed by host and path.
pub(crate) struct Routes {
    sites: Vec<Arc<LiveSite>>,
    index: SiteIndex,
    /// Stores that the sites use.
    stores: BTreeSet<StoreIndex>,
    /// Stores used by sites that reloads have since removed, or given other URLs or keys.
    left: BTreeSet<StoreIndex>,
    /// Sites whose rules may write paths that belong to other sites, or to none.
    rewriting: Vec<usize>,
    /// Whether the path decides anything in any site.
    has_paths: bool,
    /// Request fields that the configuration of any site reads.
    fields_read: BTreeSet<Box<str>>,
}

impl Routes {
    pub(crate) fn new(sites: Vec<Arc<LiveSite>>) -> Self {
        let index = SiteIndex::new(sites.iter().map(|site| &*site.config));
        let stores = sites.iter().map(|site| site.config.store).collect();
        // Without prefixes a site has all paths of its hosts.
        let may_leave = |site: &LiveSite| index.has_prefixes() && site.config.transforms.write_paths();
        let rewriting = (0..sites.len()).filter(|at| may_leave(&sites[*at])).collect();
        let fields_read = sites.iter().flat_map(|site| fields_read(&site.config)).map(Into::into).collect();
        let has_paths = sites.iter().any(|site| site.chooser.has_paths());
        Self { sites, index, stores, left: BTreeSet::new(), rewriting, has_paths, fields_read }
    }

    /// Whether any site has a request field in its keys, takes it for a credential, or has a rule about it.
    pub(crate) fn read_field(&self, name: &str) -> bool {
        self.fields_read.iter().any(|known| unkeyed::are_read_alike(known, name))
    }

    /// Takes over from the routes that a reload replaces.
    pub(crate) fn replacing(self, before: &Self) -> Self {
        let is_kept = |site: &LiveSite| self.sites.iter().any(|other| other.has_keys_of(site));
        let changed = before.sites.iter().filter(|site| !is_kept(site)).map(|site| site.config.store);
        let left = changed.chain(before.left.iter().copied()).collect();
        Self { left, ..self }
    }

    /// Whether a store may hold responses that no current site would find there.
    pub(crate) fn may_hold_more(&self, store: StoreIndex) -> bool {
        self.left.contains(&store) || !self.stores.contains(&store)
    }

    /// All sites by name.
    pub(crate) fn by_name(&self) -> HashMap<&str, &LiveSite> {
        self.sites.iter().map(|site| (site.config.name.as_str(), &**site)).collect()
    }

    /// The sites that a host (with or without port) may belong to.
    pub(crate) fn sites_of_host(&self, authority: &str) -> impl Iterator<Item = &Arc<LiveSite>> {
        let host = host_of(authority);
        // A closer site that has the prefix of this one takes everything below it.
        let takes = move |(at, site): &(usize, &Arc<LiveSite>)| {
            self.index.closest(host, &site.config.path_prefix) == Some(*at)
        };
        self.sites.iter().enumerate().filter(takes).map(|(_, site)| site)
    }

    /// Stores of the sites that a host may belong to.
    pub(crate) fn stores_of_host(&self, authority: &str) -> BTreeSet<StoreIndex> {
        match self.stores.len() {
            0 | 1 => self.stores.clone(),
            _ => self.sites_of_host(authority).map(|site| site.config.store).collect(),
        }
    }

    /// Whether any URL that begins with a host (with or without port) and a path belongs to a site.
    pub(crate) fn serves(&self, authority: &str, path: &str) -> bool {
        let host = host_of(authority);
        let below =
            self.sites.iter().map(|site| &*site.config.path_prefix).filter(|prefix| prefix.starts_with(path));
        let is_served = [path].into_iter().chain(below).any(|path| self.index.closest(host, path).is_some());
        is_served || !self.sites_storing(authority, path).is_empty()
    }

    /// Whether a site names a host (with or without port), or a domain that it lies in.
    pub(crate) fn is_named(&self, authority: &str) -> bool {
        let named = |site: &&Arc<LiveSite>| !site.config.hosts.is_empty();
        let closest = |site: &Arc<LiveSite>| {
            self.site(authority, &site.config.path_prefix).is_some_and(|found| named(&found))
        };
        self.sites.iter().filter(named).any(closest)
    }

    /// Returns the site for a host (with or without port) and a path. A query is ignored.
    pub(crate) fn site(&self, authority: &str, path_and_query: &str) -> Option<&Arc<LiveSite>> {
        self.index.closest(host_of(authority), path_and_query).map(|at| &self.sites[at])
    }

    /// Sites that may have stored a response for a URL as rules have rewritten it: its own, and those of its host whose rules may have
    /// made it from one of their URLs.
    pub(crate) fn sites_storing(&self, authority: &str, path_and_query: &str) -> Vec<&Arc<LiveSite>> {
        let host = host_of(authority);
        let own = self.index.closest(host, path_and_query);
        let has_host =
            |at: &usize| self.index.closest(host, &self.sites[*at].config.path_prefix) == Some(*at);
        let others = self.rewriting.iter().copied().filter(|at| Some(*at) != own && has_host(at));
        own.into_iter().chain(others).map(|at| &self.sites[at]).collect()
    }

    /// Other readings of a path, if the path of a request to this site decides anything.
    #[inline]
    pub(crate) fn readings(&self, site: &LiveSite, path_and_query: &str) -> Option<Box<Readings>> {
        // Rules of another host don't apply here, unless the path names that host to the origin.
        let reads_paths = self.index.has_prefixes()
            || site.chooser.has_paths()
            || (self.has_paths && path_and_query.starts_with("//"));
        if reads_paths { spelling::readings(path_and_query) } else { None }
    }

    /// First reading of a path that belongs to another site than the path as it is written, or to none.
    pub(crate) fn read_as_of_another<'a>(
        &self,
        site: &Arc<LiveSite>,
        authority: &str,
        readings: &'a Readings,
    ) -> Option<&'a str> {
        let is_own = |read: &str| self.site(authority, read).is_some_and(|other| Arc::ptr_eq(other, site));
        let mut others = readings.others.iter().map(String::as_str).filter(|_| self.index.has_prefixes());
        others.find(|read| !is_own(read))
    }
}

/// Reason why the rules of a path are ambiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ambiguity<'a> {
    /// Origins read this part in several ways, by these spellings, and its rule doesn't allow them.
    Spelled(&'a str, PathSpellings),
    /// Origins may read the path as this one, which belongs to another site, or to none.
    OtherSite(&'a str),
}
