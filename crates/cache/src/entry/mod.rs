//! Stored responses: head, body, and the variants of one key.

pub mod cold_fields;
pub mod copy;
pub mod forms;
mod head;
pub mod provenance;
pub mod segmented;
pub mod stored;
pub mod usage;
