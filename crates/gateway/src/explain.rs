//! Answers the questions of `larder explain`. Each question is processed like a request from a connection,
//! and the answer has the findings of the steps.

use std::sync::Arc;
use std::time::Duration;

use caching::target;
use http::Uri;
use message::explain_record::Record;
use message::fields::map_lines;
use message::head::{Content, Nominations, Peer, RequestHead, Scheme, Trust, Version};
use message::piece::PieceMax;
use origin::RequestBody;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use crate::question::{ExplainJob, Explanation, Question};
use crate::request::pipeline;
use crate::request::plan::Interims;
use crate::request::plan::Step;
use crate::request::reply::Reply;
use crate::worker::Worker;

/// Maximum wait for the end of a forward after the response has ended.
const FORWARD_END_MAX: Duration = Duration::from_secs(2);

/// Answers questions until the channel closes.
pub(crate) async fn serve(worker: Arc<Worker>, mut explain_jobs: mpsc::Receiver<ExplainJob>) {
    while let Some(job) = explain_jobs.recv().await {
        let worker = Arc::clone(&worker);
        tokio::spawn(async move {
            // The receiver may have been dropped.
            let _ = job.answer.send(answer(&worker, &job.question).await);
        });
    }
}

/// Processes the question as a request from a connection, and reads the response to its end.
async fn answer(worker: &Arc<Worker>, question: &Question) -> Explanation {
    let record = Arc::new(Record::default());
    let live = worker.live();
    let lines: Vec<_> = map_lines(&question.fields).collect();
    let authority = question.url.authority().map_or("", |authority| authority.as_str());
    let target = question.url.path_and_query().map_or("/", |target| target.as_str());
    let normal = target::normal_form(target);
    let request = RequestHead {
        method: question.method.as_str(),
        scheme: scheme(&question.url),
        authority,
        path_and_query: normal.as_deref().unwrap_or(target),
        version: Version::Http11,
        fields: &lines,
        nominations: Nominations::Some,
        sent: None,
        keyed: &[],
        content: Content::None,
        upgrade: None,
        peer: Peer {
            address: ([127, 0, 0, 1], 0).into(),
            trust: Trust::Untrusted,
            scheme: scheme(&question.url),
        },
        tls: None,
        record: Some(&record),
        timeline: None,
    };
    let started = Instant::now();
    let mut reply = match pipeline::begin(worker, &live, &request, &mut Vec::new(), started) {
        Step::Reply(reply) => reply,
        Step::Forward(plan) => pipeline::finish(&plan, RequestBody::Empty, &Interims::default()).await,
    };
    let complete = read_to_end(&mut reply).await;
    let _ = timeout(FORWARD_END_MAX, record.closed()).await;
    let mut cache_status = Vec::new();
    reply.cache_status.write(&live.cache_name, &mut cache_status);
    tracing::debug!(elapsed = ?started.elapsed(), "explained");
    let findings = record.take();
    Explanation {
        status: reply.status,
        cache_status: String::from_utf8_lossy(&cache_status).into_owned(),
        complete,
        findings,
    }
}

fn scheme(url: &Uri) -> Scheme {
    if url.scheme_str() == Some("https") { Scheme::Https } else { Scheme::Http }
}

async fn read_to_end(reply: &mut Reply) -> bool {
    let mut trailers = None;
    loop {
        match reply.body.data(&mut trailers, PieceMax::SENT).await {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}
