//! A real origin server: Debian's nginx, in its own folder, run by an ordinary user.

use std::fs;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::Path;
use std::process::Command;

use crate::real::{self, RealServer};
use crate::wait;

/// An nginx that serves the files of a folder. Stopped when dropped.
pub struct Nginx(RealServer);

impl Deref for Nginx {
    type Target = RealServer;

    fn deref(&self) -> &RealServer {
        &self.0
    }
}

impl Nginx {
    /// Starts nginx; `directives` go into the `server` block. Files go to [`RealServer::root`].
    ///
    /// # Panics
    /// Panics if nginx is not installed or does not start.
    #[track_caller]
    pub fn start(directives: &str) -> Self {
        Self(RealServer::start("nginx", |folder, address| {
            let file = folder.join("nginx.conf");
            fs::write(&file, config(folder, address, directives)).expect("a file in the folder");
            let mut command = Command::new(real::installed("nginx"));
            command.arg("-c").arg(&file).arg("-p").arg(folder);
            command
        }))
    }

    /// Returns the lines of its access log: method, target, status, requested range, and bytes of content sent.
    pub fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder().join("access.log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Returns the lines of its access log once all requests so far are logged.
    #[track_caller]
    pub fn settled_log(&mut self) -> Vec<String> {
        self.0.service.assert_runs();
        // nginx writes a line after sending the response, which the client may have read by then. One worker writes in order, so
        // the marker request comes last.
        let marker = format!("/marker-{}", self.log().len());
        crate::Client::connect(self.address()).get(&marker);
        let lines = wait::until("nginx writes its log", || {
            let lines = self.log();
            lines.iter().any(|line| line.contains(&marker)).then_some(lines)
        });
        lines.into_iter().filter(|line| !line.contains("/marker-")).collect()
    }
}

fn config(folder: &Path, address: SocketAddr, directives: &str) -> String {
    let folder = folder.display();
    format!(
        "daemon off;
master_process off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
    types {{ text/html html; text/css css; text/plain txt; image/png png; application/octet-stream bin; }}
    log_format short '$request_method $request_uri $status $http_range $body_bytes_sent';
    access_log {folder}/access.log short;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    sendfile on;
    keepalive_requests 100000;
    server {{
        {directives}
        # nginx opens its listeners in order, so this one comes last: the test waits until it accepts connections.
        listen {address};
        root {folder}/root;
    }}
}}
"
    )
}
