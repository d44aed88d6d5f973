//! An action in the configuration, and in explanations.

use option_table::Opt;

use super::phase::Phase;

/// A key of a rule that stands for an action.
#[derive(Debug)]
pub struct ActionKey {
    /// Its row in the option table.
    pub option: Opt,
    /// Phases that it is for.
    pub phases: Phases,
}

/// Phases that a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phases {
    /// All.
    Any,
    /// Phases of responses.
    OfResponses,
    /// The request of the client alone.
    ClientRequest,
    /// The response of the origin alone.
    OriginResponse,
}

/// A change as text: the action, and its object.
pub(crate) type Change = (&'static str, String);

impl ActionKey {
    /// The key as it is written.
    pub const fn name(&self) -> &'static str {
        self.option.key
    }
}

impl Phases {
    /// Checks that a phase is among them.
    ///
    /// # Errors
    /// The phases that the key is for, for people.
    pub fn check(self, phase: Phase) -> Result<(), &'static str> {
        let (is_one, refusal) = match self {
            Self::Any => return Ok(()),
            Self::OfResponses => {
                (phase.is_of_responses(), "only for responses: phase `origin_response` or `client_response`")
            }
            Self::ClientRequest => (phase == Phase::ClientRequest, "only in phase `client_request`"),
            Self::OriginResponse => {
                (phase == Phase::OriginResponse, "only in phase `origin_response`: it decides what is stored")
            }
        };
        if is_one { Ok(()) } else { Err(refusal) }
    }
}
