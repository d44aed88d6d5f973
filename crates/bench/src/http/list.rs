//! Lists of URLs, read from files.

use super::LoadError;
use super::load::{Target, Url};

/// A line that can't be parsed.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ListError {
    /// Counted from 1.
    pub line: usize,
    pub what: String,
}

/// Reads a list with a URL, or a method and a URL, per line. Empty lines and those that begin with `#` are skipped. A path is appended to
/// `base`.
///
/// # Errors
///
/// Returns an error for the first line that can't be parsed.
pub fn targets(text: &str, base: Option<&Url>) -> Result<Vec<Target>, ListError> {
    let mut targets = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let wrong = |what: String| ListError { line: number + 1, what };
        let (method, url) = match words[..] {
            [] => continue,
            [first, ..] if first.starts_with('#') => continue,
            [url] => ("GET", url),
            [method, url] => (method, url),
            _ => return Err(wrong(format!("{line:?} is neither URL nor METHOD URL"))),
        };
        let target = at(url, base).map_err(|error| wrong(error.to_string()))?;
        targets.push(Target { method: method.into(), ..target });
    }
    Ok(targets)
}

/// Parses a URL, or a path relative to the base.
fn at(url: &str, base: Option<&Url>) -> Result<Target, LoadError> {
    match base {
        Some(base) if url.starts_with('/') => {
            Target::at(&format!("{}://{}{url}", base.scheme.name(), base.authority()))
        }
        _ => Target::at(url),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> Url {
        Url::parse("http://127.0.0.1:8080/").expect("a URL")
    }

    fn asked(targets: &[Target]) -> Vec<String> {
        targets.iter().map(|target| format!("{} {}", target.method, target.url)).collect()
    }

    #[test]
    fn a_list_has_urls_methods_and_comments() {
        let text = "# all\nhttp://h/a\n\n  HEAD https://h:1/b?c  \n/d\n";
        let list = targets(text, Some(&base())).expect("a list");
        assert_eq!(asked(&list), ["GET http://h/a", "HEAD https://h:1/b?c", "GET http://127.0.0.1:8080/d"]);
    }

    #[test]
    fn a_wrong_line_is_told() {
        for (text, expected) in [
            ("http://h/\n\nnonsense", "line 3: \"nonsense\" isn't a valid URL"),
            ("a b c", "line 1: \"a b c\" is neither"),
            ("/path", "line 1: \"/path\" isn't a valid URL"),
        ] {
            let error = targets(text, None).expect_err(text).to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
