//! Writes the page: a table per document.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::evidence::{Answer, Evidence, Place};
use super::list::{Document, Requirement};

const INTRODUCTION: &str = "# Requirements of the RFCs

This page lists the requirements of the RFCs on a shared cache, with Larder's code and tests for them. Each line paraphrases a
requirement; the text of the RFC is authoritative. `cargo xtask requirements` generates this page from the lists in `conformance/requirements` and from
the citations beside code and tests; don't edit it.

A line has code and tests, or an exception: the requirement is for a role that Larder does not play (private cache, user agent,
origin server). *Not used* are permissions that Larder does not use, and requirements that never apply. A *deviation* is a
deliberate difference of Larder, with the reason. The level *ought* means advice without capital letters, *meaning* a definition.

The page describes Larder's defaults, with the profile `rfc9111` where a line says so. The operator's configuration takes precedence over
an origin server or a client: `ttl_override`, `ttl_default`, `honour_request_directives` and the like.

";

/// Maximum number of functions or cases of a file in one cell; further ones are only counted.
const PLACES_MAX: usize = 4;

pub(super) fn render(documents: &[Document], evidence: &Evidence) -> String {
    let mut page = INTRODUCTION.to_owned();
    summarise(&mut page, documents, evidence);
    for document in documents {
        write_text(&mut page, format_args!("\n## {}: {}\n\n", document.name, document.title));
        page.push_str(
            "| section | requirement | level | code | tests | exception, not used or deviation |\n|---|---|---|---|---|---|\n",
        );
        for section in &document.sections {
            // The first line of a section has its title.
            let first = format!("{}: {}", section.number, section.title);
            for (index, line) in section.line.iter().enumerate() {
                let place = if index == 0 { &first } else { &section.number };
                row(&mut page, place, line, evidence.of(document, section, line));
            }
        }
    }
    page
}

fn summarise(page: &mut String, documents: &[Document], evidence: &Evidence) {
    page.push_str(
        "| document | lines | with tests | exceptions | not used | deviations |\n|---|---|---|---|---|---|\n",
    );
    for document in documents {
        let lines = || {
            document.sections.iter().flat_map(|section| section.line.iter().map(move |line| (section, line)))
        };
        let heading = format!("{}: {}", document.name, document.title);
        let is_tested = |answer: &Answer| !answer.tests.is_empty();
        let tested =
            lines().filter(|(section, line)| evidence.of(document, section, line).is_some_and(is_tested));
        let excepted = lines().filter(|(_, line)| line.exception.is_some());
        let unused = lines().filter(|(_, line)| line.unused.is_some());
        let deviating = lines().filter(|(_, line)| line.deviation.is_some());
        write_text(
            page,
            format_args!(
                "| [{heading}](#{}) | {} | {} | {} | {} | {} |\n",
                anchor(&heading),
                lines().count(),
                tested.count(),
                excepted.count(),
                unused.count(),
                deviating.count()
            ),
        );
    }
}

/// Returns the anchor of a heading: lower case, words joined by hyphens.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

fn row(page: &mut String, place: &str, line: &Requirement, answer: Option<&Answer>) {
    let cell = |places: Option<&BTreeSet<Place>>| places.map_or_else(String::new, cell);
    write_text(
        page,
        format_args!(
            "| {place} | **{}**: {} | {} | {} | {} | {} |\n",
            escaped(&line.title),
            escaped(&line.requirement),
            line.level.as_str(),
            cell(answer.map(|answer| &answer.code)),
            cell(answer.map(|answer| &answer.tests)),
            excuse(line),
        ),
    );
}

fn excuse(line: &Requirement) -> String {
    let named = |name: &str, text: &str| format!("**{name}**: {}", escaped(text));
    let exception = line.exception.as_ref().map(|text| escaped(text));
    let unused = line.unused.as_ref().map(|text| named("not used", text));
    let deviation = line.deviation.as_ref().map(|text| named("deviation", text));
    exception.or(unused).or(deviation).unwrap_or_default()
}

/// Formats `` `crates/caching/src/age.rs` `corrected_initial_age` ``: each file once, followed by its functions or
/// cases.
fn cell(places: &BTreeSet<Place>) -> String {
    let mut files: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (file, place) in places {
        files.entry(file).or_default().extend(place.as_deref());
    }
    let files = files.into_iter().map(|(file, names)| {
        let shown: Vec<String> =
            names.iter().take(PLACES_MAX).map(|name| format!("`{}`", escaped(name))).collect();
        let more = match names.len().saturating_sub(PLACES_MAX) {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        format!("`{file}` {}{more}", shown.join(", ")).trim_end().to_owned()
    });
    files.collect::<Vec<_>>().join("<br>")
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn write_text(page: &mut String, text: std::fmt::Arguments<'_>) {
    page.write_fmt(text).expect("writing to a String can't fail");
}
