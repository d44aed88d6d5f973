//! HTTP/1.1 connections to origin servers: requests on their way out, and bodies on their way in.

mod buffers;
mod connection;
mod receiving;
mod sending;

pub(super) use self::connection::{Http1Connection, Readiness};
pub(super) use self::receiving::Http1Body;
pub(super) use self::sending::{Sending, Sent};
