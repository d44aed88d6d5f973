//! Replies to the commands of a load. The server stores and parses nothing: a command is a `*`, or in the text protocol a 0x1F,
//! which occur neither in keys nor in values of a load. So its replies are right only for [`Values::Fixed`], and each connection
//! has to send one kind of command, detected by the first one, or the kinds in a fixed order.

use std::io;
use std::net::SocketAddr;

use clap::ValueEnum;
use resp::separator::SEPARATOR;

use super::{Answers, NullServer, Script};
use crate::resp::{Dialect, Due, Protocol, RespLoad, Values, Verb};

/// The replies of the server.
#[derive(Clone, Debug)]
pub struct NullResp {
    pub protocol: Protocol,
    pub value_bytes: usize,
    /// Replies of a connection, repeated in this order. If empty, the reply to the connection's first command.
    pub replies: Vec<NullReply>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NullReply {
    Set,
    Get,
    Miss,
    Del,
}

impl NullResp {
    /// Listens on the address.
    ///
    /// # Errors
    ///
    /// Returns an error if the address is in use, or the system refuses.
    pub fn bind(&self, address: SocketAddr) -> io::Result<NullServer> {
        let (protocol, value_bytes, values) = (self.protocol, self.value_bytes, Values::Fixed);
        let dialect = Dialect::of(&RespLoad { protocol, value_bytes, values, ..RespLoad::of(address) });
        let script = |replies: &[NullReply]| {
            Script::of(&replies.iter().map(|reply| reply.bytes(&dialect)).collect::<Vec<_>>())
        };
        let count = if protocol == Protocol::UnitSeparator { marks::<SEPARATOR> } else { marks::<b'*'> };
        let answers = if self.replies.is_empty() {
            let scripts = [NullReply::Set, NullReply::Get, NullReply::Del].map(|reply| script(&[reply]));
            Answers { count, choose: by_letter, scripts: scripts.into() }
        } else {
            Answers { count, choose: |_| Some(0), scripts: vec![script(&self.replies)] }
        };
        NullServer::bind(address, answers)
    }
}

impl NullReply {
    fn bytes(self, dialect: &Dialect) -> Vec<u8> {
        let verb = match self {
            Self::Set => Verb::Set,
            Self::Get => Verb::Get,
            Self::Miss => Verb::GetMissing,
            Self::Del => Verb::Del,
        };
        let mut bytes = Vec::new();
        dialect.write_reply(&mut bytes, Due { verb, key: 0 });
        bytes
    }
}

/// Chooses by the first letter of the first command. `None` if it hasn't arrived.
fn by_letter(bytes: &[u8]) -> Option<usize> {
    let letter = bytes.iter().find(|byte| byte.is_ascii_uppercase())?;
    Some(match letter {
        b'S' => 0,
        b'G' => 1,
        _ => 2,
    })
}

fn marks<const MARK: u8>(_tail: &mut Vec<u8>, bytes: &[u8]) -> usize {
    memchr::memchr_iter(MARK, bytes).count()
}
