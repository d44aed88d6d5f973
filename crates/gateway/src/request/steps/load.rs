//! Loads a record from the tier behind memory, and repeats the look-up, which uses the entry like one from
//! memory.

use caching::Outcome;
use fleet::answer::{Answer, Said};
use fleet::tier::load::Asker;
use message::reason::Reason;
use message::timeline::{Stage, measure};

use crate::request::fetch::fetch_spec::TierLookUp;
use crate::request::plan::{Content, ForwardMode, Next, Plan};
use crate::request::{findings, lookup};

/// Loads the record, and returns the next step with the plan for it.
pub(crate) async fn run(plan: &Plan, key: &[u8], content: Content) -> (Box<Plan>, Next) {
    let site_key = plan.site_key();
    let asker = Asker { rules: plan.storage_rules(), site_key: site_key.as_deref() };
    let mut asking = measure(plan.request.timeline.as_ref(), Stage::Store);
    let Answer { entry, said, .. } = match plan.tier() {
        Some(tier) => tier.load(key, asker).await,
        None => Answer::UNASKED,
    };
    asking.iter_mut().for_each(|asking| asking.with("larder.store.result", said.word()));
    drop(asking);
    plan.note(|| findings::tier(said, plan.started.elapsed()));
    let (plan, next) = match content {
        Content::Read(content) => {
            let plan = plan.with(ForwardMode::Query, entry);
            let next = lookup::by_content(&plan, content, TierLookUp::Asked);
            (plan, next)
        }
        Content::Unread(body) => match lookup::again(plan, None, TierLookUp::Asked) {
            Ok(reply) => (plan.with(ForwardMode::Query, entry), Next::Reply(reply)),
            Err(mode) => {
                let plan = plan.with(mode, entry);
                let next = plan.mode.first(Content::Unread(body));
                (plan, next)
            }
        },
    };
    (plan, named(next, said))
}

/// Adds the source of a hit to `Cache-Status`, unless the outcome already has a detail, which is more
/// informative.
fn named(mut next: Next, said: Said) -> Next {
    if let (Next::Reply(reply), Said::Found) = (&mut next, said)
        && reply.cache_status.outcome == Outcome::Hit
    {
        reply.cache_status.detail.get_or_insert(Reason::SharedStore.as_str());
    }
    next
}
