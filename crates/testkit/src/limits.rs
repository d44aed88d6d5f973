//! Limits of the test process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lets this process and its children open as many files as the system allows. Tests with a thousand connections need it where the usual
/// limit is 1024.
pub fn raise_open_files_limit() {
    let limit = getrlimit(Resource::Nofile);
    // If refused, a test that needs more reports it.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
