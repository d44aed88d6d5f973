//! Output of the comparison: progress on standard error, the result on standard output.
#![expect(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "this module is where the program speaks to its user"
)]

pub(crate) fn progress(text: &str) {
    eprintln!("compare: {text}");
}

/// Round numbers. Each round is announced as it begins.
pub(crate) fn rounds(title: &str, rounds: u32) -> impl Iterator<Item = u32> {
    (1..=rounds).inspect(move |round| progress(&format!("{title}: round {round} of {rounds}")))
}

pub(crate) fn result(text: &str) {
    println!("{text}");
}
