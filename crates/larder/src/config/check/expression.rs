//! Regular expressions, and what they look at.

use gateway::config::{PathPattern, Spelling};
use regex_syntax::ast::{self, Ast, ClassSetItem, Visitor};

use super::scope::Scope;
use crate::config::glob::REGEX_BYTES_MAX;
use crate::config::tree::Table;

/// The expression of a `path` table.
pub(super) fn pattern(scope: &mut Scope<'_>, table: &Table, spelling: Spelling) -> Option<PathPattern> {
    let regex = scope.parsed(table, "regex", |text| regex(text, spelling))?;
    let named = Named::of(regex.as_str());
    match (named.question_mark, table.node("regex")) {
        (true, _) => return Some(PathPattern::RegexWithQuery(regex)),
        (false, Some(node)) if named.separator => scope.warning(node, WITHOUT_QUERY),
        _ => {}
    }
    Some(PathPattern::Regex(regex))
}

pub(super) fn regex(text: &str, spelling: Spelling) -> Result<regex::Regex, String> {
    let mut builder = regex::RegexBuilder::new(text);
    builder.size_limit(REGEX_BYTES_MAX).case_insensitive(spelling == Spelling::Lenient);
    builder.build().map_err(|error| match error {
        regex::Error::CompiledTooBig(bytes) => {
            format!("the expression needs more than {bytes} bytes of memory")
        }
        // The crate draws several lines; the last one says what is wrong, and the second where.
        error => one_line(text, &error.to_string()),
    })
}

/// The position and reason out of a drawing of several lines.
fn one_line(expression: &str, drawing: &str) -> String {
    let reason = drawing.lines().last().unwrap_or(drawing).trim_start_matches("error: ").trim();
    let carets =
        drawing.lines().find_map(|line| line.trim_end().ends_with('^').then(|| line.find('^')).flatten());
    match carets.map(|column| column.saturating_sub(EXPRESSION_INDENT)) {
        Some(column) if !expression.contains('\n') => {
            format!("invalid regular expression: {reason} at character {}", column + 1)
        }
        _ => format!("invalid regular expression: {reason}"),
    }
}

/// What an expression names of a query, by itself or in a class: `.` and `[^/]` match a question mark too, and aren't about queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Named {
    question_mark: bool,
    /// `=` or `&`.
    separator: bool,
}

impl Named {
    fn of(expression: &str) -> Self {
        let parsed = ast::parse::Parser::new().parse(expression);
        parsed.ok().and_then(|ast| ast::visit(&ast, Self::default()).ok()).unwrap_or_default()
    }

    fn see(&mut self, literal: &ast::Literal) {
        self.question_mark |= literal.c == '?';
        self.separator |= matches!(literal.c, '=' | '&');
    }
}

impl Visitor for Named {
    type Output = Self;
    type Err = std::convert::Infallible;

    fn finish(self) -> Result<Self, Self::Err> {
        Ok(self)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Self::Err> {
        if let Ast::Literal(literal) = ast {
            self.see(literal);
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), Self::Err> {
        if let ClassSetItem::Literal(literal) = item {
            self.see(literal);
        }
        Ok(())
    }
}

const WITHOUT_QUERY: &str = "names `=` or `&`, and is compared with the path alone, which has no query: to match the query, write the question mark too, as in `[?&]page=`";
/// Columns that the regex crate puts before the expression in its drawing.
const EXPRESSION_INDENT: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_says_itself_whether_it_is_about_the_query() {
        let check = |expression: &str, question_mark: bool, separator: bool| {
            regex(expression, Spelling::AsWritten).unwrap();
            assert_eq!(Named::of(expression), Named { question_mark, separator }, "{expression}");
        };
        for path in [
            "",
            r"\.(css|js|png)$",
            "^/(account|cart)(/|$)",
            "^/a/?$",
            "^/a??(?:b|c)*?(?i)d",
            "^/[^/]+/.*$",
            "^/[!-~]$",
            "(?x)/a # why?",
            r"^/\w+\d{1,2}?$",
        ] {
            check(path, false, false);
        }
        for query in
            [r"\?", "[?]", "^/a[?&]", "[^?]$", r"\x3f", r"/a(b|c(\?|$))+", "[a-z&&[^?]]", r"(?x) \? # why"]
        {
            check(query, true, query.contains("[?&]"));
        }
        check(r"\?page=1", true, true);
        check("page=1", false, true);
        check("[&;]x", false, true);
        check("[a-z&&[^x]]", false, false);
    }
}
