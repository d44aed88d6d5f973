//! Joins citations and requirements.

use std::collections::{BTreeMap, BTreeSet};

use super::citations::{Citation, Reference, Witness};
use super::list::{Document, Requirement, Section};
use crate::tidy::Problem;

/// The place of a citation: file, and function or case.
pub(super) type Place = (String, Option<String>);

/// The citations of one requirement.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) code: BTreeSet<Place>,
    pub(super) tests: BTreeSet<Place>,
}

/// The citations of all requirements that have any.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    answers: BTreeMap<Reference, Answer>,
}

impl Evidence {
    /// Joins `citations` with `documents`; also returns problems for citations that name no requirement. Ignores
    /// citations of documents without a list.
    pub(super) fn join(documents: &[Document], citations: &[Citation]) -> (Self, Vec<Problem>) {
        let mut evidence = Self::default();
        let mut unmatched = Vec::new();
        for citation in citations {
            let named = documents.iter().find(|document| document.name == citation.reference.document);
            match named {
                None => {}
                Some(document) if is_listed(document, &citation.reference) => evidence.add(citation),
                Some(document) => unmatched.push(problem(document, citation)),
            }
        }
        (evidence, unmatched)
    }

    fn add(&mut self, citation: &Citation) {
        let answer = self.answers.entry(citation.reference.clone()).or_default();
        let place = (citation.file.clone(), citation.place.clone());
        let _is_new = match citation.witness {
            Witness::Code => answer.code.insert(place),
            Witness::Test => answer.tests.insert(place),
            Witness::Tool => false,
        };
    }

    pub(super) fn of(&self, document: &Document, section: &Section, line: &Requirement) -> Option<&Answer> {
        self.answers.get(&reference(document, section, line))
    }

    /// Returns a line for each requirement without an excuse (exception, unused, deviation) that lacks code or test.
    /// Also returns a line for each requirement that has an exception or is unused, although it has both.
    pub(super) fn gaps(&self, documents: &[Document]) -> Vec<String> {
        let mut gaps = Vec::new();
        for document in documents {
            for section in &document.sections {
                let gap = |line: &Requirement| {
                    let what = gap(line, self.of(document, section, line))?;
                    Some(format!("{} section {}: {}: {what}", document.name, section.number, line.title))
                };
                gaps.extend(section.line.iter().filter_map(gap));
            }
        }
        gaps
    }
}

fn gap(line: &Requirement, answer: Option<&Answer>) -> Option<&'static str> {
    let has_code = answer.is_some_and(|answer| !answer.code.is_empty());
    let has_tests = answer.is_some_and(|answer| !answer.tests.is_empty());
    let is_left_out = line.exception.is_some() || line.unused.is_some();
    let is_excused = is_left_out || line.deviation.is_some();
    match (is_excused, has_code, has_tests) {
        (false, true, true) => None,
        (false, true, false) => Some("no test"),
        (false, false, true) => Some("no code"),
        (false, false, false) => Some("no code and no test"),
        (true, true, true) if is_left_out => Some("an exception despite code and test"),
        (true, _, _) => None,
    }
}

fn reference(document: &Document, section: &Section, line: &Requirement) -> Reference {
    Reference { document: document.name.clone(), section: section.number.clone(), title: line.title.clone() }
}

fn is_listed(document: &Document, cited: &Reference) -> bool {
    let mut sections = document.sections.iter().filter(|section| section.number == cited.section);
    sections.any(|section| section.line.iter().any(|line| line.title == cited.title))
}

fn problem(document: &Document, citation: &Citation) -> Problem {
    let Reference { document: name, section, title } = &citation.reference;
    Problem {
        file: citation.file.clone(),
        line: citation.line,
        rule: "citation",
        what: format!("no requirement `{name} section {section}: {title}`"),
        allowed: format!("nearest are {}", nearest(document, &citation.reference).join(", ")),
    }
}

const NEAREST_MAX: usize = 4;

/// Returns suggestions for a citation: lines of the same section first, then by similarity of the title.
fn nearest(document: &Document, cited: &Reference) -> Vec<String> {
    let mut lines: Vec<(&Section, &Requirement)> = document
        .sections
        .iter()
        .flat_map(|section| section.line.iter().map(move |line| (section, line)))
        .collect();
    let likeness = |title: &str| strsim::jaro_winkler(title, &cited.title);
    lines.sort_by(|(section, line), (other_section, other_line)| {
        let is_near = (section.number == cited.section).cmp(&(other_section.number == cited.section));
        is_near.then(likeness(&line.title).total_cmp(&likeness(&other_line.title))).reverse()
    });
    let nearest = lines.into_iter().take(NEAREST_MAX);
    nearest.map(|(section, line)| format!("`section {}: {}`", section.number, line.title)).collect()
}
