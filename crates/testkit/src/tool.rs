//! External programs (curl, nghttp, a browser), and limits of the test process and its children.

use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::thread;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::wait::{self, DEADLINE};

/// Output of a program.
#[derive(Debug)]
pub struct Output {
    /// Exit status; -1 if a signal ended it.
    pub status: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: String,
}

impl Output {
    /// Returns standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Returns the output of a successful program.
    ///
    /// # Panics
    /// Panics if the program failed.
    #[track_caller]
    pub fn succeeded(self) -> Self {
        assert_eq!(self.status, 0, "it failed; stderr:\n{}\nstdout:\n{}", self.stderr, self.text());
        self
    }
}

/// Runs a program to its end.
///
/// # Panics
/// Panics if it is not installed, or has not ended within the [`DEADLINE`].
#[track_caller]
pub fn run(program: &str, arguments: impl IntoIterator<Item = impl AsRef<std::ffi::OsStr>>) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = spawn(program, &mut command);
    let stdout = reader(child.stdout.take().expect("it was asked for"));
    let stderr = reader(child.stderr.take().expect("it was asked for"));
    let end = std::time::Instant::now() + DEADLINE * 2;
    let status = wait::until(&format!("{program} ends"), || {
        let status = child.try_wait().expect("a child can be waited for");
        if status.is_none() && std::time::Instant::now() + DEADLINE > end {
            // If the program is killed at the limit, its output explains more than a panic about the deadline.
            let _ = child.kill();
        }
        status
    });
    Output {
        status: status.code().unwrap_or(-1),
        stdout: stdout.join().expect("the reader does not panic"),
        stderr: String::from_utf8_lossy(&stderr.join().expect("the reader does not panic")).into_owned(),
    }
}

/// Starts a program, or panics with instructions to install it.
///
/// # Panics
/// Panics if it can't be started.
#[track_caller]
pub(crate) fn spawn(program: &str, command: &mut Command) -> std::process::Child {
    loop {
        match command.spawn() {
            Ok(child) => return child,
            // The program has just been written. A child that another test has forked keeps it open for writing until it executes.
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => thread::yield_now(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                panic!("{program} is missing: run scripts/install-dependencies")
            }
            Err(error) => panic!("{program} can't be started: {error}"),
        }
    }
}

/// Lets this process and its children open as many files as the system allows. Tests with a thousand connections need this if the limit
/// is 1024, as is usual.
pub fn raise_open_files_limit() {
    let limit = getrlimit(Resource::Nofile);
    // If the system refuses, a test that needs more files fails with its own error.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

fn reader(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // If the pipe breaks, the bytes read so far are the output.
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}
