//! The cache of one process: stored responses, bodies on their way, collapsed requests, and invalidation.
//!
//! [`Cache`] is the façade of one store. `entry` is a stored response, its variants and its bytes; `head_maker` makes its head, and
//! `portable` is its form for other processes. `fill` takes in a body that others read meanwhile; `collapse` lets requests wait for
//! each other's fetches; `invalidation` keeps the order of purges and judges stored responses by it.
//!
//! Two traits cut this crate off from those above it: [`RemoteTier`], the tier that instances share, which the crate `fleet` implements;
//! and [`head_maker::ForwardedRequest`], a request as the gateway forwards it. Nothing here asks an origin, knows a site, or opens a
//! connection.

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
