//! The effect of the response to a forwarded HEAD on stored responses.

use caching::{HeadUpdate, MethodClass, ResponseFacts, head_update, sharing};

use super::{Cache, Exchange, Response, Stored};

impl Cache {
    //= RFC 9111 section 4.3.5: a 200 to HEAD updates or invalidates
    pub(super) fn update_by_head(&mut self, exchange: &Exchange<'_>, response: &Response) {
        let stored = self.stored.get(&exchange.key).cloned().unwrap_or_default();
        let lines = response.message.lines();
        let news = ResponseFacts::parse(response.status, &lines, exchange.times(), &self.rules);
        let is_head = exchange.facts.method == MethodClass::Head
            && sharing::may_inform(&exchange.facts, &news, &self.rules);
        for known in stored.iter().filter(|known| is_head && exchange.selects(known)) {
            match judge(exchange, response, known) {
                HeadUpdate::Keep => {}
                HeadUpdate::Invalidate => {
                    let facts = known.facts.expired(exchange.now);
                    self.remove(exchange, known);
                    self.put(exchange, Stored { facts, ..known.clone() });
                }
                HeadUpdate::Freshen => {
                    let exchange = exchange.as_get();
                    let reason = caching::NotReused::Method;
                    self.freshen(&exchange, known, response, reason);
                }
            }
        }
    }
}

fn judge(exchange: &Exchange<'_>, response: &Response, known: &Stored) -> HeadUpdate {
    let stored = head_update::Stored {
        facts: &known.facts,
        validators: &known.validators(),
        content_bytes: Some(known.message.body.len() as u64),
    };
    head_update::judge(response.status, &response.message.lines(), &stored, exchange.times())
}

impl Exchange<'_> {
    fn as_get(&self) -> Self {
        Exchange { facts: self.facts.as_get(), key: self.key.clone(), ..*self }
    }
}
