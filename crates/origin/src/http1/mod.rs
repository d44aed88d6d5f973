//! HTTP/1.1 connections to origin servers, and requests that are being sent.

mod connection;
mod sending;

pub(super) use self::connection::{Http1Connection, Readiness};
pub(super) use self::sending::{Sending, Sent};
