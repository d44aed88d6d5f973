//! The only place that writes to standard output and, outside logs, to standard error.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

/// Runs `program`, which is the name that its messages begin with.
pub fn run(program: &'static str, main: impl FnOnce() -> ExitCode) -> ExitCode {
    PROGRAM.get_or_init(|| program);
    ended(main())
}

static PROGRAM: OnceLock<&str> = OnceLock::new();

/// Name of the program of this process.
fn program() -> &'static str {
    PROGRAM.get().copied().unwrap_or("larder")
}

/// Results of a command. A reader that has had enough, such as `head`, is no trouble; any other failure makes `ended` one.
pub fn result(text: &str) {
    if let Err(error) = to_stdout(text) {
        IS_CUT.store(true, Ordering::Relaxed);
        failure(&format!("can't write the result: {error}"));
    }
}

/// Where a server has begun to listen. It serves all the same where nobody can read that, and does not wait for a reader that has stopped.
pub fn listening(url: &str) {
    static HAS_STALLED: AtomicBool = AtomicBool::new(false);
    match in_time(io::stdout(), &HAS_STALLED, &format!("listening on {url}\n")) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            failure(&format!("can't write the address: {error}"));
        }
        _ => {}
    }
}

/// How the program ends: never well where results are missing.
pub(crate) fn ended(status: ExitCode) -> ExitCode {
    if IS_CUT.load(Ordering::Relaxed) { ExitCode::FAILURE } else { status }
}

/// Some of the results could not be written.
static IS_CUT: AtomicBool = AtomicBool::new(false);

fn to_stdout(text: &str) -> io::Result<()> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// Where standard error can't be written, there is nowhere to say so; and nobody waits without end for a reader that has stopped.
fn to_stderr(text: impl Display) {
    static HAS_STALLED: AtomicBool = AtomicBool::new(false);
    let _ = in_time(io::stderr().lock(), &HAS_STALLED, &format!("{text}\n"));
}

/// Writes what the stream takes within [`STALL_LIMIT`]. After a stall nobody waits for the stream again: what comes later is written only
/// where it takes that at once.
fn in_time(mut stream: impl Write + AsFd, has_stalled: &AtomicBool, text: &str) -> io::Result<()> {
    for piece in text.as_bytes().chunks(PIECE_BYTES_MAX) {
        let limit = if has_stalled.load(Ordering::Relaxed) { Duration::ZERO } else { STALL_LIMIT };
        let limit = Timespec::try_from(limit).ok();
        let ready = retry_on_intr(|| poll(&mut [PollFd::new(&stream, PollFlags::OUT)], limit.as_ref()));
        if ready == Ok(0) {
            has_stalled.store(true, Ordering::Relaxed);
            return Err(ErrorKind::TimedOut.into());
        }
        stream.write_all(piece)?;
    }
    stream.flush()
}

const STALL_LIMIT: Duration = Duration::from_secs(1);
/// `PIPE_BUF`: a pipe that is ready takes so much without a wait.
const PIECE_BYTES_MAX: usize = 4096;

/// Trouble that ends a command.
pub fn failure(text: &str) {
    to_stderr(format_args!("{}: {text}", program()));
}

/// An error with its causes, in one line. Some have the text of their cause in their own.
pub fn causes(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(cause) {
        if line.is_empty() {
            line = cause;
        } else if !line.ends_with(&cause) {
            line.push_str(": ");
            line.push_str(&cause);
        }
    }
    line
}

/// The system's words, except where they leave open what to look for.
fn cause(error: &(dyn std::error::Error + 'static)) -> String {
    match error.downcast_ref::<io::Error>() {
        Some(error) if error.kind() == ErrorKind::AddrInUse => "address in use by another process".to_owned(),
        Some(error) if error.kind() == ErrorKind::AddrNotAvailable => {
            "no interface of this machine has this address".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Whether a character does something to the terminal, or to the order in which the reader sees others (Unicode's bidirectional controls), rather
/// than being seen itself: what others have said is shown without.
pub fn is_control(character: char) -> bool {
    let orders = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    orders || character.is_control() || matches!(character, '\u{2028}' | '\u{2029}')
}

/// What the user should know beside the result.
pub fn note(text: &str) {
    to_stderr(format_args!("{}: {text}", program()));
}

/// A line that belongs to the one before it.
pub fn hint(text: &str) {
    to_stderr(text);
}

/// A line about something that works, but probably not as it was meant.
pub fn warning(text: &str) {
    to_stderr(text);
}

/// The exit status of a command, whose error is shown.
pub fn finished(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

/// Shows the error that ends a command; its exit status.
pub fn failed(error: &anyhow::Error) -> ExitCode {
    failure(&causes(error));
    ExitCode::FAILURE
}
