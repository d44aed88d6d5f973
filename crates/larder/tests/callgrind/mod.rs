//! The gateway under callgrind, which counts instructions exactly.

pub(crate) mod http2;

use std::fs;

use testkit::{Kv, Larder, Setup, Signal};

/// Instructions and allocations of a process from its start to its end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) instructions: u64,
    /// Calls of malloc and its relatives.
    pub(crate) allocations: u64,
}

/// Names are never compressed, so the output can be parsed line by line.
const TOOL: [&str; 4] =
    ["valgrind", "--tool=callgrind", "--compress-strings=no", "--callgrind-out-file=@dir@/counts"];

/// Configuration and files of the gateway.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sites {
    /// One site for any host.
    AnyHost,
    /// This number of sites, each with its own host; requests are for the last one.
    Named(u32),
}

/// Starts the gateway with one worker under callgrind.
pub(crate) fn start(binary: &str, origin: &str, sites: Sites) -> Larder {
    let sites = match sites {
        Sites::AnyHost => format!("[[site]]\nname = \"counted\"\norigin = \"{origin}\"\n"),
        Sites::Named(count) => {
            let others = (1..count).map(|at| (format!("other-{at}"), format!("other-{at}.example")));
            let counted = ("counted".to_owned(), "localhost".to_owned());
            others.chain([counted]).map(|(name, host)| site(&name, &host, origin)).collect()
        }
    };
    Setup::config(binary, &format!("workers = 1\n{sites}")).under(&TOOL).start_unasked()
}

fn site(name: &str, host: &str, origin: &str) -> String {
    format!("[[site]]\nname = \"{name}\"\nhosts = [\"{host}\"]\norigin = \"{origin}\"\n")
}

/// Stops the gateway gracefully, and returns its counts.
pub(crate) fn finish(mut larder: Larder) -> Counts {
    larder.signal(Signal::TERM);
    let status = larder.service().end();
    assert!(status.success(), "it ended with {status}: {}", larder.stderr());
    let profile = fs::read_to_string(larder.folder().join("counts")).expect("callgrind wrote its counts");
    read(&profile)
}

/// Starts the kv server with one worker under callgrind.
pub(crate) fn start_kv(binary: &str) -> Kv {
    Kv::start_under(&TOOL, binary, &["--workers", "1", "--maxmemory", "64MiB"])
}

/// Stops the kv server gracefully, and returns its counts.
pub(crate) fn finish_kv(mut kv: Kv) -> Counts {
    kv.service.signal(Signal::TERM);
    let status = kv.service.end();
    assert!(status.success(), "it ended with {status}: {}", kv.service.stderr());
    read(&fs::read_to_string(kv.folder().join("counts")).expect("callgrind wrote its counts"))
}

/// Names of allocation functions as in the C library; jemalloc prefixes them.
const ALLOCATORS: [&str; 7] =
    ["malloc", "calloc", "realloc", "aligned_alloc", "posix_memalign", "mallocx", "rallocx"];

fn read(profile: &str) -> Counts {
    let mut counts = Counts::default();
    let mut is_allocator = false;
    for line in profile.lines() {
        if let Some(called) = line.strip_prefix("cfn=") {
            is_allocator = ALLOCATORS.contains(&called.strip_prefix("_rjem_").unwrap_or(called));
        } else if let Some(calls) = line.strip_prefix("calls=").filter(|_| is_allocator) {
            counts.allocations += first_number(calls);
        } else if let Some(totals) = line.strip_prefix("totals: ") {
            counts.instructions = first_number(totals);
        }
    }
    assert!(counts.instructions > 0 && counts.allocations > 0, "no counts in what callgrind wrote");
    counts
}

fn first_number(text: &str) -> u64 {
    let digits = text.split(' ').next().unwrap_or_default();
    digits.parse().unwrap_or_else(|_| panic!("callgrind writes numbers here: {text}"))
}
