//! Citations of requirements: comments of Rust files, and `cites` of cases.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;

use super::list::line_of;
use crate::tidy::Problem;
use crate::tidy::layout::Layout;
use crate::tidy::source::Source;

/// A parsed citation, such as `RFC 9111 section 4.2.3: current age`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reference {
    pub(super) document: String,
    pub(super) section: String,
    pub(super) title: String,
}

#[derive(Debug)]
pub(super) struct Citation {
    pub(super) reference: Reference,
    pub(super) file: String,
    /// Line number, counted from 1.
    pub(super) line: usize,
    /// The function or the case; `None` if the citation is above an item of another kind.
    pub(super) place: Option<String>,
    pub(super) witness: Witness,
}

/// The kind of evidence for a requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Witness {
    Code,
    Test,
    /// No evidence: the citation is in a tool, such as the mock origin server, which plays a
    /// different role.
    Tool,
}

/// The citations of a tree, and invalid ones.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) citations: Vec<Citation>,
    pub(super) problems: Vec<Problem>,
}

/// Tools: the mock origin server, and the model cache that plays conversations without the gateway.
const TOOLS: [&str; 2] = ["/mock-origin/", "/tests/model/"];
const MARK: &str = "//=";
const FORM: &str = "`RFC <number> section <number>: <title>`";

pub(super) fn read(root: &Path) -> anyhow::Result<Found> {
    let layout = Layout::read(root)?;
    let mut found = Found::default();
    for source in layout.sources.iter().filter(|source| source.path.starts_with("crates/")) {
        found.read_source(source);
    }
    let case_files = layout.paths.iter().filter(|path| {
        path.starts_with("conformance/") && Path::new(path).extension().is_some_and(|name| name == "json")
    });
    for path in case_files {
        let text = fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"))?;
        let value = serde_json::from_str(&text).with_context(|| path.clone())?;
        found.read_cases(&CaseFile { path, text: &text }, &value, None);
    }
    Ok(found)
}

struct CaseFile<'a> {
    path: &'a str,
    text: &'a str,
}

impl Found {
    fn read_source(&mut self, source: &Source) {
        let lines: Vec<&str> = source.text.lines().collect();
        for (index, text) in lines.iter().enumerate() {
            let Some(cited) = text.trim_start().strip_prefix(MARK) else { continue };
            let line = index + 1;
            self.add(cited, &source.path, line, || (place(source, &lines, line), witness(source, line)));
        }
    }

    /// Collects objects with `cites` at any depth; the nearest `name` above names the case.
    fn read_cases(&mut self, file: &CaseFile<'_>, value: &Value, name: Option<&str>) {
        match value {
            Value::Array(members) => members.iter().for_each(|member| self.read_cases(file, member, name)),
            Value::Object(members) => {
                let name = members.get("name").and_then(Value::as_str).or(name);
                let cites = members.get("cites").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
                for cited in cites.iter().filter_map(Value::as_str) {
                    let line = line_of(file.text, cited);
                    self.add(cited, file.path, line, || (name.map(str::to_owned), Witness::Test));
                }
                for member in members.values().filter(|member| member.is_object() || member.is_array()) {
                    self.read_cases(file, member, name);
                }
            }
            _ => {}
        }
    }

    fn add(&mut self, cited: &str, file: &str, line: usize, at: impl FnOnce() -> (Option<String>, Witness)) {
        let Some(reference) = reference(cited.trim()) else {
            let what = format!("`{}` is no citation", cited.trim());
            let allowed = FORM.to_owned();
            self.problems.push(Problem { file: file.to_owned(), line, rule: "citation", what, allowed });
            return;
        };
        let (place, witness) = at();
        self.citations.push(Citation { reference, file: file.to_owned(), line, place, witness });
    }
}

fn reference(cited: &str) -> Option<Reference> {
    let (place, title) = cited.split_once(": ")?;
    let (document, section) = place.split_once(" section ")?;
    let is_number =
        |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '.');
    let is_document = document.strip_prefix("RFC ").is_some_and(is_number);
    (is_document && is_number(section) && !title.is_empty()).then(|| Reference {
        document: document.to_owned(),
        section: section.to_owned(),
        title: title.to_owned(),
    })
}

fn witness(source: &Source, line: usize) -> Witness {
    if TOOLS.iter().any(|folder| source.path.contains(folder)) {
        return Witness::Tool;
    }
    if source.is_test_line(line + 1) { Witness::Test } else { Witness::Code }
}

/// Returns the function below a citation, or else the innermost function around it.
fn place(source: &Source, lines: &[&str], cited: usize) -> Option<String> {
    let is_above = |text: &&str| matches!(text.trim_start().as_bytes(), [b'/', b'/', ..] | [b'#', ..]);
    let item = cited + lines[cited..].iter().take_while(|text| is_above(text)).count() + 1;
    let functions = source.functions();
    let below = functions.iter().find(|function| function.line == item);
    let around = functions
        .iter()
        .rev()
        .find(|function| (function.line..function.line + function.lines).contains(&cited));
    below.or(around).map(|function| function.name.clone())
}
