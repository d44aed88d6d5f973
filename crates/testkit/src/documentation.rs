//! Commands in the documentation.

use std::fs;
use std::path::Path;

/// Returns the commands of `program` in the guides and in the README, split into words, with their page.
///
/// # Panics
/// Panics if a page can't be read.
#[must_use]
pub fn documented_commands(program: &str) -> Vec<(String, Vec<String>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guides = fs::read_dir(root.join("docs/guide")).expect("guides");
    let pages = guides.map(|entry| entry.expect("a guide").path()).chain([root.join("README.md")]);
    let mut commands = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).expect("a page").replace("\\\n", " ");
        let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
        let lines = blocks.flat_map(str::lines).map(words);
        let of_program = lines.filter(|words| words.first().is_some_and(|first| first == program));
        commands.extend(of_program.map(|words| (page.display().to_string(), words)));
    }
    commands
}

/// Splits a line as a shell does, as far as the pages need it: quotes, comments and redirections.
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
