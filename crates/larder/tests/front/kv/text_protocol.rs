//! The 0x1F text protocol of poor-man-s-cache, its environment variables and metrics.

mod environment;
mod messages;

/// Lines of `[kv]` for a server with this protocol.
const UNIT_SEPARATOR: &str = "text_protocol = \"unit-separator\"\nmaxmemory = \"256MiB\"\n";
