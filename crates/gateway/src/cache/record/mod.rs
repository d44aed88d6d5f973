//! Stored responses: head, body, the variants of one key, and their format for other processes.

pub(crate) mod cold_fields;
pub(crate) mod copy;
pub(crate) mod forms;
pub(crate) mod portable;
pub(crate) mod provenance;
pub(crate) mod segmented;
pub(crate) mod stored;
pub(crate) mod usage;
