//! An action in the configuration and in explanations.

use option_table::Opt;

use super::phase::Phase;

/// A key of a rule that specifies an action.
#[derive(Debug)]
pub struct ActionKey {
    /// Row of the key in the option table.
    pub option: Opt,
    /// Phases in which the key is allowed.
    pub phases: Phases,
}

/// Phases in which a key is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phases {
    /// All phases.
    Any,
    /// Phases of responses.
    OfResponses,
    /// Only the request of the client.
    ClientRequest,
    /// Only the response of the origin.
    OriginResponse,
}

/// A change as text: the action, and the part of the message that it changes.
pub(crate) type Change = (&'static str, String);

impl ActionKey {
    /// Returns the key as written.
    pub const fn name(&self) -> &'static str {
        self.option.key
    }
}

impl Phases {
    /// Checks that the key is allowed in a phase.
    ///
    /// # Errors
    /// A message with the phases in which the key is allowed.
    pub fn check(self, phase: Phase) -> Result<(), &'static str> {
        let (is_one, refusal) = match self {
            Self::Any => return Ok(()),
            Self::OfResponses => {
                (phase.is_of_responses(), "only for responses: phase `origin_response` or `client_response`")
            }
            Self::ClientRequest => (phase == Phase::ClientRequest, "only in phase `client_request`"),
            Self::OriginResponse => {
                (phase == Phase::OriginResponse, "only in phase `origin_response`, since it affects storing")
            }
        };
        if is_one { Ok(()) } else { Err(refusal) }
    }
}
