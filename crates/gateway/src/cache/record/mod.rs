//! A stored response: head, body, those of one key together, and their form for other processes.

pub(crate) mod inputs;
pub(crate) mod particulars;
#[cfg_attr(not(test), expect(dead_code, unused_imports, reason = "called by the tiers, once there are any"))]
pub(crate) mod portable;
pub(crate) mod segmented;
pub(crate) mod stored;
