//! A running process gives its listening sockets to a new one, without a moment at which nobody listens.
//!
//! The old process starts the program anew, with the sockets as inherited descriptors (the protocol of socket activation), and waits
//! until the new one reports that it serves. Only then does it stop accepting. A new process that fails says why, and changes nothing.

mod predecessor;
mod successor;

pub(crate) use predecessor::{Predecessor, complain};
pub(crate) use successor::{Order, Succession};

/// Names the socket on which a process waits for its successor.
const VARIABLE: &str = "LARDER_PREDECESSOR";

/// Where a process that can't serve says why, beside the socket of this name: a predecessor that doesn't know of it would take a connection
/// there for the report.
fn complaints_to(reports_to: &str) -> String {
    format!("{reports_to}-failed")
}

/// More is left out: who reads it wants to know the first problem.
const COMPLAINT_BYTES_MAX: usize = 2048;
