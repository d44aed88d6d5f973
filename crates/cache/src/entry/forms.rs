//! Forms of a stored response: its body in other content codings, in addition to the body from the origin.
//!
//! A form is created when a client first needs it. The head of the response holds it, so the forms of a response are removed together with
//! its head. Their bytes are segments of their own group, so that memory can evict a form and keep the response; the form is then created
//! again when needed. Freshening creates a new head for the same body; the new head takes over the forms.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use caching::compression::Coding;
use once_cell::race::OnceBox;
use parking_lot::Mutex;
use store::{ARC_HEADER_BYTES, Budget, Charge, OverBudget, SegmentGroup, Slice, allocated_bytes};

use crate::entry::segmented::Segmented;
use crate::fill::Fill;

/// Forms of a head. Takes one word, and most responses need no allocation for it.
#[derive(Debug, Default)]
pub struct FormsCell(OnceBox<Arc<Forms>>);

impl Clone for FormsCell {
    fn clone(&self) -> Self {
        let copy = Self::default();
        if let Some(forms) = self.0.get() {
            let _ = copy.0.set(Box::new(Arc::clone(forms)));
        }
        copy
    }
}

impl FormsCell {
    pub(super) fn known(&self) -> Option<&Forms> {
        self.0.get().map(|forms| &**forms)
    }

    /// # Errors
    /// If the memory budget has no room for the forms.
    pub fn get(&self, budget: &Arc<Budget>) -> Result<Arc<Forms>, OverBudget> {
        let forms = self.0.get_or_try_init(|| Forms::new(budget).map(|forms| Box::new(Arc::new(forms))));
        forms.map(Arc::clone)
    }
}

/// Forms of one body.
#[derive(Debug)]
pub struct Forms {
    slots: Mutex<[Slot; Coding::ALL.len()]>,
    /// Last field, because it must be dropped after the memory that it counts.
    _charge: Charge,
}

#[derive(Debug, Default)]
enum Slot {
    #[default]
    Absent,
    Underway(Weak<Fill>),
    Kept(Box<Segmented>),
    NoGain,
}

/// State of a body's form in one coding.
pub enum Form {
    Absent,
    /// Being created.
    Underway(Arc<Fill>),
    Kept {
        pieces: VecDeque<Slice>,
        bytes: u64,
    },
    /// The form would not be smaller than the body.
    NoGain,
}

impl Forms {
    fn new(budget: &Arc<Budget>) -> Result<Self, OverBudget> {
        let each = allocated_bytes(size_of::<Segmented>())
            + allocated_bytes(size_of::<SegmentGroup>() + ARC_HEADER_BYTES);
        let own = allocated_bytes(size_of::<Self>() + ARC_HEADER_BYTES);
        let charge = budget.reserve_beside_record(own + each * Coding::ALL.len())?;
        Ok(Self { slots: Mutex::default(), _charge: charge })
    }

    /// Returns the state of the form in a coding. A form counts as absent if memory has evicted part of it or its fill was aborted.
    pub fn find(&self, coding: Coding) -> Form {
        match &self.slots.lock()[coding as usize] {
            Slot::Absent => Form::Absent,
            Slot::NoGain => Form::NoGain,
            Slot::Underway(fill) => match fill.upgrade().filter(|fill| fill.may_be_stored()) {
                Some(fill) => Form::Underway(fill),
                None => Form::Absent,
            },
            Slot::Kept(body) => {
                let bytes = body.complete_bytes.unwrap_or(0);
                body.pieces(0, bytes).map_or(Form::Absent, |pieces| Form::Kept { pieces, bytes })
            }
        }
    }

    /// Records that a form is being created.
    pub fn begin(&self, coding: Coding, fill: &Arc<Fill>) {
        self.put(coding, Slot::Underway(Arc::downgrade(fill)));
    }

    /// Stores a form.
    pub fn keep(&self, coding: Coding, body: Segmented) {
        self.put(coding, Slot::Kept(Box::new(body)));
    }

    /// Records that a form would not be smaller than the body.
    pub fn record_no_gain(&self, coding: Coding) {
        self.put(coding, Slot::NoGain);
    }

    fn put(&self, coding: Coding, slot: Slot) {
        // Drops the previous value outside the lock.
        let _before = std::mem::replace(&mut self.slots.lock()[coding as usize], slot);
    }
}
