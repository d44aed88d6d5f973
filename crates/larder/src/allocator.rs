//! Returns freed memory to the operating system.

#[cfg(feature = "jemalloc")]
pub(crate) use with_jemalloc::{TRIM, give_back_soon};
#[cfg(not(feature = "jemalloc"))]
pub(crate) use without::{TRIM, give_back_soon};

#[cfg(feature = "jemalloc")]
mod with_jemalloc {
    use std::sync::Mutex;

    use tikv_jemalloc_ctl::{Access as _, AsName as _, Mib, Result, arenas, background_thread, epoch};

    pub(crate) const TRIM: Option<kv::Trim> = Some(trim);

    /// Starts the allocator's background thread. Without it, freed memory is returned only after about a thousand
    /// further allocations: late under load, and never when idle.
    pub(crate) fn give_back_soon() {
        if let Err(error) = background_thread::write(true) {
            tracing::warn!(%error, "freed memory returns to the system late");
        }
    }

    /// Returns unused memory to the system if more than `kept_bytes_max` bytes of it are kept. Returns the number of
    /// returned bytes.
    fn trim(kept_bytes_max: u64) -> u64 {
        // One call at a time: a second call would read the decay time of 0 that the first one has set, and restore that value.
        static TURN: Mutex<()> = Mutex::new(());
        let Ok(_turn) = TURN.try_lock() else { return 0 };
        let kept = kept_bytes().unwrap_or_default();
        if kept <= kept_bytes_max || give_back().is_err() {
            return 0;
        }
        kept.saturating_sub(kept_bytes().unwrap_or_default())
    }

    /// Returns the bytes of unused dirty pages in all arenas. Takes a few microseconds.
    fn kept_bytes() -> Result<u64> {
        epoch::advance()?;
        let pages: usize = ALL_DIRTY_PAGES.name().read()?;
        let page_bytes: usize = b"arenas.page\0".name().read()?;
        Ok((pages * page_bytes) as u64)
    }

    /// Purges the unused pages of all arenas. `arena.<i>.purge` can't be called safely, because it needs a null
    /// pointer; setting the decay time to 0 ms purges as well.
    fn give_back() -> Result<()> {
        let mut pace: Mib<[usize; 3]> = b"arena.0.dirty_decay_ms\0".name().mib()?;
        for arena in 0..arenas::narenas::read()? as usize {
            pace[1] = arena;
            // An arena that isn't initialised has no decay time.
            let before: isize = pace.read().unwrap_or_default();
            if before > 0 {
                pace.write(0_isize)?;
                pace.write(before)?;
            }
        }
        Ok(())
    }

    /// Counts all arenas: 4096 is `MALLCTL_ARENAS_ALL`.
    const ALL_DIRTY_PAGES: &[u8] = b"stats.arenas.4096.pdirty\0";

    #[cfg(test)]
    mod tests {
        use super::*;

        /// Leaves the allocator with 16 MiB of unused memory.
        fn use_and_free() {
            let values: Vec<Vec<u8>> = (0..64).map(|_| vec![7; 256 << 10]).collect();
            std::hint::black_box(values);
        }

        fn paces() -> Vec<isize> {
            let pace = |arena| format!("arena.{arena}.dirty_decay_ms\0").name().read().unwrap_or_default();
            (0..arenas::narenas::read().expect("there are some")).map(pace).collect()
        }

        #[test]
        fn what_is_kept_is_given_back_where_it_is_too_much() {
            use_and_free();
            let before = paces();
            assert!(before.contains(&100), "as .cargo/config.toml says: {before:?}");
            assert_eq!(trim(1 << 40), 0);
            // The decay time of 0.1 s may pass on a busy machine, and the allocator then returns the memory by itself.
            let is_given = || {
                use_and_free();
                trim(1 << 20) >= 8 << 20
            };
            assert!((0..100).any(|_| is_given()));
            let after = paces();
            assert!(
                before.iter().zip(&after).all(|(before, after)| *before == 0 || before == after),
                "{after:?}"
            );
        }
    }
}

#[cfg(not(feature = "jemalloc"))]
mod without {
    pub(crate) const TRIM: Option<kv::Trim> = None;

    pub(crate) fn give_back_soon() {}
}
