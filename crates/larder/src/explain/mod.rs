//! `larder explain`: why a response was, or was not, stored and reused.
//!
//! [`live`] asks a running cache, whose exchange tells what it decided. [`pair`] decides about a request and a response
//! in files, through the same functions of `caching`. [`report`] shows either, and ends with the [`remedy`] if there is one.

pub(crate) mod live;
mod message;
mod pair;
mod remedy;
mod report;

use terminal::output;

use crate::cli::ExplainArguments;

/// Explains what the arguments name.
///
/// # Errors
/// No cache answers, it refuses the question, or a file can't be used.
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

/// The path of a URL that the cache took.
fn path_of(url: &str) -> String {
    url.parse().map_or_else(|_| "/".to_owned(), |url: http::Uri| url.path().to_owned())
}
