//! Active checks: background requests to each server, and their effect on its health.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use http::Method;
use http::header::USER_AGENT;
use message::fields::PackedFields;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

use super::checks::{Check, Checked, Thresholds};
use super::endpoint::{Checker, Eligible, Endpoint};
use super::group::attempt;
use super::request::{Binding, OriginRequest, RequestHead, accepted};
use super::request_body::RequestBody;
use super::servers::Servers;
use super::timing::{HeadWait, Interim, Limits};
use crate::settings::{HealthConfig, OriginConfig, OriginTimeouts};

/// Starts the checks that this origin configures, in place of earlier ones.
pub(super) fn check_servers(servers: &Servers, config: &OriginConfig, background: &Handle) {
    for endpoint in servers.list().iter().map(|server| &server.endpoint) {
        let mut checker = endpoint.known.checker.lock();
        if checker.as_ref().is_some_and(|checker| *checker.config == *config) {
            continue;
        }
        *checker = config.health.as_ref().map(|health| {
            let config = Arc::new(config.clone());
            let checking = keep_checking(Arc::downgrade(endpoint), Arc::clone(&config), health.clone());
            Checker { config, task: background.spawn(checking).abort_handle() }
        });
        if checker.is_none() {
            *endpoint.known.checked.lock() = Checked::default();
        }
    }
}

async fn keep_checking(endpoint: Weak<Endpoint>, config: Arc<OriginConfig>, health: HealthConfig) {
    let mut at = Instant::now();
    loop {
        // The endpoint is not held during the pause: a check must not keep an unused endpoint alive.
        let Some(endpoint) = endpoint.upgrade() else { return };
        let check = check(&endpoint, &config, &health).await;
        note_check(&endpoint, &config, &health, check);
        drop(endpoint);
        at = (at + health.interval).max(Instant::now());
        sleep_until(at).await;
    }
}

/// Checks a server once, on a separate connection, because the check must show that the server accepts connections.
///
/// # Errors
/// The reason for the failure, for the log.
async fn check(endpoint: &Endpoint, config: &OriginConfig, health: &HealthConfig) -> Result<(), String> {
    let (request, body) = accepted(config, request(endpoint, health)).map_err(|error| error.to_string())?;
    let mut head = RequestHead::new(config, &request, &body);
    head.binding = Binding::Exchange;
    let now = Instant::now();
    let mut on_interim = |_: Interim| {};
    let limits = Limits::new(&timeouts(health), config.interim_responses_max, now);
    let mut waiting = HeadWait::new(limits, &mut on_interim);
    // A check takes no permit from the requests to the origin.
    match attempt(endpoint, (Eligible::Any(now), None), &head, body, &mut waiting).await {
        Ok(response) if health.statuses.contains(response.status.as_u16()) => Ok(()),
        Ok(response) => Err(format!("status {}", response.status.as_u16())),
        Err(failed) => Err(failed.0.error.to_string()),
    }
}

fn note_check(
    endpoint: &Endpoint,
    config: &OriginConfig,
    health: &HealthConfig,
    outcome: Result<(), String>,
) {
    let check = if outcome.is_ok() { Check::Passed } else { Check::Failed };
    let thresholds =
        Thresholds { unhealthy_after: health.unhealthy_after, healthy_after: health.healthy_after };
    let counter = match check {
        Check::Passed => &endpoint.known.work.checks_passed,
        Check::Failed => &endpoint.known.work.checks_failed,
    };
    counter.fetch_add(1, Relaxed);
    let mut checked = endpoint.known.checked.lock();
    let before = *checked;
    *checked = before.after(check, thresholds, Instant::now());
    let (origin, server) = (&config.name, &endpoint.label);
    match (before.is_healthy(), checked.is_healthy()) {
        (true, false) => {
            let reason = outcome.err().unwrap_or_default();
            tracing::warn!(%origin, %server, %reason, "a server fails its checks");
        }
        (false, true) => tracing::info!(%origin, %server, "a server passes its checks again"),
        _ => {}
    }
}

fn request(endpoint: &Endpoint, health: &HealthConfig) -> OriginRequest {
    let mut fields = PackedFields::with_capacity(1);
    fields.push(
        USER_AGENT.as_str(),
        concat!("larder/", env!("CARGO_PKG_VERSION"), " (health check)").as_bytes(),
    );
    OriginRequest {
        method: Method::GET,
        path_and_query: health.path.clone(),
        authority: endpoint.authority(),
        scheme: endpoint.scheme(),
        fields,
        body: RequestBody::Empty,
        accepts_trailers: false,
        upgrade: None,
        key: 0,
        client: None,
        timeline: None,
        record: None,
        probe: None,
    }
}

fn timeouts(health: &HealthConfig) -> OriginTimeouts {
    let limit = health.timeout;
    OriginTimeouts { connect: limit, first_byte: limit, between_bytes: limit, total: Some(limit) }
}
