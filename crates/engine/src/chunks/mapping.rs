//! A chunk of memory from the system, and what the system is told about it.

use std::ptr::NonNull;

/// Of a chunk, and where it begins: a huge page of most processors.
pub(crate) const CHUNK_BYTES: usize = 2 << 20;

/// Memory that nobody else has: [`CHUNK_BYTES`], beginning at a multiple of it, readable and writable, with zeros or with what was last written to it.
#[derive(Debug)]
pub(super) struct Mapping(NonNull<u8>);

/// Which pages a chunk is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pages {
    /// Those that the processor always has.
    Small,
    /// One for all of it, where the system has that.
    Huge,
}

// SAFETY: it is the only one that has this memory.
#[expect(unsafe_code, reason = "a pointer to memory of its own")]
unsafe impl Send for Mapping {}

impl Mapping {
    pub(super) fn begin(&self) -> NonNull<u8> {
        self.0
    }
}

/// Memory that is mapped.
#[cfg(all(unix, not(miri)))]
#[expect(unsafe_code, reason = "an allocator neither gives memory back at once nor has a say in its pages")]
mod mapped {
    use std::alloc::{Layout, handle_alloc_error};
    use std::ptr::{NonNull, null_mut};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::{CHUNK_BYTES, Mapping, Pages};

    impl Mapping {
        /// No page of it takes memory yet.
        pub(in super::super) fn new() -> Self {
            // Twice as much has an aligned chunk in it, wherever it begins; what is around it goes back.
            let begin = map(2 * CHUNK_BYTES);
            let before = begin.align_offset(CHUNK_BYTES);
            // SAFETY: less than CHUNK_BYTES behind the begin of twice as many.
            let chunk = unsafe { begin.add(before) };
            unmap(begin, before);
            // SAFETY: a chunk behind that, and thus within the same memory or at its end.
            unmap(unsafe { chunk.add(CHUNK_BYTES) }, CHUNK_BYTES - before);
            let mapping = Self(NonNull::new(chunk).expect("nothing is mapped at zero"));
            // Whatever the system does of its own accord.
            mapping.advise(Pages::Small);
            mapping
        }

        /// Gives the memory of a part, in which no piece is in use, back to the system at once. What it holds is lost: zeros, or as it was.
        pub(in super::super) fn release(&mut self, at: usize, bytes: usize) {
            assert!(at + bytes <= CHUNK_BYTES, "a part of it");
            #[cfg(target_os = "linux")]
            // SAFETY: the part lies in memory that only this has, and of which the caller has no piece in use.
            let _ = unsafe { madvise(self.0.as_ptr().add(at).cast(), bytes, Advice::LinuxDontNeed) };
        }

        /// Whether the system does so. What is there stays as it is.
        pub(in super::super) fn advise(&self, pages: Pages) -> bool {
            #[cfg(not(target_os = "linux"))]
            return pages == Pages::Small;
            #[cfg(target_os = "linux")]
            {
                let advice = match pages {
                    Pages::Small => Advice::LinuxNoHugepage,
                    Pages::Huge => Advice::LinuxHugepage,
                };
                // SAFETY: advice on pages changes nothing of what they hold.
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
        // SAFETY: at no address in particular, so that nothing that is there already is replaced.
        let mapped = unsafe {
            mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        let layout = Layout::from_size_align(bytes, CHUNK_BYTES).expect("a power of two");
        mapped.unwrap_or_else(|_| handle_alloc_error(layout)).cast()
    }

    fn unmap(begin: *mut u8, bytes: usize) {
        if bytes > 0 {
            // SAFETY: the caller has mapped it, and gives it up. Where the system refuses (too many areas), it stays mapped: nobody uses it.
            let _ = unsafe { munmap(begin.cast(), bytes) };
        }
    }
}

/// Memory of the allocator, where there is no other.
#[cfg(not(all(unix, not(miri))))]
#[expect(unsafe_code, reason = "memory that is aligned like this is not to be had otherwise")]
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
            // SAFETY: the layout has a size.
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
            // SAFETY: of this layout it was allocated.
            unsafe { dealloc(self.0.as_ptr(), LAYOUT) };
        }
    }
}
