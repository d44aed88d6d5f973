//! The committed figures, and what is said where they no longer hold.

use std::collections::BTreeMap;
use std::{fmt, fs};

use serde::{Deserialize, Serialize};

/// What one request costs.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Figure {
    pub(crate) instructions: u64,
    /// To the hundredth, for buffers that grow only now and then.
    pub(crate) allocations: f64,
}

/// Figures by case.
pub(crate) type Figures = BTreeMap<String, Figure>;

/// The committed file.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/instructions.toml");
const HEADER: &str = "\
# What one request costs the gateway: instructions and allocations, counted by callgrind on the `fast` build.
# Written by `scripts/instructions --write`, compared in `make test`. Commit a change of these figures together with
# the change of the code that caused it, and say in the message what it buys.

";

/// Instructions may rise and fall by so much: other compilers and processors take other ways through the same code.
const INSTRUCTIONS_TOLERANCE_PERCENT: f64 = 3.0;
/// An allocation in every twentieth request shows; one per run of a long-lived buffer does not.
const ALLOCATIONS_TOLERANCE: f64 = 0.05;

pub(crate) fn committed() -> Figures {
    let text = fs::read_to_string(FILE).unwrap_or_default();
    toml::from_str(&text).unwrap_or_else(|error| panic!("{FILE}: {error}"))
}

pub(crate) fn commit(figures: &Figures) {
    let text = toml::to_string(figures).expect("figures are plain tables");
    fs::write(FILE, format!("{HEADER}{text}")).expect("the file can be written");
}

/// One measured figure beside the committed one.
pub(crate) struct Comparison<'a> {
    pub(crate) case: &'a str,
    pub(crate) was: Option<Figure>,
    pub(crate) is: Figure,
}

impl Comparison<'_> {
    /// What is wrong with it, and what to do.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        let Some(was) = self.was else { return Some("not in the file") };
        if self.is.allocations > was.allocations + ALLOCATIONS_TOLERANCE {
            return Some("allocates more");
        }
        match self.percent() {
            percent if percent > INSTRUCTIONS_TOLERANCE_PERCENT => Some("costs more"),
            // What was gained is lost again unseen if it isn't written down.
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

impl fmt::Display for Comparison<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figure { instructions, allocations } = self.is;
        write!(to, "{:<14} {instructions:>7} instructions", self.case)?;
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
