//! Steps of an exchange, one in each file. Each step returns the next step, and never calls it.

pub(crate) mod admit;
pub(crate) mod assemble;
pub(crate) mod collapse;
pub(crate) mod compress;
pub(crate) mod hit_for_miss;
pub(crate) mod load;
pub(crate) mod purge;
pub(crate) mod shape;
