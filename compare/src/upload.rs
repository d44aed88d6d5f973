//! Uploads: time of the server's core per MiB of content on its way to the origin.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bench::peers::{Peer, Shaping};
use bench::server::ServerProbe;

use crate::Effort;
use crate::output;
use crate::plan::What;
use crate::row::{Row, Subject};
use crate::stage::{SERVER_CORE, Server, Theatre};

const PIECE_BYTES: usize = 1 << 20;
/// Number of pieces in an upload.
const PIECES: usize = 64;

/// # Errors
/// Returns an error if a server doesn't accept an upload, or doesn't forward it.
pub(crate) fn measure(theatre: &Theatre, peers: &[Peer], effort: Effort) -> anyhow::Result<Row> {
    let servers = theatre.start_all(peers, Shaping::None);
    let title = "upload of 64 MiB";
    let mut row = Row::new(What::Upload, title, &[("core time per MiB", "µs"), ("MiB/s", "")]);
    for server in &servers {
        upload(server.addresses.http).with_context(|| server.peer.recipe().title)?;
    }
    for _ in output::rounds(title, effort.rounds) {
        for server in &servers {
            let figures = turn(server, effort).with_context(|| server.peer.recipe().title)?;
            row.add(Subject::Peer(server.peer), figures, 0);
        }
    }
    Ok(row)
}

/// Sends uploads one after the other.
fn turn(server: &Server, effort: Effort) -> anyhow::Result<Vec<f64>> {
    let measuring = ServerProbe::new(&[], Some(SERVER_CORE))?.begin()?;
    let (begun, mut mib) = (Instant::now(), 0.0);
    while begun.elapsed() < Duration::from_secs(effort.seconds_each.into()) {
        upload(server.addresses.http)?;
        mib += PIECES as f64;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let spent = measuring.end()?.core_busy_us.context("the core wasn't measured")?;
    Ok(vec![spent / mib, mib / seconds])
}

/// Sends an upload. The head is written alone, as curl and load balancers do. A server that sizes its next reads by the length of the head
/// is therefore slow.
fn upload(address: SocketAddr) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    let mut answers = BufReader::new(stream.try_clone()?);
    let bytes = PIECES * PIECE_BYTES;
    write!(
        stream,
        "POST /forward/upload HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
    )?;
    ensure!(status_line(&mut answers)?.contains(" 100 "), "the server refused the upload");
    let piece = vec![b'x'; PIECE_BYTES];
    for _ in 0..PIECES {
        stream.write_all(&piece)?;
    }
    let status = status_line(&mut answers)?;
    ensure!(status.contains(" 200 "), "the response to the upload is {status}");
    answers.read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Reads the head of a response, and returns its status line.
fn status_line(answers: &mut impl BufRead) -> anyhow::Result<String> {
    let mut status = String::new();
    answers.read_line(&mut status)?;
    let mut line = status.clone();
    while !line.trim_end().is_empty() {
        line.clear();
        answers.read_line(&mut line)?;
    }
    Ok(status.trim_end().to_owned())
}
