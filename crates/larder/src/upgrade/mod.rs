//! A running process passes its listening sockets to a new one, with no gap in listening.
//!
//! The old process starts the program again, with the sockets as inherited descriptors (the protocol of socket
//! activation), and waits until the new process reports that it serves. Only then does it stop accepting. A new process
//! that fails reports the reason, and the old one continues.

mod predecessor;
mod successor;

pub(crate) use predecessor::{Predecessor, complain};
pub(crate) use successor::{Order, Succession};

/// Variable with the name of the socket on which a process waits for its successor.
const VARIABLE: &str = "LARDER_PREDECESSOR";

/// Returns the name of the socket for a successor's error message. It is separate from the socket for reports: a
/// predecessor of an older version takes any connection there for a report of success.
fn complaints_to(reports_to: &str) -> String {
    format!("{reports_to}-failed")
}

/// Longer messages are cut: the first problem is the one that matters.
const COMPLAINT_BYTES_MAX: usize = 2048;
