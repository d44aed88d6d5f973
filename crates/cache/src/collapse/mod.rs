//! Fetches in progress: leaders, waiters, turns, and the answers to them.

pub mod answer;
pub mod order;
pub mod table;
pub(crate) mod turns;
