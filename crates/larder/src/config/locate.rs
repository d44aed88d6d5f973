//! The place of a value in the configuration: file, line, column, and an excerpt.

use std::ops::Range;
use std::path::{Path, PathBuf};

use terminal::output;

/// The place of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Bytes of a file.
    Text {
        /// Index in [`Sources`].
        source: usize,
        /// Byte range in the file.
        span: Range<usize>,
    },
    /// An argument of the command line.
    Flag(&'static str),
    /// A default of the option table.
    Preset,
}

/// The files in the order of reading; the main file is number 0.
#[derive(Debug, Default)]
pub(crate) struct Sources(Vec<Source>);

/// A file, and the parts of it that must not be shown.
#[derive(Debug)]
struct Source {
    name: String,
    text: String,
    hidden: Vec<Range<usize>>,
}

/// A position for display: counted from 1, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LineColumn {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl Sources {
    /// Resolves the path in a value: relative to its file, or to the working directory.
    pub(crate) fn resolve(&self, place: &Place, path: &str) -> PathBuf {
        let base = match place {
            Place::Text { source, .. } => Path::new(&self.0[*source].name).parent(),
            Place::Flag(_) | Place::Preset => None,
        };
        base.map_or_else(|| PathBuf::from(path), |base| base.join(path))
    }

    /// Adds a file and returns its number.
    pub(crate) fn add(&mut self, name: String, text: String) -> usize {
        self.0.push(Source { name, text, hidden: Vec::new() });
        self.0.len() - 1
    }

    /// Hides these bytes in later excerpts: they are shown as stars.
    pub(crate) fn hide(&mut self, source: usize, spans: impl IntoIterator<Item = Range<usize>>) {
        self.0[source].hidden.extend(spans);
    }

    /// Returns `file:line:column`, the name of an empty file, or the name of the argument.
    pub(crate) fn describe(&self, place: &Place) -> String {
        match place {
            Place::Text { source, .. } if self.0[*source].text.is_empty() => self.0[*source].name.clone(),
            Place::Text { source, span } => {
                let source = &self.0[*source];
                let at = line_column(&source.text, span.start);
                format!("{}:{}:{}", source.name, at.line, at.column)
            }
            Place::Flag(flag) => (*flag).to_owned(),
            Place::Preset => "default".to_owned(),
        }
    }

    /// Returns file, line and column, if the place is in a file.
    pub(crate) fn position(&self, place: &Place) -> Option<(&str, LineColumn)> {
        let Place::Text { source, span } = place else { return None };
        let source = &self.0[*source];
        Some((&source.name, line_column(&source.text, span.start)))
    }

    /// Returns the line with carets below the place; an empty text for places outside files, and in files without text.
    ///
    /// Every character takes one column, so control characters are shown as `�` (a configuration file must not control
    /// the terminal of its reader).
    pub(crate) fn excerpt(&self, place: &Place) -> String {
        let Place::Text { source, span } = place else { return String::new() };
        let source = &self.0[*source];
        if source.text.is_empty() {
            return String::new();
        }
        let start = floor(&source.text, span.start);
        let at = line_column(&source.text, start);
        let line_start = source.text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line = source.text[line_start..].split('\n').next().unwrap_or_default().trim_end_matches('\r');
        let end = floor(&source.text, span.end).clamp(start, (line_start + line.len()).max(start));
        let column = at.column - 1;
        let length = line.chars().count();
        // Long lines are cut, with the column in the middle.
        let from = column.saturating_sub(COLUMNS_MAX / 2).min(length.saturating_sub(COLUMNS_MAX));
        let to = length.min(from + COLUMNS_MAX);
        let carets = source.text[start..end].chars().count().clamp(1, to.max(column + 1) - column);

        let number = at.line.to_string();
        let gutter = " ".repeat(number.len());
        let indent = " ".repeat(column - from);
        let carets = "^".repeat(carets);
        let text = source.shown(line_start, line, from..to);
        format!("{gutter} |\n{number} | {text}\n{gutter} | {indent}{carets}")
    }
}

impl Source {
    /// Returns these columns of a line.
    fn shown(&self, line_start: usize, line: &str, columns: Range<usize>) -> String {
        let (is_cut_before, is_cut_after) = (columns.start > 0, line.chars().nth(columns.end).is_some());
        let characters = line.char_indices().map(|(at, character)| (line_start + at, character));
        let mut shown: Vec<_> = characters.skip(columns.start).take(columns.len()).collect();
        let [Some(first), Some(last)] = [shown.first(), shown.last()].map(|end| end.map(|(at, _)| *at))
        else {
            return String::new();
        };
        // A file full of errors has thousands of hidden spans, but few in one line.
        for span in self.hidden.iter().filter(|span| span.start <= last && first < span.end) {
            let is_hidden = |(at, _): &&mut (usize, char)| span.contains(at);
            shown.iter_mut().filter(is_hidden).for_each(|(_, character)| *character = '*');
        }
        let plain = |(index, (_, character)): (usize, (usize, char))| match character {
            _ if is_cut_before && index == 0 => '…',
            _ if is_cut_after && index + 1 == columns.len() => '…',
            '\t' => ' ',
            character if output::is_control(character) => '\u{fffd}',
            character => character,
        };
        shown.into_iter().enumerate().map(plain).collect()
    }
}

/// Maximum width of an excerpt: longer than lines that people write, and shorter than lines of generated files.
const COLUMNS_MAX: usize = 160;

/// Returns line and column of a byte offset.
pub(crate) fn line_column(text: &str, offset: usize) -> LineColumn {
    let before = &text[..floor(text, offset)];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    LineColumn { line: before.matches('\n').count() + 1, column: before[line_start..].chars().count() + 1 }
}

/// Returns the nearest character boundary at or before `offset`.
fn floor(text: &str, offset: usize) -> usize {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    offset
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters() {
        #[track_caller]
        fn check(text: &str, offset: usize, line: usize, column: usize) {
            assert_eq!(line_column(text, offset), LineColumn { line, column });
        }
        check("", 0, 1, 1);
        check("ab\ncd", 3, 2, 1);
        check("ab\ncd", 4, 2, 2);
        check("é = 1", 3, 1, 3);
        check("é = 1", 1, 1, 1);
        check("a", 99, 1, 2);
    }

    #[test]
    fn excerpts_of_long_lines_are_cut_around_the_place() {
        let check = |text: &str, span: Range<usize>, shown: &str, carets: Range<usize>| {
            let mut sources = Sources::default();
            let source = sources.add("x.toml".into(), text.into());
            let carets = " ".repeat(carets.start) + &"^".repeat(carets.len());
            let excerpt = sources.excerpt(&Place::Text { source, span });
            assert_eq!(excerpt, format!("  |\n1 | {shown}\n  | {carets}"));
        };
        let (a, b, c) = ("a".repeat(1000), "b".repeat(1000), "é".repeat(100));
        check(&a[..160], 3..5, &a[..160], 3..5);
        check(&a, 3..5, &format!("{}…", &a[..159]), 3..5);
        check(&a, 3..900, &format!("{}…", &a[..159]), 3..160);
        check(&(a.clone() + &b), 1000..1001, &format!("…{}{}…", &a[..79], &b[..79]), 80..81);
        check(&a, 998..1000, &format!("…{}", &a[..159]), 158..160);
        check(&a, 1000..1000, &format!("…{}", &a[..159]), 160..161);
        check(&(c + &a), 200..201, &format!("…{}{}…", "é".repeat(79), &a[..79]), 80..81);
    }

    #[test]
    fn excerpts_hide_secrets_and_control_characters() {
        let mut sources = Sources::default();
        let text = "a = 1\nkey = \"geheim\" \u{1b}[31m\n";
        let source = sources.add("x.toml".into(), text.into());
        sources.hide(source, std::iter::once(12..20));
        let place = Place::Text { source, span: 6..9 };
        assert_eq!(sources.describe(&place), "x.toml:2:1");
        assert_eq!(sources.excerpt(&place), "  |\n2 | key = ******** \u{fffd}[31m\n  | ^^^");
    }
}
