//! One connection to a server: commands out, replies in, in order.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Cmd, Pipeline, ProtocolVersion, RedisConnectionInfo, Value};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::timeout;

use super::bounded::Bounded;
use super::dial::Target;
use super::reply::{self, Refused};
use super::settings::{RemoteSettings, Secret};
use crate::backing::BackingError;

/// Parameters for opening connections.
#[derive(Clone)]
pub(super) struct Connector {
    target: Target,
    login: RedisConnectionInfo,
    client_name: String,
    timeout: Duration,
    refusals: Arc<Refusals>,
}

/// Commands that the server has refused to this user, by the texts of the errors. Each is logged once.
#[derive(Default)]
struct Refusals(Mutex<BTreeSet<String>>);

/// Reason why a connection couldn't be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error("no connection within {} ms", .0.as_millis())]
    TimedOut(Duration),
    #[error("no connection")]
    Dial(#[from] io::Error),
    /// Error text of the server, without the password. The original error isn't the source, because it may contain the password.
    #[error("the server refused the handshake: {0}")]
    Begin(String),
    #[error("the server does not support CLIENT TRACKING")]
    Tracking(#[source] BackingError),
    #[error("the server is not a master")]
    NoMaster,
    #[error("connection setup failed")]
    SetUp(#[source] BackingError),
}

/// A connection that many callers use concurrently. Dropping the value closes the connection.
pub(super) struct Wire {
    connection: MultiplexedConnection,
    driver: AbortHandle,
    demotion: Arc<Notify>,
    refusals: Arc<Refusals>,
    /// Number of unanswered commands, including those whose callers have stopped waiting.
    unanswered: AtomicUsize,
}

impl Connector {
    pub(super) fn new(settings: &RemoteSettings) -> Self {
        let mut login = RedisConnectionInfo::default()
            .set_protocol(ProtocolVersion::RESP3)
            .set_db(settings.database.into())
            .set_skip_set_lib_name();
        if let Some(username) = &settings.username {
            login = login.set_username(username);
        }
        if let Some(password) = settings.password.as_ref().map(Secret::reveal) {
            login = login.set_password(password);
        }
        Self {
            target: Target::of(settings),
            login,
            client_name: settings.client_name.as_str().to_owned(),
            timeout: settings.connect_timeout,
            refusals: Arc::default(),
        }
    }

    /// Returns the timeout for opening a connection.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Opens a connection on which no reply may be longer than `reply_bytes_max`; its task runs on the current runtime, and ends with the
    /// connection. `demotion` is notified when a reply shows that the server is no longer the master.
    pub(super) async fn open(
        &self,
        reply_bytes_max: usize,
        pushes: impl AsyncPushSender,
        demotion: Arc<Notify>,
    ) -> Result<(Wire, JoinHandle<()>), OpenError> {
        // No response timeout, because callers have their own deadlines.
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(QUEUED_MAX)
            .set_push_sender(pushes);
        timeout(self.timeout, self.begin(reply_bytes_max, config, demotion))
            .await
            .unwrap_or(Err(OpenError::TimedOut(self.timeout)))
    }

    async fn begin(
        &self,
        reply_bytes_max: usize,
        config: AsyncConnectionConfig,
        demotion: Arc<Notify>,
    ) -> Result<(Wire, JoinHandle<()>), OpenError> {
        let stream = Bounded::new(self.target.dial().await?, reply_bytes_max);
        let (connection, driver) =
            MultiplexedConnection::new_with_config(&self.login, stream, config).await.map_err(|error| {
                OpenError::Begin(reply::sanitize_without(self.login.password(), &error.to_string()))
            })?;
        let driving = tokio::spawn(driver);
        let wire = Wire {
            connection,
            driver: driving.abort_handle(),
            demotion,
            refusals: Arc::clone(&self.refusals),
            unanswered: AtomicUsize::new(0),
        };
        wire.set_name(&self.client_name);
        Ok((wire, driving))
    }
}

impl Refusals {
    fn log_once(&self, details: &str) {
        let details = reply::sanitize(details);
        let is_optional = OPTIONAL.iter().any(|command| details.contains(&format!("'{command}'")));
        let mut logged = self.0.lock();
        if !is_optional && logged.len() < REFUSALS_MAX && logged.insert(details.clone()) {
            tracing::warn!(details, "the shared store refuses a command: see `larder doctor`");
        }
    }
}

impl Wire {
    /// Sends commands in one write, and waits for a reply to each. If the future is dropped, they may still be executed, and the connection
    /// stays usable.
    pub(super) async fn ask(&self, commands: &Pipeline) -> Result<Vec<Value>, BackingError> {
        self.unanswered.fetch_add(1, Relaxed);
        let answer = self.connection.clone().send_packed_commands(commands, 0, commands.len()).await;
        self.unanswered.fetch_sub(1, Relaxed);
        let values = answer.map_err(|error| BackingError::Unreachable(Box::new(error)))?;
        for value in &values {
            let Value::ServerError(error) = value else { continue };
            match Refused::of(error.clone()) {
                Refused::NotMaster(_) => self.demotion.notify_one(),
                Refused::Forbidden(error) => self.refusals.log_once(error.details().unwrap_or_default()),
                _ => {}
            }
        }
        Ok(values)
    }

    /// Sets the name in the server's client list, without waiting for the reply: the command may be forbidden, and nothing depends on it.
    fn set_name(&self, name: &str) {
        if name.is_empty() {
            return;
        }
        let mut naming = redis::pipe();
        naming.cmd("CLIENT").arg("SETNAME").arg(name);
        let mut connection = self.connection.clone();
        // A command whose future isn't polled wouldn't be sent.
        drop(tokio::spawn(async move { connection.send_packed_commands(&naming, 0, 1).await }));
    }

    /// Like [`Wire::ask`], for a known number of commands.
    pub(super) async fn ask_for<const N: usize>(
        &self,
        commands: &Pipeline,
    ) -> Result<[Value; N], BackingError> {
        reply::exactly(self.ask(commands).await?)
    }

    /// Like [`Wire::ask`], for one command.
    pub(super) async fn ask_one(&self, command: &Cmd) -> Result<Value, BackingError> {
        let mut question = redis::pipe();
        question.add_command(command.clone());
        let [answer] = self.ask_for(&question).await?;
        Ok(answer)
    }

    /// Returns whether commands are unanswered; meaningful only if no caller waits for a reply.
    pub(super) fn has_unanswered(&self) -> bool {
        self.unanswered.load(Relaxed) > 0
    }

    /// Waits for the replies to all earlier commands. Call it only as the sole user of the connection.
    pub(super) async fn drain_replies(&self) -> Result<(), BackingError> {
        // Replies arrive in order, so this one is the last. A refusal is also a reply.
        self.ask_one(&redis::cmd("PING")).await?;
        self.unanswered.store(0, Relaxed);
        Ok(())
    }

    pub(super) fn is_closed(&self) -> bool {
        self.driver.is_finished()
    }

    /// Returns a handle that closes the connection, so that pending commands fail.
    pub(super) fn closer(&self) -> AbortHandle {
        self.driver.clone()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Maximum number of commands that wait to be written; beyond it, callers wait.
const QUEUED_MAX: usize = 32;

/// Commands that may be refused: some information is then missing, but everything else works.
const OPTIONAL: [&str; 3] = ["role", "time", "client|setname"];
/// Maximum number of logged refusals: one per command, plus some more, because servers may include the key.
const REFUSALS_MAX: usize = 32;
