//! The tier on a Redis-compatible server, tested with Debian's redis-server.

mod faults;
mod followed;
mod inside;
mod kit;
mod openings;
mod promises;
mod silent;
mod unanswered;
