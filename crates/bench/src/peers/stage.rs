//! What the servers of a comparison stand on: the origin, a folder, a certificate, free ports; and the servers
//! themselves, started and asked.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

use crate::client::Client;
use crate::origin::{self, Origin};
use crate::output;
use crate::pause::poll;
use crate::peers::Peer;
use crate::process::{Launch, Processes, Running, USER};
use crate::template::Values;

/// The core that servers have for themselves.
pub(crate) const SERVER_CORE: usize = 0;

/// The core of the load generator, the origin and this program.
pub(crate) const CLIENT_CORE: usize = 1;

/// Everything that peers need to run.
pub(crate) struct Stage {
    pub(crate) origin: Origin,
    pub(crate) processes: Arc<Processes>,
    folder: tempfile::TempDir,
    larder: PathBuf,
}

/// A peer that runs and answers.
pub(crate) struct Server {
    pub(crate) peer: Peer,
    pub(crate) addresses: Addresses,
    pub(crate) running: Running,
}

/// Where a server listens: plain, HTTP/2 by prior knowledge, TLS.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Addresses {
    pub(crate) http: SocketAddr,
    pub(crate) http2: SocketAddr,
    pub(crate) tls: SocketAddr,
    admin: SocketAddr,
}

impl Stage {
    /// `larder` is the binary that takes part.
    ///
    /// # Errors
    /// When files can't be written, or the origin can't listen.
    pub(crate) fn new(larder: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("larder-compare-").tempdir()?;
        open_to_all(folder.path())?;
        // A copy: the user that it runs as may not reach the folder where it was built.
        let copy = folder.path().join("larder");
        fs::copy(larder, &copy).with_context(|| format!("cannot copy {}", larder.display()))?;
        open_to_all(&copy)?;
        write_certificate(folder.path())?;
        write_files(folder.path())?;
        Ok(Self { origin: Origin::start()?, processes: Processes::new(folder.path()), folder, larder: copy })
    }

    /// Starts a peer and waits until it answers.
    ///
    /// # Errors
    /// When it ends or doesn't answer in time; the error carries what it printed.
    pub(crate) fn start(&self, peer: Peer) -> anyhow::Result<Server> {
        let recipe = peer.recipe();
        let addresses = Addresses::free()?;
        let folder = self.peer_folder(peer, addresses.http.port())?;
        let values = self.values(&folder, addresses);
        for (name, text) in recipe.files {
            fs::write(folder.join(name), values.fill(text)?)?;
        }
        let arguments: Vec<String> =
            recipe.arguments.iter().map(|argument| values.fill(argument)).collect::<anyhow::Result<_>>()?;
        let launch = Launch {
            program: &values.fill(recipe.program)?,
            arguments: &arguments,
            core: SERVER_CORE,
            folder: &folder,
        };
        let running = self.processes.start(&launch)?;
        let mut server = Server { peer, addresses, running };
        server.wait_until_ready().with_context(|| format!("{} does not start", recipe.title))?;
        Ok(server)
    }

    fn peer_folder(&self, peer: Peer, port: u16) -> anyhow::Result<PathBuf> {
        let folder =
            self.folder.path().join(format!("{}-{port}", peer.recipe().program.trim_matches(['{', '}'])));
        let more = peer.recipe().folders.iter().map(|name| folder.join(name));
        for folder in [folder.clone()].into_iter().chain(more) {
            fs::create_dir(&folder)?;
            if rustix::process::geteuid().is_root() {
                chown(&folder, Some(USER.1), Some(USER.1))?;
            }
        }
        Ok(folder)
    }

    fn values(&self, folder: &Path, addresses: Addresses) -> Values {
        let mut values = Values::default();
        let root = self.folder.path();
        values.set("larder", self.larder.display().to_string());
        values.set("folder", folder.display().to_string());
        values.set("files", root.join("files").display().to_string());
        values.set("certificate", root.join("certificate.pem").display().to_string());
        values.set("key", root.join("key.pem").display().to_string());
        values.set("combined", root.join("combined.pem").display().to_string());
        values.set("small_body", origin::SMALL_BODY);
        values.set("origin", self.origin.address().to_string());
        values.set("origin_host", self.origin.address().ip().to_string());
        values.set("origin_port", self.origin.address().port().to_string());
        values.set("host", addresses.http.ip().to_string());
        values.set("port", addresses.http.port().to_string());
        values.set("listen", addresses.http.to_string());
        values.set("h2_listen", addresses.http2.to_string());
        values.set("tls_listen", addresses.tls.to_string());
        values.set("admin_listen", addresses.admin.to_string());
        values
    }
}

impl Server {
    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let address = self.addresses.http;
        let ready = poll(START_LIMIT, || {
            if self.running.has_ended() {
                return Some(false);
            }
            let answer = Client::connect(address).and_then(|mut client| client.get("/small", &[]));
            matches!(answer, Ok(answer) if answer.status == 200).then_some(true)
        });
        ensure!(ready == Some(true), "no answer from {address}; it printed:\n{}", self.running.log());
        Ok(())
    }

    /// Asks for `path` until the answer doesn't come from the origin any more, and compares the bytes.
    ///
    /// # Errors
    /// When the peer changes the body, or goes on asking the origin.
    pub(crate) fn prime(&self, origin: &Origin, path: &str, fields: &[&str]) -> anyhow::Result<()> {
        let expected = origin::body_of(path).with_context(|| format!("the origin has no {path}"))?;
        let mut client = Client::connect(self.addresses.http)?;
        for _ in 0..PRIMING_REQUESTS_MAX {
            let before = origin.requests();
            let answer = client.get(path, fields)?;
            ensure!(answer.status == 200, "status {} for {path}", answer.status);
            let is_same = !self.peer.is_checked() || answer.body == expected;
            ensure!(is_same, "another body than the origin's for {path}: {} bytes", answer.body.len());
            if origin.requests() == before {
                return Ok(());
            }
        }
        bail!("{} does not answer {path} from its cache", self.peer.recipe().title)
    }
}

impl Peer {
    /// Whether its bodies are those of the origin; the null server has one for everything.
    fn is_checked(self) -> bool {
        self != Self::Null
    }
}

impl Addresses {
    /// Ports that are free now. Somebody else may take one before the server does; it then says so and fails.
    fn free() -> anyhow::Result<Self> {
        let mut listeners = Vec::new();
        for _ in 0..4 {
            listeners.push(TcpListener::bind("127.0.0.1:0")?);
        }
        let mut addresses = Vec::new();
        for listener in &listeners {
            addresses.push(listener.local_addr()?);
        }
        let [http, http2, tls, admin] = addresses[..] else { bail!("four listeners have four addresses") };
        Ok(Self { http, http2, tls, admin })
    }
}

const START_LIMIT: Duration = Duration::from_secs(30);

/// Varnish and Traffic Server store on the first request, some write it in the background.
const PRIMING_REQUESTS_MAX: usize = 20;

fn open_to_all(path: &Path) -> anyhow::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// One certificate for every peer: an elliptic curve, as most of today's are.
fn write_certificate(folder: &Path) -> anyhow::Result<()> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    fs::write(folder.join("certificate.pem"), &certificate)?;
    fs::write(folder.join("combined.pem"), format!("{certificate}{key}"))?;
    fs::write(folder.join("key.pem"), key)?;
    Ok(())
}

/// What nginx serves from files.
fn write_files(folder: &Path) -> anyhow::Result<()> {
    let files = folder.join("files");
    fs::create_dir(&files)?;
    open_to_all(&files)?;
    for name in ["1k", "10k", "64k", "1m"] {
        let body = origin::body_of(&format!("/{name}")).with_context(|| format!("no body {name}"))?;
        fs::write(files.join(name), body)?;
    }
    Ok(())
}

/// Which of `wanted` start here; says what is missing.
pub(crate) fn start_all(stage: &Stage, wanted: &[Peer]) -> Vec<Server> {
    let mut servers = Vec::new();
    for peer in wanted {
        match stage.start(*peer) {
            Ok(server) => servers.push(server),
            Err(error) => output::progress(&format!("{} is left out: {error:#}", peer.recipe().title)),
        }
    }
    servers
}
