//! Parts of a stored response that are often absent.

use caching::{NominatedFields, NominatedValues};
use store::allocated_bytes;

use crate::entry::provenance::Provenance;
use crate::entry::usage::Usage;
use crate::membership::Membership;

/// Parts of a stored response that are often absent.
#[derive(Clone, Debug, Default)]
pub struct ColdFields {
    /// Request fields that select the response, beyond the cache key (RFC 9111 section 4.1).
    pub nominated: NominatedFields,
    pub nominated_values: NominatedValues,
    /// `None` for the usual phrase of the status.
    pub reason: Option<Box<[u8]>>,
    /// Boxed separately, because most responses that have it have none of the other parts.
    provenance: Option<Box<RecordedProvenance>>,
    /// Whether a nominated field may reach the origin in another form than the client sent. Stored here, so that look-ups don't compute it.
    pub(super) nominates_rewritten: bool,
    /// Use of the variant.
    pub(super) usage: Usage,
}

/// Membership and inputs of a stored response.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordedProvenance {
    /// Groups, tags and key by which it can be invalidated, if any.
    pub(crate) membership: Option<Membership>,
    /// Inputs of the decision to store it, if they are kept.
    pub(crate) inputs: Option<Box<Provenance>>,
}

impl ColdFields {
    pub fn new(nominated: NominatedFields, nominated_values: NominatedValues, reason: Option<&[u8]>) -> Self {
        Self { nominated, nominated_values, reason: reason.map(Into::into), ..Self::default() }
    }

    /// Boxes the parts, without an allocation if all are empty.
    pub(super) fn boxed(self) -> Option<Box<Self>> {
        let is_empty = self.nominated.is_empty() && self.reason.is_none() && self.provenance.is_none();
        let nominates_rewritten = self.nominated.names().any(caching::unkeyed::is_written_or_dropped);
        (!is_empty).then(|| Box::new(Self { nominates_rewritten, ..self }))
    }

    pub(crate) fn change_provenance(&mut self, change: impl FnOnce(&mut RecordedProvenance)) {
        let mut provenance = self.provenance.take().map(|boxed| *boxed).unwrap_or_default();
        change(&mut provenance);
        let has_any = provenance.membership.is_some() || provenance.inputs.is_some();
        self.provenance = has_any.then(|| Box::new(provenance));
    }

    /// Returns the groups, tags and key by which it can be invalidated, if any.
    pub fn membership(&self) -> Option<&Membership> {
        self.provenance.as_deref()?.membership.as_ref()
    }

    /// Returns the inputs of the decision to store it, if they are kept.
    pub fn inputs(&self) -> Option<&Provenance> {
        self.provenance.as_deref()?.inputs.as_deref()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let (membership, inputs) = (self.membership(), self.inputs());
        let boxed = [
            size_of::<Self>(),
            self.nominated.as_str().len(),
            self.reason.as_deref().map_or(0, <[u8]>::len),
            self.provenance.as_ref().map_or(0, |_| size_of::<RecordedProvenance>()),
            membership.map_or(0, Membership::heap_bytes),
            inputs.map_or(0, |_| size_of::<Provenance>()),
        ];
        let own =
            boxed.into_iter().chain(self.nominated_values.heap_bytes()).map(allocated_bytes).sum::<usize>();
        own + inputs.map_or(0, Provenance::heap_bytes)
    }
}
