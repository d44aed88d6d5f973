//! `larder explain`: explains why a response was or wasn't cached.
//!
//! [`live`] asks a running cache, which reports the decisions of an exchange. [`pair`] evaluates a request and a
//! response in files with the same functions of `caching`. [`report`] formats either, and adds the [`remedy`] if there
//! is one.

pub(crate) mod live;
mod message;
mod pair;
mod remedy;
mod report;

use terminal::output;

use crate::cli::ExplainArguments;

/// Explains the exchange that the arguments name.
///
/// # Errors
///
/// Returns an error if no cache answers, if it refuses the request, or if a file can't be used.
pub(crate) fn run(arguments: &ExplainArguments) -> anyhow::Result<()> {
    if let Some(url) = &arguments.url {
        let explanation = live::ask(url, arguments)?;
        output::result(&match arguments.json {
            true => serde_json::to_string_pretty(&explanation)?,
            false => report::exchange(&explanation, &path_of(url)),
        });
        return Ok(());
    }
    let (findings, path) = pair::findings(&arguments.pair)?;
    output::result(&match arguments.json {
        true => serde_json::to_string_pretty(&serde_json::json!({ "findings": findings }))?,
        false => report::findings(&findings, &path),
    });
    Ok(())
}

/// Returns the path of a URL that the cache has accepted.
fn path_of(url: &str) -> String {
    url.parse().map_or_else(|_| "/".to_owned(), |url: http::Uri| url.path().to_owned())
}
