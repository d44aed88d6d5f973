//! The house rules that a program can check.
//!
//! Every rule reads the tree as text and tokens, without a build, so that the whole check runs in about a second. Rules
//! look at tokens, not raw text: a word in a comment or a string is not a call.

mod edges;
mod floors;
mod imports;
pub(crate) mod layout;
mod links;
mod markdown;
mod paths;
mod places;
mod problem;
mod purity;
mod riddles;
mod shape;
pub(crate) mod source;
mod words;

use std::path::Path;

use self::layout::Layout;

pub(crate) use self::links::resolve;
pub use self::problem::Problem;

/// Checks the repository at `root`. Returns the problems by file and line.
///
/// # Errors
///
/// Returns an error if the tree can't be read or `cargo metadata` fails; broken rules aren't an error.
pub fn check(root: &Path) -> anyhow::Result<Vec<Problem>> {
    let layout = Layout::read(root)?;
    let mut problems = edges::check(root)?;
    for file in &layout.sources {
        problems.extend(file.unreadable.iter().cloned());
        problems.extend(shape::check(file));
        problems.extend(purity::check(file));
        problems.extend(places::check(file));
        problems.extend(words::check(file));
    }
    problems.extend(words::check_type_names(&layout.sources));
    problems.extend(floors::check(root, &layout.sources)?);
    problems.extend(links::check(&layout));
    problems.extend(riddles::check(&layout));
    problems.sort();
    problems.dedup();
    Ok(problems)
}
