//! The origin and the servers in front of it, and the proof that a cache is used.

use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use bench::peers::{Client, Peer, PeerServer, Stage, StageOptions};

use crate::origin::{self, Origin};
use crate::output;

/// The core that servers have for themselves.
pub(crate) const SERVER_CORE: usize = 0;

/// The core of the load generator, the origin and this program.
pub(crate) const CLIENT_CORE: usize = 1;

/// All that a row needs.
pub(crate) struct Theatre {
    pub(crate) origin: Origin,
    stage: Stage,
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
    pub(crate) fn start(&self, peer: Peer) -> anyhow::Result<PeerServer> {
        Ok(self.stage.start(peer)?)
    }

    /// Those of `wanted` that start here; says why the others don't.
    pub(crate) fn start_all(&self, wanted: &[Peer]) -> Vec<PeerServer> {
        let mut servers = Vec::new();
        for peer in wanted {
            match self.start(*peer) {
                Ok(server) => servers.push(server),
                Err(error) => output::progress(&format!("left out: {error:#}")),
            }
        }
        servers
    }

    /// Asks for `path` until the answer doesn't come from the origin any more, and compares the bytes.
    ///
    /// # Errors
    /// When the peer changes the body, or goes on asking the origin.
    pub(crate) fn prime(&self, server: &PeerServer, path: &str, fields: &[&str]) -> anyhow::Result<()> {
        let title = server.peer.recipe().title;
        let expected = origin::body_of(path).with_context(|| format!("the origin has no {path}"))?;
        let mut client = Client::connect(server.addresses.http)?;
        for _ in 0..PRIMING_REQUESTS_MAX {
            let before = self.origin.requests();
            let answer = client.get(path, fields).with_context(|| format!("{title}: {path}"))?;
            ensure!(answer.status == 200, "{title}: status {} for {path}", answer.status);
            // The null server has one body for everything.
            let is_same = server.peer == Peer::Null || answer.body == expected;
            ensure!(
                is_same,
                "{title}: another body than the origin's for {path}: {} bytes",
                answer.body.len()
            );
            if self.origin.requests() == before {
                return Ok(());
            }
        }
        bail!("{title} does not answer {path} from its cache")
    }
}

/// Some store in the background, and answer a few more requests from the origin.
const PRIMING_REQUESTS_MAX: usize = 20;
