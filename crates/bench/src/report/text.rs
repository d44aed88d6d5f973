//! The report as text: Markdown tables, which are readable on a terminal and in a page.

use comfy_table::{CellAlignment, Table, presets};

use super::number;
use crate::result::{Expectation, LatencySummary, Machine, Report, Run, Verdict, in_words};

/// The report for a terminal: title and machine, a table of the runs, details of each run, expectations.
#[must_use]
pub fn text(report: &Report) -> String {
    let mut parts = vec![report.title.clone(), report.description.clone()];
    parts.extend(machine(&report.machine).map(|machine| format!("{machine}; {}", report.larder)));
    if !report.runs.is_empty() {
        parts.push(table(&report.runs));
    }
    parts.extend(report.runs.iter().map(details));
    if !report.expectations.is_empty() {
        let told = report.expectations.iter().map(expectation);
        parts.push(told.collect::<Vec<_>>().join("\n"));
    }
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n") + "\n"
}

/// A Markdown table with text in the first column and figures in the others.
pub fn markdown(
    head: impl IntoIterator<Item = String>,
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let escaped = |cell: String| cell.replace('|', "\\|");
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(head.into_iter().map(escaped));
    table.add_rows(rows.into_iter().map(|row| row.into_iter().map(escaped).collect::<Vec<_>>()));
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table.to_string()
}

fn table(runs: &[Run]) -> String {
    let columns = columns(runs);
    let head = ["run"].into_iter().chain(columns.iter().map(|column| column.heading)).map(str::to_owned);
    let row = |(row, run): (usize, &Run)| {
        let cells = columns.iter().map(|column| column.cells[row].clone());
        [run.name.clone()].into_iter().chain(cells).collect()
    };
    markdown(head, runs.iter().enumerate().map(row))
}

/// The machine, in one line. `None` if the report doesn't name it.
fn machine(machine: &Machine) -> Option<String> {
    let cores = format!("{} core{}", machine.cores, if machine.cores == 1 { "" } else { "s" });
    (*machine != Machine::default()).then(|| {
        format!("{}, {cores}, {}, {}", machine.cpu, number::bytes(machine.memory_bytes), machine.kernel)
    })
}

/// A column of the table: its cells for all runs.
#[derive(Debug)]
struct Column {
    heading: &'static str,
    cells: Vec<String>,
}

/// Returns whether every load had a fixed rate, so that the latencies are the figures to compare. This reads the description of the load,
/// because older reports have no other sign of a fixed rate.
pub(super) fn is_open(runs: &[Run]) -> bool {
    !runs.is_empty() && runs.iter().all(|run| run.load.contains("open loop"))
}

/// Returns whether the report has requests per second, which are meaningless for runs in alternating rounds.
pub(super) fn have_rates(runs: &[Run]) -> bool {
    runs.iter().any(|run| run.requests == 0 || run.requests_per_s != 0.0)
}

/// The columns in which at least one run has a value, without the names of the runs.
fn columns(runs: &[Run]) -> Vec<Column> {
    type Figure = fn(&Run) -> Option<f64>;
    type Told = fn(f64) -> String;
    let rates = have_rates(runs);
    let rate: Figure = |run| Some(run.requests_per_s);
    let errors = runs.iter().any(|run| run.errors.total() > 0);
    let latency =
        |run: &Run, us: fn(&LatencySummary) -> f64| (run.latency.count > 0).then(|| us(&run.latency));
    let mut columns = Vec::new();
    let mut add = |heading, figure: &dyn Fn(&Run) -> Option<f64>, told: Told| {
        let figures: Vec<_> = runs.iter().map(figure).collect();
        if figures.iter().any(Option::is_some) {
            let cell = |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), told);
            columns.push(Column { heading, cells: figures.into_iter().map(cell).collect() });
        }
    };
    let ratio: Told = |ratio| format!("{ratio:.2}");
    add("req/s", &|run| rate(run).filter(|_| rates), number::rate);
    add("vs 1st", &|run| to_first(runs, run, rate).filter(|_| rates && !is_open(runs)), ratio);
    add("mean", &|run| latency(run, |of| of.mean_us), number::time);
    add("p50", &|run| latency(run, |of| of.p50_us as f64), number::time);
    add("p90", &|run| latency(run, |of| of.p90_us as f64), number::time);
    add("p99", &|run| latency(run, |of| of.p99_us as f64), number::time);
    add("p99.9", &|run| latency(run, |of| of.p999_us as f64), number::time);
    add("max", &|run| latency(run, |of| of.max_us as f64), number::time);
    add("errors", &|run| errors.then(|| run.errors.total() as f64), |count| number::count(count as u64));
    add("core/req", &core_busy_us, number::time);
    add("core vs 1st", &|run| to_first(runs, run, core_busy_us), ratio);
    add("cpu/req", &|run| run.server?.process_cpu_us_per_request, number::time);
    let memory = |run: &Run| run.server?.peak_rss_bytes.map(|bytes| bytes as f64);
    add("peak mem", &memory, |bytes| number::bytes(bytes as u64));
    let generator = |run: &Run| Some(run.generator_cpu_us_per_request).filter(|us| *us > 0.0);
    add("gen/req", &generator, number::time);
    columns
}

/// Returns the core time per request: the most reliable figure if the server has a core to itself.
pub(super) fn core_busy_us(run: &Run) -> Option<f64> {
    run.server.and_then(|server| server.core_busy_us_per_request)
}

/// The ratio to the first run. `None` for a single run.
fn to_first(runs: &[Run], run: &Run, figure: fn(&Run) -> Option<f64>) -> Option<f64> {
    let first = runs.first().filter(|_| runs.len() > 1).and_then(figure).filter(|first| *first > 0.0)?;
    Some(figure(run)? / first).filter(|ratio| ratio.is_finite())
}

fn details(run: &Run) -> String {
    let lines = [Some(run.load.clone()), Some(amounts(run)), parts(run), troubles(run)].into_iter().flatten();
    let lines = lines.filter(|line| !line.is_empty()).map(|line| format!("\n  {line}"));
    format!("{}: {}{}", run.name, run.target, lines.collect::<String>())
}

/// Requests, bytes and outcomes, in one line.
fn amounts(run: &Run) -> String {
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

/// Parts of the latency, in one line. `None` if they weren't measured.
fn parts(run: &Run) -> Option<String> {
    let told = |(name, part): (&str, &Option<LatencySummary>)| {
        let LatencySummary { mean_us, sd_us, p99_us, max_us, .. } = part.as_ref()?;
        let [mean, sd, p99, max] = [*mean_us, *sd_us, *p99_us as f64, *max_us as f64].map(number::time);
        Some(format!("{name} {mean} ± {sd} (p99 {p99}, max {max})"))
    };
    let told: Vec<String> =
        [("connect", &run.connect), ("first byte", &run.first_byte)].into_iter().filter_map(told).collect();
    (!told.is_empty()).then(|| told.join(", "))
}

/// Causes of errors, in one line. `None` without errors.
fn troubles(run: &Run) -> Option<String> {
    let others = in_words(&[("not sent in time", run.unsent), ("connected again", run.reconnects)]);
    let words = [run.errors.in_words(), others].into_iter().filter(|words| !words.is_empty());
    Some(words.collect::<Vec<_>>().join(", ")).filter(|words| !words.is_empty())
}

fn expectation(expectation: &Expectation) -> String {
    let verdict = match expectation.verdict() {
        Verdict::Holds => "holds",
        Verdict::Fails => "FAILS",
        // `measured` contains the reason.
        Verdict::NotJudged => "  -  ",
    };
    format!("{verdict}  {}: {}", expectation.what, expectation.measured)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example;

    #[test]
    fn example_reads_well() {
        example::check_golden("report.txt", &text(&example::report()));
        assert_eq!(text(&example::empty()), "Nothing\n");
    }

    #[test]
    fn columns_without_figures_are_left_out() {
        let mut runs = vec![example::run("a|b", 1_000.0), example::run("b", 2_000.0)];
        for run in &mut runs {
            (run.requests_per_s, run.read_bytes, run.written_bytes) = (0.0, 0, 0);
            (run.connect, run.first_byte) = (None, None);
        }
        runs[0].latency = Default::default();
        let table = table(&runs);
        assert!(
            !table.contains("req/s") && table.contains("p50") && table.contains("| a\\|b |       - |"),
            "{table}"
        );
        assert!(!amounts(&runs[0]).contains("read"), "{}", amounts(&runs[0]));
        assert_eq!(parts(&runs[0]), None);
    }

    #[test]
    fn ratios_are_to_the_first_run() {
        let mut runs =
            vec![example::run("a", 1_000.0), example::run("b", 2_000.0), example::run("c", 1_000.0)];
        runs[2].requests_per_s = f64::NAN;
        let cells = |runs: &[Run]| {
            columns(runs).into_iter().find(|column| column.heading == "vs 1st").map(|column| column.cells)
        };
        assert_eq!(cells(&runs), Some(["1.00", "0.50", "-"].map(str::to_owned).into()));
        runs[0].requests_per_s = 0.0;
        assert_eq!(cells(&runs), None);
        assert_eq!(cells(&runs[..1]), None);
    }
}
