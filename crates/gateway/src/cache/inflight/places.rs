//! Where one request waits.

use crate::cache::inflight::table::{News, Waiter};

/// The forwards that one request waits for.
pub(crate) struct Places {
    pub(crate) first: Place,
    pub(crate) relief: Option<Place>,
}

pub(crate) struct Place {
    pub(crate) waiter: Waiter,
    state: PlaceState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlaceState {
    UnderWay,
    Answered,
}

impl Places {
    pub(crate) async fn news(&mut self) -> News {
        let relief = async {
            match &mut self.relief {
                Some(relief) => relief.news().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            news = self.first.news() => news,
            news = relief => news,
        }
    }
}

impl Places {
    /// The forwards that were answered.
    pub(crate) fn answered(&self) -> impl Iterator<Item = &Waiter> {
        let places = std::iter::once(&self.first).chain(&self.relief);
        places.filter(|place| place.state == PlaceState::Answered).map(|place| &place.waiter)
    }
}

impl Place {
    pub(crate) fn of(waiter: Waiter) -> Self {
        Self { waiter, state: PlaceState::UnderWay }
    }

    /// Nothing more comes after the answer.
    async fn news(&mut self) -> News {
        if self.state == PlaceState::Answered {
            std::future::pending().await
        }
        loop {
            let news = self.waiter.news().await;
            match &news {
                News::Answer(_) => self.state = PlaceState::Answered,
                // A cookie, and what credentials brought, is for the request that led the forward.
                News::Interim(interim)
                    if self.waiter.is_personal() || interim.fields.value("set-cookie").is_some() =>
                {
                    continue;
                }
                News::Interim(_) => {}
            }
            return news;
        }
    }
}
