//! Whether a load counts as a success.

use bench::result::Run;

/// A load in which something failed is a failed command, which a script sees by its exit status.
pub(super) fn judge(runs: &[Run]) -> anyhow::Result<()> {
    let failures: Vec<String> = runs.iter().filter_map(Run::failure).collect();
    anyhow::ensure!(failures.is_empty(), "{}", failures.join("; "));
    Ok(())
}
