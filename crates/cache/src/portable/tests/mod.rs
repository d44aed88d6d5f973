mod merging;
mod round_trip;
mod trust;
