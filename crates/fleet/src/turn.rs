//! Decides, step by step, which of the instances that share a tier contacts the origin.
//!
//! An instance takes the lease on the key, or waits for its holder. Each event leads to one of a few steps; `turn.txt` lists all of them.
//! The last step is always a response or a request to the origin, however the tier behaves.

/// An event of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseEvent {
    /// This instance got the lease.
    Taken,
    /// Another instance has the lease.
    Held,
    /// Another instance has changed the record.
    Changed,
    /// The lease has ended without a write.
    Free,
    /// Another instance still holds the lease at the end of the maximum wait.
    StillHeld,
    /// The tier didn't answer the lease request.
    Failed,
}

/// Current contents of the key, from the request's point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A response that answers the request.
    Answer,
    /// A note that the fetched response may not be used for this request.
    NotShared,
    /// A new response that the request can't use.
    Another,
    /// No new response.
    Same,
}

/// Time left to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    Left,
    Over,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseAction {
    /// Try to take the lease.
    Take,
    /// Wait for the other instance.
    Wait,
    /// Use the response under the key.
    Use,
    /// Contact the origin on behalf of all instances.
    Ask,
    /// Contact the origin for this instance only.
    AskAlone,
}

pub fn next(happened: LeaseEvent, found: Found, patience: Patience) -> LeaseAction {
    match (happened, found, patience) {
        (LeaseEvent::Failed, ..) => LeaseAction::AskAlone,
        (_, Found::Answer, _) => LeaseAction::Use,
        (_, Found::NotShared, _) => LeaseAction::AskAlone,
        (LeaseEvent::Taken, ..) => LeaseAction::Ask,
        (LeaseEvent::StillHeld, ..) | (_, _, Patience::Over) => LeaseAction::AskAlone,
        (LeaseEvent::Held, ..) => LeaseAction::Wait,
        // Another fetch would only result in another response that this request can't use.
        (LeaseEvent::Changed | LeaseEvent::Free, Found::Another, _) => LeaseAction::AskAlone,
        // One of the waiting instances takes the lease, and the others wait for it.
        (LeaseEvent::Changed | LeaseEvent::Free, Found::Same, _) => LeaseAction::Take,
    }
}

#[cfg(test)]
mod tests {
    use testkit::decision_table::{Column, compare, table};

    use super::*;

    const HAPPENED: [LeaseEvent; 6] = [
        LeaseEvent::Taken,
        LeaseEvent::Held,
        LeaseEvent::Changed,
        LeaseEvent::Free,
        LeaseEvent::StillHeld,
        LeaseEvent::Failed,
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

    /// The steps end eventually, however often the tier reports a change.
    #[test]
    fn who_has_no_time_left_asks_or_has_an_answer() {
        for happened in HAPPENED {
            for found in FOUND {
                let step = next(happened, found, Patience::Over);
                assert!(
                    matches!(step, LeaseAction::Use | LeaseAction::Ask | LeaseAction::AskAlone),
                    "{happened:?}, {found:?}"
                );
            }
        }
    }
}
