//! The cost of a command for the kv server. As for requests to the gateway, each case has its own process, and one
//! connection in lockstep.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use testkit::Kv;

use crate::LARDER;
use crate::callgrind::{self, Counts};
use crate::figures::{self, Figure};

/// A command that is sent for many keys, in batches of `at_once`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ask {
    verb: Verb,
    at_once: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Get,
    Set,
}

const CASES: [(&str, Ask); 4] = [
    ("get", Ask { verb: Verb::Get, at_once: 1 }),
    ("get-pipelined", Ask { verb: Verb::Get, at_once: 100 }),
    ("set", Ask { verb: Verb::Set, at_once: 1 }),
    ("set-pipelined", Ask { verb: Verb::Set, at_once: 100 }),
];

/// Whether the keys fit into processor caches doesn't matter here: the number of instructions is the same.
const KEYS: u64 = 1000;
/// Both numbers are multiples of the number of commands in a batch.
const FIRST_COMMANDS: u64 = 2 * KEYS;
const COUNTED_COMMANDS: u64 = 20 * KEYS;

#[test]
fn commands_cost_what_is_committed() {
    let nothing = counts_of(None);
    figures::judge(figures::KV, &figures::of_all(&CASES, |ask| figure(nothing, ask)));
}

fn figure(nothing: Counts, ask: Ask) -> Figure {
    figures::per_request(counts_of(Some(ask)), nothing, COUNTED_COMMANDS)
}

/// The cost of a whole process that executes the first commands of all cases, and then the counted commands of one
/// case.
fn counts_of(counted: Option<Ask>) -> Counts {
    let kv = callgrind::start_kv(&LARDER);
    let mut client = Client::connect(&kv);
    // The cases run in reverse order, so that keys exist before they are read.
    for (_, ask) in CASES.iter().rev() {
        client.ask(*ask, FIRST_COMMANDS);
    }
    if let Some(ask) = counted {
        client.ask(ask, COUNTED_COMMANDS);
    }
    drop(client);
    callgrind::finish_kv(kv)
}

struct Client(TcpStream);

impl Client {
    fn connect(kv: &Kv) -> Self {
        let stream = TcpStream::connect(kv.address()).expect("it listens");
        stream.set_nodelay(true).expect("a socket option");
        Self(stream)
    }

    fn ask(&mut self, ask: Ask, commands: u64) {
        for batch in 0..commands / ask.at_once {
            let (mut sent, mut expected) = (Vec::new(), Vec::new());
            for command in 0..ask.at_once {
                ask.write((batch * ask.at_once + command) % KEYS, &mut sent, &mut expected);
            }
            self.0.write_all(&sent).expect("it reads");
            let mut replies = vec![0; expected.len()];
            self.0.read_exact(&mut replies).expect("it answers");
            assert_eq!(replies, expected, "{ask:?}");
        }
    }
}

impl Ask {
    /// Appends a command, and its reply. Keys have 16 bytes, values 12.
    fn write(self, key: u64, sent: &mut Vec<u8>, reply: &mut Vec<u8>) {
        match self.verb {
            Verb::Get => {
                sent.extend(format!("*2\r\n$3\r\nGET\r\n$16\r\nkey:{key:012}\r\n").bytes());
                reply.extend(format!("$12\r\n{key:012}\r\n").bytes());
            }
            Verb::Set => {
                sent.extend(
                    format!("*3\r\n$3\r\nSET\r\n$16\r\nkey:{key:012}\r\n$12\r\n{key:012}\r\n").bytes(),
                );
                reply.extend(b"+OK\r\n");
            }
        }
    }
}
