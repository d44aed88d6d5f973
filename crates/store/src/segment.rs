//! Bodies: immutable segments.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use bytes::Bytes;

use crate::files::Extent;
use crate::{Budget, Charge, OverBudget, allocated_bytes};

/// Immutable bytes that are counted in a [`Budget`] until the last clone is dropped. Cloning is cheap.
///
/// The bytes are always a copy of exact size: a slice would keep the whole read buffer behind it alive, uncounted.
/// They lie on the heap or, where they are many and the tier has files for them, in a file that the kernel can send
/// from; see `docs/design/large-bodies.md`.
#[derive(Clone)]
pub struct Segment {
    shared: Arc<Counted>,
}

struct Counted {
    data: Data,
    charge: Charge,
}

enum Data {
    Heap(Box<[u8]>),
    File(Extent),
}

/// For whom a segment is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// For readers in this process, such as encryption: on the heap.
    Heap,
    /// For clients that the kernel can send files to: in a file, where it is large and the tier has files.
    File,
}

impl Segment {
    /// What a segment costs beside its bytes: the counted header in its allocation.
    pub const OVERHEAD_BYTES: usize = size_of::<Counted>() + 2 * size_of::<usize>();

    /// Copies `data`.
    ///
    /// # Errors
    /// When the budget has no room; nothing is allocated then.
    pub fn copy(budget: &Arc<Budget>, place: Place, data: &[u8]) -> Result<Self, OverBudget> {
        Self::gather(budget, place, &[data])
    }

    /// Copies `parts`, one behind the other, into one segment.
    ///
    /// # Errors
    /// When the budget has no room; nothing is allocated then.
    pub fn gather(
        budget: &Arc<Budget>,
        place: Place,
        parts: &[impl AsRef<[u8]>],
    ) -> Result<Self, OverBudget> {
        let len = parts.iter().map(|part| part.as_ref().len()).sum::<usize>();
        if let Some(files) = budget.files_for(len).filter(|_| place == Place::File) {
            let charge = budget.reserve(Extent::resident_bytes(len) + Self::OVERHEAD_BYTES)?;
            match Extent::write(files, parts) {
                Ok(extent) => return Ok(Self::new(Data::File(extent), charge)),
                // The system has no memory for the file; the heap may have some, or the process ends as it would have.
                Err(_) => budget.file_failed(),
            }
        }
        let charge = budget.reserve(allocated_bytes(len) + Self::OVERHEAD_BYTES)?;
        let mut data = Vec::with_capacity(len);
        parts.iter().for_each(|part| data.extend_from_slice(part.as_ref()));
        Ok(Self::new(Data::Heap(data.into_boxed_slice()), charge))
    }

    fn new(data: Data, charge: Charge) -> Self {
        Self { shared: Arc::new(Counted { data, charge }) }
    }

    /// Where it lies.
    pub fn place(&self) -> Place {
        match &self.shared.data {
            Data::Heap(_) => Place::Heap,
            Data::File(_) => Place::File,
        }
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        match &self.shared.data {
            Data::Heap(data) => data.len(),
            Data::File(extent) => extent.len(),
        }
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All bytes, copied where they can't be read in place. For tests and rare work.
    ///
    /// # Errors
    /// When the system cannot bring back what it has swapped out.
    pub fn to_bytes(&self) -> io::Result<Bytes> {
        self.bytes(0, self.len())
    }

    pub(crate) fn bytes(&self, start: usize, end: usize) -> io::Result<Bytes> {
        match &self.shared.data {
            Data::Heap(_) => Ok(Bytes::from_owner(OnHeap(self.clone())).slice(start..end)),
            Data::File(extent) => extent.read(start, end).map(Bytes::from),
        }
    }

    pub(crate) fn in_place(&self) -> Option<&[u8]> {
        match &self.shared.data {
            Data::Heap(data) => Some(data),
            Data::File(_) => None,
        }
    }

    pub(crate) fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        match &self.shared.data {
            Data::Heap(_) => None,
            Data::File(extent) => Some(extent.place()),
        }
    }

    pub(crate) fn charge(&self) -> &Charge {
        &self.shared.charge
    }

    pub(crate) fn identity(&self) -> usize {
        Arc::as_ptr(&self.shared) as usize
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

/// Keeps a segment counted behind [`Bytes`].
struct OnHeap(Segment);

impl AsRef<[u8]> for OnHeap {
    fn as_ref(&self) -> &[u8] {
        self.0.in_place().expect("made of a segment on the heap")
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment").field("len", &self.len()).finish()
    }
}
