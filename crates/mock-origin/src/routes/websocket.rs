//! `/ws`: a WebSocket that sends back what it gets.

use futures_util::{SinkExt, StreamExt};
use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_TYPE, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use http::{HeaderMap, HeaderName, Method, StatusCode, Version, request::Parts};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{self, handshake::derive_accept_key, protocol::Role},
};

use crate::answer::Answer;

/// 101 for a proper handshake, otherwise 426 with what is missing.
//= RFC 6455 section 4.2.1: reading the client's opening handshake
pub(super) fn handshake(head: &Parts) -> Answer {
    let headers = &head.headers;
    let wanted = head.method == Method::GET
        && head.version == Version::HTTP_11
        && lists(headers, UPGRADE, "websocket")
        && lists(headers, CONNECTION, "upgrade")
        && lists(headers, SEC_WEBSOCKET_VERSION, "13");
    let Some(key) = headers.get(SEC_WEBSOCKET_KEY).filter(|_| wanted) else {
        return Answer::refusal(
            StatusCode::UPGRADE_REQUIRED,
            "a WebSocket handshake of version 13 is needed",
        )
        .with(UPGRADE, "websocket")
        .with(SEC_WEBSOCKET_VERSION, "13");
    };
    let accept = derive_accept_key(key.as_bytes());
    let mut answer = Answer::text(StatusCode::SWITCHING_PROTOCOLS, "")
        .with(UPGRADE, "websocket")
        .with(CONNECTION, "Upgrade")
        .with(SEC_WEBSOCKET_ACCEPT, &accept);
    for name in [CONTENT_TYPE, CACHE_CONTROL] {
        answer.fields.remove(name);
    }
    answer
}

/// Echoes on the connection once it is handed over; ends with it.
pub(super) fn spawn_echo(upgrade: Option<OnUpgrade>) {
    let Some(upgrade) = upgrade else { return };
    tokio::spawn(async move {
        let stream = match upgrade.await {
            Ok(upgraded) => TokioIo::new(upgraded),
            Err(error) => return tracing::debug!(%error, "the connection was not handed over"),
        };
        let socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
        if let Err(error) = echo(socket).await {
            tracing::debug!(%error, "WebSocket ended");
        }
    });
}

/// The library answers pings and the closing handshake while it is polled.
async fn echo<S>(mut socket: WebSocketStream<S>) -> Result<(), tungstenite::Error>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    while let Some(message) = socket.next().await {
        let message = message?;
        if message.is_text() || message.is_binary() {
            socket.send(message).await?;
        }
    }
    Ok(())
}

fn lists(headers: &HeaderMap, name: HeaderName, token: &str) -> bool {
    let lines = headers.get_all(name).iter().filter_map(|line| line.to_str().ok());
    lines.into_iter().flat_map(|line| line.split(',')).any(|member| member.trim().eq_ignore_ascii_case(token))
}
