//! `larder kv` as a service: its configuration, admin API and metrics, alone and in one process with the gateway.

mod beside_the_gateway;
mod configured;
mod doctor;
