//! The only module that writes to standard output and, except for logs, to standard error.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

/// Runs `main`. Messages begin with the name `program`.
pub fn run(program: &'static str, main: impl FnOnce() -> ExitCode) -> ExitCode {
    PROGRAM.get_or_init(|| program);
    ended(main())
}

static PROGRAM: OnceLock<&str> = OnceLock::new();

/// Returns the name of the running program.
fn program() -> &'static str {
    PROGRAM.get().copied().unwrap_or("larder")
}

/// Prints a result of a command. A reader that has closed the pipe, such as `head`, isn't an error; after any other
/// failure, `ended` returns a failure.
pub fn result(text: &str) {
    if let Err(error) = to_stdout(text) {
        IS_CUT.store(true, Ordering::Relaxed);
        failure(&format!("can't write the result: {error}"));
    }
}

/// Prints an address on which a server listens. A failure doesn't stop the server, and a reader that has stopped
/// doesn't block it.
pub fn listening(url: &str) {
    static HAS_STALLED: AtomicBool = AtomicBool::new(false);
    match in_time(io::stdout(), &HAS_STALLED, &format!("listening on {url}\n")) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            failure(&format!("can't write the address: {error}"));
        }
        _ => {}
    }
}

/// Returns `status`, or a failure if some results could not be written.
pub(crate) fn ended(status: ExitCode) -> ExitCode {
    if IS_CUT.load(Ordering::Relaxed) { ExitCode::FAILURE } else { status }
}

/// Whether some results could not be written.
static IS_CUT: AtomicBool = AtomicBool::new(false);

fn to_stdout(text: &str) -> io::Result<()> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// Prints to standard error. A failure can't be reported, and a reader that has stopped must not block the process.
fn to_stderr(text: impl Display) {
    static HAS_STALLED: AtomicBool = AtomicBool::new(false);
    let _ = in_time(io::stderr().lock(), &HAS_STALLED, &format!("{text}\n"));
}

/// Writes the bytes that the stream accepts within [`STALL_LIMIT`]. After a stall, later texts are written only if the
/// stream accepts them immediately.
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
/// `PIPE_BUF`: a writable pipe accepts this many bytes without blocking.
const PIECE_BYTES_MAX: usize = 4096;

/// Prints the error that ends a command.
pub fn failure(text: &str) {
    to_stderr(format_args!("{}: {text}", program()));
}

/// Returns an error with its causes, in one line. Some errors contain the text of their cause.
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

/// Returns the system's error text, or a more helpful one for some errors.
fn cause(error: &(dyn std::error::Error + 'static)) -> String {
    match error.downcast_ref::<io::Error>() {
        Some(error) if error.kind() == ErrorKind::AddrInUse => "address in use by another process".to_owned(),
        Some(error) if error.kind() == ErrorKind::AddrNotAvailable => {
            "no interface of this machine has this address".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Returns whether a character controls the terminal, or the order of other characters (Unicode's bidirectional
/// controls), instead of being visible. Texts from other sources are shown without such characters.
pub fn is_control(character: char) -> bool {
    let orders = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    orders || character.is_control() || matches!(character, '\u{2028}' | '\u{2029}')
}

/// Prints information in addition to the result.
pub fn note(text: &str) {
    to_stderr(format_args!("{}: {text}", program()));
}

/// Prints a line that continues the previous message.
pub fn hint(text: &str) {
    to_stderr(text);
}

/// Prints a warning about something that works, but probably not as intended.
pub fn warning(text: &str) {
    to_stderr(text);
}

/// Returns the exit status of a command, and prints its error.
pub fn finished(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

/// Prints the error that ends a command, and returns the exit status.
pub fn failed(error: &anyhow::Error) -> ExitCode {
    failure(&causes(error));
    ExitCode::FAILURE
}
