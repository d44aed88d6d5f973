//! Puts the parts together and runs them: logs, metrics, data plane, admin API; then waits for events.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use gateway::{Gateway, Start};
use telemetry::logging::{self, LogLevels};
use telemetry::{AccessLog, AccessLogOptions, BuildInfo, Redaction, Telemetry};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::config::{LogSettings, Overrides, Settings};
use crate::lifecycle::{self, Event, Signals};
use crate::measures;
use crate::process::{Process, Running};

/// Runs the cache until a signal stops it.
///
/// # Errors
/// What keeps it from starting: an address that is taken, a log file that can't be opened.
pub(crate) fn run(settings: Settings, file: Option<&Path>, overrides: &Overrides) -> anyhow::Result<()> {
    let levels = logging::install(settings.log.format, &log_levels(&settings.log))?;
    let running = Running { settings, file: file.map(Path::to_owned), overrides: overrides.clone() };
    let runtime = lifecycle::runtime()?;
    let outcome = runtime.block_on(serve(running, levels));
    // Nobody waits for what is left, such as workers that a second signal cut short.
    runtime.shutdown_background();
    outcome
}

async fn serve(running: Running, levels: LogLevels) -> anyhow::Result<()> {
    // Before anything listens: a signal that comes while starting must not kill the process half-way.
    let mut signals = Signals::listen().context("signals can't be handled")?;
    let config = running.settings.gateway.clone();
    let telemetry = Telemetry::with_build(config.workers, BUILD);
    let access = access_log(&running.settings.log, config.workers, &telemetry)?;
    let admin_config = running.settings.admin.clone();
    let gateway = Gateway::start(Start {
        config,
        telemetry: Arc::clone(&telemetry),
        access_log: &access,
        background: Handle::current(),
    })?;
    measures::report(&telemetry, gateway.control());
    let process = Arc::new(Process::new(running, gateway.control(), levels, access, Arc::clone(&telemetry)));

    let (stop_admin, admin_stopped) = oneshot::channel::<()>();
    let shutdown = async move {
        // Both a message and the end of the channel mean the same.
        let _ = admin_stopped.await;
    };
    let control: Arc<dyn admin::Control> = Arc::<Process>::clone(&process);
    let admin = admin::serve(admin_config, control, telemetry, shutdown).await?;
    process.set_readiness(admin::Readiness::Ready);
    announce(gateway.addresses(), &admin);

    wait_for_stop(&mut signals, &process).await;
    tracing::info!("stopping: requests in flight may finish");
    process.drain();
    tokio::select! {
        _ = tokio::task::spawn_blocking(|| gateway.join()) => tracing::info!("stopped"),
        () = signals.stopped() => tracing::warn!("stopped at once: asked a second time"),
    }
    drop(stop_admin);
    admin.finished().await;
    process.flush_logs();
    Ok(())
}

/// The level of the process; events of sites go by the level of their site.
pub(crate) fn log_levels(settings: &LogSettings) -> String {
    format!("{},{}=trace", settings.level, gateway::events::TARGET)
}

async fn wait_for_stop(signals: &mut Signals, process: &Arc<Process>) {
    while signals.next().await == Event::Reload {
        // Problems are logged where they are found.
        let _ = process.reload_in_background().await;
    }
}

fn access_log(settings: &LogSettings, workers: usize, telemetry: &Telemetry) -> anyhow::Result<AccessLog> {
    let access = AccessLog::open(AccessLogOptions {
        target: settings.access.clone(),
        format: settings.access_format,
        queue_lines_max: settings.access_queue_lines_max,
        redaction: Redaction::new(&settings.redact),
        workers,
    })?;
    access.report_to(telemetry);
    Ok(access)
}

/// Where to reach it, with the ports that the system chose, for people and for scripts.
fn announce(addresses: &[SocketAddr], admin: &admin::Admin) {
    for address in addresses {
        tracing::info!(%address, "listening");
    }
    tracing::info!(address = %admin.address, "admin API");
    if let Some(address) = admin.probes_address {
        tracing::info!(%address, "probes and metrics");
    }
}

const BUILD: BuildInfo = BuildInfo {
    version: env!("CARGO_PKG_VERSION"),
    commit: env!("LARDER_BUILD_COMMIT"),
    rustc: env!("LARDER_RUSTC"),
};
