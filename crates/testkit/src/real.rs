//! External servers as origins: Debian's Apache httpd, a Node script, and the code shared with nginx.

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::ports::Port;
use crate::process::Service;
use crate::wait;

/// An external server, in its own folder, with files to serve. Stopped when dropped.
pub struct RealServer {
    port: Port,
    folder: TempDir,
    pub(crate) service: Service,
}

impl RealServer {
    /// Starts Apache httpd; `directives` follow the default ones. It doesn't read `.htaccess`.
    ///
    /// # Panics
    /// Panics if it is not installed or does not start.
    #[track_caller]
    pub fn apache(directives: &str) -> Self {
        Self::start("apache2", |folder, address| {
            let file = folder.join("apache.conf");
            fs::write(&file, apache_config(folder, address, directives)).expect("a file in the folder");
            let mut command = Command::new(installed("apache2"));
            // `-X` runs a single process, so killing it leaves no other process.
            command.arg("-X").arg("-f").arg(&file).arg("-d").arg(folder);
            command
        })
    }

    /// Starts Node with a script, which gets host, port and the folder of the files as arguments.
    ///
    /// # Panics
    /// Panics if it is not installed or does not start.
    #[track_caller]
    pub fn node(script: &Path) -> Self {
        Self::start("node", |folder, address| {
            let mut command = Command::new("node");
            let (host, port) = (address.ip().to_string(), address.port().to_string());
            command.arg(script).args([host, port]).arg(folder.join("root"));
            command
        })
    }

    /// Starts the command that `command` makes from the folder and the address, and waits until it listens.
    #[track_caller]
    pub(crate) fn start(name: &str, command: impl FnOnce(&Path, SocketAddr) -> Command) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let port = Port::reserve();
        fs::create_dir(folder.path().join("root")).expect("a folder in the folder");
        // Apache drops root privileges and must still be able to read the files.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("our own folder");
        let mut command = command(folder.path(), port.address());
        let service = listening(&mut command, folder.path(), name, &port);
        Self { port, folder, service }
    }

    /// Returns the folder of this process.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the folder of the files that it serves.
    pub fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    /// Returns its address.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Returns its URL, for the configuration of a gateway.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Kills the server with SIGKILL and waits until it has ended.
    #[track_caller]
    pub(crate) fn kill(&mut self) {
        self.service.signal(Signal::KILL);
        self.service.end();
    }

    /// Restarts the server after it has ended, at the same address and in the same folder.
    #[track_caller]
    pub(crate) fn start_again(&mut self, command: &mut Command, name: &str) {
        self.service = listening(command, self.folder.path(), name, &self.port);
    }
}

/// Starts a server and waits until it listens.
#[track_caller]
fn listening(command: &mut Command, folder: &Path, name: &str, port: &Port) -> Service {
    let mut service = Service::start(command, folder, name);
    wait::until_true(&format!("{name} listens"), || {
        service.assert_runs();
        TcpStream::connect(port.address()).is_ok()
    });
    service
}

/// Finds a daemon, which is in sbin, not on every user's PATH.
#[track_caller]
pub(crate) fn installed(program: &str) -> PathBuf {
    let places = ["/usr/sbin", "/usr/local/sbin", "/usr/bin"].map(|folder| Path::new(folder).join(program));
    let found = places.into_iter().find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{program} is missing: run scripts/install-dependencies"))
}

fn apache_config(folder: &Path, address: SocketAddr, directives: &str) -> String {
    let mut modules = String::new();
    for module in APACHE_MODULES {
        let _ = writeln!(modules, "LoadModule {module}_module /usr/lib/apache2/modules/mod_{module}.so");
    }
    let folder = folder.display();
    format!(
        "{modules}
ServerName localhost
Listen {address}
DefaultRuntimeDir {folder}
PidFile {folder}/apache.pid
ErrorLog {folder}/error.log
# Apache uses these two only if it is started as root.
User nobody
Group nogroup
TypesConfig /dev/null
AddType text/html .html
AddType text/css .css
AddType text/plain .txt
AddType image/png .png
AddType application/octet-stream .bin
DocumentRoot {folder}/root
<Directory {folder}/root>
    Options Indexes FollowSymLinks MultiViews
    AllowOverride None
    Require all granted
</Directory>
MaxKeepAliveRequests 0
KeepAliveTimeout 60
Protocols h2c http/1.1
{directives}
"
    )
}

const APACHE_MODULES: [&str; 11] = [
    "mpm_event",
    "authz_core",
    "mime",
    "dir",
    "autoindex",
    "negotiation",
    "expires",
    "headers",
    "filter",
    "deflate",
    "http2",
];
