//! `larder purge`: purges stored responses of a running cache, or counts them.

use std::collections::BTreeSet;
use std::io::{self, BufRead as _};
use std::process::ExitCode;

use anyhow::Context as _;
use gateway::config::DEFAULT_STORE;
use gateway::{PurgeOrder, PurgeWait};
use serde_json::{Value, json};
use terminal::output;

use super::{Refused, list, post, recognise, sites, texts};
use crate::cli::PurgeArguments;

/// Purges, and prints the result. The exit status differs if nothing was stored.
pub(crate) fn run(arguments: &PurgeArguments) -> anyhow::Result<ExitCode> {
    recognise(&arguments.admin).inspect_err(|_| tell_unusable(&arguments.url))?;
    if arguments.dry_run {
        output::hint(
            "a dry run counts what this instance has in memory; a shared store and other instances aren't counted",
        );
    }
    if arguments.url.is_empty() {
        return selected(arguments);
    }
    let (mut ends, mut known_sites) = (Vec::new(), BTreeSet::new());
    for url in arguments.url.iter().flat_map(|url| urls(url)) {
        ends.push(match url.context("can't read standard input")? {
            Line::Url(url) => of_url(arguments, &url, &mut known_sites)?,
            Line::NotText { number } => {
                output::failure(&format!("line {number} of standard input is not UTF-8"));
                End::Refused
            }
        });
    }
    // Hints are printed once, even if several URLs matched nothing.
    known_sites.iter().for_each(|site| output::hint(site));
    let count = |end: End| ends.iter().filter(|other| **other == end).count();
    let [purged, absent, refused, late] =
        [End::Purged, End::NothingStored, End::Refused, End::NotEverywhere].map(count);
    if ends.len() != 1 {
        let done = done(arguments);
        output::result(&format!(
            "URLs: {} {done}, {absent} without a stored response, {refused} refused",
            purged + late
        ));
    }
    Ok(match () {
        () if refused > 0 => ExitCode::FAILURE,
        () if late > 0 => ExitCode::from(NOT_EVERYWHERE),
        () if purged > 0 => ExitCode::SUCCESS,
        () => ExitCode::from(NOTHING_STORED),
    })
}

/// Reports unusable URLs even if no server answers.
fn tell_unusable(urls: &[String]) {
    let unusable = urls.iter().filter(|url| *url != "-").filter_map(|url| PurgeOrder::check_url(url).err());
    unusable.for_each(|error| output::failure(&error.to_string()));
}

/// An input line or argument.
enum Line {
    Url(String),
    NotText { number: usize },
}

/// Returns the URL, or those on standard input as they arrive.
fn urls(url: &str) -> Box<dyn Iterator<Item = io::Result<Line>>> {
    if url != "-" {
        return Box::new(std::iter::once(Ok(Line::Url(url.to_owned()))));
    }
    let lines = io::stdin().lock().split(b'\n').zip(1..);
    Box::new(lines.filter_map(|(line, number)| match line.map(String::from_utf8) {
        Ok(Ok(text)) if text.trim().is_empty() => None,
        Ok(Ok(text)) => Some(Ok(Line::Url(text.trim().to_owned()))),
        Ok(Err(_)) => Some(Ok(Line::NotText { number })),
        Err(error) => Some(Err(error)),
    }))
}

/// The result of a URL's purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Purged,
    NothingStored,
    /// The URL is invalid, or no site serves it.
    Refused,
    /// Some instances that share the store have not applied the purge.
    NotEverywhere,
}

/// Purges one URL. If nothing matched, adds the sites that the response names to `known_sites`, as a
/// hint.
fn of_url(arguments: &PurgeArguments, url: &str, known_sites: &mut BTreeSet<String>) -> anyhow::Result<End> {
    let mode = mode(arguments);
    let order =
        json!({ "url": url, "mode": mode, "dry_run": arguments.dry_run, "wait": arguments.wait.as_str() });
    let answer = match post(&arguments.admin, "/purge", &order) {
        Ok(answer) => answer,
        Err(error) if error.is::<Refused>() => {
            output::failure(&format!("{url}: {error}"));
            return Ok(End::Refused);
        }
        Err(error) => return Err(error),
    };
    if flag(&answer, "keyed_uncounted") {
        output::hint(KEYED_UNCOUNTED);
    }
    let matched = number(&answer, "keys_matched");
    if matched == 0 {
        output::result(&format!("no stored response for {url}"));
        known_sites.extend(sites(&answer));
    } else {
        output::result(&format!("{} {url} ({mode}): {}", done(arguments), counts(&answer)));
    }
    if number(&answer, "refreshes") > 0 {
        output::hint("it is being fetched again");
    }
    Ok(match (reached(arguments, &answer), matched) {
        (false, _) => End::NotEverywhere,
        (true, 0) => End::NothingStored,
        (true, _) => End::Purged,
    })
}

fn store_name(store: &str) -> String {
    if store == DEFAULT_STORE { "the shared store".to_owned() } else { format!("the store {store}") }
}

/// Prints how many of the instances that share a store have applied a purge. Returns whether all have for which the command waits.
fn reached(arguments: &PurgeArguments, answer: &Value) -> bool {
    let Some(fleet) = answer.get("fleet") else { return true };
    let instances: Vec<_> = list(fleet, "instances").collect();
    let silent: Vec<_> = texts(fleet, "silent_stores").collect();
    let unsafe_stores: Vec<_> = texts(fleet, "not_replicated").collect();
    for store in &unsafe_stores {
        let which = store_name(store);
        output::hint(&format!(
            "not replicated: most replicas of {which} have not confirmed it, so a fail-over may lose it"
        ));
    }
    for late in instances.iter().filter(|instance| reached_ms(instance).is_none()) {
        let text = |key| late.get(key).and_then(Value::as_str).unwrap_or_default();
        let place = of_store(text("store"));
        output::hint(&format!("{} ({}) has not confirmed it in time{place}", text("name"), text("id")));
    }
    let is_complete = flag(fleet, "complete");
    let is_pending = regions(fleet);
    let is_awaited = arguments.wait != PurgeWait::None;
    if is_complete || is_pending {
        tell_complete(&instances);
    } else if !is_awaited && silent.is_empty() {
        output::hint("the purge is in the log; no instance is waited for");
    } else if silent.is_empty() && unsafe_stores.is_empty() {
        output::hint("unknown whether these are all instances, and whether all have applied it");
    }
    for store in silent {
        let which = store_name(store);
        output::hint(&format!(
            "{which} has not received the purge yet: other instances apply it once it has"
        ));
    }
    is_complete || (!is_awaited && texts(fleet, "silent_stores").next().is_none())
}

/// Prints a line for each other region. Returns whether the purge is complete in this region and pending in others.
fn regions(fleet: &Value) -> bool {
    let mut is_pending = false;
    for region in list(fleet, "regions") {
        let name = region.get("name").and_then(Value::as_str).unwrap_or_default();
        match (
            region.get("complete_ms").and_then(Value::as_u64),
            region.get("pending").and_then(Value::as_str),
        ) {
            (Some(after_ms), _) => {
                output::hint(&format!(
                    "all instances of the region {name} have applied it, after {after_ms} ms"
                ));
            }
            (None, why) => {
                is_pending = true;
                let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                output::hint(&format!("pending in the region {name}{why}"));
            }
        }
    }
    is_pending && list(fleet, "instances").all(|instance| reached_ms(instance).is_some())
}

/// Prints a line for each store.
fn tell_complete(instances: &[&Value]) {
    let store =
        |instance: &Value| instance.get("store").and_then(Value::as_str).unwrap_or_default().to_owned();
    let stores: BTreeSet<String> = instances.iter().map(|instance| store(instance)).collect();
    for name in stores {
        let sharing: Vec<_> = instances.iter().filter(|instance| store(instance) == name).collect();
        let last = sharing.iter().filter_map(|instance| reached_ms(instance)).max().unwrap_or_default();
        output::hint(&applied(sharing.len(), &of_store(&name), last));
    }
}

fn applied(instances: usize, place: &str, last_ms: u64) -> String {
    match instances {
        1 => format!("the only instance{place} has applied it, after {last_ms} ms"),
        _ => format!("all {instances} instances{place} have applied it, the last one after {last_ms} ms"),
    }
}

fn reached_ms(instance: &Value) -> Option<u64> {
    instance.get("reached_ms").and_then(Value::as_u64)
}

fn of_store(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!(" of the store {name}") }
}

fn selected(arguments: &PurgeArguments) -> anyhow::Result<ExitCode> {
    let mode = mode(arguments);
    let order = json!({
        "tags": (!arguments.tag.is_empty()).then_some(&arguments.tag),
        "match": if arguments.all_tags { "all" } else { "any" },
        "site": arguments.site,
        "host": arguments.host,
        "prefix": arguments.prefix,
        "everything": arguments.everything,
        "mode": mode,
        "dry_run": arguments.dry_run,
        "wait": arguments.wait.as_str(),
    });
    let answer = post(&arguments.admin, "/purge", &order)?;
    texts(&answer, "warnings").for_each(|text| output::warning(&format!("warning: {text}")));
    // The response lists sites if none serves the host.
    let known_sites = sites(&answer);
    known_sites.iter().for_each(|site| output::hint(site));
    if flag(&answer, "uncounted") {
        let fills = number(&answer, "fills_doomed");
        let id = answer.get("id").and_then(Value::as_str).unwrap_or_default();
        // The warning may explain why no response has the tag.
        let is_doubtful = !arguments.tag.is_empty() && texts(&answer, "warnings").next().is_some();
        output::result(&format!(
            "{} {} ({mode}): responses still arriving {fills}, purge {id}",
            if is_doubtful { "noted the purge of" } else { done(arguments) },
            selection(arguments)
        ));
        output::hint("purged responses aren't counted: use --dry-run to count them first");
        let is_everywhere = reached(arguments, &answer);
        return Ok(match () {
            () if !is_everywhere => ExitCode::from(NOT_EVERYWHERE),
            () if known_sites.is_empty() => ExitCode::SUCCESS,
            () => ExitCode::from(NOTHING_STORED),
        });
    }
    let is_nothing = number(&answer, "keys_matched") + number(&answer, "fills_doomed") == 0;
    if is_nothing && !arguments.dry_run {
        output::result(&format!("no stored response for {}", selection(arguments)));
        return Ok(ExitCode::from(NOTHING_STORED));
    }
    output::result(&format!("{} {} ({mode}): {}", done(arguments), selection(arguments), counts(&answer)));
    if flag(&answer, "cut") {
        output::hint("the count stopped early: memory holds more than was counted");
    }
    Ok(if is_nothing { ExitCode::from(NOTHING_STORED) } else { ExitCode::SUCCESS })
}

fn mode(arguments: &PurgeArguments) -> &'static str {
    match (arguments.soft, arguments.refresh) {
        (true, _) => "soft",
        (_, true) => "refresh",
        _ => "hard",
    }
}

fn done(arguments: &PurgeArguments) -> &'static str {
    if arguments.dry_run { "would purge" } else { "purged" }
}

/// Describes the selected responses by the arguments of the command.
fn selection(arguments: &PurgeArguments) -> String {
    let PurgeArguments { tag, all_tags, site, host, prefix, everything, .. } = arguments;
    let tags = match &tag[..] {
        [] => None,
        [tag] => Some(format!("tag {tag}")),
        tags => Some(format!("tags {}", tags.join(if *all_tags { " and " } else { " or " }))),
    };
    let named = |what: &str, name: Option<&str>| name.map(|name| format!("{what} {name}"));
    let parts = [
        tags,
        named("site", site.as_deref()),
        named("host", host.as_deref()),
        named("prefix", prefix.as_deref()),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    if *everything { "everything".to_owned() } else { parts.join(", ") }
}

/// Formats the counts. A URL has one cache key, which may have several variants.
fn counts(answer: &Value) -> String {
    let keys = match number(answer, "keys_matched") {
        1 => "1 cache key".to_owned(),
        count => format!("{count} cache keys"),
    };
    format!(
        "stored responses {} (all variants of {keys}), responses still arriving {}",
        number(answer, "responses_purged"),
        number(answer, "fills_doomed"),
    )
}

fn number(answer: &Value, key: &str) -> u64 {
    answer.get(key).and_then(Value::as_u64).unwrap_or_default()
}

fn flag(answer: &Value, key: &str) -> bool {
    answer.get(key).and_then(Value::as_bool) == Some(true)
}

const KEYED_UNCOUNTED: &str = "responses for this URL whose cache key includes request content or fields are purged too; \
                               they are not counted";
/// Exit status of a purge that matched nothing.
const NOTHING_STORED: u8 = 3;
/// Exit status of a purge that not all instances have applied in time.
const NOT_EVERYWHERE: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_instance_is_not_all_of_them() {
        #[track_caller]
        fn check(instances: usize, store: &str, expected: &str) {
            assert_eq!(applied(instances, &of_store(store), 3), expected);
        }
        check(1, "", "the only instance has applied it, after 3 ms");
        check(1, "static", "the only instance of the store static has applied it, after 3 ms");
        check(2, "", "all 2 instances have applied it, the last one after 3 ms");
    }
}
