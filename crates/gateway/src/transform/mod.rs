//! Actions of transformation rules: what a rule changes in a message.
//!
//! Each action is one file in `actions/`, which `set` and `add` share: its key with the text for the reference, its settings and their check,
//! its effect on a message, and what follows from it for credentials and for `Vary`. `actions/mod.rs` lists them, and says of each where it has
//! a part; nothing else knows one action from another, but for the binary, which reads their keys. The other files are what actions have in
//! common. Pure.
//!
//! A new action is a file in `actions/`, a line for it in `KEYS` and in `Action`, and an arm in each match that the compiler then asks for; then
//! the lines that read its key, in `crates/larder/src/config/check/transform.rs`, an example in `config/larder.toml`, and the reference pages,
//! which `larder reference` writes.

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
