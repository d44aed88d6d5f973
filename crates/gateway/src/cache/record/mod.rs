//! A stored response: head, body, those of one key together, and their form for other processes.

pub(crate) mod copy;
pub(crate) mod forms;
pub(crate) mod inputs;
pub(crate) mod particulars;
pub(crate) mod portable;
pub(crate) mod segmented;
pub(crate) mod stored;
pub(crate) mod usage;
