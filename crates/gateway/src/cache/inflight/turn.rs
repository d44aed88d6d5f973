//! Which of the instances that share a tier asks the origin: what one does next that wants to.
//!
//! It takes the lease on the key, or waits for whoever has it. Everything that it learns leads to one of a few steps;
//! `turn.txt` has all of them. Whatever the tier does, it ends with a response or with a question to the origin.

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    /// The lease is this instance's.
    Taken,
    /// Another one has it.
    Held,
    /// Another one has written something.
    Changed,
    /// The lease has ended, and nothing was written.
    Free,
    /// Another one still has it, and the time for waiting is over.
    StillHeld,
    /// The tier has not said what became of the lease.
    Failed,
}

/// What lies under the key now, to the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A response that answers it.
    Answer,
    /// A note that responses are not shared with it.
    NotShared,
    /// Another response than before, which it can't use.
    Another,
    /// What was there before.
    Same,
}

/// Whether there is time left to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    Left,
    Over,
}

/// What is done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The lease is tried for.
    Take,
    /// The other one is waited for.
    Wait,
    /// What lies there is the answer.
    Use,
    /// The origin is asked, for all.
    Ask,
    /// The origin is asked, for this instance.
    AskAlone,
}

pub(crate) fn next(happened: Happened, found: Found, patience: Patience) -> Step {
    match (happened, found, patience) {
        (Happened::Failed, ..) => Step::AskAlone,
        (_, Found::Answer, _) => Step::Use,
        (_, Found::NotShared, _) => Step::AskAlone,
        (Happened::Taken, ..) => Step::Ask,
        (Happened::StillHeld, ..) | (_, _, Patience::Over) => Step::AskAlone,
        (Happened::Held, ..) => Step::Wait,
        // What one instance could use and this one can't would be so once more.
        (Happened::Changed | Happened::Free, Found::Another, _) => Step::AskAlone,
        // One of those that waited takes it, and the others wait for that one.
        (Happened::Changed | Happened::Free, Found::Same, _) => Step::Take,
    }
}

#[cfg(test)]
mod tests {
    use testkit::decision_table::{Column, compare, table};

    use super::*;

    const HAPPENED: [Happened; 6] = [
        Happened::Taken,
        Happened::Held,
        Happened::Changed,
        Happened::Free,
        Happened::StillHeld,
        Happened::Failed,
    ];
    const FOUND: [Found; 4] = [Found::Answer, Found::NotShared, Found::Another, Found::Same];
    const PATIENCE: [Patience; 2] = [Patience::Left, Patience::Over];

    #[test]
    fn steps_are_as_written() {
        let columns = [
            Column::new("happened", &HAPPENED, |happened| format!("{happened:?}")),
            Column::new("found", &FOUND, |found| format!("{found:?}")),
            Column::new("patience", &PATIENCE, |patience| format!("{patience:?}")),
        ];
        let outcome = |at: &[usize]| format!("{:?}", next(HAPPENED[at[0]], FOUND[at[1]], PATIENCE[at[2]]));
        compare(&table(&columns, outcome), include_str!("turn.txt"));
    }

    /// Nobody goes on for ever, however often the tier says that something has changed.
    #[test]
    fn who_has_no_time_left_asks_or_has_an_answer() {
        for happened in HAPPENED {
            for found in FOUND {
                let step = next(happened, found, Patience::Over);
                assert!(matches!(step, Step::Use | Step::Ask | Step::AskAlone), "{happened:?}, {found:?}");
            }
        }
    }
}
