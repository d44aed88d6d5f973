//! One connection to a server: commands out, replies in, in order.

use std::collections::BTreeSet;
use std::error::Error;
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

use super::asking::Asking;
use super::bounded::Bounded;
use super::dial::Target;
use super::reply::{self, Refused};
use super::settings::{Host, RemoteSettings, Secret};
use crate::backing::BackingError;

/// Parameters for opening connections.
#[derive(Clone)]
pub(super) struct Connector {
    target: Target,
    login: RedisConnectionInfo,
    client_name: String,
    timeout: Duration,
    refusals: Arc<Refusals>,
    redirections: Redirections,
}

/// Consequence of a reply that another node has the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Redirections {
    /// The server is a node of a cluster, which was not expected: it can't be used.
    Unexpected,
    /// The caller asks the other node.
    Followed,
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
    /// An endpoint has the data of another store.
    #[error("{0}")]
    OtherData(Arc<str>),
    /// No sentinel knows a master.
    #[error("no master is known: {0}")]
    UnknownMaster(Arc<str>),
    /// Another server is the master, or a nearer endpoint works again.
    #[error("another address is used")]
    Moved,
    #[error("connection setup failed")]
    SetUp(#[source] BackingError),
}

/// A connection that many callers use concurrently. Dropping its last copy closes it.
#[derive(Clone)]
pub(super) struct Wire {
    shared: Arc<SharedWire>,
    mode: Mode,
}

struct SharedWire {
    connection: MultiplexedConnection,
    driver: AbortHandle,
    demotion: Arc<Notify>,
    refusals: Arc<Refusals>,
    redirections: Redirections,
    /// Number of unanswered commands, including those whose callers have stopped waiting.
    unanswered: AtomicUsize,
}

/// How requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Plain,
    /// To a node that is taking over the slot.
    Asking,
}

impl Connector {
    /// Connects to a server of the store.
    pub(super) fn to_server(settings: &RemoteSettings, target: Target) -> Self {
        let login = login(settings.username.as_deref(), settings.password.as_ref());
        Self::new(settings, target, login.set_db(settings.database.into()))
    }

    /// Connects to a node of the store's cluster.
    pub(super) fn to_node(settings: &RemoteSettings, target: Target) -> Self {
        Self { redirections: Redirections::Followed, ..Self::to_server(settings, target) }
    }

    /// Connects to a sentinel of the store.
    pub(super) fn to_sentinel(settings: &RemoteSettings, target: Target) -> Self {
        let login = login(settings.sentinel_username.as_deref(), settings.sentinel_password.as_ref());
        Self::new(settings, target, login)
    }

    fn new(settings: &RemoteSettings, target: Target, login: RedisConnectionInfo) -> Self {
        Self {
            target,
            login,
            client_name: settings.client_name.as_str().to_owned(),
            timeout: settings.connect_timeout,
            refusals: Arc::default(),
            redirections: Redirections::Unexpected,
        }
    }

    /// Returns whether the server is a node of a cluster that is used as one.
    pub(super) fn redirections(&self) -> Redirections {
        self.redirections
    }

    /// Returns the same, for another server.
    pub(super) fn with_target(&self, target: Target) -> Self {
        Self { target, ..self.clone() }
    }

    /// Returns the host of the server; `None` for a socket.
    pub(super) fn host(&self) -> Option<&Host> {
        self.target.host()
    }

    /// Returns whether two connectors are for the same address.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.target.is_same(&other.target)
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
        let shared = SharedWire {
            connection,
            driver: driving.abort_handle(),
            demotion,
            refusals: Arc::clone(&self.refusals),
            redirections: self.redirections,
            unanswered: AtomicUsize::new(0),
        };
        let wire = Wire { shared: Arc::new(shared), mode: Mode::Plain };
        wire.set_name(&self.client_name);
        Ok((wire, driving))
    }
}

fn login(username: Option<&str>, password: Option<&Secret>) -> RedisConnectionInfo {
    let mut login =
        RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name();
    if let Some(username) = username {
        login = login.set_username(username);
    }
    if let Some(password) = password.map(Secret::reveal) {
        login = login.set_password(password);
    }
    login
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
        match self.mode {
            Mode::Plain => self.shared.ask(commands).await,
            Mode::Asking => {
                let asking = Asking::before(commands);
                Ok(asking.replies(self.shared.ask(&asking.pipeline).await?))
            }
        }
    }

    /// Returns the same connection in another mode.
    pub(super) fn in_mode(&self, mode: Mode) -> Self {
        Self { mode, ..self.clone() }
    }

    /// Sets the name in the server's client list, without waiting for the reply: the command may be forbidden, and nothing depends on it.
    fn set_name(&self, name: &str) {
        if name.is_empty() {
            return;
        }
        let mut naming = redis::pipe();
        naming.cmd("CLIENT").arg("SETNAME").arg(name);
        let mut connection = self.shared.connection.clone();
        // A command whose future isn't polled wouldn't be sent.
        drop(tokio::spawn(async move { connection.send_packed_commands(&naming, 0, 1).await }));
    }

    /// Subscribes to a channel.
    pub(super) async fn subscribe(&self, channel: &str) -> Result<(), BackingError> {
        let subscribed = self.shared.connection.clone().subscribe(channel).await;
        subscribed.map_err(|error| BackingError::Unreachable(Box::new(error)))
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
        self.shared.unanswered.load(Relaxed) > 0
    }

    /// Waits for the replies to all earlier commands. Call it only as the sole user of the connection.
    pub(super) async fn drain_replies(&self) -> Result<(), BackingError> {
        // Replies arrive in order, so this one is the last. A refusal is also a reply.
        self.ask_one(&redis::cmd("PING")).await?;
        self.shared.unanswered.store(0, Relaxed);
        Ok(())
    }

    pub(super) fn is_closed(&self) -> bool {
        self.shared.driver.is_finished()
    }

    /// Returns a handle that closes the connection, so that pending commands fail.
    pub(super) fn closer(&self) -> AbortHandle {
        self.shared.driver.clone()
    }
}

/// Returns an error with its causes on one line, because parsers of replies use several lines.
pub(super) fn with_causes(error: &dyn Error) -> Arc<str> {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text.lines().map(str::trim).collect::<Vec<_>>().join("; ").into()
}

impl SharedWire {
    async fn ask(&self, commands: &Pipeline) -> Result<Vec<Value>, BackingError> {
        self.unanswered.fetch_add(1, Relaxed);
        let answer = self.connection.clone().send_packed_commands(commands, 0, commands.len()).await;
        self.unanswered.fetch_sub(1, Relaxed);
        let values = answer.map_err(|error| BackingError::Unreachable(Box::new(error)))?;
        for value in &values {
            let Value::ServerError(error) = value else { continue };
            match Refused::of(error.clone()) {
                Refused::NotMaster(_) => self.demotion.notify_one(),
                Refused::Redirected(..) if self.redirections == Redirections::Unexpected => {
                    self.demotion.notify_one();
                }
                Refused::Forbidden(error) => self.refusals.log_once(error.details().unwrap_or_default()),
                _ => {}
            }
        }
        Ok(values)
    }
}

impl Drop for SharedWire {
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
