//! The origin and the servers in front of it, and the proof that a cache is used.

use std::path::Path;
use std::thread;

use anyhow::{Context as _, bail, ensure};
use bench::null::{NullHttp, Stop};
use bench::peers::{Addresses, Answer, Client, Peer, PeerServer, Shaping, Stage, StageOptions};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::origin::{self, Origin};
use crate::output;

/// The core that servers have for themselves.
pub(crate) const SERVER_CORE: usize = 0;

/// The core of the load generator, the origin and this program.
pub(crate) const CLIENT_CORE: usize = 1;

/// For servers of rows that are not about time.
pub(crate) const BOTH_CORES: [usize; 2] = [SERVER_CORE, CLIENT_CORE];

/// Lets this thread run on the server's core too.
///
/// # Errors
/// When there are no two cores.
pub(crate) fn use_both_cores() -> anyhow::Result<()> {
    let mut cores = CpuSet::new();
    BOTH_CORES.iter().for_each(|core| cores.set(*core));
    sched_setaffinity(None, &cores).context("the comparison needs two cores")
}

/// All that a row needs.
pub(crate) struct Theatre {
    pub(crate) origin: Origin,
    stage: Stage,
}

/// A server that answers. Stopped when dropped.
pub(crate) struct Server {
    pub(crate) peer: Peer,
    pub(crate) addresses: Addresses,
    pub(crate) pid: u32,
    _running: Running,
}

/// What makes it run.
enum Running {
    #[expect(dead_code, reason = "held, so that the process lives as long")]
    Process(PeerServer),
    /// The null server is a thread of this program, on the server's core.
    Thread(Stop),
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Self::Thread(stop) = self {
            // Where the wake-up fails, the thread ends with the program.
            stop.stop().ok();
        }
    }
}

impl Theatre {
    /// # Errors
    /// When the origin can't listen, or files can't be written.
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
    /// When it can't be started or doesn't answer.
    pub(crate) fn start(&self, peer: Peer, shaping: Shaping) -> anyhow::Result<Server> {
        if peer == Peer::Null {
            return start_null();
        }
        let server = self.stage.start(peer, shaping)?;
        let (addresses, pid) = (server.addresses, server.pid());
        Ok(Server { peer, addresses, pid, _running: Running::Process(server) })
    }

    /// Those of `wanted` that start here; says why the others don't.
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

    /// Asks for `path` until the answer doesn't come from the origin any more, and looks at each.
    ///
    /// # Errors
    /// As [`check`], and when the peer goes on asking the origin.
    pub(crate) fn prime(
        &self,
        server: &Server,
        path: &str,
        fields: &[&str],
        shaping: Shaping,
    ) -> anyhow::Result<()> {
        if shaping == Shaping::Gzip {
            // HAProxy does not store what it compresses while it comes.
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

/// Asks for `path` once, and looks at the answer.
///
/// # Errors
/// When the body is not the origin's, or nothing shows that it is `shaped`.
pub(crate) fn check(server: &Server, path: &str, fields: &[&str], shaping: Shaping) -> anyhow::Result<()> {
    let title = server.peer.recipe().title;
    let expected = origin::body_of(path).with_context(|| format!("the origin has no {path}"))?;
    let mut client = Client::connect(server.addresses.http)?;
    let answer = client.get(path, fields).with_context(|| format!("{title}: {path}"))?;
    // The null server has one body for everything.
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

/// Whether an answer shows what was asked of its server.
fn is_shaped(answer: &Answer, shaping: Shaping, body: &[u8]) -> bool {
    match shaping {
        Shaping::Gzip => answer.field("content-encoding") == Some("gzip") && answer.body.len() < body.len(),
        Shaping::Rules => answer.field("x-rule-10").is_some() && answer.body == body,
        Shaping::None | Shaping::Limit => answer.body == body,
    }
}

fn start_null() -> anyhow::Result<Server> {
    let null = NullHttp { body_bytes: origin::SMALL_BODY.len(), ..NullHttp::default() };
    let server = null.bind("127.0.0.1:0".parse()?).context("the null server can't listen")?;
    let (http, stop) = (server.address(), server.stop());
    thread::Builder::new().name("null".to_owned()).spawn(move || {
        let mut cores = CpuSet::new();
        cores.set(SERVER_CORE);
        // On the other core it would share it with the generator, and be nowhere in the core time: better none.
        if sched_setaffinity(None, &cores).is_ok() {
            server.serve().ok();
        }
    })?;
    let addresses = Addresses { http, http2: http, tls: http, admin: http };
    Ok(Server { peer: Peer::Null, addresses, pid: std::process::id(), _running: Running::Thread(stop) })
}

/// Some store in the background, and answer a few more requests from the origin.
const PRIMING_REQUESTS_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Those that scripts/install-dependencies brings for tests; the others are proven by each comparison.
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
        // None of them is Larder.
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
