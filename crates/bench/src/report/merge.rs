//! Several reports as one comparison, and names that are unique.

use std::collections::BTreeSet;

use crate::result::Report;

/// A report and what to call it where names collide.
#[derive(Clone, Debug)]
pub struct Named {
    /// Such as the name of its file.
    pub name: String,
    pub report: Report,
}

/// All runs, charts and expectations in the order given; nothing where nothing was given.
///
/// A run whose name is taken gets the name of its report before its own. Title, machine and time are those of the
/// first report; the description says when another comes from another machine.
#[must_use]
pub fn merge(reports: Vec<Named>) -> Option<Report> {
    let mut reports = reports.into_iter();
    let mut merged = reports.next()?.report;
    let mut run_names: BTreeSet<String> = merged.runs.iter().map(|run| run.name.clone()).collect();
    let mut chart_ids: BTreeSet<String> = merged.charts.iter().map(|chart| chart.id.clone()).collect();
    for Named { name, report } in reports {
        describe(&mut merged, &name, &report);
        for mut run in report.runs {
            run.name = unique(&run.name, &name, ": ", &mut run_names);
            merged.runs.push(run);
        }
        for mut chart in report.charts {
            chart.id = unique(&chart.id, &file_name(&name), "-", &mut chart_ids);
            merged.charts.push(chart);
        }
        merged.expectations.extend(report.expectations);
    }
    Some(merged)
}

fn describe(merged: &mut Report, name: &str, report: &Report) {
    if report.title != merged.title {
        merged.title = format!("{}; {}", merged.title, report.title);
    }
    if report.machine != merged.machine {
        let warning = format!(" Careful: {name} was measured on another machine.");
        merged.description.push_str(&warning);
    }
    if report.larder != merged.larder {
        merged.description.push_str(&format!(" {name} was measured by {}.", report.larder));
    }
}

/// `name` if it is free, else with `qualifier` before it, else with a number behind that.
pub(super) fn unique(name: &str, qualifier: &str, separator: &str, taken: &mut BTreeSet<String>) -> String {
    let qualified = format!("{qualifier}{separator}{name}");
    let numbered = (2..).map(|number| format!("{qualified}{separator}{number}"));
    let mut candidates = [name.to_owned(), qualified.clone()].into_iter().chain(numbered);
    let free = candidates.find(|candidate| !taken.contains(candidate)).expect("numbers do not run out");
    taken.insert(free.clone());
    free
}

/// `name` as a file name: `a-z`, `0-9` and single `-`.
pub(super) fn file_name(name: &str) -> String {
    let plain = name.to_lowercase().replace(|character: char| !character.is_ascii_alphanumeric(), " ");
    let words: Vec<&str> = plain.split_whitespace().collect();
    if words.is_empty() { String::from("unnamed") } else { words.join("-") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example;

    fn named(name: &str) -> Named {
        Named { name: name.into(), report: example::report() }
    }

    #[test]
    fn names_stay_unique_and_nothing_is_lost() {
        let one = example::report();
        let merged = merge(vec![named("mon"), named("tue"), named("tue")]).expect("there are three");
        let names: Vec<&str> = merged.runs.iter().map(|run| run.name.as_str()).collect();
        assert_eq!(names[..2], ["with cache", "without cache"]);
        assert_eq!(
            names[2..],
            ["tue: with cache", "tue: without cache", "tue: with cache: 2", "tue: without cache: 2"]
        );
        assert_eq!(merged.charts.len(), 3 * one.charts.len());
        assert_eq!(merged.expectations.len(), 3 * one.expectations.len());
        assert_eq!((merged.title, merged.description), (one.title, one.description));
    }

    #[test]
    fn another_machine_is_named() {
        let mut other = named("tue");
        other.report.machine.cores += 1;
        let merged = merge(vec![named("mon"), other]).expect("there are two");
        assert!(merged.description.ends_with("Careful: tue was measured on another machine."));
        assert!(merge(Vec::new()).is_none());
    }

    #[test]
    fn file_names_are_plain() {
        assert_eq!(file_name("With cache, n=10 c=4"), "with-cache-n-10-c-4");
        assert_eq!(file_name("../<é>"), "unnamed");
    }
}
