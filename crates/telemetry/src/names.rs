//! Numbered names of sites, rules and origins.

use std::collections::HashMap;

/// Maximum number of registered names, limited by the type of their numbers.
const NAMES_MAX: usize = u16::MAX as usize;

/// Names numbered in the order of registration. Number 0 belongs to no name.
pub(crate) struct NumberedNames {
    names: Vec<String>,
    /// The number of each name. A start registers thousands of names, and searching `names` for each would take seconds.
    numbers: HashMap<String, u16>,
}

impl Default for NumberedNames {
    fn default() -> Self {
        let none = "none".to_owned();
        Self { names: vec![none.clone()], numbers: HashMap::from([(none, 0)]) }
    }
}

impl NumberedNames {
    /// Returns the number of a name, which it keeps, or 0 if all are assigned.
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

    /// Returns the names by number.
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
