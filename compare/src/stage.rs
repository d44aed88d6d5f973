//! The origin, the servers in front of it, and a check that their caches are used.

use std::path::Path;
use std::thread;

use anyhow::{Context as _, bail, ensure};
use bench::null::{NullHttp, Stop};
use bench::peers::{Addresses, Answer, Client, Peer, PeerServer, Shaping, Stage, StageOptions};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::origin::{self, Origin};
use crate::output;

/// The core reserved for servers.
pub(crate) const SERVER_CORE: usize = 0;

/// The core of the load generator, the origin and this program.
pub(crate) const CLIENT_CORE: usize = 1;

/// The origin and the files that all servers of a row share.
pub(crate) struct Theatre {
    pub(crate) origin: Origin,
    stage: Stage,
}

/// A server that is ready. Stopped on drop.
pub(crate) struct Server {
    pub(crate) peer: Peer,
    pub(crate) addresses: Addresses,
    pub(crate) pid: u32,
    _running: Running,
}

/// The process or thread of a server.
enum Running {
    #[expect(dead_code, reason = "held to keep the process running")]
    Process(PeerServer),
    /// The null server, a thread of this program on the server's core.
    Thread(Stop),
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Self::Thread(stop) = self {
            // If the wake-up fails, the thread ends with the program.
            stop.stop().ok();
        }
    }
}

impl Theatre {
    /// # Errors
    /// Returns an error if the origin can't listen, or files can't be written.
    pub(crate) fn new(larder: &Path) -> anyhow::Result<Self> {
        let origin = Origin::start()?;
        let bodies = ["1k", "10k", "64k", "1m"];
        let file = |name: &str| Some((name.to_owned(), origin::body_of(&format!("/{name}"))?));
        let stage = Stage::new(StageOptions {
            larder: larder.to_owned(),
            origin: origin.address(),
            small_body: origin::SMALL_BODY.to_owned(),
            files: bodies.iter().filter_map(|name| file(name)).collect(),
            core: Some(SERVER_CORE),
        })?;
        Ok(Self { origin, stage })
    }

    /// # Errors
    /// Returns an error if the server can't be started or doesn't answer.
    pub(crate) fn start(&self, peer: Peer, shaping: Shaping) -> anyhow::Result<Server> {
        if peer == Peer::Null {
            return start_null();
        }
        let server = self.stage.start(peer, shaping)?;
        let (addresses, pid) = (server.addresses, server.pid());
        Ok(Server { peer, addresses, pid, _running: Running::Process(server) })
    }

    /// Starts every installed server of `wanted`, and prints why the others don't start.
    pub(crate) fn start_all(&self, wanted: &[Peer], shaping: Shaping) -> Vec<Server> {
        let mut servers = Vec::new();
        for peer in wanted {
            match self.start(*peer, shaping) {
                Ok(server) => servers.push(server),
                Err(error) => output::progress(&format!("left out: {error:#}")),
            }
        }
        servers
    }

    /// Requests `path` until a response doesn't come from the origin, and checks each response.
    ///
    /// # Errors
    /// Returns the errors of [`check`], and one if the peer keeps forwarding to the origin.
    pub(crate) fn prime(
        &self,
        server: &Server,
        path: &str,
        fields: &[&str],
        shaping: Shaping,
    ) -> anyhow::Result<()> {
        if shaping == Shaping::Gzip {
            // HAProxy doesn't store a response that it is compressing.
            check(server, path, &[], Shaping::None)?;
        }
        for _ in 0..PRIMING_REQUESTS_MAX {
            let before = self.origin.requests();
            check(server, path, fields, shaping)?;
            if self.origin.requests() == before {
                return Ok(());
            }
        }
        bail!("{} does not answer {path} from its cache", server.peer.recipe().title)
    }
}

/// Requests `path` once, and checks the response.
///
/// # Errors
/// Returns an error if the body isn't the origin's, or if the response isn't `shaped`.
pub(crate) fn check(server: &Server, path: &str, fields: &[&str], shaping: Shaping) -> anyhow::Result<()> {
    let title = server.peer.recipe().title;
    let expected = origin::body_of(path).with_context(|| format!("the origin has no {path}"))?;
    let mut client = Client::connect(server.addresses.http)?;
    let answer = client.get(path, fields).with_context(|| format!("{title}: {path}"))?;
    // The null server has the same body for every path.
    let is_fine = server.peer == Peer::Null || is_shaped(&answer, shaping, &expected);
    let bytes = answer.body.len();
    ensure!(
        answer.status == 200 && is_fine,
        "{title}: {path}: status {}, {bytes} bytes, {:?}",
        answer.status,
        answer.fields
    );
    Ok(())
}

/// Returns whether a response shows the effect of the server's shaping.
fn is_shaped(answer: &Answer, shaping: Shaping, body: &[u8]) -> bool {
    match shaping {
        Shaping::Gzip => answer.field("content-encoding") == Some("gzip") && answer.body.len() < body.len(),
        Shaping::Rules => answer.field("x-rule-10").is_some() && answer.body == body,
        Shaping::None | Shaping::Limit => answer.body == body,
    }
}

fn start_null() -> anyhow::Result<Server> {
    let null = NullHttp { body_bytes: origin::SMALL_BODY.len(), stall: None };
    let server = null.bind("127.0.0.1:0".parse()?).context("the null server can't listen")?;
    let (http, stop) = (server.address(), server.stop());
    thread::Builder::new().name("null".to_owned()).spawn(move || {
        let mut cores = CpuSet::new();
        cores.set(SERVER_CORE);
        // The server must not run on another core: it would compete with the generator there, and the core time would not include it.
        if sched_setaffinity(None, &cores).is_ok() {
            server.serve().ok();
        }
    })?;
    let addresses = Addresses { http, http2: http, tls: http, admin: http };
    Ok(Server { peer: Peer::Null, addresses, pid: std::process::id(), _running: Running::Thread(stop) })
}

/// Some servers store in the background, and answer a few more requests from the origin.
const PRIMING_REQUESTS_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests the peers that scripts/install-dependencies installs for tests. The comparison itself checks all other peers.
    #[test]
    fn peers_answer_the_origins_bytes_without_the_origin() {
        let mut cases: Vec<(Peer, Shaping, &[&str])> = vec![
            (Peer::NginxLua, Shaping::None, &["/small", "/64k"]),
            (Peer::NginxStatic, Shaping::None, &["/small", "/64k", "/1m"]),
        ];
        for peer in [Peer::Haproxy, Peer::NginxProxyCache] {
            cases.push((peer, Shaping::None, &["/small", "/vary", "/64k", "/1m"]));
            cases.extend([Shaping::Rules, Shaping::Limit].map(|shaping| (peer, shaping, &["/small"][..])));
            cases.push((peer, Shaping::Gzip, &["/text"]));
        }
        // No case starts Larder, so the path of its binary doesn't matter.
        let theatre = Theatre::new(Path::new("/bin/true")).expect("a folder and an origin");
        for (peer, shaping, paths) in cases {
            let server = theatre.start(peer, shaping).expect("it is installed");
            let fields = if shaping == Shaping::Gzip { &["Accept-Encoding: gzip"][..] } else { &[] };
            for path in paths {
                theatre.prime(&server, path, fields, shaping).expect("it is a cache, or needs none");
            }
        }
    }

    #[test]
    fn a_server_that_asks_the_origin_each_time_is_found_out() {
        let theatre = Theatre::new(Path::new("/bin/true")).expect("a folder and an origin");
        let server = theatre.start(Peer::Haproxy, Shaping::None).expect("it is installed");
        let error =
            theatre.prime(&server, "/forward/small", &[], Shaping::None).expect_err("it is not stored");
        assert!(error.to_string().contains("from its cache"), "{error:#}");
    }
}
