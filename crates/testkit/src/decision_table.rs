//! Decision tables as text for a test to compare: every combination of inputs with its outcome.
//!
//! Rows with the same outcome are combined: column by column from the left, values with equal rows to their right share a row. `*`
//! stands for all values; an empty cell repeats the one above. Long lists of values get a number and are listed below the table.

use std::fmt::Write;

/// An input and its values.
pub struct Column {
    pub name: String,
    pub values: Vec<String>,
}

/// A row of a part of the table: the cells of its columns, with their outcome.
#[derive(Clone, PartialEq, Eq)]
struct Row {
    cells: Vec<String>,
    outcome: String,
}

impl Column {
    pub fn new<T>(name: &str, values: &[T], show: impl Fn(&T) -> String) -> Self {
        Self { name: name.to_owned(), values: values.iter().map(show).collect() }
    }

    fn show(&self, chosen: &[usize]) -> String {
        let list = |is_shown: &dyn Fn(&usize) -> bool| {
            let shown = (0..self.values.len()).filter(is_shown).map(|at| self.values[at].as_str());
            shown.collect::<Vec<_>>().join(", ")
        };
        match self.values.len() - chosen.len() {
            0 => "*".to_owned(),
            others if others < chosen.len() && others < 3 => {
                format!("not {}", list(&|at| !chosen.contains(at)))
            }
            _ => list(&|at| chosen.contains(at)),
        }
    }
}

/// Maximum length of a cell that is not replaced by a number.
const CELL_CHARS_MAX: usize = 32;

/// Returns the table of all combinations. `outcome` gets the combination of a row: for each
/// column, the index of its value.
pub fn table(columns: &[Column], outcome: impl Fn(&[usize]) -> String) -> String {
    let mut rows = rows(columns, &mut Vec::new(), &outcome);
    let legend = number_lists(&mut rows);
    let cells = columns.iter().map(|column| column.name.clone()).collect();
    rows.insert(0, Row { cells, outcome: "comes to".to_owned() });
    let width = |at: usize| rows.iter().map(|row| row.cells[at].len()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let mut text = String::new();
    let mut above: &[String] = &[];
    for row in &rows {
        let repeated = above.iter().zip(&row.cells).take_while(|(above, cell)| above == cell).count();
        for (at, (cell, width)) in row.cells.iter().zip(&widths).enumerate() {
            let shown = if at < repeated { "" } else { cell };
            write!(text, "{shown:<width$} | ").expect("text takes everything");
        }
        writeln!(text, "{}", row.outcome).expect("text takes everything");
        above = &row.cells;
    }
    text + &legend
}

/// Replaces long lists with numbers, and returns the legend.
fn number_lists(rows: &mut [Row]) -> String {
    let mut lists: Vec<String> = Vec::new();
    for cell in rows.iter_mut().flat_map(|row| &mut row.cells).filter(|cell| cell.len() > CELL_CHARS_MAX) {
        let known = lists.iter().position(|list| list == cell).unwrap_or_else(|| {
            lists.push(cell.clone());
            lists.len() - 1
        });
        *cell = format!("({})", known + 1);
    }
    (1..).zip(&lists).map(|(number, list)| format!("\n({number}) is {list}\n")).collect()
}

fn rows(columns: &[Column], chosen: &mut Vec<usize>, outcome: &dyn Fn(&[usize]) -> String) -> Vec<Row> {
    let Some(column) = columns.get(chosen.len()) else {
        return vec![Row { cells: Vec::new(), outcome: outcome(chosen) }];
    };
    let mut groups: Vec<(Vec<usize>, Vec<Row>)> = Vec::new();
    for value in 0..column.values.len() {
        chosen.push(value);
        let rest = rows(columns, chosen, outcome);
        chosen.pop();
        match groups.iter_mut().find(|(_, known)| *known == rest) {
            Some((values, _)) => values.push(value),
            None => groups.push((vec![value], rest)),
        }
    }
    let with_cell = |(values, rest): (Vec<usize>, Vec<Row>)| {
        let cell = column.show(&values);
        rest.into_iter()
            .map(move |row| Row { cells: [vec![cell.clone()], row.cells].concat(), outcome: row.outcome })
    };
    groups.into_iter().flat_map(with_cell).collect()
}

/// Compares a table with the expected one.
#[track_caller]
pub fn compare(now: &str, written: &str) {
    let differing = now.lines().zip(written.lines()).find(|(now, written)| now != written);
    assert!(now == written, "{differing:#?}, in:\n{now}");
}

#[test]
fn equal_rows_are_one() {
    let columns = [
        Column::new("a", &[1, 2, 3, 4], ToString::to_string),
        Column::new("b", &["x", "y"], ToString::to_string),
    ];
    let text = table(&columns, |at| if at == [1, 0] { "odd".to_owned() } else { "even".to_owned() });
    assert_eq!(text, "a     | b | comes to\nnot 2 | * | even\n2     | x | odd\n      | y | even\n");
}
