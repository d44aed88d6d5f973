//! The 0x1F text protocol of poor-man-s-cache, its environment variables and metrics; and none of its bugs.

#[path = "kv_text_protocol/bugs.rs"]
mod bugs;
#[path = "kv_text_protocol/environment.rs"]
mod environment;
#[path = "kv_text_protocol/messages.rs"]
mod messages;

const LARDER: &str = env!("CARGO_BIN_EXE_larder");

/// Lines of `[kv]` for a server that speaks it.
const UNIT_SEPARATOR: &str = "text_protocol = \"unit-separator\"\nmaxmemory = \"256MiB\"\n";
