//! The actions and their effects on messages. The `match` expressions below are exhaustive, so the compiler requires a decision in each of
//! them for a new action.

pub mod cache_control;
pub mod cookies;
pub mod copy;
pub mod location;
pub mod redirect;
pub mod remove;
pub mod rewrite;
pub mod set;

use std::fmt;

use http::HeaderName;
use message::fields::PackedFields;
use option_table::Opt;

use super::key::{ActionKey, Change};
use super::phase::Phase;
use super::subject::Subject;
use super::trail::Trail;

/// The keys of all actions, in the order in which a rule applies them, which is also the order of the reference.
pub static KEYS: [ActionKey; 10] = [
    copy::KEY,
    remove::KEY,
    set::KEY,
    set::ADD_KEY,
    cache_control::KEY,
    location::KEY,
    cookies::DOMAIN_KEY,
    cookies::PATHS_KEY,
    rewrite::KEY,
    redirect::KEY,
];

/// The rows of all actions in the option table.
pub static OPTIONS: [&Opt; KEYS.len()] = {
    let mut options = [&KEYS[0].option; KEYS.len()];
    let mut at = 0;
    while at < options.len() {
        options[at] = &KEYS[at].option;
        at += 1;
    }
    options
};

/// A change to a message.
#[derive(Clone)]
pub enum Action {
    /// `copy`
    Copy(copy::Copy),
    /// `remove`
    Remove(remove::Remove),
    /// `set` and `add`
    Set(set::Set),
    /// `cache_control`
    CacheControl(cache_control::CacheControl),
    /// `location`
    Location(location::Location),
    /// `cookie_domain` and `cookie_paths`
    Cookies(cookies::CookieChange),
    /// `rewrite`
    Rewrite(rewrite::Rewrite),
    /// `redirect`
    Redirect(redirect::Redirect),
}

impl Action {
    /// Changes the fields of a message.
    pub(crate) fn edit(&self, subject: &Subject<'_>, fields: &mut PackedFields) {
        if self.field_written().is_some_and(|name| subject.frames_parts(name, fields)) {
            return;
        }
        match self {
            Self::Copy(copy) => copy.edit(fields),
            Self::Remove(remove) => remove.edit(fields),
            Self::Set(set) => set.edit(subject, fields),
            Self::CacheControl(by_status) => by_status.edit(subject, fields),
            Self::Location(location) => location.edit(fields),
            Self::Cookies(cookies) => cookies.edit(fields),
            Self::Rewrite(_) | Self::Redirect(_) => {}
        }
    }

    /// Returns the change to path and query of a request, if the action is one.
    pub(crate) fn as_rewrite(&self) -> Option<&rewrite::Rewrite> {
        match self {
            Self::Rewrite(rewrite) => Some(rewrite),
            Self::Copy(_) | Self::Remove(_) | Self::Set(_) => None,
            Self::CacheControl(_) | Self::Location(_) | Self::Cookies(_) | Self::Redirect(_) => None,
        }
    }

    /// Returns the status and `Location` of a redirect, if the action is one.
    pub(crate) fn answer(&self, subject: &Subject<'_>, fields: &PackedFields) -> Option<(u16, Vec<u8>)> {
        match self {
            Self::Redirect(redirect) => redirect.answer(subject, fields),
            Self::Copy(_) | Self::Remove(_) | Self::Set(_) => None,
            Self::CacheControl(_) | Self::Location(_) | Self::Cookies(_) | Self::Rewrite(_) => None,
        }
    }

    /// Returns the field that the action writes or removes, if its rule names one.
    pub(crate) fn field_written(&self) -> Option<&HeaderName> {
        match self {
            Self::Copy(copy) => Some(copy.field_written()),
            Self::Remove(remove) => Some(remove.field_written()),
            Self::Set(set) => Some(set.field_written()),
            Self::CacheControl(_) | Self::Location(_) | Self::Cookies(_) => None,
            Self::Rewrite(_) | Self::Redirect(_) => None,
        }
    }

    /// Returns the request fields whose values the action uses in a phase.
    pub(crate) fn request_fields_read(&self, phase: Phase) -> Vec<&HeaderName> {
        match self {
            Self::Copy(copy) => copy.request_fields_read(phase),
            Self::Set(set) => set.request_fields_read(phase),
            Self::Redirect(redirect) => redirect.request_fields_read(phase),
            Self::Remove(_) | Self::CacheControl(_) | Self::Location(_) => Vec::new(),
            Self::Cookies(_) | Self::Rewrite(_) => Vec::new(),
        }
    }

    /// Returns the request fields whose values determine the response to a client in a phase, for `Vary`.
    pub(crate) fn deciding_fields(&self, phase: Phase) -> Vec<&HeaderName> {
        match self {
            Self::Set(set) => set.deciding_fields(phase),
            Self::Redirect(redirect) => redirect.request_fields_read(phase),
            // If fields only change the request to the origin, the origin names them in `Vary`.
            Self::Copy(_) | Self::Remove(_) | Self::Rewrite(_) => Vec::new(),
            Self::CacheControl(_) | Self::Location(_) | Self::Cookies(_) => Vec::new(),
        }
    }

    /// Returns whether the response to a request depends on a match of the rule, and so on the fields in the rule's conditions.
    pub(crate) fn chooses_answer(&self) -> bool {
        match self {
            Self::Rewrite(_) | Self::Redirect(_) => true,
            Self::Copy(_) | Self::Remove(_) | Self::Set(_) => false,
            Self::CacheControl(_) | Self::Location(_) | Self::Cookies(_) => false,
        }
    }

    /// Updates `trail` if the action copies values from credentials, or overwrites or removes such values.
    pub(crate) fn follow<'a>(&'a self, trail: &mut Trail<'a>) {
        match self {
            Self::Copy(copy) => copy.follow(trail),
            Self::Remove(remove) => remove.follow(trail),
            Self::Set(set) => set.follow(trail),
            Self::CacheControl(_) | Self::Location(_) | Self::Cookies(_) => {}
            // The path is part of the key. For values that move to the query, see `Rewrite::changes_query`.
            Self::Rewrite(_) | Self::Redirect(_) => {}
        }
    }

    /// Returns the change as text, for explanations.
    pub(crate) fn described(&self) -> Change {
        match self {
            Self::Copy(copy) => copy.described(),
            Self::Remove(remove) => remove.described(),
            Self::Set(set) => set.described(),
            Self::CacheControl(by_status) => by_status.described(),
            Self::Location(location) => location.described(),
            Self::Cookies(cookies) => cookies.described(),
            Self::Rewrite(rewrite) => rewrite.described(),
            Self::Redirect(redirect) => redirect.described(),
        }
    }
}

/// Writes the text for a site's imprint on stored responses: if it changes, the responses become unusable.
impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Copy(copy) => copy.fmt(f),
            Self::Remove(remove) => remove.fmt(f),
            Self::Set(set) => set.fmt(f),
            Self::CacheControl(by_status) => by_status.fmt(f),
            Self::Location(location) => location.fmt(f),
            Self::Cookies(cookies) => f.debug_tuple("Cookies").field(cookies).finish(),
            Self::Rewrite(rewrite) => rewrite.fmt(f),
            Self::Redirect(redirect) => redirect.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use caching::StatusMatch;

    use super::*;
    use crate::transform::{ChosenBy, PrefixChange, RuleTerms};

    /// The text must not change: stored responses of sites with transformation rules must stay usable after an upgrade.
    #[test]
    fn the_text_of_an_imprint_stays() {
        let check = |action: Action, expected: &str| assert_eq!(format!("{action:?}"), expected);
        let terms = &RuleTerms {
            phase: Phase::OriginResponse,
            chosen_by: Some(ChosenBy::NothingPlain),
            credential_fields: &[],
        };
        let change = || vec![PrefixChange::new("/a".to_owned(), "/b".to_owned())];
        let value = cache_control::CacheControl::value("no-store").unwrap();
        let by_status = cache_control::CacheControl::new(vec![(StatusMatch::Class(5), value)]).unwrap();
        let cookies = cookies::CookieChange::new(None, change()).unwrap();
        check(
            Action::Copy(copy::Copy::new("X-A", "X-B", terms).unwrap()),
            r#"Copy { from: "x-b", to: "x-a" }"#,
        );
        check(Action::Remove(remove::Remove::new("X-A", terms).unwrap()), r#"Remove("x-a")"#);
        check(
            Action::Set(set::Set::new("X-A", "b{host}", terms).unwrap()),
            r#"Set("x-a", Template { pieces: [Text([98]), Variable(Host)] })"#,
        );
        check(
            Action::Set(set::Set::adding("X-A", "", terms).unwrap()),
            r#"Add("x-a", Template { pieces: [] })"#,
        );
        check(Action::CacheControl(by_status), r#"CacheControl([(Class(5), "no-store")])"#);
        check(
            Action::Location(location::Location::new(change()).unwrap()),
            r#"Location([PrefixChange { from: "/a", to: "/b" }])"#,
        );
        check(
            Action::Cookies(cookies),
            r#"Cookies(CookieChange { domain: None, paths: [PrefixChange { from: "/a", to: "/b" }] })"#,
        );
    }
}
