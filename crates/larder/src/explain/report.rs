//! Explanations as text: the verdict first, then one paragraph per decision, and the remedy at the end.

use std::fmt::Write;

use caching::explain::Finding;
use gateway::Explanation;

use super::remedy;

/// Formats the explanation of a running cache for a request of `path`.
pub(super) fn exchange(explanation: &Explanation, path: &str) -> String {
    let mut text = verdict(&explanation.findings);
    let broken = if explanation.complete { "" } else { ", incomplete" };
    // Writing to a `String` can't fail, here and below.
    let _ = writeln!(text, "Status: {}{broken}", explanation.status);
    let _ = writeln!(text, "Cache-Status: {}", explanation.cache_status);
    write_all(&mut text, &explanation.findings, path);
    text
}

/// Formats the decisions about a request for a path, and its response.
pub(super) fn findings(findings: &[Finding], path: &str) -> String {
    let mut text = verdict(findings);
    write_all(&mut text, findings, path);
    text
}

/// Returns the last finding of each decisive step. If the response was generated before all of these steps, returns
/// the last finding that can lead to a response.
fn verdict(findings: &[Finding]) -> String {
    let last = |step: &str| findings.iter().rev().find(|finding| finding.step == step);
    let mut decisive: Vec<_> =
        ["reuse", "pass", "stale", "freshen", "store"].into_iter().filter_map(last).collect();
    // During a background validation the client already has its response, so step `stale` is not decisive.
    let is_behind = decisive.first().is_some_and(|finding| finding.section == "RFC 5861 section 3");
    decisive.retain(|finding| !is_behind || finding.step != "stale");
    if decisive.is_empty() {
        decisive.extend(findings.iter().rev().find(|finding| answers(finding)));
    }
    let mut text = String::new();
    for finding in decisive {
        let section = bracketed(&finding.section);
        let _ = writeln!(text, "{}: {}{section}", finding.step, finding.says);
    }
    text
}

/// Returns whether the finding can lead to a response. Among transformation rules, only redirections can.
fn answers(finding: &Finding) -> bool {
    finding.step != "transform" || finding.values.iter().any(|value| value.name == "redirect")
}

fn write_all(text: &mut String, findings: &[Finding], path: &str) {
    text.push('\n');
    for finding in findings {
        let _ = writeln!(text, "{:<8} {}{}", finding.step, finding.says, bracketed(&finding.section));
        for value in &finding.values {
            let _ = writeln!(text, "{:<11}{} = {}{}", "", value.name, value.value, bracketed(&value.section));
        }
    }
    if let Some(remedy) = remedy::of(findings, path) {
        let _ = write!(text, "\nTo have it stored: {remedy}");
    }
    text.truncate(text.trim_end().len());
}

fn bracketed(section: &str) -> String {
    if section.is_empty() { String::new() } else { format!(" [{section}]") }
}
