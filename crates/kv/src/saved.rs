//! Save files: the data set is written when the server stops or a client asks for it, and loaded at the
//! start. The engine defines the format; this module handles the file.
//!
//! A file is used once: the server removes it when everything is loaded, or before the first change becomes
//! visible. So outdated data never comes back after a crash.

use std::fs::{self, File};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use engine::{Engine, Exported, Progress, Saved, SavedError, Source};
use parking_lot::Mutex;
use rustix::io::Errno;
use thiserror::Error;

use crate::background::{self, JoinHandle};
use crate::databases::Databases;
use crate::measures::SavingMeasures;
use crate::ownership::{self, Ownership};
use crate::place::{
    self, LOCK, PART, ReserveError, beginning, beginning_of, beside, create_anew, folder_of, lock, other_kind,
};
use crate::shared::Shared;
use crate::worker::now_ms;

/// Time limit for checking checksums before the server starts. The rest is checked when it is loaded; if it
/// is damaged, all keys are dropped.
const VERIFY_WITHIN: Duration = Duration::from_millis(200);
/// Files up to this size are checked completely, regardless of time. That takes a few hundredths of a second
/// on an idle machine.
const VERIFIED_WHOLE_BYTES: u64 = 32 << 20;
/// Number of threads that check checksums.
const VERIFIERS_MAX: usize = 8;
/// Interval of checks that the lock file still exists.
const LOCK_SEEN_EVERY_MS: u64 = 1_000;
/// Delay between the log message about a lost lock and the next check.
const LOCK_LOST_TOLD_MS: u64 = 60_000;
/// Maximum number of files kept aside for each reason. From the second file on, the names have a number. The
/// first files stay, because files damaged later contain fewer of the keys.
const ASIDE_FILES_MAX: usize = 8;
/// Size of the write buffer, larger than the small records between items.
const BUFFER_BYTES: usize = 32 << 10;

/// The save file of a server.
#[derive(Debug)]
pub struct SaveFile {
    path: PathBuf,
    /// Ownership of the file found at the start.
    ownership: Option<Ownership>,
    /// The lock file, which is locked while it is open.
    lock: Mutex<File>,
    /// Time of the last check of the lock file.
    lock_seen_ms: AtomicU64,
    /// Whether a save is in progress.
    is_busy: AtomicBool,
    /// Whether the save in progress should stop.
    is_cancelled: AtomicBool,
    background: Mutex<Option<JoinHandle<()>>>,
    load: Mutex<Option<JoinHandle<()>>>,
    state: Mutex<State>,
    /// The server's database mapping, which is saved too.
    databases: Arc<Databases>,
}

#[derive(Debug)]
struct State {
    /// The data set being loaded.
    loading: Option<Arc<Saved>>,
    loaded: Progress,
    /// Whether the file loaded at the start still exists.
    is_old_there: bool,
    /// Header of the file that this server loaded or wrote, while it exists. A file with a different header
    /// isn't this server's.
    own: Option<Vec<u8>>,
    /// Whether the file found at the start was refused.
    is_refused: bool,
    saved_at_ms: u64,
    /// Number of changes at the last save; `None` before the first.
    saved_changes: Option<u64>,
    saves: u64,
    background: Background,
    at_stop: AtStop,
}

/// Whether to save when the server stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AtStop {
    Write,
    Skip,
    /// Save only if there were more changes than this.
    WriteBeyond(u64),
}

/// The last background save.
#[derive(Debug)]
struct Background {
    began: Option<Instant>,
    took: Option<Duration>,
    has_failed: bool,
}

/// The reason for keeping a file aside instead of overwriting it.
#[derive(Clone, Copy, Debug)]
enum Aside {
    /// The file could not be loaded, but may be inspected, repaired, or loaded by the version that wrote it.
    Refused,
    /// The file appeared while the server ran, such as a restored backup.
    Replaced,
}

impl Aside {
    const fn ending(self) -> &'static str {
        match self {
            Self::Refused => ".refused",
            Self::Replaced => ".replaced",
        }
    }

    const fn told(self) -> &'static str {
        match self {
            Self::Refused => "the refused file",
            Self::Replaced => "the save file that appeared while the server was running",
        }
    }
}

/// Reasons for refusing a file.
#[derive(Debug, Error)]
enum RefusedFile {
    #[error(transparent)]
    Damaged(#[from] SavedError),
    #[error("its databases are not numbered from 0 to 15")]
    Databases,
}

/// Reasons for a failed save.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SaveError {
    #[error("another save is in progress")]
    Busy,
    #[error("{} can't be written: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

struct FileSource {
    file: File,
    bytes: u64,
}

impl Source for FileSource {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }
}

/// Aborts a write that is no longer wanted.
struct Cancellable<'a, W: Write> {
    to: W,
    is_cancelled: &'a AtomicBool,
}

impl<W: Write> Write for Cancellable<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_cancelled.load(Relaxed) {
            return Err(io::Error::other("the server stops"));
        }
        self.to.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl SaveFile {
    /// Resolves the links of a path.
    ///
    /// # Errors
    /// If the path can't hold a save file, or holds a file that isn't one.
    pub fn resolve(path: &Path) -> Result<PathBuf, ReserveError> {
        place::resolve(path)
    }

    /// Resolves the links of a path without checking the target.
    ///
    /// # Errors
    /// If a folder is missing, or links form a cycle.
    pub fn behind_links(path: &Path) -> io::Result<PathBuf> {
        place::behind_links(path)
    }

    /// All paths used for a save file at `path`.
    #[must_use]
    pub fn paths(path: &Path) -> [PathBuf; 5] {
        ["", LOCK, PART, Aside::Refused.ending(), Aside::Replaced.ending()].map(|ending| beside(path, ending))
    }

    /// Reserves the file for this process, with a lock on a separate file, because the save file itself is
    /// replaced at every save.
    ///
    /// # Errors
    /// If another process has the lock, the folder isn't writable, or the path holds something other than a
    /// file.
    pub fn reserve(path: &Path) -> Result<Self, ReserveError> {
        let path = place::resolve(path)?;
        let lock = lock(&beside(&path, LOCK)).map_err(|source| match Errno::from_io_error(&source) {
            Some(Errno::WOULDBLOCK) => ReserveError::InUse { path: path.clone() },
            _ => ReserveError::Lock { path: path.clone(), source },
        })?;
        let part = beside(&path, PART);
        create_anew(&part)
            .and_then(|_| fs::remove_file(&part))
            .map_err(|source| ReserveError::Part { path: part, source })?;
        let background = Background { began: None, took: None, has_failed: false };
        let state = State {
            loading: None,
            loaded: Progress::default(),
            is_old_there: false,
            own: None,
            is_refused: false,
            saved_at_ms: now_ms(),
            saved_changes: None,
            saves: 0,
            background,
            at_stop: AtStop::Write,
        };
        Ok(Self {
            ownership: Ownership::of_file(&path),
            path,
            lock: Mutex::new(lock),
            lock_seen_ms: AtomicU64::new(0),
            is_busy: AtomicBool::new(false),
            is_cancelled: AtomicBool::new(false),
            background: Mutex::new(None),
            load: Mutex::new(None),
            state: Mutex::new(state),
            databases: Arc::default(),
        })
    }

    /// Creates an engine with the contents of the file, or an empty engine if there is no usable file, and
    /// logs the result.
    ///
    /// # Errors
    /// If the file can't be read. The file stays in place, because the next start may succeed.
    pub fn restore(&self, settings: &engine::Settings) -> Result<Engine, ReserveError> {
        let path = self.path.display();
        let began = Instant::now();
        match self.open() {
            Ok(None) => tracing::info!(%path, "no save file yet, starting empty"),
            Err(RefusedFile::Damaged(SavedError::Read(error))) if !is_cut_short(&error) => {
                return Err(place::unreadable(&self.path, error));
            }
            Err(error) => {
                self.state.lock().is_refused = true;
                tracing::error!(%path, reason = %Chain(&error), "starts empty: the saved data is refused");
                self.set_refused_aside();
            }
            Ok(Some((saved, own))) => {
                let (keys, bytes, saved_at_ms) = (saved.keys(), saved.bytes(), saved.saved_at_ms());
                let took_ms = began.elapsed().as_millis();
                tracing::info!(%path, keys, bytes, saved_at_ms, took_ms, "starts with saved data");
                let saved = Arc::new(saved);
                let mut state = self.state.lock();
                (state.loading, state.is_old_there, state.own) = (Some(Arc::clone(&saved)), true, Some(own));
                drop(state);
                return Ok(Engine::restored(settings, &saved, now_ms()));
            }
        }
        Ok(Engine::new(settings))
    }

    /// Moves a refused file out of the way of the next save.
    fn set_refused_aside(&self) {
        if let Err(error) = self.set_aside(Aside::Refused) {
            let path = self.path.display();
            tracing::error!(%path, %error, "failed to rename the refused file: saves fail until you move it away");
        }
    }

    fn set_aside(&self, aside: Aside) -> io::Result<()> {
        let (kept, is_taken) = self.place_aside(aside.ending());
        fs::rename(&self.path, &kept)?;
        let (path, told) = (kept.display(), aside.told());
        if is_taken {
            tracing::warn!(%path, "{told} is kept and replaces an earlier one: move the kept files elsewhere");
        } else {
            tracing::warn!(%path, "{told} is kept");
        }
        Ok(())
    }

    /// Returns a path to keep a file aside, and whether it replaces an older one.
    fn place_aside(&self, ending: &str) -> (PathBuf, bool) {
        let place = |number: usize| match number {
            1 => beside(&self.path, ending),
            _ => beside(&self.path, &format!("{ending}.{number}")),
        };
        let is_free = |path: &PathBuf| {
            fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
        };
        let free = (1..=ASIDE_FILES_MAX).map(place).find(is_free);
        free.map_or_else(|| (place(ASIDE_FILES_MAX), true), |free| (free, false))
    }

    /// Opens the saved data and returns it with the file's header.
    fn open(&self) -> Result<Option<(Saved, Vec<u8>)>, RefusedFile> {
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(SavedError::from)?,
        };
        let bytes = file.metadata().map_err(SavedError::from)?.len();
        let own = beginning_of(&file).map_err(SavedError::from)?;
        let saved = Saved::open(FileSource { file, bytes })?;
        verify(&saved, Instant::now() + VERIFY_WITHIN)?;
        if !self.databases.restore(saved.note()) {
            return Err(RefusedFile::Databases);
        }
        Ok(Some((saved, own)))
    }

    /// Starts loading the remaining data in the background, once the server is serving.
    pub(crate) fn began(self: &Arc<Self>, shared: &Arc<Shared>) -> io::Result<()> {
        if self.state.lock().loading.is_none() {
            return Ok(());
        }
        let (file, shared) = (Arc::clone(self), Arc::clone(shared));
        let thread = background::spawn("kv-load", move || file.load(&shared))?;
        *self.load.lock() = Some(thread);
        Ok(())
    }

    fn load(&self, shared: &Shared) {
        let Some(saved) = self.state.lock().loading.clone() else { return };
        let engine = &shared.engine;
        // Workers load the shards that they need, too, and may be the first to find damage.
        let is_whole = (0..engine.shards_count()).all(|number| {
            engine.load(number);
            !saved.is_refused()
        });
        let loaded = saved.progress();
        let Progress { keys, left_out_keys, .. } = loaded;
        match () {
            () if !is_whole => self.set_old_aside(),
            // A server that stops without changes keeps the old file, because the final save may fail.
            () if shared.is_stopping() => {}
            () => self.forget_old(),
        }
        if is_whole {
            match left_out_keys {
                0 => tracing::info!(keys, "all saved data is loaded"),
                _ => tracing::warn!(
                    keys,
                    left_out_keys,
                    "the saved data exceeds maxmemory: some keys are lost"
                ),
            }
        } else {
            let (path, reason) = (self.path.display(), loaded.failure.as_deref().unwrap_or_default());
            tracing::error!(%path, reason, "the saved data is refused: continuing with an empty data set");
            let mut cleared = {
                let _turns = shared.all_turns();
                shared.clear(now_ms())
            };
            while cleared.free_some() {}
        }
        let mut state = self.state.lock();
        state.is_refused |= !is_whole;
        state.loaded = loaded;
        state.loading = None;
    }

    /// Removes the file loaded at the start, which is now outdated and must not come back after a crash.
    pub(crate) fn forget_old(&self) {
        let mut state = self.state.lock();
        if !std::mem::take(&mut state.is_old_there) {
            return;
        }
        let path = self.path.display();
        let found = beginning(&self.path).ok();
        if found != state.own.take() {
            tracing::warn!(%path, "the save file was replaced by another file, which is kept");
        } else if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(%path, %error, "failed to remove the loaded save file: a crash would bring back its outdated data");
        }
    }

    /// Keeps the loaded file aside because it turned out to be damaged, so that it can be repaired.
    fn set_old_aside(&self) {
        let mut state = self.state.lock();
        if std::mem::take(&mut state.is_old_there) {
            state.own = None;
            self.set_refused_aside();
        }
    }

    /// Returns whether the file found at the start was refused.
    pub(crate) fn is_refused(&self) -> bool {
        let state = self.state.lock();
        state.is_refused || state.loading.as_ref().is_some_and(|saved| saved.is_refused())
    }

    /// Writes the data set while clients are served. `changes` is the number of changes so far.
    pub(crate) fn write(&self, engine: &Engine, changes: u64) -> Result<(), SaveError> {
        self.claim()?;
        let outcome = self.write_claimed(engine, changes);
        self.is_busy.store(false, SeqCst);
        outcome
    }

    /// Like [`SaveFile::write`], in a background thread.
    pub(crate) fn write_in_background(
        self: &Arc<Self>,
        engine: &Arc<Engine>,
        changes: u64,
    ) -> Result<(), SaveError> {
        self.claim()?;
        self.state.lock().background.began = Some(Instant::now());
        let (file, engine) = (Arc::clone(self), Arc::clone(engine));
        let write = move || {
            let outcome = file.write_claimed(&engine, changes);
            let mut state = file.state.lock();
            state.background.took = state.background.began.take().map(|began| began.elapsed());
            state.background.has_failed = outcome.is_err();
            file.is_busy.store(false, SeqCst);
        };
        let thread = background::spawn("kv-save", write).map_err(|source| {
            self.is_busy.store(false, SeqCst);
            SaveError::Write { path: self.path.clone(), source }
        })?;
        *self.background.lock() = Some(thread);
        Ok(())
    }

    fn claim(&self) -> Result<(), SaveError> {
        self.is_busy.compare_exchange(false, true, SeqCst, SeqCst).map(|_| ()).map_err(|_| SaveError::Busy)
    }

    fn write_claimed(&self, engine: &Engine, changes: u64) -> Result<(), SaveError> {
        let (began, saved_at_ms) = (Instant::now(), now_ms());
        let part_path = self.part_path();
        let outcome = self.write_to(&part_path, engine, saved_at_ms);
        let path = self.path.display();
        match outcome {
            Ok(Exported { keys, bytes }) => {
                let mut state = self.state.lock();
                state.saved_at_ms = saved_at_ms;
                state.saved_changes = Some(changes);
                state.saves += 1;
                tracing::info!(%path, keys, bytes, took_ms = began.elapsed().as_millis(), "the data set is saved");
                Ok(())
            }
            Err(source) => {
                let _ = fs::remove_file(&part_path);
                let error = SaveError::Write { path: self.path.clone(), source };
                if self.is_cancelled.load(Relaxed) {
                    tracing::info!(%path, "background save cancelled: the server is stopping");
                } else {
                    tracing::error!(%error, "the data set is not saved");
                }
                Err(error)
            }
        }
    }

    /// Writes a temporary file and renames it once it is on disk, so that no partial file is ever visible.
    fn write_to(&self, part_path: &Path, engine: &Engine, saved_at_ms: u64) -> io::Result<Exported> {
        let was_refused = self.state.lock().is_refused;
        let file = create_anew(part_path)?;
        let to = Cancellable { to: &file, is_cancelled: &self.is_cancelled };
        let mut writer = BufWriter::with_capacity(BUFFER_BYTES, to);
        let id = RandomState::new().hash_one(saved_at_ms);
        let exported = engine.export(id, saved_at_ms, &|| self.databases.note(), &mut writer)?;
        writer.flush()?;
        if self.is_refused() && !was_refused {
            return Err(io::Error::other("the data that was still being loaded is damaged"));
        }
        file.sync_all()?;
        // In the meantime a device may have appeared at the path, and replacing it would affect the whole
        // machine.
        if let Some(kind) =
            fs::symlink_metadata(&self.path).ok().and_then(|found| other_kind(found.file_type()))
        {
            return Err(io::Error::other(format!("expected a file, found {kind}")));
        }
        let found = beginning(&self.path).map_err(io::Error::other)?;
        self.keep_lock()?;
        let not_given = self.give_to_user(&file)?;
        self.replace_by(part_path, &found)?;
        if let Some(ownership) = not_given {
            let commands = ownership.commands(&self.path);
            tracing::warn!(
                "the new save file may be unreadable for the previous owner: to restore the ownership, run `{commands}`"
            );
        }
        File::open(folder_of(&self.path))?.sync_all()?;
        Ok(exported)
    }

    /// Gives the new file to the owner of the previous one. Returns the ownership if that isn't possible.
    fn give_to_user(&self, file: &File) -> io::Result<Option<Ownership>> {
        match Ownership::of_file(&self.path).or(self.ownership) {
            Some(ownership) => Ok((!ownership.give(file)?).then_some(ownership)),
            None => ownership::give_to_user_of_folder(file, folder_of(&self.path)).map(|()| None),
        }
    }

    /// Replaces the file whose header is `found`. A file that this server neither loaded nor wrote is kept
    /// aside, because it may be the only copy of its data.
    fn replace_by(&self, part_path: &Path, found: &[u8]) -> io::Result<()> {
        let written = beginning(part_path).map_err(io::Error::other)?;
        let mut state = self.state.lock();
        if !found.is_empty() && state.own.as_deref() != Some(found) {
            self.set_aside(Aside::Replaced)?;
        }
        fs::rename(part_path, &self.path)?;
        (state.is_old_there, state.own) = (false, Some(written));
        Ok(())
    }

    /// Recreates the lock file if it was deleted, for example by a cleanup job. Otherwise another server
    /// could take the lock.
    pub(crate) fn look_after_lock(&self, now_ms: u64) {
        if now_ms < self.lock_seen_ms.load(Relaxed).saturating_add(LOCK_SEEN_EVERY_MS) {
            return;
        }
        self.lock_seen_ms.store(now_ms, Relaxed);
        if let Err(error) = self.keep_lock() {
            self.lock_seen_ms.store(now_ms.saturating_add(LOCK_LOST_TOLD_MS), Relaxed);
            tracing::error!(path = %self.path.display(), %error, "lost the lock on the save file");
        }
    }

    /// # Errors
    /// If another server has the lock by now, and its file must not be replaced.
    fn keep_lock(&self) -> io::Result<()> {
        let path = beside(&self.path, LOCK);
        let mut held = self.lock.lock();
        let id = |found: fs::Metadata| (found.dev(), found.ino());
        if fs::symlink_metadata(&path).ok().map(id) == held.metadata().ok().map(id) {
            return Ok(());
        }
        *held = lock(&path).map_err(|source| match Errno::from_io_error(&source) {
            Some(Errno::WOULDBLOCK) => {
                io::Error::other(format!("another process has locked {}", path.display()))
            }
            _ => source,
        })?;
        tracing::warn!(path = %path.display(), "lock file was deleted; recreated it");
        Ok(())
    }

    /// Like [`SaveFile::write`], while no other worker executes commands. A background save would be older,
    /// so it is cancelled.
    pub(crate) fn write_at_once(&self, engine: &Engine, changes: u64) -> Result<(), SaveError> {
        self.give_up_background();
        self.write(engine, changes)
    }

    fn give_up_background(&self) {
        self.is_cancelled.store(true, SeqCst);
        if let Some(thread) = self.background.lock().take() {
            // A panic of the thread has already been reported, and nothing depends on its result.
            let _ = thread.join();
        }
        self.is_cancelled.store(false, SeqCst);
    }

    /// Performs the last save, after all workers have ended.
    pub(crate) fn stop(&self, engine: &Engine, changes: u64) -> Result<(), SaveError> {
        self.give_up_background();
        if let Some(thread) = self.load.lock().take() {
            let _ = thread.join();
        }
        let at_stop = self.state.lock().at_stop;
        match at_stop {
            AtStop::Skip => Ok(()),
            AtStop::WriteBeyond(saved) if saved == changes => Ok(()),
            AtStop::Write | AtStop::WriteBeyond(_) => self.write(engine, changes),
        }
    }

    /// Skips the save when the server stops.
    pub(crate) fn skip_at_stop(&self) {
        self.state.lock().at_stop = AtStop::Skip;
    }

    /// Skips the save when the server stops, unless more changes follow the `changes` that have just been
    /// saved.
    pub(crate) fn is_up_to_date(&self, changes: u64) {
        self.state.lock().at_stop = AtStop::WriteBeyond(changes);
    }

    pub(crate) fn databases(&self) -> &Arc<Databases> {
        &self.databases
    }

    pub(crate) fn saved_at_s(&self) -> u64 {
        self.state.lock().saved_at_ms / 1000
    }

    /// Number of changes since the last save. `changes` is the number since the start.
    pub(crate) fn unsaved(&self, changes: u64) -> u64 {
        changes.saturating_sub(self.state.lock().saved_changes.unwrap_or_default())
    }

    /// State for metrics.
    pub(crate) fn measures(&self) -> SavingMeasures {
        let state = self.state.lock();
        SavingMeasures { saved_at_ms: state.saved_at_ms, has_failed: state.background.has_failed }
    }

    /// State for `INFO`. `changes` is the number since the start.
    pub(crate) fn describe(&self, changes: u64) -> String {
        let state = self.state.lock();
        let loaded = state.loading.as_ref().map_or_else(|| state.loaded.clone(), |saved| saved.progress());
        let seconds = |time: Option<Duration>| time.map_or(-1, |time| time.as_secs() as i64);
        let Background { began, took, has_failed } = state.background;
        format!(
            "loading:0\r\nasync_loading:{}\r\nrdb_changes_since_last_save:{}\r\nrdb_bgsave_in_progress:{}\r\n\
            rdb_last_save_time:{}\r\nrdb_last_bgsave_status:{}\r\nrdb_last_bgsave_time_sec:{}\r\n\
            rdb_current_bgsave_time_sec:{}\r\nrdb_saves:{}\r\nrdb_last_load_keys_expired:{}\r\n\
            rdb_last_load_keys_loaded:{}\r\n",
            u8::from(state.loading.is_some()),
            changes.saturating_sub(state.saved_changes.unwrap_or_default()),
            u8::from(began.is_some()),
            state.saved_at_ms / 1000,
            if has_failed { "err" } else { "ok" },
            seconds(took),
            seconds(began.map(|began| began.elapsed())),
            state.saves,
            loaded.expired_keys,
            loaded.keys,
        )
    }

    fn part_path(&self) -> PathBuf {
        beside(&self.path, PART)
    }
}

/// Returns whether a read failed because the file is truncated. Reading such a file again doesn't help.
fn is_cut_short(error: &io::Error) -> bool {
    error.kind() == ErrorKind::UnexpectedEof
}

/// Verifies checksums: all of a small file, otherwise as many as time permits.
fn verify(saved: &Saved, until: Instant) -> Result<(), SavedError> {
    let next = AtomicUsize::new(0);
    let is_small = saved.bytes() <= VERIFIED_WHOLE_BYTES;
    let verify = || {
        while is_small || Instant::now() < until {
            let shard = next.fetch_add(1, Relaxed);
            if shard >= saved.shards() {
                break;
            }
            saved.verify(shard)?;
        }
        Ok(())
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(VERIFIERS_MAX);
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(verify)).collect();
        let own = verify();
        let join = |other: thread::ScopedJoinHandle<'_, _>| other.join().expect("comparing does not panic");
        others.into_iter().map(join).fold(own, Result::and)
    })
}

/// Formats an error with its causes in one line.
struct Chain<'a>(&'a dyn std::error::Error);

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        self.0.source().map_or(Ok(()), |source| write!(f, ": {}", Chain(source)))
    }
}

#[cfg(test)]
mod tests;
