//! Runs the servers: prepares their shared resources, starts them, and waits until they answer.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use super::template::Values;
use super::{Client, Peer, PeerError, Recipe, Shaping};
use crate::server::{Ready, ServerCommand, ServerProcess};

/// The shared resources of servers: folder, certificate, options.
#[derive(Debug)]
pub struct Stage {
    options: StageOptions,
    folder: tempfile::TempDir,
}

/// Options of a stage.
#[derive(Clone, Debug)]
pub struct StageOptions {
    /// Larder's binary.
    pub larder: PathBuf,
    /// The origin of the caches.
    pub origin: SocketAddr,
    /// The response to `/small` of servers without a cache.
    pub small_body: String,
    /// Files of servers without a cache: name and content.
    pub files: Vec<(String, Vec<u8>)>,
    /// The core for the servers. `None` for any core.
    pub core: Option<usize>,
}

/// A running server that has answered. Stopped on drop.
#[derive(Debug)]
pub struct PeerServer {
    pub peer: Peer,
    pub addresses: Addresses,
    process: ServerProcess,
    /// Its store, if it has one.
    _store: Option<Box<ServerProcess>>,
}

/// The addresses of a server: HTTP/1.1, HTTP/2 with prior knowledge, and both over TLS.
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    pub http: SocketAddr,
    pub http2: SocketAddr,
    pub tls: SocketAddr,
    pub admin: SocketAddr,
}

impl Stage {
    /// Prepares the folder and the certificate that all servers share.
    ///
    /// # Errors
    ///
    /// Returns an error if files can't be written.
    pub fn new(options: StageOptions) -> Result<Self, PeerError> {
        let folder = tempfile::Builder::new().prefix("larder-peers-").tempdir();
        let folder = folder.map_err(failed("no temporary folder", Path::new("")))?;
        let stage = Self { options, folder };
        open_to_all(stage.path())?;
        // A copy, since the user of the server process may not have access to the build folder.
        let copy = stage.path().join("larder");
        let larder = &stage.options.larder;
        fs::copy(larder, &copy).map_err(failed("can't copy Larder's binary", larder))?;
        open_to_all(&copy)?;
        stage.write_certificate()?;
        stage.write_files()?;
        Ok(stage)
    }

    /// Starts a server and waits until it answers a request.
    ///
    /// # Errors
    ///
    /// Returns an error if the server ends or doesn't answer in time. The error contains its output.
    pub fn start(&self, peer: Peer, shaping: Shaping) -> Result<PeerServer, PeerError> {
        let recipe = peer.recipe();
        let addresses = Addresses::free()?;
        let folder = self.peer_folder(peer, addresses.http.port())?;
        let mut values = self.values(&folder, addresses);
        let store = (peer == Peer::LarderTier).then(store).transpose()?;
        let tier = store.as_ref().map(|(_, address)| format!("remote = \"redis://{address}/0\""));
        values.set("tier", tier.unwrap_or_default());
        values.set("shaping", (recipe.shaping)(shaping));
        for (name, text) in recipe.files {
            write(&folder.join(name), values.fill(text)?)?;
        }
        let command = command(recipe, &values, &folder)?;
        let command = ServerCommand::new(command, Ready::Listens(addresses.http)).on_core(self.options.core);
        let process = command.start().map_err(|source| PeerError::Start { title: recipe.title, source })?;
        let server =
            PeerServer { peer, addresses, process, _store: store.map(|(process, _)| Box::new(process)) };
        server.wait_until_it_answers("/small")?;
        Ok(server)
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn peer_folder(&self, peer: Peer, port: u16) -> Result<PathBuf, PeerError> {
        let folder = self.path().join(format!("{peer:?}-{port}"));
        let more = peer.recipe().folders.iter().map(|name| folder.join(name));
        for folder in [folder.clone()].into_iter().chain(more) {
            fs::create_dir(&folder).map_err(failed("can't create the folder", &folder))?;
            if runs_as_root() {
                chown(&folder, Some(USER_ID), Some(USER_ID))
                    .map_err(failed("can't change the owner", &folder))?;
            }
        }
        Ok(folder)
    }

    fn values(&self, folder: &Path, addresses: Addresses) -> Values {
        let path = |name: &str| self.path().join(name).display().to_string();
        let mut values = Values::default();
        values.set("larder", path("larder"));
        values.set("folder", folder.display().to_string());
        values.set("files", path("files"));
        values.set("certificate", path("certificate.pem"));
        values.set("key", path("key.pem"));
        values.set("combined", path("combined.pem"));
        values.set("small_body", &self.options.small_body);
        values.set("origin", self.options.origin.to_string());
        values.set("origin_host", self.options.origin.ip().to_string());
        values.set("origin_port", self.options.origin.port().to_string());
        values.set("host", addresses.http.ip().to_string());
        values.set("port", addresses.http.port().to_string());
        values.set("listen", addresses.http.to_string());
        values.set("h2_listen", addresses.http2.to_string());
        values.set("tls_listen", addresses.tls.to_string());
        values.set("admin_listen", addresses.admin.to_string());
        values
    }

    /// Writes a certificate with an elliptic curve, which is the most common kind.
    fn write_certificate(&self) -> Result<(), PeerError> {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names);
        let made = made.map_err(|error| PeerError::Certificate(error.to_string()))?;
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        write(&self.path().join("combined.pem"), format!("{certificate}{key}"))?;
        write(&self.path().join("certificate.pem"), certificate)?;
        write(&self.path().join("key.pem"), key)
    }

    fn write_files(&self) -> Result<(), PeerError> {
        let files = self.path().join("files");
        fs::create_dir(&files).map_err(failed("can't create the folder", &files))?;
        open_to_all(&files)?;
        self.options.files.iter().try_for_each(|(name, content)| write(&files.join(name), content))
    }
}

impl PeerServer {
    /// The process that was started. In some servers, its descendants do the work.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    fn wait_until_it_answers(&self, path: &str) -> Result<(), PeerError> {
        let address = self.addresses.http;
        let is_fine = || {
            let answer = Client::connect(address).and_then(|mut client| client.get(path, &[]));
            matches!(answer, Ok(answer) if answer.status == 200)
        };
        let end = Instant::now() + START_LIMIT;
        while !is_fine() {
            if Instant::now() > end {
                let (title, path, output) =
                    (self.peer.recipe().title, path.to_owned(), self.process.output());
                return Err(PeerError::Silent { title, address, path, output });
            }
            pause();
        }
        Ok(())
    }
}

impl Addresses {
    /// Returns ports that are free now. If another process takes one before the server does, the server fails with an error.
    fn free() -> Result<Self, PeerError> {
        let bind = || TcpListener::bind("127.0.0.1:0").map_err(PeerError::Ports);
        // All four listeners are open at the same time, so that their ports are distinct.
        let listeners = [bind()?, bind()?, bind()?, bind()?];
        let address = |index: usize| listeners[index].local_addr().map_err(PeerError::Ports);
        Ok(Self { http: address(0)?, http2: address(1)?, tls: address(2)?, admin: address(3)? })
    }
}

const START_LIMIT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The user of the servers if this program runs as root: nobody, on Debian. Some servers refuse to run as root, and results shouldn't
/// depend on it.
const USER_ID: u32 = 65_534;

/// Debian installs daemons in directories that aren't on every user's path.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin";

fn command(recipe: &Recipe, values: &Values, folder: &Path) -> Result<Command, PeerError> {
    let program = values.fill(recipe.program)?;
    let mut command = if runs_as_root() {
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={USER_ID}"), format!("--regid={USER_ID}"), "--clear-groups".into()]);
        command.arg(program);
        command
    } else {
        Command::new(program)
    };
    for argument in recipe.arguments.split_whitespace() {
        command.arg(values.fill(argument)?);
    }
    command.env("PATH", SEARCH_PATH).current_dir(folder);
    Ok(command)
}

/// Starts a Redis on the cores of this program.
fn store() -> Result<(ServerProcess, SocketAddr), PeerError> {
    let address = Addresses::free()?.http;
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string(), "--save", ""]);
    let process = ServerCommand::new(command, Ready::Listens(address)).start();
    Ok((process.map_err(|source| PeerError::Start { title: "Redis", source })?, address))
}

fn runs_as_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn open_to_all(path: &Path) -> Result<(), PeerError> {
    let permissions = fs::Permissions::from_mode(0o755);
    fs::set_permissions(path, permissions).map_err(failed("can't change the permissions", path))
}

fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), PeerError> {
    fs::write(path, content).map_err(failed("can't write", path))
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PeerError {
    let path = path.to_owned();
    move |source| PeerError::Files { what, path, source }
}

#[expect(clippy::disallowed_methods, reason = "nothing tells us when another process answers")]
fn pause() {
    thread::sleep(POLL_INTERVAL);
}
