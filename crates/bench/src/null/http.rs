//! The same response to any HTTP/1.1 request. A request with a body counts as more than one.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use memchr::memmem;

use super::{Answers, NullServer, Script};

/// The response, and its timing.
#[derive(Clone, Debug, Default)]
pub struct NullHttp {
    pub body_bytes: usize,
    /// Periodic stalls, for tests of the tools that measure them.
    pub stall: Option<Stall>,
}

/// The whole server stalls for `length`, first `every` after the first request, and then at the same interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    pub length: Duration,
    pub every: Duration,
}

const HEAD_END: &[u8] = b"\r\n\r\n";

impl NullHttp {
    /// Listens on the address.
    ///
    /// # Errors
    ///
    /// Returns an error if the address is in use or can't be bound.
    pub fn bind(&self, address: SocketAddr) -> io::Result<NullServer> {
        let scripts = vec![Script::of(&self.response())];
        let answers = Answers { count: heads_ended, choose: |_| Some(0), scripts };
        Ok(NullServer { stall: self.stall, ..NullServer::bind(address, answers)? })
    }

    fn response(&self) -> Vec<u8> {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", self.body_bytes);
        let mut response = head.into_bytes();
        response.resize(response.len() + self.body_bytes, b'x');
        response
    }
}

/// Counts the request heads that end in the input, given the bytes read before.
fn heads_ended(tail: &mut Vec<u8>, input: &[u8]) -> usize {
    if tail.is_empty() && input.ends_with(HEAD_END) {
        return memmem::find_iter(input, HEAD_END).count();
    }
    let before = tail.len();
    let seam_bytes = input.len().min(HEAD_END.len() - 1);
    tail.extend_from_slice(&input[..seam_bytes]);
    let across = memmem::find(tail, HEAD_END).filter(|at| *at < before);
    // Bytes of an end marker that began before the input belong to that marker alone.
    let from = across.map_or(0, |at| at + HEAD_END.len() - before);
    let within = memmem::find_iter(&input[from..], HEAD_END);
    let (mut heads, mut rest) = (usize::from(across.is_some()), from);
    for at in within {
        heads += 1;
        rest = from + at + HEAD_END.len();
    }
    if heads == 0 && input.len() < HEAD_END.len() {
        // The whole tail may be the middle of an end marker.
        tail.drain(..tail.len().saturating_sub(HEAD_END.len() - 1));
    } else {
        let kept = input.len().saturating_sub(HEAD_END.len() - 1).max(rest);
        tail.clear();
        tail.extend_from_slice(&input[kept..]);
    }
    heads
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn heads_are_counted_however_they_are_cut(
            heads in proptest::collection::vec("(GET / HTTP/1.1\r\n)(A: b\r\n){0,2}\r\n", 0..6),
            cuts in proptest::collection::vec(0_usize..200, 0..30),
        ) {
            let input = heads.concat().into_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(input.len())).collect();
            cuts.extend([0, input.len()]);
            cuts.sort_unstable();
            let mut tail = Vec::new();
            let counted: usize = cuts.windows(2).map(|cut| heads_ended(&mut tail, &input[cut[0]..cut[1]])).sum();
            prop_assert_eq!(counted, heads.len());
        }
    }
}
