//! Tests that every tier behind memory must pass.
//!
//! They return the first broken promise instead of panicking. They wait for conditions, so they run on paused time and on real time.
//! They use only new keys, so they can run against a server in use.

mod coherence;
mod faults;
pub mod histories;
pub(crate) mod json;
mod leases;
mod log;
mod records;
mod segments;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep};

use super::contract::Backing;
use super::error::BackingError;
use super::record::{Expected, Loaded, PutOutcome, Tracking, Version, Write};
use crate::FillId;

pub use self::faults::check_under_faults;

/// Two instances that share one tier.
pub struct Bench {
    /// Instance used by most operations.
    pub own: Arc<dyn Backing>,
    /// Another instance.
    pub other: Arc<dyn Backing>,
    /// Time for which a silent connection can be relied upon.
    pub verification: Duration,
}

/// Failure of the suite.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A broken promise: its number, and the expectation that wasn't met.
    #[error("promise {0} is broken: {1}")]
    BrokenPromise(u8, &'static str),
    /// The tier failed although it should work.
    #[error("the tier failed")]
    TierFailed(#[from] BackingError),
}

/// Checks the promises on a working tier.
///
/// # Errors
/// Returns the first broken promise.
pub async fn check(bench: &Bench) -> Result<(), Violation> {
    records::check(bench).await?;
    segments::check(bench).await?;
    coherence::check(bench).await?;
    leases::check(bench).await?;
    log::check(bench).await
}

/// Time to live of entries that must not expire during a test.
const LONG: Duration = Duration::from_secs(60);
/// Time to live of entries that expire during a test, but live long enough to be seen.
const SHORT: Duration = Duration::from_millis(400);
/// Maximum wait for conditions that must be met eventually.
const PATIENCE: Duration = Duration::from_secs(20);

fn ensure(holds: bool, promise: u8, what: &'static str) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation::BrokenPromise(promise, what)) }
}

/// Returns an unused key, which contains bytes that a careless tier might interpret.
fn new_key(name: &str) -> Vec<u8> {
    let FillId { process, sequence } = FillId::next();
    format!("{{suite}} {name}\0\r\n\u{ff} {process:x} {sequence:x}").into_bytes()
}

fn write<'a>(bytes: &[u8], expected: Expected<'a>) -> Write<'a> {
    Write { bytes: Bytes::copy_from_slice(bytes), expected, ttl: LONG, lease: None }
}

async fn put(tier: &dyn Backing, key: &[u8], bytes: &[u8]) -> Result<Version, Violation> {
    match tier.put(key, write(bytes, Expected::Any)).await? {
        PutOutcome::Stored(version) => Ok(version),
        _ => Err(Violation::BrokenPromise(2, "an unconditional put is stored")),
    }
}

async fn load(tier: &dyn Backing, key: &[u8]) -> Result<Option<Loaded>, Violation> {
    Ok(tier.load(&[key], Tracking::Off).await?.pop().flatten())
}

/// Loads a record that must exist.
async fn found(tier: &dyn Backing, key: &[u8]) -> Result<Loaded, Violation> {
    load(tier, key).await?.ok_or(Violation::BrokenPromise(1, "a record that was just put can be loaded"))
}

/// Waits until a condition holds.
async fn eventually(
    promise: u8,
    what: &'static str,
    mut holds: impl AsyncFnMut() -> Result<bool, Violation>,
) -> Result<(), Violation> {
    let end = Instant::now() + PATIENCE;
    while !holds().await? {
        ensure(Instant::now() < end, promise, what)?;
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
