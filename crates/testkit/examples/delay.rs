//! Passes connections on to a server, each byte later by some milliseconds: `delay ADDRESS MILLISECONDS`. Prints the address on which it
//! listens.

use std::env;
use std::error::Error;
use std::io::{self, Write as _};
use std::thread;

use testkit::{FaultProxy, Faults};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let (target, latency_ms) = (arguments.next(), arguments.next());
    let (Some(target), Some(latency_ms)) = (target, latency_ms) else {
        return Err("usage: delay ADDRESS MILLISECONDS".into());
    };
    let proxy = FaultProxy::start(target.parse()?);
    proxy.set(Faults { latency_ms: latency_ms.parse()?, ..Faults::default() });
    writeln!(io::stdout(), "{}", proxy.address())?;
    loop {
        thread::park();
    }
}
