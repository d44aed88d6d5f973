//! Reports the state of the process to the service manager: `sd_notify(3)`, a datagram of lines for each change.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The new state of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Serves clients with the latest configuration.
    Ready,
    /// Serves clients; a new configuration was refused.
    ReadyAsBefore,
    /// Reads a new configuration.
    Reloading,
    /// Accepts no more connections.
    Stopping,
    /// Another process serves clients, and is the main process from now on.
    Succeeded(u32),
}

/// The notification socket; `None` if no service manager asked for notifications.
#[derive(Debug, Default)]
pub(crate) struct Manager(Option<(UnixDatagram, SocketAddr)>);

/// The manager normally reads at once; the process must not wait longer for a manager that doesn't.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);

impl Manager {
    /// Connects to the socket that the environment names. Clients are served even if it can't be reached.
    pub(crate) fn of_environment() -> Self {
        let Some(name) = env::var_os(VARIABLE).filter(|name| !name.is_empty()) else { return Self(None) };
        let reached = reach(&name);
        Self(reached.inspect_err(|error| tracing::warn!(%error, "{VARIABLE}: {}", name.display())).ok())
    }

    pub(crate) fn tell(&self, state: State) {
        let Some((socket, address)) = &self.0 else { return };
        if let Err(error) = socket.send_to_addr(message(state).as_bytes(), address) {
            tracing::warn!(%error, "can't notify the service manager: {state:?}");
        }
    }
}

fn reach(name: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    // `@` begins the name of an abstract socket.
    let address = match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(WRITE_TIMEOUT))?;
    Ok((socket, address))
}

fn message(state: State) -> String {
    match state {
        State::Ready => "READY=1\nSTATUS=serving clients".to_owned(),
        State::ReadyAsBefore => {
            "READY=1\nSTATUS=serving clients; the new configuration was refused (see the log); the previous one stays in force"
                .to_owned()
        }
        // The time lets the manager distinguish this reload from earlier ones.
        State::Reloading => format!("RELOADING=1\nMONOTONIC_USEC={}\nSTATUS=reading the configuration", monotonic_us()),
        State::Succeeded(process) => format!("MAINPID={process}\nREADY=1\nSTATUS=serving clients"),
        State::Stopping => "STOPPING=1\nSTATUS=stopping: requests in flight may finish".to_owned(),
    }
}

fn monotonic_us() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1000
}

const VARIABLE: &str = "NOTIFY_SOCKET";
