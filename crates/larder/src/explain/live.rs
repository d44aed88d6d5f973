//! Questions to a running cache, and the conversions on both sides of its admin API.

use admin::{Explanation, Finding, Question, Value};
use anyhow::{Context, bail};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use serde_json::json;

use crate::cli::ExplainArguments;
use crate::operate;

/// Asks the running cache.
pub(super) fn ask(url: &str, arguments: &ExplainArguments) -> anyhow::Result<Explanation> {
    let fields = arguments.header.iter().map(|line| field(line)).collect::<anyhow::Result<Vec<_>>>()?;
    let question = json!({ "url": url, "method": arguments.method, "fields": fields });
    let answer = operate::post(&arguments.admin, "/explain", &question)?;
    serde_json::from_value(answer).context("the answer is none of this version's: is the other end a larder?")
}

fn field(line: &str) -> anyhow::Result<(&str, &str)> {
    match line.split_once(':') {
        Some((name, value)) if !name.is_empty() => Ok((name, value.trim())),
        _ => bail!("-H {line:?} is no header field: write \"Name: value\""),
    }
}

/// A question of the admin API as the data plane takes it.
///
/// # Errors
/// The URL, the method or a field can't be part of a request.
pub(crate) fn question(question: &Question) -> anyhow::Result<gateway::Question> {
    let url: Uri = question.url.parse().with_context(|| format!("{:?} is no URL", question.url))?;
    let method = Method::from_bytes(question.method.as_bytes()).context("this is no method")?;
    let mut fields = HeaderMap::new();
    for (name, value) in &question.fields {
        let name: HeaderName = name.parse().with_context(|| format!("{name:?} is no field name"))?;
        let value = HeaderValue::from_str(value).with_context(|| format!("this is no value of {name}"))?;
        fields.append(name, value);
    }
    Ok(gateway::Question { method, url, fields })
}

/// What the data plane tells, as the admin API answers it.
pub(crate) fn explanation(told: gateway::Explanation) -> Explanation {
    Explanation {
        status: told.status,
        cache_status: told.cache_status,
        complete: told.complete,
        findings: told.findings.into_iter().map(finding).collect(),
    }
}

/// A decision, as the admin API has it.
pub(super) fn finding(told: caching::explain::Finding) -> Finding {
    let value = |told: caching::explain::Value| Value {
        name: told.name,
        value: told.value,
        section: told.section.to_owned(),
    };
    Finding {
        step: told.step.to_owned(),
        says: told.says,
        section: told.section.to_owned(),
        values: told.values.into_iter().map(value).collect(),
    }
}
