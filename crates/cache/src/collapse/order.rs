//! Order of responses to the same request.

/// Position in the order in which forwards begin and are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(u64);

/// Positions at which a request was sent and, if it has an answer, was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchanged {
    pub began: Sequence,
    pub answered: Option<Sequence>,
}

/// Order in which the origin generated two responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Before,
    After,
    /// The order is unknown, because the request that was sent first was answered last. The origin may have generated that response when
    /// the request arrived, or just before it answered.
    Unknown,
}

impl Sequence {
    pub const fn new(number: u64) -> Self {
        Self(number)
    }
}

impl Exchanged {
    /// Compares two exchanges. A request that was sent first and answered first has the older response, provided that the origin works
    /// sequentially.
    pub fn order(self, other: Self) -> Order {
        let is_answered_first = match (self.answered, other.answered) {
            (Some(own), Some(others)) => own < others,
            (own, _) => own.is_some(),
        };
        match (self.began < other.began, is_answered_first) {
            (true, true) => Order::Before,
            (false, false) => Order::After,
            (true, false) | (false, true) => Order::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_of_two_exchanges() {
        #[track_caller]
        fn check(own: (u64, Option<u64>), other: (u64, Option<u64>), expected: Order) {
            let exchanged = |(began, answered): (u64, Option<u64>)| Exchanged {
                began: Sequence::new(began),
                answered: answered.map(Sequence::new),
            };
            assert_eq!(exchanged(own).order(exchanged(other)), expected, "{own:?} {other:?}");
        }
        check((1, Some(2)), (3, Some(4)), Order::Before);
        check((1, Some(2)), (3, None), Order::Before);
        check((1, Some(3)), (2, Some(4)), Order::Before);
        check((3, Some(4)), (1, Some(2)), Order::After);
        check((2, Some(4)), (1, Some(3)), Order::After);
        check((2, None), (1, Some(3)), Order::After);
        check((1, None), (2, Some(3)), Order::Unknown);
        check((1, Some(4)), (2, Some(3)), Order::Unknown);
        check((2, Some(3)), (1, Some(4)), Order::Unknown);
        check((2, Some(3)), (1, None), Order::Unknown);
    }
}
