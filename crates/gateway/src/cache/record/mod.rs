//! A stored response: head, body, and those of one key together.

pub(crate) mod segmented;
pub(crate) mod stored;
