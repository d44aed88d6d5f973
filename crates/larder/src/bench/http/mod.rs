//! `larder bench http`: load on HTTP servers.

mod arguments;
mod load;
mod server;
mod sides;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bench::http::{HttpLoad, Until};
use bench::observe::Observer;
use bench::progress::{Done, Goal, Live, Progress, Style};
use bench::result::{Interval, Machine, Report, Run, SCHEMA};

pub(crate) use arguments::HttpArguments;
pub(super) use arguments::field;
use server::Server;

/// Makes the load and shows what came of it.
pub(super) fn run(arguments: &HttpArguments) -> anyhow::Result<()> {
    let load = load::of(arguments)?;
    let started_at_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let runs = match sides::of(arguments, &load)? {
        Some(sides) => sides::run(arguments, &sides)?,
        None => vec![one(arguments, &load)?],
    };
    let report = Report {
        schema: SCHEMA.into(),
        title: "HTTP load".into(),
        description: runs.first().map_or_else(String::new, |run| run.load.clone()),
        started_at_unix_s,
        machine: Machine::this(),
        larder: crate::VERSION.into(),
        runs,
        charts: Vec::new(),
        expectations: Vec::new(),
    };
    arguments.outputs.write(&report)
}

fn one(arguments: &HttpArguments, load: &HttpLoad) -> anyhow::Result<Run> {
    let server = Server::start(&arguments.server, load)?;
    if let Some(until) = load.warm_up {
        let warm_up = HttpLoad { until, warm_up: None, ..load.clone() };
        bench::http::run(&warm_up, &mut ())?;
    }
    let measuring = server.begin()?;
    let measured = HttpLoad { warm_up: None, ..load.clone() };
    let told = Told::start("http", goal(load), arguments.progress());
    let mut run = bench::http::run(&measured, &mut told.observer())?;
    told.finish();
    run.server =
        measuring.map(|measuring| measuring.end()).transpose()?.map(|spent| spent.per_request(run.requests));
    Ok(run)
}

fn goal(load: &HttpLoad) -> Goal {
    match load.until {
        Until::Requests(requests) => Goal::Requests(requests),
        Until::Elapsed(duration) => Goal::Duration(duration),
    }
}

/// The progress of a load, fed by what its observer is told.
struct Told {
    progress: Progress,
    live: Arc<Live>,
}

impl Told {
    fn start(name: &str, goal: Goal, style: Style) -> Self {
        let live = Arc::new(Live::default());
        Self { progress: Progress::start(name, goal, style, std::slice::from_ref(&live)), live }
    }

    fn observer(&self) -> impl Observer + use<> {
        let live = self.live.clone();
        move |interval: &Interval| {
            #[expect(
                clippy::cast_precision_loss,
                reason = "a tenth of a second has fewer than 2^52 requests"
            )]
            let sum = Duration::from_secs_f64(interval.mean_us * interval.requests as f64 / 1e6);
            live.add(&Done {
                requests: interval.requests,
                errors: interval.errors,
                latency_sum_us: u64::try_from(sum.as_micros()).unwrap_or(u64::MAX),
                latency_max_us: interval.max_us,
            });
            ControlFlow::Continue(())
        }
    }

    fn finish(self) {
        self.progress.finish();
    }
}
