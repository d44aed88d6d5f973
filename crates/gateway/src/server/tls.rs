//! stub, replaced by the TLS server.
use super::wire::Stream;
use crate::config::{Http2, ListenerTls};
use std::io;
use std::sync::Arc;
pub(crate) enum Negotiated {
    Http1,
    Http2,
}
pub(crate) struct Accepted<S> {
    pub(crate) stream: tokio_rustls::server::TlsStream<S>,
    pub(crate) protocol: Negotiated,
}
pub(crate) fn server_config(
    _tls: &ListenerTls,
    _http2: Http2,
) -> Result<Arc<rustls::ServerConfig>, rustls::Error> {
    Err(rustls::Error::General("stub".into()))
}
pub(crate) async fn accept<S: Stream>(config: Arc<rustls::ServerConfig>, io: S) -> io::Result<Accepted<S>> {
    let stream = tokio_rustls::TlsAcceptor::from(config).accept(io).await?;
    Ok(Accepted { stream, protocol: Negotiated::Http1 })
}
