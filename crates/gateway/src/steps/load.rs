//! Asks the tier behind memory, and looks the request up again: what the tier has is used as if memory had had it.

use std::sync::Arc;

use caching::MethodClass;

use crate::cache::inflight::wanted::Tier;
use crate::cache::key::key_of;
use crate::cache::tiers::load::Asker;
use crate::plan::{Content, ForwardMode, Next, Plan};
use crate::steps::look_up;
use crate::worker::Worker;

/// What is to be done once the tier has been asked, and the plan for it.
pub(crate) async fn run(
    worker: &Arc<Worker>,
    plan: &Plan,
    key: &[u8],
    content: Content,
) -> (Box<Plan>, Next) {
    let site_key = site_key(plan);
    let asker = Asker {
        rule: plan.site.rule_at(plan.rule),
        groups_max: plan.live.config.groups_max,
        site_key: site_key.as_deref(),
    };
    let loaded = worker.shared.cache.load(key, asker).await;
    match content {
        Content::Read(content) => {
            let plan = plan.with(ForwardMode::Query, loaded);
            let next = look_up::by_content(worker, &plan, content, Tier::Asked);
            (plan, next)
        }
        Content::Unread(body) => match look_up::again(worker, plan, None, Tier::Asked) {
            Ok(reply) => (plan.with(ForwardMode::Query, loaded), Next::Reply(reply)),
            Err(mode) => {
                let plan = plan.with(mode, loaded);
                let next = plan.first(body);
                (plan, next)
            }
        },
    }
}

/// The key of the URL alone, for requests whose own key has more.
fn site_key(plan: &Plan) -> Option<Vec<u8>> {
    let request = &plan.request;
    let has_more = plan.facts.method == MethodClass::Query || !request.keyed.is_empty();
    has_more.then(|| key_of(&plan.site, request.scheme, &request.authority, &request.path_and_query))
}
