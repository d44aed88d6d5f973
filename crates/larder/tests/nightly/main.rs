//! Tests against third-party software that takes long to build or start: `scripts/nightly-tests`.

mod kv_clients;

const LARDER: &str = env!("CARGO_BIN_EXE_larder");
