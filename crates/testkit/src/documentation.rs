//! Commands in the documentation.

use std::fs;
use std::path::Path;

/// Folders of user guides, whose commands and configurations must work.
const GUIDES: [&str; 3] = ["docs/start", "docs/operate", "docs/migrate"];

/// Returns the text of each guide, with its name, such as `kv.md`.
///
/// # Panics
/// Panics if a page can't be read.
#[must_use]
pub fn guides() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let entries = GUIDES.iter().flat_map(|folder| fs::read_dir(root.join(folder)).expect("guides"));
    let pages = entries.map(|entry| entry.expect("a guide").path());
    pages.map(|path| (file_name(&path), fs::read_to_string(&path).expect("a guide"))).collect()
}

fn file_name(path: &Path) -> String {
    path.file_name().expect("a name").to_string_lossy().into_owned()
}

/// Returns the commands of `program` in the guides and in the README, split into words, each with the name of its page.
///
/// # Panics
/// Panics if a page can't be read.
#[must_use]
pub fn documented_commands(program: &str) -> Vec<(String, Vec<String>)> {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = (file_name(&readme), fs::read_to_string(readme).expect("the README"));
    let mut commands = Vec::new();
    for (page, text) in guides().into_iter().chain([readme]) {
        let text = text.replace("\\\n", " ");
        let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
        let lines = blocks.flat_map(str::lines).map(words);
        let of_program = lines.filter(|words| words.first().is_some_and(|first| first == program));
        commands.extend(of_program.map(|words| (page.clone(), words)));
    }
    commands
}

/// Splits a line as a shell does, to the extent that the pages need it: quotes, comments and
/// redirections.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for character in line.chars() {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            (None, '#' | '|' | '>' | '&') if word.is_none() => break,
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words
}
