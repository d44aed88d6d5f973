//! Points at which rules apply.

/// Point at which a rule applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The client's request, before anything is read of it: key, `Vary` and origin see the changed one.
    ClientRequest,
    /// The request sent to the origin.
    OriginRequest,
    /// The origin's response, before it is judged and stored.
    OriginResponse,
    /// Any response on its way to a client; the stored response does not change.
    ClientResponse,
}

impl Phase {
    pub(crate) const ALL: [Self; 4] =
        [Self::ClientRequest, Self::OriginRequest, Self::OriginResponse, Self::ClientResponse];

    /// Whether the phase changes responses.
    pub fn is_of_responses(self) -> bool {
        matches!(self, Self::OriginResponse | Self::ClientResponse)
    }
}
