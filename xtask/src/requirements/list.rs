//! The lists of requirements: `conformance/requirements/rfc<number>.toml`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;

use crate::tidy::Problem;

/// One document, for example RFC 9111.
#[derive(Debug)]
pub(super) struct Document {
    /// Name in citations: `RFC 9111`.
    pub(super) name: String,
    pub(super) title: String,
    pub(super) sections: Vec<Section>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Section {
    /// Number in citations: `4.2.3`.
    pub(super) number: String,
    pub(super) title: String,
    pub(super) line: Vec<Requirement>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Requirement {
    /// Title in citations; unique in its section.
    pub(super) title: String,
    pub(super) level: Level,
    /// The requirement, paraphrased.
    pub(super) requirement: String,
    /// The role to which the requirement applies, if Larder doesn't play it: `role: user agent; ..`
    pub(super) exception: Option<String>,
    /// The reason why Larder doesn't use the permission, or why the requirement never applies.
    pub(super) unused: Option<String>,
    /// The deviating behaviour of Larder, with the reason.
    pub(super) deviation: Option<String>,
}

/// The level of the requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum Level {
    #[serde(rename = "MUST")]
    Must,
    #[serde(rename = "MUST NOT")]
    MustNot,
    #[serde(rename = "SHOULD")]
    Should,
    #[serde(rename = "SHOULD NOT")]
    ShouldNot,
    #[serde(rename = "MAY")]
    May,
    /// "ought to", "is encouraged to", "should" in lower case.
    #[serde(rename = "ought")]
    Ought,
    /// The meaning of a word, a field or a calculation.
    #[serde(rename = "meaning")]
    Meaning,
}

impl Level {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Must => "MUST",
            Self::MustNot => "MUST NOT",
            Self::Should => "SHOULD",
            Self::ShouldNot => "SHOULD NOT",
            Self::May => "MAY",
            Self::Ought => "ought",
            Self::Meaning => "meaning",
        }
    }
}

/// The lists of a tree and their faults.
#[derive(Debug)]
pub(super) struct Lists {
    /// The documents: RFC 9111, then the others by number.
    pub(super) documents: Vec<Document>,
    pub(super) problems: Vec<Problem>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    section: Vec<Section>,
}

/// The main document of the page; the others supplement it.
const FIRST: u32 = 9111;
const FOLDER: &str = "conformance/requirements";

pub(super) fn read(root: &Path) -> anyhow::Result<Lists> {
    let mut numbers: Vec<u32> = Vec::new();
    for entry in fs::read_dir(root.join(FOLDER)).with_context(|| format!("cannot read {FOLDER}"))? {
        numbers.extend(number_of(&entry?.file_name().to_string_lossy()));
    }
    numbers.sort_unstable_by_key(|number| (*number != FIRST, *number));
    let mut lists = Lists { documents: Vec::new(), problems: Vec::new() };
    for number in numbers {
        let path = format!("{FOLDER}/rfc{number}.toml");
        let text = fs::read_to_string(root.join(&path)).with_context(|| format!("cannot read {path}"))?;
        let file: File = toml::from_str(&text).with_context(|| path.clone())?;
        let document = Document { name: format!("RFC {number}"), title: file.title, sections: file.section };
        lists.problems.extend(faults(&path, &text, &document));
        lists.documents.push(document);
    }
    Ok(lists)
}

fn number_of(file_name: &str) -> Option<u32> {
    file_name.strip_prefix("rfc")?.strip_suffix(".toml")?.parse().ok()
}

fn faults(path: &str, text: &str, document: &Document) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut fault = |sought: &str, what: String, allowed: &str| {
        let line = line_of(text, sought);
        let allowed = allowed.to_owned();
        problems.push(Problem { file: path.to_owned(), line, rule: "requirements", what, allowed });
    };
    for (before, after) in document.sections.iter().zip(document.sections.iter().skip(1)) {
        if order(&before.number) >= order(&after.number) {
            let sought = format!("number = \"{}\"", after.number);
            let what = format!("section {} comes after {}", after.number, before.number);
            fault(&sought, what, "each section appears once, in order");
        }
    }
    for section in &document.sections {
        let mut titles = BTreeSet::new();
        for line in &section.line {
            if [&line.exception, &line.unused, &line.deviation].into_iter().flatten().count() > 1 {
                let what = format!("`{}` has more than one of exception, unused and deviation", line.title);
                fault(&line.title, what, "one of them");
            }
            if line.exception.as_ref().is_some_and(|exception| !exception.starts_with("role: ")) {
                let what = format!("the exception of `{}` names no role", line.title);
                fault(&line.title, what, "exceptions begin with `role: `");
            }
            if !titles.insert(&line.title) {
                let what = format!("section {} has two lines `{}`", section.number, line.title);
                fault(&line.title, what, "a title names one requirement of its section");
            }
        }
    }
    problems
}

/// Returns the line that contains `sought`, counted from 1; the first line if none does.
pub(super) fn line_of(text: &str, sought: &str) -> usize {
    text.lines().position(|line| line.contains(sought)).map_or(1, |index| index + 1)
}

/// Sorts `4.10` after `4.9`.
fn order(section: &str) -> Vec<u32> {
    section.split('.').map(|part| part.parse().unwrap_or(u32::MAX)).collect()
}
