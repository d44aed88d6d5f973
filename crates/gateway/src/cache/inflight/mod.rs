//! Fetches in progress: their scope, leaders, waiters, and the bodies on their way.

pub(crate) mod ahead;
pub(crate) mod answer;
pub(crate) mod fill;
pub(crate) mod order;
pub(crate) mod table;
pub(crate) mod turn;
pub(crate) mod turns;
