//! Tests against software of others that takes long to build or to start: `scripts/nightly-tests`.

mod kv_clients;

const LARDER: &str = env!("CARGO_BIN_EXE_larder");
