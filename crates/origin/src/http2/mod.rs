//! HTTP/2 connections to origin servers: their streams, and bodies on their way in.

mod body;
mod connection;

pub(super) use self::body::Http2Body;
pub(super) use self::connection::{Http2Connection, StreamSlot, broken};
