//! Commands that call the admin API of a running process.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use terminal::input_file::{self, Kind, SECRET_BYTES_MAX};
use terminal::output;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::cli::AdminArguments;
use crate::lifecycle;

pub(crate) mod purge;
pub(crate) mod status;

/// Returns the texts in a list of the response.
fn texts<'a>(answer: &'a Value, key: &str) -> impl Iterator<Item = &'a str> {
    list(answer, key).filter_map(Value::as_str)
}

fn list<'a>(answer: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    answer.get(key).and_then(Value::as_array).into_iter().flatten()
}

/// Returns a line for each site, by name, with the URLs that belong to it.
fn sites(answer: &Value) -> BTreeSet<String> {
    let line = |site: &Value| {
        let text = |key: &str| site.get(key).and_then(Value::as_str).unwrap_or_default();
        let hosts: Vec<_> = texts(site, "hosts").collect();
        let hosts = if hosts.is_empty() { "any other host".to_owned() } else { hosts.join(", ") };
        format!("site {}: {hosts}, paths below {}", text("name"), text("path_prefix"))
    };
    list(answer, "sites").map(line).collect()
}

/// Reloads the configuration of the process.
pub(crate) fn reload(arguments: &AdminArguments) -> anyhow::Result<()> {
    recognise(arguments)?;
    let answer = post(arguments, "/reload", &Value::Null)?;
    texts(&answer, "warnings").for_each(output::warning);
    output::result("configuration reloaded");
    Ok(())
}

/// Makes the process start its successor.
pub(crate) fn upgrade(arguments: &AdminArguments) -> anyhow::Result<()> {
    recognise(arguments)?;
    let answer = post(arguments, "/upgrade", &Value::Null)?;
    let process = |key| answer.get(key).and_then(Value::as_u64).unwrap_or_default();
    let (new, old) = (process("process"), process("predecessor"));
    output::result(&format!("process {new} serves; process {old} finishes its requests and ends"));
    Ok(())
}

/// Checks that the address belongs to an admin API before a token or command is sent to it: a wrong address may belong
/// to a gateway, which would forward both to an origin.
///
/// # Errors
///
/// Returns an error if no server answers, or if it isn't an admin API.
pub(crate) fn recognise(arguments: &AdminArguments) -> anyhow::Result<()> {
    match answering(arguments)? {
        Some(Answering::Admin) => Ok(()),
        Some(Answering::Probes) => bail!(only_probes(arguments.admin)),
        None => bail!(not_admin(arguments.admin)),
    }
}

/// Checks that the address belongs to an admin API or a listener for probes.
///
/// # Errors
///
/// Returns an error if no server answers, or if it is neither.
pub(crate) fn recognise_probes(arguments: &AdminArguments) -> anyhow::Result<()> {
    match answering(arguments)? {
        Some(Answering::Admin | Answering::Probes) => Ok(()),
        None => bail!(not_admin(arguments.admin)),
    }
}

/// The kind of server at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answering {
    Admin,
    /// A listener of `[admin] probes_listen`, which has no index.
    Probes,
}

fn answering(arguments: &AdminArguments) -> anyhow::Result<Option<Answering>> {
    // An unreadable token file is reported first, before any server is contacted.
    arguments.token_file.as_deref().map(bearer).transpose()?;
    let stranger = AdminArguments { admin: arguments.admin, token_file: None };
    let (_, answer) = call(&stranger, Request::get("/"), Bytes::new())?;
    Ok(Answering::of(&answer))
}

impl Answering {
    /// Recognises the index of an admin API, or the API's refusal to show it.
    fn of(answer: &[u8]) -> Option<Self> {
        let answer: Value = serde_json::from_slice(answer).ok()?;
        let text = |key: &str| answer.get(key).and_then(Value::as_str);
        match (text("name"), text("error")) {
            (Some("larder"), _) if answer.get("routes").is_some() => Some(Self::Admin),
            (_, Some("token_missing" | "host_not_loopback")) => Some(Self::Admin),
            (_, Some("route_unknown")) => Some(Self::Probes),
            _ => None,
        }
    }
}

fn only_probes(admin: SocketAddr) -> String {
    format!(
        "{admin} serves only probes and metrics (`[admin] probes_listen`): give the address of `[admin] listen` with --admin"
    )
}

fn not_admin(admin: SocketAddr) -> String {
    format!(
        "{admin} isn't an admin API of Larder: give the address of `[admin] listen` with --admin; {KV_HAS_NONE}"
    )
}

/// Sends a request to the admin API.
///
/// # Errors
///
/// Returns an error if no server answers, or if the API refuses the request.
pub(crate) fn post(arguments: &AdminArguments, path: &str, body: &Value) -> anyhow::Result<Value> {
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let (status, body) = call(arguments, Request::post(path), body)?;
    let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
    if status != StatusCode::OK {
        bail!(Refused(refusal(status, &answer)));
    }
    Ok(answer)
}

/// Calls the admin API and returns the response, with any status.
///
/// # Errors
///
/// Returns an error if no server answers.
fn call(
    arguments: &AdminArguments,
    request: http::request::Builder,
    body: Bytes,
) -> anyhow::Result<(StatusCode, Bytes)> {
    let request = completed(arguments, request, body)?;
    lifecycle::runtime()?.block_on(async {
        let exchange = exchange(arguments.admin, request);
        let answer = timeout(ANSWER_LIMIT, exchange).await;
        answer.with_context(|| format!("no answer from {} within {ANSWER_LIMIT:?}", arguments.admin))?
    })
}

fn completed(
    arguments: &AdminArguments,
    request: http::request::Builder,
    body: Bytes,
) -> anyhow::Result<Request<Full<Bytes>>> {
    let mut request = request
        .header(HOST, arguments.admin.to_string())
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(body))?;
    if let Some(file) = &arguments.token_file {
        request.headers_mut().insert(AUTHORIZATION, bearer(file)?);
    }
    Ok(request)
}

fn bearer(file: &Path) -> anyhow::Result<HeaderValue> {
    let bytes = input_file::read(file, Kind::RegularOrPipe, SECRET_BYTES_MAX);
    let bytes = bytes.with_context(|| format!("{} can't be read", file.display()))?;
    let text = String::from_utf8_lossy(&bytes);
    let token = text.lines().next().unwrap_or_default().trim();
    ensure!(!token.is_empty(), "the first line of {} must be the token; it is empty", file.display());
    let value = HeaderValue::from_str(&format!("Bearer {token}"));
    let mut value = value.with_context(|| format!("the first line of {} isn't a token", file.display()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Sends a request, and repeats it once if the connection closes first: a process that hands over to its successor may
/// close a connection before it has read the request.
async fn exchange(admin: SocketAddr, request: Request<Full<Bytes>>) -> anyhow::Result<(StatusCode, Bytes)> {
    let again = request.clone();
    match try_exchange(admin, request).await {
        Err(error) if is_unanswered(&error) => try_exchange(admin, again)
            .await
            .map_err(|error| if is_unanswered(&error) { error.context(closed(admin)) } else { error }),
        outcome => outcome,
    }
}

fn closed(admin: SocketAddr) -> String {
    format!(
        "{admin} closes connections without an answer: Larder may be stopping; otherwise, give the address of `[admin] listen` with --admin"
    )
}

async fn try_exchange(
    admin: SocketAddr,
    request: Request<Full<Bytes>>,
) -> anyhow::Result<(StatusCode, Bytes)> {
    let stream = TcpStream::connect(admin).await.with_context(|| {
        format!(
            "can't reach the admin API on {admin}: start Larder, or give the address of `[admin] listen` with --admin ({KV_HAS_NONE})"
        )
    })?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let response = sender.send_request(request).await.map_err(|error| match error.is_parse() {
        true => anyhow::Error::new(error).context(not_admin(admin)),
        false => error.into(),
    })?;
    let answer = read(response).await;
    driver.abort();
    answer
}

/// Returns whether the connection closed before any byte of the response.
fn is_unanswered(error: &anyhow::Error) -> bool {
    let is_end = |error: &hyper::Error| {
        let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<io::Error>());
        let is_reset = cause.is_some_and(|cause| {
            matches!(
                cause.kind(),
                ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe
            )
        });
        error.is_incomplete_message() || error.is_canceled() || error.is_closed() || is_reset
    };
    error.downcast_ref().is_some_and(is_end)
}

async fn read(response: Response<Incoming>) -> anyhow::Result<(StatusCode, Bytes)> {
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| anyhow::anyhow!("the answer can't be read: {error}"))?;
    Ok((status, body.to_bytes()))
}

/// A request that the API refused. Later requests may succeed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refused(String);

/// Formats the API's reason, with problems of a configuration or known sites, one per line.
fn refusal(status: StatusCode, answer: &Value) -> String {
    if answer.get("error").and_then(Value::as_str) == Some("token_missing") {
        return "the admin API needs a token: give --token-file".to_owned();
    }
    let message = answer.get("message").and_then(Value::as_str).unwrap_or("no reason given");
    let lines: String = texts(answer, "problems")
        .map(str::to_owned)
        .chain(sites(answer))
        .map(|line| format!("\n{line}"))
        .collect();
    let told =
        format!("{message}{lines}").replace(|letter: char| letter != '\n' && output::is_control(letter), " ");
    format!("refused ({status}): {told}")
}

const KV_HAS_NONE: &str = "`larder kv` has one only with `--admin` or `[admin]`";
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// The metrics of a thousand sites, or the problems of a large file, fit into this size.
const ANSWER_BYTES_MAX: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admin_apis_are_recognised() {
        #[track_caller]
        fn check(answer: &str, expected: Option<Answering>) {
            assert_eq!(Answering::of(answer.as_bytes()), expected, "{answer}");
        }
        check(r#"{"name":"larder","version":null,"routes":[]}"#, Some(Answering::Admin));
        check(r#"{"error":"token_missing","message":"send it"}"#, Some(Answering::Admin));
        check(r#"{"error":"route_unknown","message":"no such path"}"#, Some(Answering::Probes));
        check(r#"{"name":"larder"}"#, None);
        check(r#"{"error":"not found"}"#, None);
        check(r#"{"name":"shop","routes":[]}"#, None);
        check("<html>", None);
        check("", None);
        check("[]", None);
    }
}
