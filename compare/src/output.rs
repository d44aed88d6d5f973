//! Where the comparison speaks: progress on standard error, the result on standard output.
#![expect(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "this module is where the program speaks to its user"
)]

pub(crate) fn progress(text: &str) {
    eprintln!("compare: {text}");
}

pub(crate) fn result(text: &str) {
    println!("{text}");
}
