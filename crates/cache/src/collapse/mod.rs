//! Fetches in progress: leaders, waiters, turns, and the answers that they get.

pub mod answer;
pub mod order;
pub mod table;
pub(crate) mod turns;
