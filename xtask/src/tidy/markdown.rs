//! The parts of Markdown that links need: prose lines, links, code spans, anchors.

use std::collections::BTreeMap;

/// Returns the lines of a page outside of fenced code, with their numbers.
pub(super) fn prose_lines(text: &str) -> Vec<(usize, &str)> {
    let mut fence: Option<&str> = None;
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let start = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (Some(_), _) => {}
            (None, None) => lines.push((index + 1, line)),
        }
    }
    lines
}

/// Returns the targets of `[text](target)`, `![text](target)`, `[name]: target`, `href="target"` and `src="target"`.
pub(super) fn link_targets(line: &str) -> Vec<String> {
    let plain = without_code_spans(line);
    let mut targets = between(&plain, "](", ')');
    targets.extend(between(&plain, "href=\"", '"'));
    targets.extend(between(&plain, "src=\"", '"'));
    targets.extend(definition(&plain));
    targets.into_iter().filter_map(|target| target.split_whitespace().next().map(str::to_owned)).collect()
}

fn definition(line: &str) -> Option<String> {
    let (name, target) = line.trim_start().strip_prefix('[')?.split_once("]:")?;
    (!name.contains(['[', ']'])).then(|| target.trim().to_owned())
}

fn between(line: &str, open: &str, close: char) -> Vec<String> {
    let after = line.split(open).skip(1);
    after.filter_map(|rest| rest.split_once(close)).map(|(target, _)| target.to_owned()).collect()
}

/// Returns the contents of the code spans in a line.
pub(super) fn code_spans(line: &str) -> Vec<&str> {
    line.split('`').skip(1).step_by(2).collect()
}

fn without_code_spans(line: &str) -> String {
    // The backticks stay, so that a link whose text is a code span is still a link.
    line.split('`').step_by(2).collect::<Vec<_>>().join("``")
}

/// Returns the anchors of a page: its headings as on GitHub, and explicit ids.
pub(super) fn anchors(text: &str) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = Vec::new();
    for (_, line) in prose_lines(text) {
        anchors.extend(between(line, "id=\"", '"'));
        anchors.extend(between(line, "name=\"", '"'));
        let Some(title) = heading(line) else { continue };
        let slug = slug(title);
        let count = seen.entry(slug.clone()).or_default();
        anchors.push(if *count == 0 { slug } else { format!("{slug}-{count}") });
        *count += 1;
    }
    anchors
}

fn heading(line: &str) -> Option<&str> {
    let title = line.trim_start_matches('#');
    let depth = line.len() - title.len();
    (1..=6).contains(&depth).then(|| title.strip_prefix(' '))?.map(str::trim)
}

fn slug(title: &str) -> String {
    let mut text = String::new();
    let mut rest = title;
    // Only the text of a link in a heading counts.
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    text.push_str(rest);
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}
