//! LATENCY GRAPH: a column for each sample, with its age below.

/// Rows of a graph; each can show three heights.
const ROWS: usize = 4;
const HEIGHTS: [u8; 3] = [b'_', b'o', b'#'];
/// Columns per line. Further samples start a new graph below.
const COLUMNS: usize = 80;

/// A sample with its label.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) value: u64,
    pub(crate) label: String,
}

/// Formats an age like Redis' labels.
pub(crate) fn ago(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Draws the graph; each line ends with a line feed.
pub(crate) fn draw(samples: &[Sample]) -> String {
    let values = || samples.iter().map(|sample| sample.value);
    let (least, most) = (values().min().unwrap_or_default(), values().max().unwrap_or_default());
    let parts = samples.chunks(COLUMNS).map(|part| draw_part(part, least, most));
    parts.collect::<Vec<_>>().join("\n")
}

fn draw_part(samples: &[Sample], least: u64, most: u64) -> String {
    let steps = ROWS * HEIGHTS.len();
    let range = (most - least).max(1);
    let step = |sample: &Sample| ((sample.value - least) as usize * steps / range as usize).min(steps - 1);
    let labels = samples.iter().map(|sample| sample.label.len()).max().unwrap_or_default();
    let row = |row: usize| {
        let column = |sample: &Sample| match row.checked_sub(ROWS + 1) {
            Some(at) => sample.label.as_bytes().get(at).copied().unwrap_or(b' '),
            None if row == ROWS => b' ',
            None => match step(sample).checked_sub((ROWS - row - 1) * HEIGHTS.len()) {
                None => b' ',
                Some(height) => HEIGHTS.get(height).copied().unwrap_or(b'|'),
            },
        };
        samples.iter().map(|sample| char::from(column(sample))).chain(['\n']).collect::<String>()
    };
    (0..=ROWS + labels).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_stand_beside_each_other() {
        let sample = |(value, ago_s)| Sample { value, label: ago(ago_s) };
        let drawn = draw(&[(10, 90), (70, 12), (130, 5)].map(sample));
        assert_eq!(drawn, "  #\n _|\n ||\n_||\n   \n115\nm2s\n s \n");
        assert_eq!(draw(&[(7, 0)].map(sample)), " \n \n \n_\n \n0\ns\n");
        assert_eq!(draw(&(0..81).map(|_| sample((7, 0))).collect::<Vec<_>>()).lines().count(), 15);
    }

    #[test]
    fn times_are_told_in_the_largest_unit_that_is_whole() {
        assert_eq!(
            [0, 59, 60, 3_599, 3_600, 86_399, 86_400].map(ago),
            ["0s", "59s", "1m", "59m", "1h", "23h", "1d"]
        );
    }
}
