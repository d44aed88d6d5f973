//! Names with numbers: of sites, and of origins.

use std::collections::HashMap;

/// Registered names are bounded by their number's type; the last is never given away.
const NAMES_MAX: usize = u16::MAX as usize;

/// Names that are numbered in the order in which they came. Number 0 is nobody's.
pub(crate) struct NumberedNames {
    names: Vec<String>,
    /// A start registers thousands: a search through `names` for each would take seconds.
    numbers: HashMap<String, u16>,
}

impl Default for NumberedNames {
    fn default() -> Self {
        let none = "none".to_owned();
        Self { names: vec![none.clone()], numbers: HashMap::from([(none, 0)]) }
    }
}

impl NumberedNames {
    /// The number of a name, which it keeps; 0 when all are taken.
    pub(crate) fn number(&mut self, name: &str) -> u16 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let Ok(number) = u16::try_from(self.names.len()) else { return 0 };
        if self.names.len() >= NAMES_MAX {
            return 0;
        }
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// By number.
    pub(crate) fn all(&self) -> &[String] {
        &self.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_number_and_the_last_get_none() {
        let mut names = NumberedNames::default();
        assert_eq!(["a", "b", "a", "none"].map(|name| names.number(name)), [1, 2, 1, 0]);
        assert_eq!(names.all(), ["none", "a", "b"]);
        let all: Vec<u16> = (3..70_000).map(|at| names.number(&at.to_string())).collect();
        assert_eq!(all[NAMES_MAX - 4..NAMES_MAX - 1], [u16::MAX - 1, 0, 0]);
        assert_eq!(names.number("b"), 2);
        assert_eq!(names.all().len(), NAMES_MAX);
    }
}
