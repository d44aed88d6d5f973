//! Output of the comparison: progress on standard error, the result on standard output.
#![expect(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "this module prints the output of the program"
)]

pub(crate) fn progress(text: &str) {
    eprintln!("compare: {text}");
}

/// Returns the round numbers, and announces each round as it begins.
pub(crate) fn rounds(title: &str, rounds: u32) -> impl Iterator<Item = u32> {
    (1..=rounds).inspect(move |round| progress(&format!("{title}: round {round} of {rounds}")))
}

pub(crate) fn result(text: &str) {
    println!("{text}");
}
