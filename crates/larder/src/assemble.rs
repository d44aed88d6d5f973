//! Assembles and runs the parts: logs, metrics, data plane and admin API; then handles events.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::kv::{Security, Server};
use anyhow::{Context, anyhow};
use gateway::{Gateway, Start};
use otlp::{Export, Exporter};
use telemetry::logging::{self, LogLevels};
use telemetry::trace::SpanSink;
use telemetry::{AccessLog, AccessLogOptions, AccessTarget, BuildInfo, FLUSH_LIMIT, Redaction, Telemetry};
use terminal::output;
use terminal::version;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::oneshot;

use crate::config::{LogSettings, Overrides, Settings};
use crate::inherited::Inherited;
use crate::kv::{self, KvControl};
use crate::lifecycle::{self, Asker, Event, Signals};
use crate::notify::Manager;
use crate::process::{Controls, Process, Running};
use crate::tier;
use crate::upgrade::{Predecessor, Succession};
use crate::{allocator, doctor};

/// Build information for the metrics.
const BUILD: BuildInfo =
    BuildInfo { version: version::NUMBER, commit: version::COMMIT, rustc: version::RUSTC };

/// Runs the cache until a signal stops it.
///
/// # Errors
/// Returns an error if the cache can't start: an address is in use, or a log file can't be opened.
pub(crate) fn run(
    runtime: Runtime,
    settings: Settings,
    file: Option<&Path>,
    overrides: &Overrides,
    inherited: Inherited,
) -> anyhow::Result<()> {
    let levels = logging::install(settings.log.format, &settings.log.levels())?;
    let running = Running { settings, file: file.map(Path::to_owned), overrides: overrides.clone() };
    let outcome = runtime.block_on(serve(running, levels, inherited));
    // The results of the remaining tasks, such as workers that a second signal interrupted, are no longer needed.
    runtime.shutdown_background();
    logging::flush(FLUSH_LIMIT);
    outcome
}

async fn serve(running: Running, levels: LogLevels, mut inherited: Inherited) -> anyhow::Result<()> {
    // Handle signals before the listeners open: a signal during the start must not kill the process half-way.
    let mut signals = Signals::listen().context("signals can't be handled")?;
    let (mut succession, orders) =
        Succession::new(inherited.owner()).context("the program can't be found for upgrades")?;
    let keeps_data = running.settings.kv.as_ref().is_some_and(|kv| kv.save_file.is_some());
    let workers = running.settings.gateway.as_ref().map_or(0, |gateway| gateway.workers);
    let telemetry = Telemetry::with_build(workers, BUILD);
    logging::report_to(&telemetry);
    let access = access_log(&running.settings.log, workers, &telemetry)?;
    let (spans, export) = trace_export(&running.settings, &telemetry).unzip();
    allocator::give_back_soon();
    doctor::raise_open_files();
    // Do everything that can fail before the first accept: a later error would reset the connections of clients.
    let gateway = bind_gateway(&running.settings, &mut inherited, &telemetry, &access, spans)?;
    let admin = bind_admin(&running.settings, &mut inherited).await?;
    doctor::ensure_open_files()?;
    let planes =
        Planes::start(gateway, &running.settings, running.overrides.kv.import.as_deref(), &mut inherited)?;
    let controls = planes.controls();
    controls.report(&telemetry);
    let manager = Manager::of_environment();
    let process = Process::new(running, controls, levels, access, Arc::clone(&telemetry), orders, manager);

    let (stop_admin, admin_stopped) = oneshot::channel::<()>();
    let mut stop_admin = Some(stop_admin);
    let shutdown = async move {
        // A message and a dropped sender mean the same: the admin API must stop.
        let _ = admin_stopped.await;
    };
    let control: Arc<dyn admin::Control> = Arc::<Process>::clone(&process);
    let admin = admin.map(|admin| admin.serve(&control, &telemetry, shutdown));
    let predecessor = inherited.close_rest();
    process.begin();
    predecessor.into_iter().for_each(|predecessor| relieve(predecessor, &process));
    planes.announce();
    admin.as_ref().into_iter().for_each(announce_admin);

    let served = Served { planes: &planes, admin: admin.as_ref() };
    let asker = wait_for_stop(&mut signals, &process, &mut succession, served).await;
    // From here on, upgrade orders are refused, including pending ones.
    drop(succession);
    if asker == Asker::Successor {
        // The new process serves the admin API from here on.
        stop_admin = None;
    }
    let stop = async {
        process.drain(asker).await;
        tokio::task::spawn_blocking(|| planes.join()).await
    };
    let stopped = tokio::select! {
        joined = stop => {
            tracing::info!("stopped");
            joined.context("stopping failed").flatten()
        }
        () = signals.insisted(asker) => {
            tracing::warn!("stopped immediately by a second signal");
            if keeps_data { Err(anyhow!("stopped before the data set was saved")) } else { Ok(()) }
        }
    };
    if let Some(export) = export {
        export.finish(LAST_SPANS_MAX).await;
    }
    drop(stop_admin);
    if let Some(admin) = admin {
        admin.finished().await;
    }
    process.flush_access_log();
    stopped
}

/// Binds the gateway's addresses, if the configuration has a gateway.
fn bind_gateway(
    settings: &Settings,
    inherited: &mut Inherited,
    telemetry: &Arc<Telemetry>,
    access: &AccessLog,
    spans: Option<Arc<Exporter>>,
) -> anyhow::Result<Option<Gateway>> {
    let Some(config) = settings.gateway.clone() else { return Ok(None) };
    let sockets = config.listeners.iter().map(|listener| inherited.at(listener.address)).collect();
    let gateway = Gateway::start(Start {
        config,
        telemetry: Arc::clone(telemetry),
        access_log: access,
        background: Handle::current(),
        on_failure: lifecycle::end_process,
        spans: spans.map(|spans| spans as Arc<dyn SpanSink>),
        tiers: tier::start(&settings.tiers)?,
        inherited: sockets,
        inherited_owner: inherited.owner(),
    })?;
    Ok(Some(gateway))
}

/// The servers for clients: the gateway, the Redis-compatible server or both.
struct Planes {
    gateway: Option<Gateway>,
    kv: Option<(Server, KvControl)>,
    /// URLs at which clients reach the servers.
    urls: Vec<String>,
    output: Output,
}

/// Use of standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    Ours,
    OfAccessLog,
}

/// Returns the addresses of the gateway, then those of the Redis-compatible server.
fn urls(settings: &Settings, gateway: Option<&Gateway>, kv: Option<&Server>) -> Vec<String> {
    let configured = settings.gateway.iter().flat_map(|gateway| &gateway.listeners);
    let http = configured.zip(gateway.into_iter().flat_map(Gateway::addresses)).map(|(listener, address)| {
        let scheme = if listener.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{address}")
    });
    let configured = settings.kv.iter().flat_map(|kv| &kv.listen);
    let redis = configured.zip(kv.into_iter().flat_map(Server::addresses)).map(|(listen, address)| {
        let scheme = if listen.security == Security::Tls { "rediss" } else { "redis" };
        format!("{scheme}://{address}")
    });
    let unix = settings.kv.iter().flat_map(|kv| &kv.unix);
    let unix = unix.map(|listen| format!("unix://{}", listen.path.display()));
    http.chain(redis).chain(unix).collect()
}

impl Planes {
    /// Starts to serve clients.
    fn start(
        gateway: Option<Gateway>,
        settings: &Settings,
        import: Option<&Path>,
        inherited: &mut Inherited,
    ) -> anyhow::Result<Self> {
        let listen = settings.kv.iter().flat_map(|kv| &kv.listen);
        let of_kv = listen.map(|listen| inherited.at(listen.address)).collect();
        let kv = settings.kv.as_ref().map(|kv| kv::start(kv, import, of_kv)).transpose()?;
        gateway.as_ref().map(Gateway::accept).transpose()?;
        let urls = urls(settings, gateway.as_ref(), kv.as_ref().map(|(server, _)| server));
        let is_taken = gateway.is_some() && settings.log.access == AccessTarget::Stdout;
        let output = if is_taken { Output::OfAccessLog } else { Output::Ours };
        Ok(Self { gateway, kv, urls, output })
    }

    fn controls(&self) -> Controls {
        Controls {
            gateway: self.gateway.as_ref().map(Gateway::control),
            kv: self.kv.as_ref().map(|(_, control)| control.clone()),
        }
    }

    /// Reports the URLs with the ports that the system chose: in the log, and for scripts on standard output, unless
    /// the access log goes there.
    fn announce(&self) {
        for url in &self.urls {
            tracing::info!(%url, "listening");
            if self.output == Output::Ours {
                output::listening(url);
            }
        }
    }

    /// Waits until requests in flight have finished and the data set is saved, if it has a save file.
    fn join(self) -> anyhow::Result<()> {
        let saved = self.kv.map_or(Ok(()), |(server, _)| server.stop());
        if let Some(gateway) = self.gateway {
            gateway.join();
        }
        saved.map_err(|error| anyhow!("the data set is not saved: {error}"))
    }
}

/// The parts that accept connections.
#[derive(Clone, Copy)]
struct Served<'a> {
    planes: &'a Planes,
    admin: Option<&'a admin::Admin>,
}

impl Served<'_> {
    /// Starts a process that inherits the sockets, and returns its id.
    async fn hand_over(self, succession: &mut Succession) -> Result<u32, String> {
        if self.planes.kv.is_some() {
            return Err(
                "this process serves Redis clients and can't hand over its data: restart it, with a save file"
                    .to_owned(),
            );
        }
        succession.start(self.sockets()).await.map_err(|error| output::causes(&error))
    }

    fn sockets(self) -> io::Result<Vec<OwnedFd>> {
        let mut sockets = Vec::new();
        if let Some(gateway) = &self.planes.gateway {
            sockets.extend(gateway.control().listening()?);
        }
        if let Some(admin) = self.admin {
            sockets.extend(admin.listening()?);
        }
        Ok(sockets)
    }
}

/// Notifies the predecessor that this process has taken over.
fn relieve(predecessor: Predecessor, process: &Process) {
    match predecessor.relieve() {
        Ok(()) => process.has_relieved_predecessor(),
        Err(error) => tracing::warn!(%error, "the previous process no longer waits for this one"),
    }
}

async fn wait_for_stop(
    signals: &mut Signals,
    process: &Arc<Process>,
    succession: &mut Succession,
    served: Served<'_>,
) -> Asker {
    loop {
        let (event, order) = tokio::select! {
            event = signals.next() => (event, None),
            order = succession.ordered() => (Event::Upgrade, Some(order)),
        };
        match event {
            // A reload may wait for files and look-ups without limit, and a stop must not wait for the reload. Problems
            // are logged where they are found.
            Event::Reload => tokio::select! {
                _ = process.reload_in_background() => {}
                asker = signals.stopped() => return asker,
            },
            Event::Upgrade if order.is_none() && !process.begin_upgrade() => {
                tracing::warn!("upgrade refused: another upgrade is in progress");
            }
            Event::Upgrade => tokio::select! {
                outcome = served.hand_over(succession) => {
                    process.note_upgrade(&outcome);
                    process.end_upgrade();
                    let has_successor = outcome.is_ok();
                    if let Some(order) = order {
                        // The sender of the order may have disconnected.
                        let _ = order.send(outcome);
                    }
                    if has_successor {
                        return Asker::Successor;
                    }
                }
                asker = signals.stopped() => return asker,
            },
            Event::Reopen => tokio::select! {
                () = process.reopen_in_background() => {}
                asker = signals.stopped() => return asker,
            },
            Event::Stop(asker) => return asker,
        }
    }
}

/// Starts the export of spans, if a collector is configured and a gateway records spans.
fn trace_export(settings: &Settings, telemetry: &Telemetry) -> Option<(Arc<Exporter>, Export)> {
    settings.gateway.as_ref()?;
    let spans = settings.spans.clone()?;
    let (exporter, export) = otlp::start(spans);
    exporter.counts().report_to(telemetry);
    Some((exporter, export))
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

/// Binds the addresses of the admin API, if the configuration has one.
async fn bind_admin(settings: &Settings, inherited: &mut Inherited) -> anyhow::Result<Option<admin::Bound>> {
    let Some(config) = settings.admin.clone() else { return Ok(None) };
    let probes = config.probes_listen.map(|address| inherited.only_one_at(address));
    let sockets = admin::Inherited {
        listen: inherited.only_one_at(config.listen)?,
        probes_listen: probes.transpose()?.flatten(),
    };
    Ok(Some(admin::Bound::bind(config, sockets).await?))
}

fn announce_admin(admin: &admin::Admin) {
    match admin.reach {
        admin::Reach::Admin => tracing::info!(address = %admin.address, "admin API"),
        admin::Reach::Probes => tracing::info!(address = %admin.address, "probes and metrics"),
    }
    if let Some(address) = admin.probes_address {
        tracing::info!(%address, "probes and metrics");
    }
}

/// Time for the export of the last spans.
const LAST_SPANS_MAX: Duration = Duration::from_secs(2);
