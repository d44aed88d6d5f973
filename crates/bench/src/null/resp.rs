//! Replies to the commands of a load. The server stores and parses nothing: it counts a command for each `*`, which occurs in no key
//! and no value of a load. Its replies are therefore right only for [`Values::Fixed`], and each connection must repeat the kind of
//! its first command.

use std::io;
use std::net::SocketAddr;

use super::{Answers, NullServer, Script};
use crate::resp::{Dialect, Due, RespLoad, Values, Verb};

/// The replies of the server.
#[derive(Clone, Copy, Debug)]
pub struct NullResp {
    pub value_bytes: usize,
}

impl NullResp {
    /// Listens on the address.
    ///
    /// # Errors
    ///
    /// Returns an error if the address is in use or can't be bound.
    pub fn bind(&self, address: SocketAddr) -> io::Result<NullServer> {
        let load = RespLoad { value_bytes: self.value_bytes, values: Values::Fixed, ..RespLoad::of(address) };
        let dialect = Dialect::of(&load);
        let script = |verb| {
            let mut reply = Vec::new();
            dialect.write_reply(&mut reply, Due { verb, key: 0 });
            Script::of(&reply)
        };
        let scripts = [Verb::Set, Verb::Get, Verb::Del].map(script).into();
        NullServer::bind(address, Answers { count: commands, choose: by_letter, scripts })
    }
}

/// Chooses the script by the first letter of the first command. `None` if it hasn't arrived.
fn by_letter(bytes: &[u8]) -> Option<usize> {
    let letter = bytes.iter().find(|byte| byte.is_ascii_uppercase())?;
    Some(match letter {
        b'S' => 0,
        b'G' => 1,
        _ => 2,
    })
}

fn commands(_tail: &mut Vec<u8>, bytes: &[u8]) -> usize {
    memchr::memchr_iter(b'*', bytes).count()
}
