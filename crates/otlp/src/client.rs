//! One connection to the collector, kept between requests.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Request};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::answer::{Verdict, judge};
use crate::endpoint::Endpoint;

/// The reason why there is no response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("can't connect: {0}")]
    Connect(std::io::Error),
    #[error("not a valid server name")]
    Name,
    #[error("no answer: {0}")]
    Http(#[from] hyper::Error),
    #[error("no answer in time")]
    Late,
}

/// The client of the collector.
pub(crate) struct Client {
    endpoint: Endpoint,
    fields: HeaderMap,
    tls: Option<Arc<ClientConfig>>,
    kept: Option<SendRequest<Full<Bytes>>>,
}

/// Maximum size of a response that is read: only a short message in it is used.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");

impl Client {
    pub(crate) fn new(endpoint: Endpoint, fields: HeaderMap, tls: Option<Arc<ClientConfig>>) -> Self {
        Self { endpoint, fields, tls, kept: None }
    }

    /// Posts the bytes of a message.
    pub(crate) async fn post(&mut self, content: Bytes) -> Result<Verdict, Failure> {
        let mut connection = self.connection().await?;
        let response = connection.send_request(self.request(content)).await?;
        let status = response.status().as_u16();
        let retry_after = response.headers().get(RETRY_AFTER).cloned();
        let answer = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        // The connection is kept only if its response was read to the end.
        let answer = match answer {
            Ok(answer) => {
                self.kept = Some(connection);
                answer.to_bytes()
            }
            Err(_) => Bytes::new(),
        };
        Ok(judge(status, retry_after.as_ref().map(HeaderValue::as_bytes), &answer))
    }

    fn request(&self, content: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(content));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = self.endpoint.path.parse().expect("it was part of a URL");
        *request.headers_mut() = self.fields.clone();
        let authority = HeaderValue::from_str(&self.endpoint.authority).expect("it was part of a URL");
        request.headers_mut().insert(HOST, authority);
        request.headers_mut().insert(CONTENT_TYPE, PROTOBUF);
        request
    }

    async fn connection(&mut self) -> Result<SendRequest<Full<Bytes>>, Failure> {
        if let Some(mut kept) = self.kept.take()
            && kept.ready().await.is_ok()
        {
            return Ok(kept);
        }
        let address = (&*self.endpoint.host, self.endpoint.port);
        let stream = TcpStream::connect(address).await.map_err(Failure::Connect)?;
        match &self.tls {
            None => handshake(stream).await,
            Some(config) => {
                let name = ServerName::try_from(String::from(&*self.endpoint.host));
                let name = name.map_err(|_| Failure::Name)?;
                let connector = TlsConnector::from(Arc::clone(config));
                handshake(connector.connect(name, stream).await.map_err(Failure::Connect)?).await
            }
        }
    }
}

async fn handshake<S>(stream: S) -> Result<SendRequest<Full<Bytes>>, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // The task's result is not needed: the sender notices the end of the connection.
    drop(tokio::spawn(connection));
    Ok(sender)
}
