//! The tier on a server of the Redis protocol, with Debian's redis-server.

mod faults;
mod followed;
mod inside;
mod kit;
mod openings;
mod promises;
mod silent;
mod unanswered;
