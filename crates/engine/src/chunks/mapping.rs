//! A chunk of memory mapped from the system.

use std::ptr::NonNull;

/// Size and alignment of a chunk: a huge page of most processors.
pub(crate) const CHUNK_BYTES: usize = 2 << 20;

/// Exclusively owned, readable and writable memory of [`CHUNK_BYTES`], aligned to that size. A mapping
/// contains zeros, or the bytes last written to it.
#[derive(Debug)]
pub(super) struct Mapping(NonNull<u8>);

/// The size of a chunk's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pages {
    /// Regular pages.
    Small,
    /// A single huge page, if the system supports it.
    Huge,
}

// SAFETY: the memory is exclusively owned.
#[expect(unsafe_code, reason = "a pointer to its own memory")]
unsafe impl Send for Mapping {}

impl Mapping {
    pub(super) fn begin(&self) -> NonNull<u8> {
        self.0
    }
}

/// Memory from `mmap`.
#[cfg(all(unix, not(miri)))]
#[expect(unsafe_code, reason = "an allocator can neither return memory at once nor choose its page size")]
mod mapped {
    use std::alloc::{Layout, handle_alloc_error};
    use std::ptr::{NonNull, null_mut};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::{CHUNK_BYTES, Mapping, Pages};

    impl Mapping {
        /// Maps a chunk. The system provides memory for a page when it is first used.
        pub(in super::super) fn new() -> Self {
            // A mapping of twice the size contains an aligned chunk, wherever it begins. The parts before and
            // after the chunk are unmapped.
            let begin = map(2 * CHUNK_BYTES);
            let before = begin.align_offset(CHUNK_BYTES);
            // SAFETY: the offset is less than CHUNK_BYTES, in a mapping of twice that size.
            let chunk = unsafe { begin.add(before) };
            unmap(begin, before);
            // SAFETY: the address is one chunk further, and so within the mapping or at its end.
            unmap(unsafe { chunk.add(CHUNK_BYTES) }, CHUNK_BYTES - before);
            let mapping = Self(NonNull::new(chunk).expect("nothing is mapped at zero"));
            // A new chunk has regular pages, regardless of the system's default.
            mapping.advise(Pages::Small);
            mapping
        }

        /// Returns the memory of a part of the chunk to the system immediately. No piece in this part may be
        /// in use. Afterwards, the part of the chunk contains zeros, or is unchanged.
        pub(in super::super) fn release(&mut self, at: usize, bytes: usize) {
            assert!(at + bytes <= CHUNK_BYTES, "a part of it");
            #[cfg(target_os = "linux")]
            // SAFETY: the part is within the exclusively owned memory, and the caller has no piece in it in
            // use.
            let _ = unsafe { madvise(self.0.as_ptr().add(at).cast(), bytes, Advice::LinuxDontNeed) };
        }

        /// Advises the system on page sizes. Returns whether the system accepts the advice. The contents of
        /// the chunk don't change.
        pub(in super::super) fn advise(&self, pages: Pages) -> bool {
            #[cfg(not(target_os = "linux"))]
            return pages == Pages::Small;
            #[cfg(target_os = "linux")]
            {
                let advice = match pages {
                    Pages::Small => Advice::LinuxNoHugepage,
                    Pages::Huge => Advice::LinuxHugepage,
                };
                // SAFETY: the advice doesn't change the contents of the pages.
                unsafe { madvise(self.0.as_ptr().cast(), CHUNK_BYTES, advice) }.is_ok()
            }
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            unmap(self.0.as_ptr(), CHUNK_BYTES);
        }
    }

    fn map(bytes: usize) -> *mut u8 {
        // SAFETY: without a fixed address, no existing mapping is replaced.
        let mapped = unsafe {
            mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        let layout = Layout::from_size_align(bytes, CHUNK_BYTES).expect("a power of two");
        mapped.unwrap_or_else(|_| handle_alloc_error(layout)).cast()
    }

    fn unmap(begin: *mut u8, bytes: usize) {
        if bytes > 0 {
            // SAFETY: the caller owns this mapping and gives it up. If the system refuses (too many
            // mappings), the memory stays mapped but unused.
            let _ = unsafe { munmap(begin.cast(), bytes) };
        }
    }
}

/// Memory from the allocator, on other systems.
#[cfg(not(all(unix, not(miri))))]
#[expect(unsafe_code, reason = "memory with this alignment can't be obtained otherwise")]
mod elsewhere {
    use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
    use std::ptr::NonNull;

    use super::{CHUNK_BYTES, Mapping, Pages};

    const LAYOUT: Layout = match Layout::from_size_align(CHUNK_BYTES, CHUNK_BYTES) {
        Ok(layout) => layout,
        Err(_) => panic!("a power of two"),
    };

    impl Mapping {
        pub(in super::super) fn new() -> Self {
            // SAFETY: the layout has a non-zero size.
            let begin = unsafe { alloc_zeroed(LAYOUT) };
            Self(NonNull::new(begin).unwrap_or_else(|| handle_alloc_error(LAYOUT)))
        }

        pub(in super::super) fn release(&mut self, _at: usize, _bytes: usize) {}

        pub(in super::super) fn advise(&self, pages: Pages) -> bool {
            pages == Pages::Small
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: the memory was allocated with this layout.
            unsafe { dealloc(self.0.as_ptr(), LAYOUT) };
        }
    }
}
