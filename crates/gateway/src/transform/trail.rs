//! Fields with values from credentials in a request that rules change.

use caching::FieldLine;
use smallvec::SmallVec;

use super::template::{Template, Variable};

/// Fields whose values depend on certain fields of the client.
pub(crate) struct Trail<'a> {
    names: SmallVec<[&'a str; 4]>,
    /// Whether a condition of the current rule depends on one of these fields.
    pub(crate) is_chosen: bool,
}

impl<'a> Trail<'a> {
    pub(crate) fn new(asked: &[FieldLine<'a>], is_source: &dyn Fn(&str) -> bool) -> Self {
        let names = asked.iter().map(|(name, _)| *name);
        Self { names: names.filter(|name| is_source(name)).collect(), is_chosen: false }
    }

    pub(crate) fn names(&self) -> &[&'a str] {
        &self.names
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known.eq_ignore_ascii_case(name))
    }

    pub(super) fn is_in(&self, value: &Template) -> bool {
        let is_told =
            |variable: &Variable| matches!(variable, Variable::Field(name) if self.has(name.as_str()));
        value.variables().any(is_told)
    }

    pub(super) fn add(&mut self, name: &'a str) {
        self.names.push(name);
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.names.retain(|known| !known.eq_ignore_ascii_case(name));
    }
}
