//! Immutable segments of bodies.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use bytes::Bytes;

use crate::files::Extent;
use crate::{Budget, Charge, OverBudget, allocated_bytes};

/// Immutable bytes that count against a [`Budget`] until the last clone is dropped. Cloning is cheap.
///
/// The bytes are always a copy of the exact size: a slice would keep the whole underlying read buffer alive, uncounted. They are on the
/// heap or, if there are many and the tier has files, in a file from which the kernel can send; see `docs/internals/requests.md`.
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

/// Storage of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Placement {
    /// The bytes are on the heap, for readers in this process such as encryption.
    Heap,
    /// The bytes are in a file from which the kernel can send, if the segment is large and the tier has files; otherwise on the heap.
    File,
}

impl Segment {
    /// Size of a segment in addition to its data: the counted header in its allocation.
    pub const OVERHEAD_BYTES: usize = size_of::<Counted>() + 2 * size_of::<usize>();

    /// Copies `data` into a new segment.
    ///
    /// # Errors
    /// If the budget has no room; nothing is allocated in that case.
    pub fn copy(budget: &Arc<Budget>, place: Placement, data: &[u8]) -> Result<Self, OverBudget> {
        Self::gather(budget, place, &[data])
    }

    /// Copies `parts` consecutively into a new segment.
    ///
    /// # Errors
    /// If the budget has no room; nothing is allocated in that case.
    pub fn gather(
        budget: &Arc<Budget>,
        place: Placement,
        parts: &[impl AsRef<[u8]>],
    ) -> Result<Self, OverBudget> {
        let len = parts.iter().map(|part| part.as_ref().len()).sum::<usize>();
        if let Some(files) = budget.files_for(len).filter(|_| place == Placement::File) {
            let charge = budget.reserve(Extent::resident_bytes(len) + Self::OVERHEAD_BYTES)?;
            match Extent::write(files, parts) {
                Ok(extent) => return Ok(Self::new(Data::File(extent), charge)),
                // The OS has no memory for the file, but the heap may still have some.
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

    /// Returns where the bytes are stored.
    pub fn place(&self) -> Placement {
        match &self.shared.data {
            Data::Heap(_) => Placement::Heap,
            Data::File(_) => Placement::File,
        }
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        match &self.shared.data {
            Data::Heap(data) => data.len(),
            Data::File(extent) => extent.len(),
        }
    }

    /// Returns `true` if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all bytes, copied if they are in a file. For tests and rare operations.
    ///
    /// # Errors
    /// If the OS can't read swapped-out pages back.
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

/// Owner of [`Bytes`] that keeps their segment counted.
struct OnHeap(Segment);

impl AsRef<[u8]> for OnHeap {
    fn as_ref(&self) -> &[u8] {
        self.0.in_place().expect("`OnHeap` holds segments on the heap only")
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment").field("len", &self.len()).finish()
    }
}
