//! The cache of one process: stored responses, bodies in progress, collapsed requests, and invalidation.
//!
//! [`Cache`] is the façade of one store. `entry` is a stored response, with its variants and its bytes; `head_maker` creates its head, and
//! `portable` is its format for other processes. `fill` receives a body while others read it; `collapse` lets requests wait for each
//! other's fetches; `invalidation` keeps the order of purges and judges stored responses by it.
//!
//! Two traits separate this crate from the crates above it: [`RemoteTier`], the tier that instances share, which the crate `fleet`
//! implements; and [`head_maker::ForwardedRequest`], a request as the gateway forwards it. Nothing here contacts an origin, depends on a
//! site, or opens a connection.

mod cache;
pub mod changed;
pub mod collapse;
pub mod entry;
pub mod failure;
pub mod fill;
pub mod head_maker;
pub mod imprint;
pub mod invalidation;
pub mod membership;
pub mod portable;
pub mod readers;
mod remote_tier;
pub mod revalidation_backoff;
#[cfg(any(test, feature = "test-double"))]
pub mod sample;
pub mod settings;
pub mod sharded;

pub use self::cache::{Cache, memory};
pub use self::remote_tier::{Decide, RemoteTier};
