//! Result of a measurement: servers and their figures.

use std::path::Path;
use std::process::Command;

use bench::peers::Peer;
use bench::programs::larder_bench;

use crate::kv::Store;
use crate::plan::What;
use crate::statistics::Summary;

/// One table: servers side by side.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) what: What,
    pub(crate) title: String,
    /// Name and unit of each figure. A budget refers to the first figure unless it names another one.
    pub(crate) measures: Vec<Measure>,
    pub(crate) series: Vec<Series>,
}

/// A figure that is measured for each server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Measure {
    pub(crate) name: String,
    pub(crate) unit: String,
}

/// One server in a row, over all rounds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Series {
    pub(crate) subject: Subject,
    /// Summaries, in the order of the measures.
    pub(crate) figures: Vec<Summary>,
    /// Figures of each round, in order.
    pub(crate) rounds: Vec<Vec<f64>>,
    pub(crate) errors: u64,
}

/// The server or variant that a series measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    Peer(Peer),
    /// Larder's plain hit, measured with another row.
    PlainHit,
    /// The same server without the feature of the row.
    Without(Peer),
    Store(Store),
    /// Larder kv with few keys, measured next to Larder kv with many keys.
    HotKeys,
}

impl Series {
    /// The ratio of a figure to that of another series: the median of the ratios of the rounds, since a disturbance affects all
    /// turns of a round. The ratio of the medians if the two don't have the same rounds.
    pub(crate) fn ratio_to(&self, other: &Self, measure: usize) -> Option<f64> {
        if self.rounds.len() != other.rounds.len() {
            return Some(self.figures.get(measure)?.median / other.figures.get(measure)?.median);
        }
        let pairs = self.rounds.iter().zip(&other.rounds);
        let ratios: Option<Vec<f64>> =
            pairs.map(|(own, other)| Some(own.get(measure)? / other.get(measure)?)).collect();
        Some(Summary::of(&ratios?)?.median)
    }
}

impl Row {
    pub(crate) fn new(what: What, title: &str, measures: &[(&str, &str)]) -> Self {
        let measure = |(name, unit): &(&str, &str)| Measure { name: (*name).into(), unit: (*unit).into() };
        let measures = measures.iter().map(measure).collect();
        Self { what, title: title.to_owned(), measures, series: Vec::new() }
    }

    pub(crate) fn of(&self, subject: Subject) -> Option<&Series> {
        self.series.iter().find(|series| series.subject == subject)
    }

    /// The series that all others are compared with: Larder's own.
    pub(crate) fn own(&self) -> Option<&Series> {
        let is_own = |subject| match subject {
            Subject::Peer(peer) => peer == Peer::Larder,
            Subject::Store(store) => store == Store::Larder,
            Subject::PlainHit | Subject::Without(_) | Subject::HotKeys => false,
        };
        self.series.iter().find(|series| is_own(series.subject))
    }

    /// Adds the figures of one round of a server.
    pub(crate) fn add(&mut self, subject: Subject, figures: Vec<f64>, errors: u64) {
        let known = self.series.iter().position(|series| series.subject == subject);
        let at = known.unwrap_or_else(|| {
            self.series.push(Series { subject, figures: Vec::new(), rounds: Vec::new(), errors: 0 });
            self.series.len() - 1
        });
        let series = &mut self.series[at];
        series.rounds.push(figures);
        series.errors += errors;
        series.figures = summaries(&series.rounds);
    }
}

/// The summary of each column.
fn summaries(rounds: &[Vec<f64>]) -> Vec<Summary> {
    let columns = rounds.first().map_or(0, Vec::len);
    let column = |index: usize| rounds.iter().map(|round| round[index]).collect::<Vec<f64>>();
    (0..columns).filter_map(|index| Summary::of(&column(index))).collect()
}

impl Subject {
    /// The command that prints the version of the server. `None` if the report of another subject has the version.
    pub(crate) fn version(self, larder: &Path) -> Option<Command> {
        let (program, argument) = match self {
            // The null server is a thread of this program.
            Self::Peer(Peer::Null) => (larder_bench().display().to_string(), Peer::Null.recipe().version),
            Self::Peer(peer) => {
                let recipe = peer.recipe();
                (recipe.program.replace("{{larder}}", &larder.display().to_string()), recipe.version)
            }
            Self::Store(store) => store.version(larder),
            Self::PlainHit | Self::Without(_) | Self::HotKeys => return None,
        };
        let mut command = Command::new(program);
        command.arg(argument);
        Some(command)
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Peer(peer) => peer.recipe().title,
            Self::PlainHit => "Larder, plain hit beside",
            Self::Without(Peer::Larder) => "Larder without",
            Self::Without(Peer::Haproxy) => "HAProxy cache without",
            Self::Without(_) => "nginx proxy_cache without",
            Self::Store(store) => store.title(),
            Self::HotKeys => "Larder kv, 100,000 keys beside",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_become_figures() {
        let mut row = Row::new(What::Hit, "hit", &[("time", "µs"), ("rate", "/s")]);
        let larder = Subject::Peer(Peer::Larder);
        row.add(larder, vec![3.0, 30.0], 1);
        row.add(Subject::PlainHit, vec![9.0, 90.0], 0);
        row.add(larder, vec![5.0, 10.0], 2);
        let series = row.of(larder).expect("it was measured");
        assert_eq!(series.ratio_to(row.of(Subject::PlainHit).expect("too"), 0), Some(4.0 / 9.0));
        row.add(Subject::PlainHit, vec![1.0, 40.0], 0);
        let [series, beside] = [larder, Subject::PlainHit].map(|subject| row.of(subject).expect("measured"));
        assert_eq!(series.ratio_to(beside, 1), Some(f64::midpoint(30.0 / 90.0, 10.0 / 40.0)));
        let medians: Vec<f64> = series.figures.iter().map(|summary| summary.median).collect();
        assert_eq!((medians, series.errors, series.rounds.len()), (vec![4.0, 20.0], 3, 2));
        assert_eq!(row.series.len(), 2);
    }
}
