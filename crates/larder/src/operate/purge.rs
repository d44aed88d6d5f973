//! `larder purge`: takes stored responses of a running cache out of use, or counts them.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::{post, sites, texts};
use crate::cli::PurgeArguments;
use crate::output;

/// Purges, and says what was purged; with a status of its own where nothing was.
pub(crate) fn run(arguments: &PurgeArguments) -> anyhow::Result<ExitCode> {
    if arguments.url.is_empty() {
        return selected(arguments);
    }
    let mut matched = 0;
    for url in &arguments.url {
        matched += of_url(arguments, url)?;
    }
    Ok(if matched == 0 { ExitCode::from(NOTHING_STORED) } else { ExitCode::SUCCESS })
}

/// How many keys of the URL had something.
fn of_url(arguments: &PurgeArguments, url: &str) -> anyhow::Result<u64> {
    let mode = mode(arguments);
    let order = json!({ "url": url, "mode": mode, "dry_run": arguments.dry_run });
    let answer = post(&arguments.admin, "/purge", &order)?;
    if flag(&answer, "keyed_uncounted") {
        output::hint(KEYED_UNCOUNTED);
    }
    let matched = number(&answer, "keys_matched");
    if matched == 0 {
        output::result(&format!("nothing was stored under {url}"));
        texts(&answer, "elsewhere").for_each(|url| output::hint(&format!("stored is {url}")));
        sites(&answer).for_each(|site| output::hint(&site));
    } else {
        output::result(&format!("{} {url} ({mode}): {}", done(arguments), counts(&answer)));
    }
    if number(&answer, "refreshes") > 0 {
        output::hint("it is being fetched anew");
    }
    Ok(matched)
}

fn selected(arguments: &PurgeArguments) -> anyhow::Result<ExitCode> {
    let mode = mode(arguments);
    let order = json!({
        "tags": arguments.tag,
        "match": if arguments.all_tags { "all" } else { "any" },
        "site": arguments.site,
        "host": arguments.host,
        "prefix": arguments.prefix,
        "everything": arguments.everything,
        "mode": mode,
        "dry_run": arguments.dry_run,
    });
    let answer = post(&arguments.admin, "/purge", &order)?;
    let form = answer.get("form").and_then(Value::as_str).unwrap_or("selection");
    if flag(&answer, "uncounted") {
        let fills = number(&answer, "fills_doomed");
        let id = answer.get("id").and_then(Value::as_str).unwrap_or_default();
        output::result(&format!(
            "{} by {form} ({mode}): fills in progress {fills}, purge {id}",
            done(arguments)
        ));
        output::hint(
            "stored responses are found out as they are looked up, and not counted; --dry-run counts them",
        );
        return Ok(ExitCode::SUCCESS);
    }
    output::result(&format!("{} by {form} ({mode}): {}", done(arguments), counts(&answer)));
    if flag(&answer, "cut") {
        output::hint("there is more in memory than was counted");
    }
    let is_nothing = number(&answer, "keys_matched") + number(&answer, "fills_doomed") == 0;
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

fn counts(answer: &Value) -> String {
    format!(
        "stored responses {}, fills in progress {}, cache keys {}",
        number(answer, "responses_purged"),
        number(answer, "fills_doomed"),
        number(answer, "keys_matched"),
    )
}

fn number(answer: &Value, key: &str) -> u64 {
    answer.get(key).and_then(Value::as_u64).unwrap_or_default()
}

fn flag(answer: &Value, key: &str) -> bool {
    answer.get(key).and_then(Value::as_bool) == Some(true)
}

const KEYED_UNCOUNTED: &str = "responses that were stored for this URL under keys with the content or fields of requests are out of \
                               use too; they are not counted";
/// Exit status of a purge that found nothing.
const NOTHING_STORED: u8 = 3;
