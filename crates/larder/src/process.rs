//! The running process as operators control it: readiness, purge, reload and drain.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use admin::{ControlFuture, Readiness};
use gateway::{ExplainError, Explanation, GatewayControl, PurgeError, PurgeOrder, PurgeOutcome, Question};
use parking_lot::Mutex;
use telemetry::logging::LogLevels;
use telemetry::{AccessLog, Redaction, Reopened, Stalled, Telemetry};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

use crate::config::{self, Overrides, Settings, Severity};
use crate::kv::KvControl;
use crate::lifecycle::Asker;
use crate::measures;
use crate::notify::{Manager, State};
use crate::predecessor;
use crate::upgrade::Order;

/// The command line of the process, and the configuration in force.
pub(crate) struct Running {
    pub(crate) settings: Settings,
    pub(crate) file: Option<PathBuf>,
    pub(crate) overrides: Overrides,
}

/// Control handles of the servers for clients.
pub(crate) struct Controls {
    pub(crate) gateway: Option<GatewayControl>,
    pub(crate) kv: Option<KvControl>,
}

impl Controls {
    /// Adds the gauges of the servers to every scrape.
    pub(crate) fn report(&self, telemetry: &Telemetry) {
        if let Some(gateway) = &self.gateway {
            measures::report(telemetry, gateway.clone());
        }
        if let Some(kv) = &self.kv {
            measures::report_kv(telemetry, kv.clone());
            if kv.speaks_text() {
                predecessor::report(telemetry, kv.clone());
            }
        }
    }
}

/// The process.
pub(crate) struct Process {
    /// Reference to itself, for background tasks.
    this: Weak<Self>,
    /// Held for the whole of a reload, so that two reloads can't mix.
    running: Mutex<Running>,
    controls: Controls,
    levels: LogLevels,
    access: AccessLog,
    telemetry: Arc<Telemetry>,
    /// Redaction of the access log; explanations show URLs too.
    redaction: Redaction,
    readiness: AtomicU8,
    succession: mpsc::Sender<Order>,
    is_upgrading: AtomicBool,
    /// Time until which a predecessor may still answer new requests.
    alone_from: OnceLock<Instant>,
    manager: Manager,
    /// This field is outside of `running`, because a stop must not wait for the lock on `running`.
    drain_delay: Duration,
}

impl Process {
    pub(crate) fn new(
        running: Running,
        controls: Controls,
        levels: LogLevels,
        access: AccessLog,
        telemetry: Arc<Telemetry>,
        succession: mpsc::Sender<Order>,
        manager: Manager,
    ) -> Arc<Self> {
        let readiness = AtomicU8::new(encode(Readiness::Starting));
        let drain_delay = running.settings.drain_delay;
        let redaction = Redaction::new(&running.settings.log.redact);
        let running = Mutex::new(running);
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            running,
            controls,
            levels,
            access,
            telemetry,
            redaction,
            readiness,
            succession,
            is_upgrading: AtomicBool::new(false),
            alone_from: OnceLock::new(),
            manager,
            drain_delay,
        })
    }

    /// Marks the process as ready.
    pub(crate) fn begin(&self) {
        self.set_readiness(Readiness::Ready);
        self.manager.tell(State::Ready);
    }

    /// Sets the readiness that `/ready` reports.
    fn set_readiness(&self, readiness: Readiness) {
        self.readiness.store(encode(readiness), Ordering::Release);
    }

    /// Drains the process. First, `/ready` fails. Unless a successor already accepts connections, the process then
    /// gives load balancers time to notice. Finally, it stops accepting connections.
    pub(crate) async fn drain(&self, asker: Asker) {
        self.set_readiness(Readiness::Draining);
        if asker == Asker::Successor {
            self.controls.gateway.clone().into_iter().for_each(leave_to_successor);
            return;
        }
        self.manager.tell(State::Stopping);
        if asker == Asker::Operator && !self.drain_delay.is_zero() {
            tracing::info!(delay = ?self.drain_delay, "draining: /ready answers 503, clients are still served");
            sleep(self.drain_delay).await;
        }
        tracing::info!("stopping: requests in flight may finish");
        if let Some(gateway) = &self.controls.gateway {
            gateway.drain();
        }
    }

    /// Notes that the predecessor has stopped accepting. The predecessor still answers requests on open connections
    /// for a moment.
    pub(crate) fn has_relieved_predecessor(&self) {
        // The time is set only once, because a process has one predecessor.
        let _ = self.alone_from.set(Instant::now() + PREDECESSOR_LIMIT);
        // This process counts the upgrade: the predecessor is about to exit, and its metrics are no longer scraped.
        self.telemetry.background().upgrade("took-over");
    }

    /// Reports the outcome of an attempt to start a successor.
    pub(crate) fn note_upgrade(&self, outcome: &Result<u32, String>) {
        match outcome {
            Ok(process) => {
                tracing::info!(process, "the new process serves: this one finishes its requests and ends");
                self.manager.tell(State::Succeeded(*process));
            }
            Err(reason) => {
                tracing::error!(reason, "upgrade failed: this process keeps serving");
                self.telemetry.background().upgrade("failed");
            }
        }
    }

    /// Writes the queued lines of the access log, as far as its target accepts them in time.
    pub(crate) fn flush_access_log(&self) {
        if let Err(Stalled { lines }) = self.access.flush() {
            tracing::error!(lines, "the access log can't be written: the last lines are lost");
        }
    }

    /// Reads the configuration again on a blocking thread, because it reads files and compiles patterns. Returns
    /// warnings, one per line.
    ///
    /// # Errors
    ///
    /// Returns the problems, one per line. The running configuration then stays in force.
    pub(crate) async fn reload_in_background(&self) -> Result<Vec<String>, Vec<String>> {
        let broken_off = |why: &str| Err(vec![format!("the reload failed: {why}")]);
        let Some(process) = self.this.upgrade() else { return broken_off("the process ends") };
        self.manager.tell(State::Reloading);
        let reload = tokio::task::spawn_blocking(move || process.reload_now()).await;
        let outcome = reload.unwrap_or_else(|error| broken_off(&error.to_string()));
        self.manager.tell(if outcome.is_ok() { State::Ready } else { State::ReadyAsBefore });
        outcome
    }

    fn reload_now(&self) -> Result<Vec<String>, Vec<String>> {
        let mut running = self.running.lock();
        let checked = config::check_again(running.file.as_deref(), &running.overrides, &running.settings);
        let lines = checked.problems.iter().map(|problem| (problem.severity, problem.line(&checked.sources)));
        let lines: Vec<_> = lines.collect();
        for (severity, line) in &lines {
            match severity {
                Severity::Error => tracing::error!("{line}"),
                Severity::Warning => tracing::warn!("{line}"),
            }
        }
        let mut lines: Vec<_> = lines.into_iter().map(|(_, line)| line).collect();
        let applied = match checked.settings {
            Some(settings) => {
                self.apply(settings, &mut running).inspect_err(|error| lines.push(error.to_string())).is_ok()
            }
            None => false,
        };
        self.telemetry.background().reload(if applied { "applied" } else { "refused" });
        if !applied {
            tracing::error!("configuration refused; the running one stays in use");
            return Err(lines);
        }
        tracing::info!("configuration reloaded");
        Ok(lines)
    }

    fn apply(&self, settings: Settings, running: &mut Running) -> Result<(), gateway::StartError> {
        // The check has already reverted and reported the settings that can't change.
        if let (Some(gateway), Some(config)) = (&self.controls.gateway, &settings.gateway) {
            gateway.reload(config.clone()).inspect_err(|error| tracing::error!("{error}"))?;
        }
        if let (Some(kv), Some(settings)) = (&self.controls.kv, &settings.kv) {
            kv.apply(settings);
        }
        // A failure below doesn't undo the new configuration: the previous log level or log file stays in use.
        if let Err(error) = self.levels.change(&settings.log.levels()) {
            tracing::error!(%error, "log levels stay as they were");
        }
        self.reopen_access_log();
        running.settings = settings;
        Ok(())
    }

    /// Reopens the access log on a blocking thread, because opening a file may block.
    pub(crate) async fn reopen_in_background(&self) {
        let Some(process) = self.this.upgrade() else { return };
        // Failures and panics have already been logged.
        let reopen = tokio::task::spawn_blocking(move || process.reopen_access_log());
        if let Ok(Some(Reopened::NoFile)) = reopen.await {
            tracing::info!("no access log to reopen: `log.access` names no file");
        }
    }

    /// Reopens the access log, for log rotation. Returns `None` on failure; the open file then stays in use.
    fn reopen_access_log(&self) -> Option<Reopened> {
        let outcome = self.access.reopen();
        match &outcome {
            Ok(Reopened::NoFile) => {}
            Ok(Reopened::InNewFile) => tracing::info!("access log reopened"),
            Ok(Reopened::AfterStall(Stalled { lines })) => {
                tracing::warn!(lines, "access log reopened, but the previous one still accepts no lines");
            }
            Err(error) => {
                tracing::error!(%error, "can't reopen the access log; it continues in the open file");
            }
        }
        outcome.ok()
    }

    /// Begins an upgrade, which excludes others until [`Process::end_upgrade`]. Returns `false` if one is in progress.
    pub(crate) fn begin_upgrade(&self) -> bool {
        !self.is_upgrading.swap(true, Ordering::AcqRel)
    }

    /// Ends the upgrade, successful or not.
    pub(crate) fn end_upgrade(&self) {
        self.is_upgrading.store(false, Ordering::Release);
    }
}

impl admin::Control for Process {
    fn readiness(&self) -> Readiness {
        if self.controls.kv.as_ref().is_some_and(KvControl::is_ending) {
            return Readiness::Draining;
        }
        READINESS[usize::from(self.readiness.load(Ordering::Acquire))]
    }

    fn purge<'a>(&'a self, order: &'a PurgeOrder) -> ControlFuture<'a, Result<PurgeOutcome, PurgeError>> {
        Box::pin(async move {
            let gateway = self.controls.gateway.as_ref();
            let gateway = gateway.ok_or_else(|| PurgeError::SiteUnknown { sites: Vec::new() })?;
            let outcome = gateway.purge(order).await;
            if let Some(alone_from) = self.alone_from.get() {
                sleep_until(*alone_from).await;
            }
            outcome
        })
    }

    fn explain(&self, question: Question) -> ControlFuture<'_, Result<Explanation, ExplainError>> {
        Box::pin(async move {
            let gateway = self.controls.gateway.as_ref().ok_or(ExplainError::NoSite)?;
            let mut explanation = gateway.explain(question).await?;
            redact(&self.redaction, &mut explanation);
            Ok(explanation)
        })
    }

    fn reload(&self) -> ControlFuture<'_, Result<Vec<String>, Vec<String>>> {
        Box::pin(self.reload_in_background())
    }

    fn upgrade(&self) -> ControlFuture<'_, Result<u32, String>> {
        Box::pin(async move {
            let refused = |why: &str| Err(why.to_owned());
            if self.succession.is_closed() {
                return refused(PROCESS_ENDS);
            }
            if !self.begin_upgrade() {
                return refused("an upgrade is under way");
            }
            let (order, outcome) = oneshot::channel();
            // If the order can't be queued, it is dropped, and the outcome is an error.
            drop(self.succession.try_send(order));
            outcome.await.unwrap_or_else(|_| refused(PROCESS_ENDS))
        })
    }
}

const PROCESS_ENDS: &str = "the process ends";

/// Leaves the stored responses to the successor, after a delay for requests on open connections.
fn leave_to_successor(gateway: GatewayControl) {
    gateway.drain_for_successor();
    drop(tokio::spawn(async move {
        sleep(REUSE_LIMIT).await;
        gateway.stop_reusing();
    }));
}

/// Time for which a process with a successor still reuses its stored responses: longer than idle connections are left
/// open, so that few requests arrive later.
const REUSE_LIMIT: Duration = Duration::from_millis(750);

/// Time after which a predecessor reuses no stored responses. Purges sent to this process don't reach the predecessor,
/// so they are incomplete until then. The limit is longer than [`REUSE_LIMIT`], because timers are late on a busy
/// machine.
const PREDECESSOR_LIMIT: Duration = Duration::from_secs(1);

const READINESS: [Readiness; 3] = [Readiness::Starting, Readiness::Ready, Readiness::Draining];

/// Redacts an explanation like the access log: keys contain URLs.
fn redact(redaction: &Redaction, explanation: &mut Explanation) {
    for finding in &mut explanation.findings {
        let values = finding.values.iter_mut().map(|value| &mut value.value);
        for text in values.chain([&mut finding.says]) {
            // A URL has no spaces, so text after a space isn't part of its query.
            let words: Vec<_> = text.split(' ').map(|word| redaction.shown(word.as_bytes())).collect();
            *text = words.join(" ");
        }
    }
}

fn encode(readiness: Readiness) -> u8 {
    match readiness {
        Readiness::Starting => 0,
        Readiness::Ready => 1,
        Readiness::Draining => 2,
    }
}
