//! Stored responses: head, body, the variants of one key, and their format for other processes.

pub(crate) mod copy;
pub(crate) mod forms;
pub(crate) mod inputs;
pub(crate) mod particulars;
pub(crate) mod portable;
pub(crate) mod segmented;
pub(crate) mod stored;
pub(crate) mod usage;
