//! Points at which rules apply.

/// Point at which a rule applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The client's request, before it is evaluated: key, `Vary` and origin use the changed request.
    ClientRequest,
    /// The request sent to the origin.
    OriginRequest,
    /// The origin's response, before it is evaluated and stored.
    OriginResponse,
    /// Any response to a client; the stored response doesn't change.
    ClientResponse,
}

impl Phase {
    pub(crate) const ALL: [Self; 4] =
        [Self::ClientRequest, Self::OriginRequest, Self::OriginResponse, Self::ClientResponse];

    /// Returns whether the phase changes responses.
    pub fn is_of_responses(self) -> bool {
        matches!(self, Self::OriginResponse | Self::ClientResponse)
    }
}
