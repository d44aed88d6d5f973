//! The tier on a Redis-compatible server, tested with Debian's redis-server.

mod cluster;
mod endpoints;
mod faults;
mod followed;
mod inside;
mod kit;
mod openings;
mod promises;
mod sentinels;
mod silent;
mod unanswered;
