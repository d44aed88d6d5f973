//! Memory from which the kernel can send: anonymous files for large segments.
//!
//! A few files hold all segments, each in its own slot, so that the number of file descriptors doesn't grow with the store. The files are
//! sparse: an empty slot costs nothing.
//!
//! A slot is freed by punching a hole, never by overwriting it. A response that was sent with `sendfile` and hasn't reached the client yet
//! refers to the pages themselves. A hole removes the pages from the file, but leaves them to their other users; overwriting them would
//! change the data that the client receives.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use rustix::buffer::spare_capacity;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use rustix::io::{Errno, pread, pwrite};
use rustix::param::page_size;
use rustix::process::{Resource, getrlimit};

use crate::SEGMENT_BYTES_MAX;

/// Reason why large segments are on the heap although files are configured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilesUnavailable {
    /// The OS doesn't support or allow anonymous files, or too many files are open.
    #[error("the OS refuses to create anonymous files")]
    System(#[from] Errno),
    /// The process has a file size limit: the OS would end it when it writes far into a sparse file.
    #[error("the file size of the process is limited to {bytes} bytes (RLIMIT_FSIZE)")]
    FileSizeLimited {
        /// The limit.
        bytes: u64,
    },
    /// Huge pages are enabled for shared memory: each takes more memory than is counted, and can't be freed in parts.
    #[error(
        "{HUGE_PAGES} is {setting}, so files would take more memory than is counted; set it to advise, never or deny"
    )]
    HugePages {
        /// Value of the setting.
        setting: String,
    },
}

/// Files and their free slots.
#[derive(Debug)]
pub(crate) struct Files {
    files: Box<[OwnedFd]>,
    slots: Mutex<Slots>,
    held_bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct Slots {
    free: Vec<u32>,
    /// First slot that has never been used.
    next: u32,
}

/// A slot and the bytes in it. Dropping it frees the slot.
pub(crate) struct Extent {
    files: Arc<Files>,
    slot: u32,
    len: usize,
    counted_bytes: u64,
}

impl Files {
    /// # Errors
    /// If the OS has no anonymous files, or their memory can't be counted.
    pub(crate) fn open() -> Result<Arc<Self>, FilesUnavailable> {
        if let Some(bytes) = getrlimit(Resource::Fsize).current {
            return Err(FilesUnavailable::FileSizeLimited { bytes });
        }
        if let Some(setting) = fs::read_to_string(HUGE_PAGES).ok().and_then(|text| unusable(&text)) {
            return Err(FilesUnavailable::HugePages { setting });
        }
        let files = (0..FILES).map(|_| open_one()).collect::<Result<_, Errno>>()?;
        Ok(Arc::new(Self { files, slots: Mutex::default(), held_bytes: AtomicU64::new(0) }))
    }

    /// Returns the memory of the segments in the files, in bytes.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Relaxed)
    }

    fn take_slot(&self) -> u32 {
        let mut slots = self.slots.lock();
        slots.free.pop().unwrap_or_else(|| {
            slots.next += 1;
            slots.next - 1
        })
    }

    /// Returns the file of a slot and the offset of the slot in it.
    fn place(&self, slot: u32) -> (BorrowedFd<'_>, u64) {
        let file = &self.files[slot as usize % self.files.len()];
        (file.as_fd(), u64::from(slot) / self.files.len() as u64 * SLOT_BYTES)
    }
}

impl Extent {
    /// Returns the memory that `len` bytes use, in whole pages.
    pub(crate) fn resident_bytes(len: usize) -> usize {
        len.checked_next_multiple_of(page_size()).unwrap_or(usize::MAX)
    }

    /// Writes `parts` consecutively into a free slot.
    ///
    /// # Errors
    /// If the OS has no memory for them; nothing is kept in that case.
    pub(crate) fn write(files: &Arc<Files>, parts: &[impl AsRef<[u8]>]) -> Result<Self, Errno> {
        let mut extent = Self { files: Arc::clone(files), slot: files.take_slot(), len: 0, counted_bytes: 0 };
        for part in parts {
            extent.append(part.as_ref())?;
        }
        extent.counted_bytes = Self::resident_bytes(extent.len) as u64;
        files.held_bytes.fetch_add(extent.counted_bytes, Relaxed);
        Ok(extent)
    }

    fn append(&mut self, mut data: &[u8]) -> Result<(), Errno> {
        assert!(self.len + data.len() <= SEGMENT_BYTES_MAX, "a segment fits its slot");
        let (file, start) = self.files.place(self.slot);
        while !data.is_empty() {
            let written = again(|| pwrite(file, data, start + self.len as u64))?;
            self.len += written;
            data = &data[written..];
        }
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the file, and the offset of the bytes in it.
    pub(crate) fn place(&self) -> (BorrowedFd<'_>, u64) {
        self.files.place(self.slot)
    }

    /// Copies the bytes from `start` to `end`.
    ///
    /// # Errors
    /// If the OS can't read swapped-out pages back.
    pub(crate) fn read(&self, start: usize, end: usize) -> io::Result<Vec<u8>> {
        assert!(start <= end && end <= self.len, "within the segment");
        let (file, place) = self.place();
        let wanted = end - start;
        let mut data = Vec::with_capacity(wanted);
        while data.len() < wanted {
            let at = place + (start + data.len()) as u64;
            if again(|| pread(file, spare_capacity(&mut data), at))? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        // The vector may have more capacity than requested.
        data.truncate(wanted);
        Ok(data)
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        let (file, start) = self.place();
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // A slot that can't be freed must not be reused.
        if again(|| fallocate(file, hole, start, SLOT_BYTES)).is_ok() {
            self.files.slots.lock().free.push(self.slot);
            self.files.held_bytes.fetch_sub(self.counted_bytes, Relaxed);
        }
    }
}

fn open_one() -> Result<OwnedFd, Errno> {
    let file = memfd_create("larder-segments", MemfdFlags::CLOEXEC)?;
    // Punch a hole now, so that an unsupported system fails here, and not when the first segment is evicted.
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, SLOT_BYTES)?;
    Ok(file)
}

fn again<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// Returns the current setting, which the kernel marks with brackets, if files can't be used with it.
fn unusable(text: &str) -> Option<String> {
    let setting = text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))?;
    (!["advise", "never", "deny"].contains(&setting)).then(|| setting.to_owned())
}

const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

/// The kernel serialises writes to a file, so there are enough files that concurrent fills rarely share one.
const FILES: usize = 16;

/// Distance between two segments: a huge page of the usual size. A hole in part of a huge page would overwrite the bytes of that part.
const SLOT_BYTES: u64 = 2 << 20;

const _: () = assert!(SEGMENT_BYTES_MAX as u64 <= SLOT_BYTES, "a segment fits its slot");

#[cfg(test)]
mod tests {
    use rustix::fs::fstat;

    use super::*;

    fn resident_bytes(files: &Files) -> u64 {
        files.files.iter().map(|file| fstat(file).unwrap().st_blocks as u64 * 512).sum()
    }

    #[test]
    fn slots_are_used_again_and_empty_ones_cost_nothing() {
        let files = Files::open().unwrap();
        for round in 0..3u8 {
            let held: Vec<Extent> = (0..40u8)
                .map(|index| Extent::write(&files, &[vec![index ^ round; 300_000]]).unwrap())
                .collect();
            let expected = 40 * Extent::resident_bytes(300_000) as u64;
            assert_eq!((resident_bytes(&files), files.held_bytes()), (expected, expected));
            for (index, extent) in (0..).zip(&held) {
                assert_eq!(extent.read(299_990, 300_000).unwrap(), [index ^ round; 10]);
                assert_eq!(extent.read(0, 300_000).unwrap().len(), 300_000);
            }
            drop(held);
            assert_eq!((resident_bytes(&files), files.held_bytes()), (0, 0));
        }
        assert_eq!(files.slots.lock().next, 40);
    }

    /// Bytes that are still in a socket or pipe when their slot is freed must not change.
    #[test]
    fn bytes_on_their_way_outlive_their_slot() {
        let files = Files::open().unwrap();
        let first = Extent::write(&files, &[vec![1u8; 8192]]).unwrap();
        let (mut near, mut far) = std::os::unix::net::UnixStream::pair().unwrap();
        let (file, mut offset) = first.place();
        let sent = rustix::fs::sendfile(&near, file, Some(&mut offset), 8192).unwrap();
        drop(first);
        let second = Extent::write(&files, &[vec![2u8; 8192]]).unwrap();
        assert_eq!(second.slot, 0, "the same slot");
        near.shutdown(std::net::Shutdown::Write).unwrap();
        let mut received = Vec::new();
        io::Read::read_to_end(&mut far, &mut received).unwrap();
        assert_eq!(received, vec![1u8; sent]);
        drop(io::Write::flush(&mut near));
    }

    #[test]
    fn the_setting_for_huge_pages() {
        for (text, expected) in [
            ("always within_size advise [never] deny force\n", None),
            ("always within_size [advise] never deny force\n", None),
            ("[always] within_size advise never deny force\n", Some("always")),
            ("always [within_size] advise never deny force\n", Some("within_size")),
            ("", None),
        ] {
            assert_eq!(unusable(text).as_deref(), expected, "{text}");
        }
    }
}
