//! A real origin server: Debian's nginx, in a folder of its own, as an ordinary user.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::ports::Port;
use crate::process::Service;
use crate::wait;

/// nginx that serves the files of a folder. Stopped when dropped.
pub struct Nginx {
    port: Port,
    folder: TempDir,
    service: Service,
}

impl Nginx {
    /// Starts it; `directives` go into the `server` block. Files go to [`Nginx::root`].
    ///
    /// # Panics
    /// When nginx is not installed or does not start.
    #[track_caller]
    pub fn start(directives: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let port = Port::reserve();
        fs::create_dir(folder.path().join("root")).expect("a folder in the folder");
        let file = folder.path().join("nginx.conf");
        fs::write(&file, config(folder.path(), port.address(), directives)).expect("a file in the folder");
        let mut command = Command::new(program());
        command.arg("-c").arg(&file).arg("-p").arg(folder.path()).stdin(Stdio::null());
        let mut service = Service::start(&mut command, folder.path(), "nginx");
        wait::until_true("nginx listens", || {
            service.assert_runs();
            TcpStream::connect(port.address()).is_ok()
        });
        Self { port, folder, service }
    }

    /// The folder whose files it serves.
    pub fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// For the configuration of a gateway.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Lines of its access log: method, target, status, and what range was asked for.
    pub fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.path().join("access.log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Lines of its access log after everything that it has been asked so far is written there.
    #[track_caller]
    pub fn settled_log(&mut self) -> Vec<String> {
        self.service.assert_runs();
        // nginx writes a line when it has sent the response, which its client may have read before. One worker
        // writes in order, so a request of our own comes last.
        let marker = format!("/marker-{}", self.log().len());
        crate::Client::connect(self.address()).get(&marker);
        let lines = wait::until("nginx writes its log", || {
            let lines = self.log();
            lines.iter().any(|line| line.contains(&marker)).then_some(lines)
        });
        lines.into_iter().filter(|line| !line.contains("/marker-")).collect()
    }
}

/// Daemons are in sbin, which is not on the PATH of every user.
fn program() -> PathBuf {
    let places = ["/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/bin/nginx"];
    let found = places.iter().map(Path::new).find(|path| path.exists());
    found.expect("nginx is missing: run scripts/install-dependencies").to_owned()
}

fn config(folder: &Path, address: SocketAddr, directives: &str) -> String {
    let folder = folder.display();
    format!(
        "daemon off;
master_process off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    types {{ text/html html; text/css css; text/plain txt; image/png png; application/octet-stream bin; }}
    log_format short '$request_method $request_uri $status $http_range';
    access_log {folder}/access.log short;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    sendfile on;
    keepalive_requests 100000;
    server {{
        listen {address};
        root {folder}/root;
        {directives}
    }}
}}
"
    )
}
