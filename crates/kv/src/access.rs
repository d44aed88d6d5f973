//! Access control: passwords, and access without a password.

use std::fmt;
use std::net::SocketAddr;

use subtle::ConstantTimeEq;

/// Passwords of the user `default`. Any of them grants access; without passwords, all clients have access.
/// `Debug` output doesn't contain them.
#[derive(Clone, Default)]
pub struct Passwords(Vec<Box<[u8]>>);

/// Whether clients on other machines may use a server without passwords.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProtectedMode {
    /// They receive an error and are disconnected.
    #[default]
    On,
    Off,
}

/// Access to DEBUG, which lets a client block a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DebugCommands {
    #[default]
    No,
    Yes,
    /// Clients on this machine.
    Local,
}

/// Rules for access to the server.
#[derive(Clone, Debug, Default)]
pub struct Access {
    pub passwords: Passwords,
    pub protected_mode: ProtectedMode,
    pub debug_commands: DebugCommands,
}

impl Passwords {
    /// Creates a set of passwords. During a password rotation, it has the old and the new password. Empty
    /// passwords are dropped.
    pub fn new(passwords: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Self(
            passwords
                .into_iter()
                .filter(|password| !password.is_empty())
                .map(Vec::into_boxed_slice)
                .collect(),
        )
    }

    /// Returns whether there are no passwords, so that all clients have access.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether `password` is one of them. The time taken reveals at most their number and lengths.
    pub(crate) fn open_with(&self, password: &[u8]) -> bool {
        self.0.iter().fold(false, |is_open, other| is_open | bool::from(other.ct_eq(password)))
    }
}

impl fmt::Debug for Passwords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Passwords({} of them)", self.0.len())
    }
}

impl Access {
    /// Returns whether a client from this address may connect.
    pub(crate) fn admits(&self, client: SocketAddr) -> bool {
        is_here(client) || !self.passwords.is_empty() || self.protected_mode == ProtectedMode::Off
    }

    /// Returns whether a client from this address may use DEBUG.
    pub(crate) fn permits_debug(&self, client: SocketAddr) -> bool {
        match self.debug_commands {
            DebugCommands::No => false,
            DebugCommands::Yes => true,
            DebugCommands::Local => is_here(client),
        }
    }
}

fn is_here(client: SocketAddr) -> bool {
    client.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_password_opens_and_none_is_shown() {
        let passwords = Passwords::new([b"old".to_vec(), b"new".to_vec(), Vec::new()]);
        assert!(passwords.open_with(b"old") && passwords.open_with(b"new"));
        for other in [&b""[..], b"ol", b"oldd", b"New"] {
            assert!(!passwords.open_with(other), "{other:?}");
        }
        assert_eq!(format!("{passwords:?}"), "Passwords(2 of them)");
        assert!(Passwords::default().is_empty() && !Passwords::default().open_with(b""));
    }

    #[test]
    fn others_need_a_password_or_an_open_door() {
        let check = |passwords: &[&str], protected_mode, client: &str, admitted| {
            let passwords = Passwords::new(passwords.iter().map(|password| password.as_bytes().to_vec()));
            let access = Access { passwords, protected_mode, ..Access::default() };
            assert_eq!(access.admits(client.parse().expect("an address")), admitted, "{client}");
        };
        check(&[], ProtectedMode::On, "127.0.0.1:1", true);
        check(&[], ProtectedMode::On, "[::1]:1", true);
        check(&[], ProtectedMode::On, "[::ffff:127.0.0.1]:1", true);
        check(&[], ProtectedMode::On, "192.0.2.1:1", false);
        check(&[], ProtectedMode::Off, "192.0.2.1:1", true);
        check(&["secret"], ProtectedMode::On, "[2001:db8::1]:1", true);
    }

    #[test]
    fn debug_is_for_those_who_are_named() {
        let check = |debug_commands, client: &str, permitted| {
            let access = Access { debug_commands, ..Access::default() };
            assert_eq!(access.permits_debug(client.parse().expect("an address")), permitted, "{client}");
        };
        for (client, is_local) in
            [("127.0.0.1:1", true), ("[::ffff:127.0.0.1]:1", true), ("192.0.2.1:1", false)]
        {
            check(DebugCommands::No, client, false);
            check(DebugCommands::Yes, client, true);
            check(DebugCommands::Local, client, is_local);
        }
    }
}
