//! Explanations by a running cache.

use anyhow::{Context, bail};
use gateway::{Explanation, Question};
use http::HeaderMap;
use serde_json::json;

use crate::cli::ExplainArguments;
use crate::operate;

/// Requests an explanation from the running cache.
pub(super) fn ask(url: &str, arguments: &ExplainArguments) -> anyhow::Result<Explanation> {
    let fields = arguments.header.iter().map(|line| field(line)).collect::<anyhow::Result<Vec<_>>>()?;
    let (parsed, method) = (url.parse(), arguments.method.parse());
    if let (Ok(url), Ok(method)) = (parsed, method) {
        Question { method, url, fields: HeaderMap::new() }.check()?;
    } else {
        bail!("{url:?} isn't a URL, or {:?} isn't a method", arguments.method);
    }
    let question = json!({ "url": url, "method": arguments.method, "fields": fields });
    operate::recognise(&arguments.admin)?;
    let answer = operate::post(&arguments.admin, "/explain", &question)?;
    serde_json::from_value(answer)
        .context("can't read the answer: the server isn't Larder, or has another version")
}

fn field(line: &str) -> anyhow::Result<(&str, &str)> {
    match line.split_once(':') {
        Some((name, value)) if !name.is_empty() => Ok((name, value.trim())),
        _ => bail!("-H {line:?} isn't a header field: write \"Name: value\""),
    }
}
