//! When memory that was freed goes back to the system.

#[cfg(feature = "jemalloc")]
pub(crate) use with_jemalloc::{TRIM, give_back_soon};
#[cfg(not(feature = "jemalloc"))]
pub(crate) use without::{TRIM, give_back_soon};

#[cfg(feature = "jemalloc")]
mod with_jemalloc {
    use std::sync::Mutex;

    use tikv_jemalloc_ctl::{Access as _, AsName as _, Mib, Result, arenas, background_thread, epoch};

    pub(crate) const TRIM: Option<kv::Trim> = Some(trim);

    /// Otherwise freed memory goes back when a thousand others are allocated: late under load, never when idle.
    pub(crate) fn give_back_soon() {
        if let Err(error) = background_thread::write(true) {
            tracing::warn!(%error, "freed memory returns to the system late");
        }
    }

    /// Gives back all that is kept, where it is more than so many bytes; how many it gave.
    fn trim(kept_bytes_max: u64) -> u64 {
        // One at a time: another would take the pace that is set meanwhile for the one to put back.
        static TURN: Mutex<()> = Mutex::new(());
        let Ok(_turn) = TURN.try_lock() else { return 0 };
        let kept = kept_bytes().unwrap_or_default();
        if kept <= kept_bytes_max || give_back().is_err() {
            return 0;
        }
        kept.saturating_sub(kept_bytes().unwrap_or_default())
    }

    /// Of all arenas; a few microseconds.
    fn kept_bytes() -> Result<u64> {
        epoch::advance()?;
        let pages: usize = ALL_DIRTY_PAGES.name().read()?;
        let page_bytes: usize = b"arenas.page\0".name().read()?;
        Ok((pages * page_bytes) as u64)
    }

    /// There is a call for it, `arena.<i>.purge`, but none that is safe: it must be given a null pointer. To set how long memory is kept
    /// starts anew, and with 0 ms does the same.
    fn give_back() -> Result<()> {
        let mut pace: Mib<[usize; 3]> = b"arena.0.dirty_decay_ms\0".name().mib()?;
        for arena in 0..arenas::narenas::read()? as usize {
            pace[1] = arena;
            // One that is not in use yet has none.
            let before: isize = pace.read().unwrap_or_default();
            if before > 0 {
                pace.write(0_isize)?;
                pace.write(before)?;
            }
        }
        Ok(())
    }

    /// 4096 is `MALLCTL_ARENAS_ALL`.
    const ALL_DIRTY_PAGES: &[u8] = b"stats.arenas.4096.pdirty\0";

    #[cfg(test)]
    mod tests {
        use super::*;

        /// Leaves the allocator with 16 MiB that nobody uses.
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
            // By itself it gives them back after 0.1 s, which a busy machine may take in between.
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
