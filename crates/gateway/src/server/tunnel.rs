//! After 101 (Switching Protocols) the connection is a tunnel: bytes in both directions, until one side ends.

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy_bidirectional};

/// Bytes that went through a tunnel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Carried {
    pub(crate) from_client_bytes: u64,
    pub(crate) to_client_bytes: u64,
}

/// Copies in both directions until both have ended or one broke. `early` is what the client had already sent.
pub(crate) async fn run<C, O>(client: &mut C, origin: &mut O, early: &[u8]) -> Carried
where
    C: AsyncRead + AsyncWrite + Unpin,
    O: AsyncRead + AsyncWrite + Unpin,
{
    let early_bytes = early.len() as u64;
    if origin.write_all(early).await.is_err() {
        return Carried::default();
    }
    // A tunnel that breaks has no better way to say so than to end.
    let (from_client_bytes, to_client_bytes) = copy_bidirectional(client, origin).await.unwrap_or_default();
    Carried { from_client_bytes: from_client_bytes + early_bytes, to_client_bytes }
}
