//! Regular expressions, and the part of a URL that they are compared with.

use gateway::config::{PathPattern, Spelling};
use gateway::transform::captures::Captured;
use regex_syntax::ast::{self, Ast, ClassSetItem, Visitor};
use regex_syntax::hir::{Class, Hir, HirKind};

use super::scope::Scope;
use crate::config::glob::REGEX_BYTES_MAX;
use crate::config::tree::Table;

/// The part of a URL that an expression with a question mark is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compared {
    PathAndQuery,
    /// The path alone: in phase `origin_response`, the stored response may answer other queries, too.
    Path,
}

/// Compiles the expression of a `path` table.
pub(super) fn pattern(
    scope: &mut Scope<'_>,
    table: &Table,
    (spelling, compared): (Spelling, Compared),
) -> Option<PathPattern> {
    let regex = scope.parsed(table, "regex", |text| regex(text, spelling))?;
    let named = Named::of(regex.as_str());
    let warning = match (named.question_mark, compared) {
        (true, Compared::Path) => example(regex.as_str()).is_none().then(|| NEVER_MATCHES.to_owned()),
        (true, Compared::PathAndQuery) => slip(&regex).map(|slip| slips_through(regex.as_str(), &slip)),
        (false, _) => named.separator.then(|| WITHOUT_QUERY.to_owned()),
    };
    if let (Some(warning), Some(node)) = (warning, table.node("regex")) {
        scope.warning(node, warning);
    }
    Some(if named.question_mark { PathPattern::RegexWithQuery(regex) } else { PathPattern::Regex(regex) })
}

/// Compiles the expression of a `path` table for a redirection that uses its captures.
pub(super) fn captured(text: &str) -> Result<Captured, String> {
    let expression = regex(text, Spelling::AsWritten)?;
    Ok(Captured { expression, with_query: Named::of(text).question_mark })
}

pub(super) fn regex(text: &str, spelling: Spelling) -> Result<regex::Regex, String> {
    let mut builder = regex::RegexBuilder::new(text);
    builder.size_limit(REGEX_BYTES_MAX).case_insensitive(spelling == Spelling::Lenient);
    builder.build().map_err(|error| match error {
        regex::Error::CompiledTooBig(bytes) => {
            format!("the expression needs more than {bytes} bytes of memory")
        }
        // The crate's message has several lines: the last has the reason, and the second shows the position.
        error => one_line(text, &error.to_string()),
    })
}

/// Extracts position and reason from the regex crate's message of several lines.
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

/// If an expression for paths also matches queries, returns a path and query that match only because of the query: any client can add a
/// query to any path.
fn slip(regex: &regex::Regex) -> Option<String> {
    let example = example(regex.as_str())?;
    // An expression whose matches contain `&` or `=` is meant for queries.
    if example.contains(['&', '=']) {
        return None;
    }
    let path = if example.starts_with('/') { example.clone() } else { format!("/{example}") };
    let splits = path.char_indices().skip(1).map(|(at, _)| path.split_at(at));
    let within = splits.map(|(begin, end)| format!("{begin}{STRANGER}?x{end}"));
    let path_of = |text: &str| text.split('?').next().unwrap_or_default().to_owned();
    let is_slip = |text: &String| regex.is_match(text) && !regex.is_match(&path_of(text));
    std::iter::once(format!("/{STRANGER}?x{example}"))
        .chain(within)
        .find(is_slip)
        .filter(|_| regex.is_match(&path))
}

fn slips_through(expression: &str, slip: &str) -> String {
    let tail = QUERY_TAILS.iter().find_map(|tail| expression.strip_suffix(tail));
    let instead = match tail {
        Some(path) => {
            format!("write `{path}$`: an expression without a question mark is compared with the path alone")
        }
        None => "leave the question mark out to compare the path alone, or let the path begin with `^[^?]*`"
            .to_owned(),
    };
    format!("`{slip}` matches too, because of its query, which any client can add to any path: {instead}")
}

/// Returns a text without a question mark that matches the expression, not counting look-around; `None` if there is
/// none.
fn example(expression: &str) -> Option<String> {
    of_hir(&regex_syntax::parse(expression).ok()?)
}

fn of_hir(hir: &Hir) -> Option<String> {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => Some(String::new()),
        HirKind::Literal(literal) => {
            let text = String::from_utf8(literal.0.to_vec()).ok()?;
            (!text.contains('?')).then_some(text)
        }
        HirKind::Class(class) => of_class(class).map(String::from),
        HirKind::Repetition(repetition) if repetition.min == 0 => Some(String::new()),
        HirKind::Repetition(repetition) => {
            Some(of_hir(&repetition.sub)?.repeat(usize::try_from(repetition.min).ok()?))
        }
        HirKind::Capture(capture) => of_hir(&capture.sub),
        HirKind::Concat(parts) => parts.iter().map(of_hir).collect(),
        HirKind::Alternation(choices) => choices.iter().find_map(of_hir),
    }
}

/// Returns a member of the class, preferably a letter.
fn of_class(class: &Class) -> Option<char> {
    let Class::Unicode(class) = class else { return None };
    let has = |letter: &char| class.iter().any(|range| (range.start()..=range.end()).contains(letter));
    let graphic = ('!'..='~').filter(|letter| *letter != '?');
    ('a'..='z')
        .chain(graphic)
        .find(has)
        .or_else(|| class.iter().map(|range| range.start()).find(|first| *first != '?'))
}

/// The query characters that an expression names, literally or in a class. `.` and `[^/]` match a question mark, too, but don't name one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Named {
    question_mark: bool,
    /// Whether it names `=` or `&`.
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
const NEVER_MATCHES: &str = "never matches: phase `origin_response` compares the path alone, because the stored response may answer other queries too; to change a response by its query, use phase `client_response`";
/// Example of a path that an expression, such as one for style sheets, isn't meant to match.
const STRANGER: &str = "account";
/// Common ways to write that a query may follow.
const QUERY_TAILS: [&str; 6] = [r"(\?.*)?$", r"(?:\?.*)?$", r"(\?|$)", r"($|\?)", r"(?:\?|$)", r"(?:$|\?)"];
/// Columns before the expression in the regex crate's drawing.
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

    #[test]
    fn what_slips_through_by_its_query_is_found() {
        let check = |expression: &str, expected: Option<&str>| {
            let found = slip(&regex(expression, Spelling::AsWritten).unwrap());
            assert_eq!(found.as_deref(), expected, "{expression}");
        };
        for (expression, slip) in [
            (r"\.(css|js)(\?.*)?$", "/account?x.css"),
            (r"\.(?:css|js)(\?|$)", "/account?x.css"),
            (r"\.css$|\.js\?", "/account?x.css"),
            (r"^/.*\.png(\?v=[0-9]+)?$", "/account?x/.png"),
            (r"/static/[^?]*(\?.*)?$", "/account?x/static/"),
            (r"(?i)\.JPE?G([?].*)?$", "/account?x.jpg"),
        ] {
            check(expression, Some(slip));
        }
        for expression in [
            r"^[^?]*\.(css|js)(\?.*)?$",
            "^/account([/?]|$)",
            "^/static/[^?]+([?]|$)",
            r"^/a/?(\?.*)?$",
            "[?&]token=",
            r"\?page=1",
            r"\?",
            r"\?.*\.css$",
        ] {
            check(expression, None);
        }
    }

    #[test]
    fn what_needs_a_query_is_told_from_what_allows_one() {
        let check = |expression: &str, expected: Option<&str>| {
            assert_eq!(example(expression).as_deref(), expected, "{expression}");
        };
        check(r"^/a(\?|$)", Some("/a"));
        check("^/[^/]{2}/x+[?&]?$", Some("/aa/x"));
        check("[?&]a", Some("&a"));
        for needs_query in [r"\?", "^/a[?]b", r"^/a(\?b|\?c)", r"(\?x){2}"] {
            check(needs_query, None);
        }
    }
}
