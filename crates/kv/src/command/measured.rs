//! Execution of a command with statistics.

use std::time::{Duration, Instant};

use super::{Call, Command, Outcome, Refusal};
use crate::reply::Reply;
use crate::slow::{Entry, abridge};

impl Call<'_> {
    /// Executes a command that has passed all checks, and records its statistics.
    pub(super) fn measure(&mut self, command: &'static Command, reply: &mut Reply<'_>) -> Outcome {
        let number = self.shared.table.number(command);
        let is_quick = command.has("fast") && !self.shared.slow.wants_all();
        let begin = self.statistics.command(number).is_due(is_quick).then(Instant::now);
        let outcome = self.await_room().and_then(|()| {
            let used_before = self.used_by_others();
            let outcome = (command.run)(self, reply);
            self.shared.settle();
            self.settle_reply(outcome, reply, used_before)
        });
        if is_put_off(&outcome) {
            self.session.took_before += begin.map_or(Duration::ZERO, |begin| begin.elapsed());
            return outcome;
        }
        // Statistics of a subcommand are separate from its container's.
        let part = self.session.command.filter(|part| part.is_part_of(command));
        let performed = part.unwrap_or(command);
        let counted = self.statistics.command(self.shared.table.number(performed));
        counted.calls.add(1);
        counted.failed.add(u64::from(outcome.is_err()));
        if let Some(begin) = begin {
            let took = begin.elapsed() + std::mem::take(&mut self.session.took_before);
            counted.took(took, 1);
            if took >= LONG {
                self.session.has_taken_long.set(true);
            }
            self.look_at_time(performed, took);
        }
        outcome
    }

    /// Counts a command refused before execution.
    pub(super) fn rejected(&self, command: &'static Command) {
        self.statistics.command(self.shared.table.number(command)).rejected.add(1);
    }

    fn look_at_time(&self, command: &'static Command, took: Duration) {
        let slow = &self.shared.slow;
        if slow.monitored_ms() > 0 {
            slow.took(if command.has("fast") { "fast-command" } else { "command" }, took, self.now_ms);
        }
        if slow.is_slow(took) && !command.has("skip_slowlog") {
            let client = &self.session.client;
            self.shared.log_slow(Entry {
                id: 0,
                at_s: self.now_ms / 1000,
                took_us: took.as_micros() as u64,
                arguments: self.arguments_to_log(command),
                client: client.ends.client.to_string(),
                client_name: client.names.lock().name.clone(),
            });
        }
    }

    fn arguments_to_log(&self, command: &'static Command) -> Vec<Vec<u8>> {
        match command.name {
            "auth" | "hello" => vec![command.name.as_bytes().to_vec(), b"(redacted)".to_vec()],
            _ => abridge(self.length(), self.shown(command)),
        }
    }
}

/// A command that takes this long ends its batch, so that other clients wait for at most one of them.
const LONG: Duration = Duration::from_millis(5);

/// Returns whether the command was not executed yet, and will be retried.
pub(super) fn is_put_off(outcome: &Outcome) -> bool {
    matches!(outcome, Err(Refusal::NotAlone | Refusal::NotNow | Refusal::NotYet))
}
