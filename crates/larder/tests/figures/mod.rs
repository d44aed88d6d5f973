//! The committed figures, and the messages if they no longer hold.

use std::collections::BTreeMap;
use std::{fmt, fs, thread};

use serde::{Deserialize, Serialize};

use crate::callgrind::Counts;

/// Cost of one request.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Figure {
    pub(crate) instructions: u64,
    /// Rounded to hundredths, because some buffers grow only occasionally.
    pub(crate) allocations: f64,
}

/// Figures by case.
pub(crate) type Figures = BTreeMap<String, Figure>;

/// A committed file.
#[derive(Clone, Copy)]
pub(crate) struct File {
    path: &'static str,
    about: &'static str,
}

pub(crate) const GATEWAY: File = File {
    path: concat!(env!("CARGO_MANIFEST_DIR"), "/tests/instructions.toml"),
    about: "# The cost of one request for the gateway",
};
pub(crate) const KV: File = File {
    path: concat!(env!("CARGO_MANIFEST_DIR"), "/tests/instructions_kv.toml"),
    about: "# The cost of one command for the kv server",
};
const HEADER: &str = "\
: instructions and allocations, counted by callgrind on the `fast` build.
# Written by `scripts/instructions --write`, compared in `make test`. Commit changed figures together with the code
# change that caused them, and justify higher figures in the commit message.

";

/// Tolerance for instructions: different compilers and processors take different paths through the same code.
const INSTRUCTIONS_TOLERANCE_PERCENT: f64 = 3.0;
/// Tolerance for allocations: an additional one in every twentieth request exceeds it; one per run for a long-lived
/// buffer doesn't.
const ALLOCATIONS_TOLERANCE: f64 = 0.05;

/// Compares figures with those of a file, or writes the file on request.
pub(crate) fn judge(file: File, measured: &Figures) {
    let committed = file.read();
    let comparison = |(case, is): (&String, &Figure)| Comparison {
        case: case.clone(),
        was: committed.get(case).copied(),
        is: *is,
    };
    let comparisons: Vec<Comparison> = measured.iter().map(comparison).collect();
    let lines: Vec<String> = comparisons.iter().map(ToString::to_string).collect();
    eprintln!("{}", lines.join("\n"));
    if std::env::var("LARDER_FIGURES").is_ok_and(|mode| mode == "write") {
        return file.write(measured);
    }
    let problems = comparisons.iter().filter(|comparison| comparison.problem().is_some()).count();
    assert_eq!(
        problems, 0,
        "what a request costs has changed: find out why (valgrind --tool=callgrind shows where), undo it, or \
         run `scripts/instructions --write` and commit the figures with the change and its reason"
    );
}

/// Measures the figures of all cases, in two halves at the same time, because a small machine has two cores.
pub(crate) fn of_all<A: Copy + Sync>(
    cases: &[(&'static str, A)],
    figure: impl Fn(A) -> Figure + Sync,
) -> Figures {
    let count = |cases: &[(&'static str, A)]| -> Figures {
        cases.iter().map(|(name, ask)| ((*name).to_owned(), figure(*ask))).collect()
    };
    let (left, right) = cases.split_at(cases.len() / 2);
    thread::scope(|scope| {
        let other = scope.spawn(|| count(right));
        let mut figures = count(left);
        figures.extend(other.join().expect("a case failed"));
        figures
    })
}

/// Returns the cost of one of `requests` requests: `nothing` is the cost of a process without them.
pub(crate) fn per_request(counts: Counts, nothing: Counts, requests: u64) -> Figure {
    let each = |all: u64, nothing: u64| all.saturating_sub(nothing) as f64 / requests as f64;
    let allocations = each(counts.allocations, nothing.allocations);
    Figure {
        instructions: each(counts.instructions, nothing.instructions).round() as u64,
        allocations: (allocations * 100.0).round() / 100.0,
    }
}

impl File {
    fn read(self) -> Figures {
        let text = fs::read_to_string(self.path).unwrap_or_default();
        toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", self.path))
    }

    fn write(self, figures: &Figures) {
        let text = toml::to_string(figures).expect("figures are plain tables");
        let text = format!("{}{HEADER}{text}", self.about);
        fs::write(self.path, text).expect("the file can be written");
    }
}

/// A measured figure and the committed one.
struct Comparison {
    case: String,
    was: Option<Figure>,
    is: Figure,
}

impl Comparison {
    /// Returns the problem, unless the figure is as committed.
    fn problem(&self) -> Option<&'static str> {
        let Some(was) = self.was else { return Some("not in the file") };
        if self.is.allocations > was.allocations + ALLOCATIONS_TOLERANCE {
            return Some("allocates more");
        }
        match self.percent() {
            percent if percent > INSTRUCTIONS_TOLERANCE_PERCENT => Some("costs more"),
            // An improvement that isn't committed could be lost unnoticed.
            percent if percent < -INSTRUCTIONS_TOLERANCE_PERCENT => Some("costs less"),
            _ if self.is.allocations < was.allocations - ALLOCATIONS_TOLERANCE => Some("allocates less"),
            _ => None,
        }
    }

    fn percent(&self) -> f64 {
        let was = self.was.map_or(0, |was| was.instructions) as f64;
        100.0 * (self.is.instructions as f64 - was) / was
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figure { instructions, allocations } = self.is;
        write!(to, "{:<16} {instructions:>7} instructions", self.case)?;
        if let Some(was) = self.was {
            write!(to, " ({:>+6.2} % of {})", self.percent(), was.instructions)?;
        }
        write!(to, " {allocations:>6.2} allocations")?;
        if let Some(was) = self.was {
            write!(to, " (was {:.2})", was.allocations)?;
        }
        self.problem().map_or(Ok(()), |problem| write!(to, "  <- {problem}"))
    }
}
