//! `larder kv` as a service: its configuration, admin API and metrics, alone and in one process with the gateway.

#[path = "kv_service/beside_the_gateway.rs"]
mod beside_the_gateway;
#[path = "kv_service/configured.rs"]
mod configured;
#[path = "kv_service/doctor.rs"]
mod doctor;

const LARDER: &str = env!("CARGO_BIN_EXE_larder");
