//! Pages, examples and rules of a release: the destination of each file of the repository, and links between pages.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::tidy::resolve;
use crate::tool::output;

/// Destinations of the repository's files in the release, by path in the repository.
pub(super) type Places = BTreeMap<String, String>;

/// Folders whose files in git are all included.
const FOLDERS: [(&str, &str); 6] = [
    ("config/", "usr/share/doc/larder/examples/"),
    ("deploy/grafana/", "usr/share/larder/grafana/"),
    ("deploy/haproxy/", "usr/share/doc/larder/examples/haproxy/"),
    ("deploy/nginx/", "usr/share/doc/larder/examples/nginx/"),
    ("deploy/prometheus/", "usr/share/larder/prometheus/"),
    ("docs/", "usr/share/doc/larder/docs/"),
];

/// Returns the destinations of the single files, and of those in the folders.
pub(super) fn places(root: &Path, files: &[(&str, &str)]) -> anyhow::Result<Places> {
    let mut places: Places = files.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect();
    for (from, to) in FOLDERS {
        let listed = output(Command::new("git").current_dir(root).args(["ls-files", "--", from]))?;
        let names = listed.lines().filter_map(|path| path.strip_prefix(from));
        places.extend(names.map(|name| (format!("{from}{name}"), format!("{to}{name}"))));
    }
    Ok(places)
}

/// Returns a page for the release. A link to a file of the release leads to its destination; a link to any other file
/// is replaced by its text.
pub(super) fn relinked(page: &str, text: &str, places: &Places) -> String {
    let mut written = String::with_capacity(text.len());
    for (index, part) in text.split("```").enumerate() {
        let is_code = index % 2 == 1;
        written.push_str(if index > 0 { "```" } else { "" });
        match is_code {
            true => written.push_str(part),
            false => written.push_str(&relinked_prose(page, part, places)),
        }
    }
    written
}

fn relinked_prose(page: &str, prose: &str, places: &Places) -> String {
    let mut written = String::with_capacity(prose.len());
    let mut rest = prose;
    while let Some((before, (target, after))) =
        rest.split_once("](").and_then(|(before, behind)| Some((before, behind.split_once(')')?)))
    {
        written.push_str(before);
        match new_target(page, target, places) {
            Some(target) => written.push_str(&format!("]({target})")),
            None => unlink(&mut written),
        }
        rest = after;
    }
    written.push_str(rest);
    written
}

fn new_target(page: &str, target: &str, places: &Places) -> Option<String> {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    if path.is_empty() || target.contains("://") {
        return Some(target.to_owned());
    }
    let to = places.get(&resolve(page, path)?)?;
    let mark = if anchor.is_empty() { "" } else { "#" };
    Some(format!("{}{mark}{anchor}", relative(places.get(page)?, to)))
}

/// Removes the bracket before the text of a link; an image has no text.
fn unlink(written: &mut String) {
    let Some(at) = written.rfind('[') else { return };
    match written[..at].ends_with('!') {
        true => written.truncate(at - 1),
        false => drop(written.remove(at)),
    }
}

/// Returns the relative path of a file from the folder of another file.
fn relative(from: &str, to: &str) -> String {
    let (from, to): (Vec<_>, Vec<_>) = (from.split('/').collect(), to.split('/').collect());
    let common = from.iter().zip(&to).take_while(|(one, other)| one == other).count();
    let up = vec![".."; from.len() - 1 - common];
    up.into_iter().chain(to[common..].iter().copied()).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(page: &str, text: &str, expected: &str) {
        let places = [
            ("README.md", "doc/README.md"),
            ("config/README.md", "doc/examples/README.md"),
            ("docs/operate/observe.md", "doc/docs/operate/observe.md"),
            ("deploy/prometheus/prometheus.yml", "larder/prometheus/prometheus.yml"),
        ];
        let places = places.into_iter().map(|(from, to)| (from.to_owned(), to.to_owned())).collect();
        assert_eq!(relinked(page, text, &places), expected);
    }

    #[test]
    fn links_follow_what_is_there() {
        check("README.md", "an [example](config/README.md), or", "an [example](examples/README.md), or");
        check("README.md", "[a](#b) [c](https://d.example/)", "[a](#b) [c](https://d.example/)");
        let page = "docs/operate/observe.md";
        check(page, "[of\nit](../../README.md#install)", "[of\nit](../../README.md#install)");
        check(
            page,
            "[it](../../deploy/prometheus/prometheus.yml)",
            "[it](../../../larder/prometheus/prometheus.yml)",
        );
    }

    #[test]
    fn of_others_the_text_stays() {
        check("README.md", "see [how `it`\nis](ARCHITECTURE.md#code-map), or", "see how `it`\nis, or");
        check("README.md", "![a chart](compare/hit.svg)\n", "\n");
        check("README.md", "```sh\n[a](b)\n```\n[a](b)", "```sh\n[a](b)\n```\na");
    }
}
