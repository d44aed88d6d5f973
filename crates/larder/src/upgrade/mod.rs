//! A running process gives its listening sockets to a new one, without a moment at which nobody listens.
//!
//! The old process starts the program anew, with the sockets as inherited descriptors (the protocol of socket activation), and waits
//! until the new one reports that it serves. Only then does it stop accepting. A new process that fails changes nothing.

mod predecessor;
mod successor;

pub(crate) use predecessor::Predecessor;
pub(crate) use successor::{Order, Succession};

/// Names the socket on which a process waits for its successor.
const VARIABLE: &str = "LARDER_PREDECESSOR";
