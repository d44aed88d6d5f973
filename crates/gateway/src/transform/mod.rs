//! Actions of transformation rules: the changes that a rule makes to a message.
//!
//! Each action has one file in `actions/` (`set` and `add` share one): its key with the text for the reference, its settings and their
//! checks, its effect on a message, and its consequences for credentials and `Vary`. `actions/mod.rs` lists the actions and dispatches
//! to them. No other code distinguishes actions, except the binary, which reads their keys. The other files are shared by all actions.
//! The functions are pure.
//!
//! A new action needs a file in `actions/`, a line in `KEYS` and in `Action`, and an arm in each match that the compiler then reports.
//! It also needs code that reads its key in `crates/larder/src/config/check/transform.rs`, an example in `config/larder.toml`, and the
//! reference pages, which `larder reference` writes.

pub mod actions;
pub mod captures;
mod field;
mod key;
mod phase;
mod prefix;
mod subject;
mod template;
mod terms;
mod trail;

pub use actions::Action;
pub use field::field_name;
pub(crate) use key::Change;
pub use key::{ActionKey, Phases};
pub use phase::Phase;
pub use prefix::PrefixChange;
pub(crate) use subject::{Seen, Subject};
pub use template::{Template, Variable};
pub use terms::{ChosenBy, RuleTerms};
pub(crate) use trail::Trail;
