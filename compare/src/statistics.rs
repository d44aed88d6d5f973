//! Median and spread of the rounds.

/// Summary of several rounds of one measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Summary {
    /// `None` if there are no values.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self { median: median(&sorted)?, min: *sorted.first()?, max: *sorted.last()? })
    }

    /// Half the range, as a share of the median.
    pub(crate) fn spread(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.max - self.min) / 2.0 / self.median.abs() }
    }
}

/// The median of sorted values: the mean of the two middle ones if their number is even.
fn median(sorted: &[f64]) -> Option<f64> {
    let upper = sorted.len() / 2;
    let lower = sorted.len().checked_sub(1)? / 2;
    Some(f64::midpoint(*sorted.get(lower)?, *sorted.get(upper)?))
}

#[cfg(test)]
mod tests {
    use super::Summary;

    #[test]
    fn the_middle_of_the_rounds() {
        let cases: [(&[f64], f64, f64); 4] = [
            (&[3.0], 3.0, 0.0),
            (&[4.0, 1.0, 2.0], 2.0, 0.75),
            (&[1.0, 2.0, 3.0, 100.0], 2.5, 19.8),
            (&[0.0, 0.0], 0.0, 0.0),
        ];
        for (values, median, spread) in cases {
            let summary = Summary::of(values).expect("not empty");
            assert_eq!((summary.median, summary.spread()), (median, spread), "{values:?}");
        }
        assert_eq!(Summary::of(&[]), None);
    }
}
