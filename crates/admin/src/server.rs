//! Listeners, connections, and the steps of a request: guard, route, body, action.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::{self, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::{CONNECTION, EXPECT, HeaderValue};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use telemetry::{AdminRefusal, Telemetry, Warnings};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use crate::answer::{self, Answer, Refusal};
use crate::control::{Control, Readiness};
use crate::error::AdminError;
use crate::explain;
use crate::guard::Guard;
use crate::purge;
use crate::routes::{self, Action, Lookup, ROUTES, Reach};
use crate::secret::Secret;

/// Configuration of the listeners.
#[derive(Debug, Clone)]
pub struct AdminConfig {
    /// Address of the admin listener; port 0 picks a free port.
    pub listen: SocketAddr,
    /// The routes of that listener: all, or probes and metrics only, without a token.
    pub reach: Reach,
    /// Address of the listener with probes and metrics only, without a token.
    pub probes_listen: Option<SocketAddr>,
    /// The token; without one `listen` must be a loopback address.
    pub token: Option<Secret>,
    /// Limits, the same for both listeners.
    pub limits: AdminLimits,
}

/// Limits of a listener.
#[derive(Debug, Clone, Copy)]
pub struct AdminLimits {
    /// Maximum number of open connections. At the limit, a new connection replaces the one that has been idle longest, or, on the listener
    /// for probes, the oldest.
    pub connections_max: usize,
    /// Time for a request head, including idle time between requests.
    pub head_timeout_ms: u64,
    /// Time for a request head on the listener for probes, which serves one request per connection.
    pub probe_head_timeout_ms: u64,
    /// Time for a request body.
    pub body_timeout_ms: u64,
    /// Maximum size of a request body.
    pub body_bytes_max: usize,
    /// Age at which a connection is closed after the request in progress.
    pub connection_age_ms: u64,
}

impl Default for AdminLimits {
    fn default() -> Self {
        Self {
            connections_max: 64,
            head_timeout_ms: 30_000,
            probe_head_timeout_ms: 5_000,
            body_timeout_ms: 10_000,
            body_bytes_max: 64 * 1024,
            connection_age_ms: 600_000,
        }
    }
}

/// Listening sockets that the process has inherited from its parent.
#[derive(Debug, Default)]
pub struct Inherited {
    /// The socket for [`AdminConfig::listen`].
    pub listen: Option<net::TcpListener>,
    /// The socket for [`AdminConfig::probes_listen`].
    pub probes_listen: Option<net::TcpListener>,
}

/// Running listeners. They run until the shutdown, even if this value is dropped.
#[derive(Debug)]
pub struct Admin {
    /// The address of the admin listener, with the actual port.
    pub address: SocketAddr,
    /// The routes of the admin listener.
    pub reach: Reach,
    /// The address of the probes listener, with the actual port.
    pub probes_address: Option<SocketAddr>,
    /// The sockets, which the tasks own.
    listening: Vec<Weak<TcpListener>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Admin {
    /// Returns the listening sockets, for a process that takes them over.
    ///
    /// # Errors
    ///
    /// Returns an error if the process has no file descriptor left.
    pub fn listening(&self) -> io::Result<Vec<OwnedFd>> {
        let open = self.listening.iter().filter_map(Weak::upgrade);
        open.map(|listener| listener.as_fd().try_clone_to_owned()).collect()
    }

    /// Waits until the shutdown has begun and the connections are closed.
    pub async fn finished(self) {
        for task in self.tasks {
            // The panic of a listener has already been reported.
            let _ = task.await;
        }
    }
}

struct Context {
    control: Arc<dyn Control>,
    telemetry: Arc<Telemetry>,
    guard: Guard,
    reach: Reach,
    limits: AdminLimits,
    begun: Instant,
    refusals: Refusals,
}

/// Rate limits of log lines about refused requests, by kind, so that many refusals of one kind don't hide others.
type Refusals = [Warnings<10>; AdminRefusal::ALL.len()];

/// Time for connections to finish after the shutdown: slightly longer than a purge waits for silent instances.
const GRACE: Duration = Duration::from_secs(5);
/// Time in which a connection without a request may still send one after the shutdown.
const FIRST_REQUEST_WAIT: Duration = Duration::from_millis(500);
/// Pause after a failed accept: without one, a process out of descriptors would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const HEAD_BYTES_MAX: usize = 16 * 1024;
const HEADER_FIELDS_MAX: usize = 64;
const DISCARD_BYTES_MAX: usize = 1024 * 1024;

/// Bound listeners that accept no connections yet.
#[derive(Debug)]
pub struct Bound {
    config: AdminConfig,
    guard: Guard,
    listener: (Arc<TcpListener>, SocketAddr),
    probes: Option<(Arc<TcpListener>, SocketAddr)>,
}

impl Bound {
    /// Binds the listeners, unless they are inherited. Must be called inside a runtime.
    ///
    /// # Errors
    ///
    /// Returns [`AdminError::TokenRequired`] if there is no token and `listen` is not on loopback, or
    /// [`AdminError::AddressNotBound`].
    pub async fn bind(mut config: AdminConfig, inherited: Inherited) -> Result<Self, AdminError> {
        let guard = match config.token.take() {
            _ if config.reach == Reach::Probes => probes_guard(config.listen),
            Some(token) => Guard::Token(token),
            None if config.listen.ip().is_loopback() => Guard::Loopback,
            None => return Err(AdminError::TokenRequired { address: config.listen }),
        };
        let listener = bind(config.listen, inherited.listen).await?;
        let probes = match config.probes_listen {
            Some(address) => Some(bind(address, inherited.probes_listen).await?),
            None => None,
        };
        Ok(Self { config, guard, listener, probes })
    }

    /// Serves the listeners on the current runtime, until `shutdown` resolves.
    pub fn serve(
        self,
        control: &Arc<dyn Control>,
        telemetry: &Arc<Telemetry>,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Admin {
        let Self { config: AdminConfig { reach, limits, .. }, guard, listener: (listener, address), probes } =
            self;
        let probes_address = probes.as_ref().map(|(_, address)| *address);
        let context = |guard, reach| {
            let (control, telemetry) = (Arc::clone(control), Arc::clone(telemetry));
            let (begun, refusals) = (Instant::now(), Refusals::default());
            Arc::new(Context { control, telemetry, guard, reach, limits, begun, refusals })
        };
        let listening = [Some(&listener), probes.as_ref().map(|(listener, _)| listener)];
        let listening = listening.into_iter().flatten().map(Arc::downgrade).collect();
        let (end, ended) = watch::channel(());
        let mut tasks = vec![tokio::spawn(listen(listener, context(guard, reach), ended.clone()))];
        if let Some((listener, address)) = probes {
            tasks.push(tokio::spawn(listen(listener, context(probes_guard(address), Reach::Probes), ended)));
        }
        tokio::spawn(async move {
            shutdown.await;
            // Dropping the sender signals the shutdown to all receivers.
            drop(end);
        });
        Admin { address, reach, probes_address, listening, tasks }
    }
}

/// Returns the guard of the probes listener. Its routes change nothing, but on loopback, web pages must not read the responses.
fn probes_guard(address: SocketAddr) -> Guard {
    if address.ip().is_loopback() { Guard::Loopback } else { Guard::Open }
}

async fn bind(
    address: SocketAddr,
    inherited: Option<net::TcpListener>,
) -> Result<(Arc<TcpListener>, SocketAddr), AdminError> {
    let not_bound = |source| AdminError::AddressNotBound { address, source };
    let listener = match inherited {
        Some(socket) => socket.set_nonblocking(true).and_then(|()| TcpListener::from_std(socket)),
        None => TcpListener::bind(address).await,
    };
    let listener = listener.map_err(not_bound)?;
    let bound = listener.local_addr().map_err(not_bound)?;
    Ok((Arc::new(listener), bound))
}

async fn listen(listener: Arc<TcpListener>, context: Arc<Context>, mut ended: watch::Receiver<()>) {
    let mut open: VecDeque<Open> = VecDeque::new();
    let mut connections = JoinSet::new();
    let (begun, failures) = (Instant::now(), Warnings::<1>::default());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = ended.changed() => break,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, peer)) => {
                if !has_room(&mut open, &context) {
                    tracing::warn!(%peer, "admin connection closed: too many are open");
                    continue;
                }
                let answering = Arc::<AtomicBool>::default();
                let asked = Asked { stream, peer };
                let serving = connection(asked, Arc::clone(&answering), Arc::clone(&context), ended.clone());
                open.push_back(Open { task: connections.spawn(serving), answering });
            }
            Err(error) => {
                if let Some(left_out) = failures.take(begun.elapsed().as_secs()) {
                    tracing::warn!(%error, left_out, "admin listener cannot accept");
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let rest = async { while connections.join_next().await.is_some() {} };
    if timeout(GRACE, rest).await.is_err() {
        connections.shutdown().await;
    }
}

/// Shortens a client's text for the log: its beginning, and the number of omitted bytes. The limit exceeds any route.
fn shown(text: &str) -> Cow<'_, str> {
    const BYTES_MAX: usize = 256;
    let Some(rest) = text.len().checked_sub(BYTES_MAX).filter(|rest| *rest > 0) else { return text.into() };
    let end = (0..=BYTES_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    format!("{} ... ({} more bytes)", &text[..end], rest + BYTES_MAX - end).into()
}

/// Returns the reason of a refusal, for the log.
fn why(refusal: AdminRefusal) -> &'static str {
    match refusal {
        AdminRefusal::BrowserRequest => "a web page sent it",
        AdminRefusal::HostNotLoopback => "its host is not this machine",
        AdminRefusal::MethodNotAllowed => "the method is not allowed for the path",
        AdminRefusal::TokenMissing => "it has no token",
        AdminRefusal::TokenWrong => "its token is wrong",
    }
}

/// The state of an open connection that the accept loop needs.
struct Open {
    task: AbortHandle,
    /// Whether it has an accepted request in progress.
    answering: Arc<AtomicBool>,
}

/// Closes a connection in favour of a new one, so that clients that open connections without sending requests don't block others.
fn has_room(open: &mut VecDeque<Open>, context: &Context) -> bool {
    open.retain(|connection| !connection.task.is_finished());
    if open.len() < context.limits.connections_max {
        return true;
    }
    let gives_way = |connection: &Open| match context.reach {
        Reach::Probes => true,
        Reach::Admin => !connection.answering.load(Ordering::Relaxed),
    };
    let oldest = open.iter().position(gives_way).and_then(|oldest| open.remove(oldest));
    oldest.inspect(|connection| connection.task.abort()).is_some()
}

/// A connection and the address of its client.
struct Asked {
    stream: TcpStream,
    peer: SocketAddr,
}

async fn connection(
    Asked { stream, peer }: Asked,
    answering: Arc<AtomicBool>,
    context: Arc<Context>,
    mut ended: watch::Receiver<()>,
) {
    let limits = context.limits;
    let (head_timeout_ms, keep_alive) = match context.reach {
        Reach::Probes => (limits.probe_head_timeout_ms, false),
        Reach::Admin => (limits.head_timeout_ms, true),
    };
    let (asked, is_last) = (Notify::new(), Arc::new(AtomicBool::new(false)));
    let service = service_fn(|request| {
        asked.notify_one();
        let (context, answering, is_last) =
            (Arc::clone(&context), Arc::clone(&answering), Arc::clone(&is_last));
        async move {
            let mut answer = context.answer(peer, request, &answering).await;
            answering.store(false, Ordering::Relaxed);
            if is_last.load(Ordering::Relaxed) {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(head_timeout_ms))
        .keep_alive(keep_alive)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADER_FIELDS_MAX);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let finished = tokio::select! {
        result = connection.as_mut() => Some(result),
        _ = ended.changed() => None,
        () = sleep(Duration::from_millis(limits.connection_age_ms)) => None,
    };
    let result = match finished {
        Some(result) => result,
        None => {
            is_last.store(true, Ordering::Relaxed);
            // Closing earlier would lose a request that is being received.
            let first = timeout(FIRST_REQUEST_WAIT, asked.notified());
            tokio::select! {
                // The connection may end without a request.
                _ = connection.as_mut() => return,
                _ = first => {}
            }
            connection.as_mut().graceful_shutdown();
            timeout(GRACE, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "admin connection broke");
    }
}

impl Context {
    /// Answers a request. `answering` is set while an accepted request is in progress.
    async fn answer(&self, peer: SocketAddr, request: Request<Incoming>, answering: &AtomicBool) -> Answer {
        let (head, mut body) = request.into_parts();
        match self.try_answer(peer, &head, &mut body, answering).await {
            Ok(answer) => answer,
            // The time limit of the body has passed, so the rest of it isn't read.
            Err(refusal @ Refusal::BodyTooSlow) => refusal.into_answer(),
            Err(refusal) => {
                answering.store(false, Ordering::Relaxed);
                self.note_refusal(peer, &head, &refusal);
                self.discard(&head, body).await;
                refusal.into_answer()
            }
        }
    }

    /// Handles a request. The token is checked first: without it, a client learns nothing about routes.
    async fn try_answer(
        &self,
        peer: SocketAddr,
        head: &Parts,
        body: &mut Incoming,
        answering: &AtomicBool,
    ) -> Result<Answer, Refusal> {
        self.guard.check(&head.method, &head.uri, &head.headers)?;
        let route = match routes::lookup(&head.method, head.uri.path(), self.reach) {
            Lookup::Found(route) => route,
            Lookup::OtherMethod(allow) => return Err(Refusal::MethodNotAllowed { allow }),
            Lookup::Unknown => return Err(Refusal::RouteUnknown),
        };
        answering.store(true, Ordering::Relaxed);
        match route.action {
            Action::Explain => self.explain(head.uri.query(), &self.read(body).await?).await,
            Action::Index => Ok(self.index()),
            Action::Live => Ok(answer::json(StatusCode::OK, &json!({ "live": true }))),
            Action::Metrics => Ok(self.metrics()),
            Action::Ready => Ok(self.ready()),
            Action::Purge => self.purge(peer, head.uri.query(), &self.read(body).await?).await,
            Action::Reload => self.reload().await,
            Action::Upgrade => self.upgrade().await,
        }
    }

    /// Counts and logs unauthorised requests, except requests for the list of routes without a token: a client such as
    /// `larder purge` may not know yet that it needs one.
    fn note_refusal(&self, peer: SocketAddr, head: &Parts, refusal: &Refusal) {
        let asks_what_there_is = head.method == Method::GET && head.uri.path() == "/";
        let refused = match refusal.counted() {
            None => return,
            Some(AdminRefusal::TokenMissing) if asks_what_there_is => return,
            Some(refused) => refused,
        };
        self.telemetry.background().admin_refused(refused);
        if let Some(left_out) = self.refusals[refused as usize].take(self.begun.elapsed().as_secs()) {
            let (why, client) = (why(refused), peer.ip());
            let (method, path) = (shown(head.method.as_str()), shown(head.uri.path()));
            tracing::warn!(%client, %method, path = &*path, left_out, "admin request refused: {why}");
        }
    }

    async fn read(&self, body: &mut Incoming) -> Result<Bytes, Refusal> {
        let bytes_max = self.limits.body_bytes_max;
        if body.size_hint().lower() > bytes_max as u64 {
            return Err(Refusal::BodyTooLarge);
        }
        match timeout(self.body_timeout(), Limited::new(body, bytes_max).collect()).await {
            Err(_) => Err(Refusal::BodyTooSlow),
            Ok(Ok(collected)) => Ok(collected.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Refusal::BodyTooLarge),
            Ok(Err(_)) => Err(Refusal::BodyBroken),
        }
    }

    /// Reads part of an unwanted body: closing a socket with unread bytes resets the connection, and the client would
    /// never see the refusal. A client that waits for 100 (Continue) sends nothing, and must not be invited to.
    async fn discard(&self, head: &Parts, body: Incoming) {
        if body.is_end_stream() || head.headers.contains_key(EXPECT) {
            return;
        }
        // An error doesn't matter: the client gets the refusal in any case.
        let _ = timeout(self.body_timeout(), Limited::new(body, DISCARD_BYTES_MAX).collect()).await;
    }

    fn body_timeout(&self) -> Duration {
        Duration::from_millis(self.limits.body_timeout_ms)
    }

    fn index(&self) -> Answer {
        let describe = |route: &routes::Route| json!({ "method": route.method.as_str(), "path": route.path, "summary": route.summary });
        let routes: Vec<_> = ROUTES.iter().map(describe).collect();
        let version = self.telemetry.build().map(|build| build.version);
        answer::json(StatusCode::OK, &json!({ "name": "larder", "version": version, "routes": routes }))
    }

    fn metrics(&self) -> Answer {
        answer::with_type(StatusCode::OK, telemetry::CONTENT_TYPE, self.telemetry.exposition())
    }

    fn ready(&self) -> Answer {
        let (status, reasons) = match self.control.readiness() {
            Readiness::Ready => (StatusCode::OK, &[][..]),
            Readiness::Starting => (StatusCode::SERVICE_UNAVAILABLE, &["starting"][..]),
            Readiness::Draining => (StatusCode::SERVICE_UNAVAILABLE, &["draining"][..]),
        };
        answer::json(status, &json!({ "ready": status == StatusCode::OK, "reasons": reasons }))
    }

    async fn explain(&self, query: Option<&str>, body: &[u8]) -> Result<Answer, Refusal> {
        let question = explain::read(query, body)?;
        let explanation = self.control.explain(question).await.map_err(Refusal::Explain)?;
        self.telemetry.background().explanation();
        Ok(answer::json(StatusCode::OK, &explanation))
    }

    async fn purge(&self, peer: SocketAddr, query: Option<&str>, body: &[u8]) -> Result<Answer, Refusal> {
        let order = purge::read(query, body)?;
        let begun = Instant::now();
        let outcome = self.control.purge(&order).await.map_err(Refusal::Purge)?;
        if outcome.dry_run {
            return Ok(answer::json(StatusCode::OK, &outcome));
        }
        self.telemetry.background().purge(&outcome.counted(order.mode, begun.elapsed()));
        outcome.log(&order, peer.ip());
        Ok(answer::json(StatusCode::OK, &outcome))
    }

    async fn reload(&self) -> Result<Answer, Refusal> {
        match self.control.reload().await {
            Ok(warnings) => {
                Ok(answer::json(StatusCode::OK, &json!({ "reloaded": true, "warnings": warnings })))
            }
            Err(problems) => Err(Refusal::ConfigurationRefused { problems }),
        }
    }

    async fn upgrade(&self) -> Result<Answer, Refusal> {
        let process = self.control.upgrade().await.map_err(|reason| Refusal::UpgradeFailed { reason })?;
        Ok(answer::json(StatusCode::OK, &json!({ "process": process, "predecessor": std::process::id() })))
    }
}
