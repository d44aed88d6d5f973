//! The report as plain text, at most [`WIDTH`] columns wide where the names allow it.

use super::number;
use crate::result::{Errors, Expectation, LatencySummary, Machine, Report, Run, Verdict};

/// Columns of a terminal that the table is made for.
const WIDTH: usize = 100;
const NAME_MAX: usize = 32;
const NAME_MIN: usize = 12;
const GAP: usize = 2;

/// The report for a terminal: what and where, a table of the runs, details of each, expectations.
#[must_use]
pub fn text(report: &Report) -> String {
    let mut lines = vec![report.title.clone()];
    lines.extend(number::wrapped(&report.description, usize::MAX, |line| line.chars().count() <= WIDTH));
    lines.extend(machine(&report.machine).map(|machine| format!("{machine}; {}", report.larder)));
    lines.push(String::new());
    if !report.runs.is_empty() {
        lines.extend(table(&report.runs));
        lines.push(String::new());
    }
    report.runs.iter().for_each(|run| lines.extend(details(run)));
    lines.extend(expectations(&report.expectations));
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines.join("\n") + "\n"
}

/// Where it was measured, in one line; nothing if nobody said.
pub(super) fn machine(machine: &Machine) -> Option<String> {
    let cores = format!("{} core{}", machine.cores, if machine.cores == 1 { "" } else { "s" });
    (*machine != Machine::default()).then(|| {
        format!("{}, {cores}, {}, {}", machine.cpu, number::bytes(machine.memory_bytes), machine.kernel)
    })
}

/// A column of the table: its cells for all runs.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) heading: &'static str,
    /// What the heading means, in a sentence.
    pub(super) meaning: &'static str,
    /// Goes first when the table is too wide; what is 0 stays.
    dispensable: u8,
    pub(super) cells: Vec<String>,
}

/// Whether every load had a rate of its own: then it is the latencies that tell the servers apart. Its words say so, in older reports too.
pub(super) fn is_open(runs: &[Run]) -> bool {
    let is_open = |run: &Run| run.load.contains("open loop") || run.load.contains("at recorded times");
    !runs.is_empty() && runs.iter().all(is_open)
}

/// The columns in which at least one run has something to say, without the names of the runs.
pub(super) fn columns(runs: &[Run]) -> Vec<Column> {
    let mut columns = latencies(runs);
    if have_rates(runs) {
        add_rates(&mut columns, runs);
    }
    if runs.iter().any(|run| run.errors.total() > 0) {
        columns.push(column(runs, "errors", "Requests without an answer, or with a wrong one.", 0, |run| {
            Some(number::count(run.errors.total()))
        }));
    }
    columns.extend(costs(runs));
    columns
}

fn add_rates(columns: &mut Vec<Column>, runs: &[Run]) {
    if is_open(runs) {
        return columns.push(rates(runs));
    }
    columns.insert(0, rates(runs));
    if runs.len() > 1 {
        let meaning = "Requests per second over those of the first run.";
        columns.insert(1, relative(runs, "vs 1st", meaning, |run| Some(run.requests_per_s)));
    }
}

/// Whether it was measured how many requests were answered in a second. Where runs take turns, it says nothing.
pub(super) fn have_rates(runs: &[Run]) -> bool {
    runs.iter().any(|run| run.requests == 0 || run.requests_per_s != 0.0)
}

fn column(
    runs: &[Run],
    heading: &'static str,
    meaning: &'static str,
    dispensable: u8,
    figure: impl Fn(&Run) -> Option<String>,
) -> Column {
    let cell = |run| figure(run).unwrap_or_else(|| String::from("-"));
    Column { heading, meaning, dispensable, cells: runs.iter().map(cell).collect() }
}

fn rates(runs: &[Run]) -> Column {
    column(runs, "req/s", "Answered requests per second.", 0, |run| Some(number::rate(run.requests_per_s)))
}

fn latencies(runs: &[Run]) -> Vec<Column> {
    type Pick = fn(&Run) -> f64;
    let picks: [(&'static str, &'static str, u8, Pick); 7] = [
        ("mean", "Mean latency.", 3, |run| run.latency.mean_us),
        ("p50", "Half of the requests took no longer.", 0, |run| run.latency.p50_us as f64),
        ("p90", "90 % of the requests took no longer.", 4, |run| run.latency.p90_us as f64),
        ("p95", "95 % of the requests took no longer.", 5, |run| run.latency.p95_us as f64),
        ("p99", "99 % of the requests took no longer.", 0, |run| run.latency.p99_us as f64),
        ("p99.9", "99.9 % of the requests took no longer.", 0, |run| run.latency.p999_us as f64),
        ("max", "The slowest request.", 2, |run| run.latency.max_us as f64),
    ];
    let made = picks.map(|(heading, meaning, dispensable, pick)| {
        column(runs, heading, meaning, dispensable, |run| {
            (run.latency.count > 0).then(|| number::time(pick(run)))
        })
    });
    made.into()
}

fn costs(runs: &[Run]) -> Vec<Column> {
    let mut columns = Vec::new();
    let process = |run: &Run| run.server.and_then(|server| server.process_cpu_us_per_request);
    let memory = |run: &Run| run.server.and_then(|server| server.peak_rss_bytes);
    if runs.iter().any(|run| core_busy_us(run).is_some()) {
        let meaning = "Time that the core of the server was busy, soft interrupts included, per request.";
        columns.push(column(runs, "core/req", meaning, 0, |run| core_busy_us(run).map(number::time)));
        if runs.len() > 1 {
            let meaning = "Core time per request over that of the first run.";
            columns.push(relative(runs, "vs 1st", meaning, core_busy_us));
        }
    }
    if runs.iter().any(|run| process(run).is_some()) {
        let meaning = "CPU time of the server's processes, user and system, per request.";
        columns.push(column(runs, "cpu/req", meaning, 6, |run| process(run).map(number::time)));
    }
    if runs.iter().any(|run| memory(run).is_some()) {
        columns.push(column(runs, "peak mem", "Most memory that the server was seen to hold.", 7, |run| {
            memory(run).map(number::bytes)
        }));
    }
    columns
}

/// The figure to trust when a server has a core for itself.
pub(super) fn core_busy_us(run: &Run) -> Option<f64> {
    run.server.and_then(|server| server.core_busy_us_per_request)
}

fn relative(
    runs: &[Run],
    heading: &'static str,
    meaning: &'static str,
    figure: impl Fn(&Run) -> Option<f64>,
) -> Column {
    let first = runs.first().and_then(&figure).filter(|first| *first > 0.0);
    column(runs, heading, meaning, 0, |run| {
        let ratio = figure(run)? / first?;
        ratio.is_finite().then(|| format!("{ratio:.2}"))
    })
}

fn table(runs: &[Run]) -> Vec<String> {
    let mut columns = columns(runs);
    let longest_name = runs.iter().map(|run| run.name.chars().count()).max().unwrap_or(0);
    let name_width = longest_name.clamp("run".len(), NAME_MAX);
    while name_width.min(NAME_MIN) + figures_width(&columns) > WIDTH {
        let Some(least) = least_needed(&columns) else { break };
        columns.remove(least);
    }
    let name_width =
        name_width.min(WIDTH.saturating_sub(figures_width(&columns))).max(NAME_MIN.min(name_width));
    let heading = line("run", name_width, columns.iter().map(|column| (column.heading, width(column))));
    let rows = runs.iter().enumerate().map(|(row, run)| {
        line(&run.name, name_width, columns.iter().map(|column| (column.cells[row].as_str(), width(column))))
    });
    std::iter::once(heading).chain(rows).collect()
}

fn width(column: &Column) -> usize {
    let cells = column.cells.iter().map(|cell| cell.chars().count());
    cells.chain([column.heading.len()]).max().unwrap_or(0)
}

fn figures_width(columns: &[Column]) -> usize {
    columns.iter().map(|column| GAP + width(column)).sum()
}

fn least_needed(columns: &[Column]) -> Option<usize> {
    let dispensable = columns.iter().enumerate().filter(|(_, column)| column.dispensable > 0);
    dispensable.max_by_key(|(_, column)| column.dispensable).map(|(index, _)| index)
}

fn line<'a>(name: &str, name_width: usize, cells: impl Iterator<Item = (&'a str, usize)>) -> String {
    let mut line = format!("{:name_width$}", number::shortened(name, name_width));
    for (text, width) in cells {
        line.push_str(&format!("{:GAP$}{text:>width$}", ""));
    }
    line
}

fn details(run: &Run) -> Vec<String> {
    let mut lines = vec![format!("{}: {}", run.name, run.target)];
    lines.extend((!run.load.is_empty()).then(|| format!("  {}", run.load)));
    lines.push(format!("  {}", amounts(run)));
    lines.extend(parts(run).map(|parts| format!("  {parts}")));
    lines.extend(troubles(run).map(|troubles| format!("  {troubles}")));
    lines
}

/// What went over the sockets, in one line.
pub(super) fn amounts(run: &Run) -> String {
    let (requests, elapsed_s) = (number::count(run.requests), number::significant(run.elapsed_s));
    let mut amounts = format!("{requests} requests in {elapsed_s} s");
    if run.read_bytes + run.written_bytes > 0 {
        let [read, written] = [run.read_bytes, run.written_bytes].map(number::bytes);
        let rate = number::bytes(run.read_bytes_per_s as u64);
        let rate = if run.read_bytes_per_s > 0.0 { format!(" ({rate}/s)") } else { String::new() };
        amounts.push_str(&format!("; {read} read{rate}, {written} written"));
    }
    let outcomes =
        run.outcomes.iter().map(|outcome| format!("{}: {}", outcome.name, number::count(outcome.count)));
    let outcomes = outcomes.collect::<Vec<_>>().join(", ");
    if !outcomes.is_empty() {
        amounts.push_str(&format!("; {outcomes}"));
    }
    amounts
}

/// Of what the latency consists, in one line; nothing where it was not measured.
pub(super) fn parts(run: &Run) -> Option<String> {
    let told = |(name, part): (&str, &Option<LatencySummary>)| {
        let LatencySummary { mean_us, sd_us, p99_us, max_us, .. } = part.as_ref()?;
        let [mean, sd, p99, max] = [*mean_us, *sd_us, *p99_us as f64, *max_us as f64].map(number::time);
        Some(format!("{name} {mean} ± {sd} (p99 {p99}, max {max})"))
    };
    let told: Vec<String> =
        [("connect", &run.connect), ("first byte", &run.first_byte)].into_iter().filter_map(told).collect();
    (!told.is_empty()).then(|| told.join(", "))
}

/// What did not go as it should, with its causes; nothing where nothing was wrong.
pub(super) fn troubles(run: &Run) -> Option<String> {
    let Errors { connect, broken, malformed, timeout, wrong } = run.errors;
    let causes = [
        ("no connection", connect),
        ("broken connection", broken),
        ("malformed answer", malformed),
        ("timeout", timeout),
        ("wrong answer", wrong),
        ("not sent in time", run.unsent),
        ("connected again", run.reconnects),
    ];
    let named = causes.iter().filter(|(_, count)| *count > 0);
    let named: Vec<String> =
        named.map(|(cause, count)| format!("{cause}: {}", number::count(*count))).collect();
    (!named.is_empty()).then(|| named.join(", "))
}

fn expectations(expectations: &[Expectation]) -> Vec<String> {
    if expectations.is_empty() {
        return Vec::new();
    }
    let verdict = |expectation: &Expectation| match expectation.verdict() {
        Verdict::Holds => "holds",
        Verdict::Fails => "FAILS",
        // What was measured says it.
        Verdict::NotJudged => "  -  ",
    };
    let told = expectations.iter().map(|expectation| {
        format!("  {}  {}: {}", verdict(expectation), expectation.what, expectation.measured)
    });
    [String::new(), String::from("Expectations")].into_iter().chain(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example;

    #[test]
    fn example_reads_well() {
        example::check_golden("report.txt", &text(&example::report()));
    }

    #[test]
    fn table_fits_and_is_aligned() {
        let mut runs = vec![
            example::run(&"a long name of a run ".repeat(4), 1_234.0),
            example::run("b", 45_678_901.0),
            example::run("", 0.5),
        ];
        runs[1].latency = Default::default();
        runs[2].server = None;
        let lines = table(&runs);
        let widths: Vec<usize> = lines.iter().map(|line| line.chars().count()).collect();
        assert!(widths.iter().all(|width| *width == widths[0] && *width <= WIDTH), "{lines:#?}");
        for kept in ["req/s", "p50", "p99 ", "p99.9", "errors", "core/req"] {
            assert!(lines[0].contains(kept), "{kept}: {}", lines[0]);
        }
    }

    #[test]
    fn what_was_not_measured_has_no_column() {
        let mut runs = vec![example::run("a", 1_000.0), example::run("b", 2_000.0)];
        for run in &mut runs {
            (run.requests_per_s, run.read_bytes, run.written_bytes) = (0.0, 0, 0);
            (run.connect, run.first_byte) = (None, None);
        }
        let heading = table(&runs).remove(0);
        assert!(!heading.contains("req/s") && heading.contains("p50"), "{heading}");
        assert!(!amounts(&runs[0]).contains("read"), "{}", amounts(&runs[0]));
        assert_eq!(parts(&runs[0]), None);
    }

    #[test]
    fn ratios_are_to_the_first_run() {
        let mut runs =
            vec![example::run("a", 1_000.0), example::run("b", 2_000.0), example::run("c", 1_000.0)];
        runs[2].requests_per_s = f64::NAN;
        let cells = |runs: &[Run]| -> Vec<String> {
            relative(runs, "vs 1st", "", |run| Some(run.requests_per_s)).cells
        };
        assert_eq!(cells(&runs), ["1.00", "0.50", "-"]);
        runs[0].requests_per_s = 0.0;
        assert_eq!(cells(&runs), ["-", "-", "-"]);
    }

    #[test]
    fn nothing_measured_is_told_as_nothing() {
        assert_eq!(text(&example::empty()), "Nothing\n");
    }
}
