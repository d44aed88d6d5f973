//! Fetches in progress: their scope, leaders, waiters, and the bodies on their way.

pub(crate) mod ahead;
pub(crate) mod answer;
pub(crate) mod assemble;
pub(crate) mod fetch_spec;
pub(crate) mod fill;
pub(crate) mod joining;
pub(crate) mod leader_task;
pub(crate) mod next_move;
pub(crate) mod order;
pub(crate) mod scope;
pub(crate) mod table;
pub(crate) mod turn;
pub(crate) mod turns;
