mod merging;
mod round_trip;
mod trust;
pub(crate) mod world;
