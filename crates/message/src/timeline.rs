//! Timings of an exchange: spans of a trace, and `Server-Timing` for clients that request it.
//!
//! Requests carry a timeline only if the configuration enables it; otherwise each step costs one comparison. A step only
//! measures itself ([`measure`]); this module decides the parent and destination of its span.
//!
//! A timeline whose trace isn't sampled records nothing. It only keeps the trace fields for the origin.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use telemetry::trace::{
    Attribute, Span, SpanId, SpanKind, SpanSink, SpanStatus, SpanValue, TraceContext, TraceFlags,
};
use tokio::time::Instant;

/// Request field by which a client requests `Server-Timing`. It isn't forwarded.
pub const ASKING_FIELD: &str = "larder-timing";
pub const PARENT_FIELD: &str = "traceparent";
pub const STATE_FIELD: &str = "tracestate";

/// A timed stage of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Look-up in memory.
    Local,
    /// Request to the tier behind memory.
    Store,
    /// Waiting for the fetch of another instance.
    Lease,
    /// Waiting for the fetch of another request.
    Collapse,
    /// Waiting for a free slot at the origin.
    Queue,
    /// Request to the origin, until the head of its response.
    Origin,
}

impl Stage {
    const ALL: [Self; 6] = [Self::Queue, Self::Local, Self::Store, Self::Lease, Self::Collapse, Self::Origin];

    /// Returns the name in `Server-Timing`.
    fn word(self) -> &'static str {
        self.span_name().trim_start_matches("larder.")
    }

    /// Returns the name of the span, unless the request's method names it.
    fn span_name(self) -> &'static str {
        match self {
            Self::Local => "larder.local",
            Self::Store => "larder.store",
            Self::Lease => "larder.lease",
            Self::Collapse => "larder.collapse",
            Self::Queue => "larder.queue",
            Self::Origin => "larder.origin",
        }
    }

    #[inline]
    fn kind(self) -> SpanKind {
        if self == Self::Origin { SpanKind::Client } else { SpanKind::Internal }
    }
}

/// Position of a request in a trace.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Span of the exchange, or the parent named by the request if the trace isn't recorded.
    pub context: TraceContext,
    pub parent: Option<SpanId>,
    pub state: Option<Box<str>>,
    pub links: Vec<TraceContext>,
}

/// Timings of one exchange.
#[derive(Debug)]
pub struct Timeline {
    started: Instant,
    started_unix_ns: u64,
    standing: Option<Standing>,
    recording: Option<Recording>,
    telling: Telling,
    /// Total time of each stage that has ended.
    times: Mutex<[Option<Duration>; Stage::ALL.len()]>,
}

/// Open span of the exchange, and the destination of spans.
#[derive(Debug)]
struct Recording {
    sink: Arc<dyn SpanSink>,
    open: Mutex<Option<Box<Open>>>,
}

#[derive(Debug)]
struct Open {
    name: &'static str,
    kind: SpanKind,
    attributes: Vec<Attribute>,
    last_word: LastWord,
}

/// Outcome of a timeline that is dropped without a reported end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastWord {
    /// The client closed before it had received its response.
    ClientGone,
    /// Background work ended normally.
    Done,
}

/// Whether the client gets the timings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Telling {
    Nothing,
    ServerTiming,
}

/// End of an exchange, or of a part of it.
#[derive(Debug)]
pub struct Ended {
    pub status: SpanStatus,
    pub attributes: Vec<Attribute>,
}

impl Timeline {
    pub fn new(started: Instant, telling: Telling) -> Self {
        let now_unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started_unix = now_unix.saturating_sub(started.elapsed());
        Self {
            started,
            started_unix_ns: nanoseconds(started_unix),
            standing: None,
            recording: None,
            telling,
            times: Mutex::default(),
        }
    }

    /// Makes the timeline a part of a trace.
    #[inline]
    pub fn standing(mut self, standing: Standing) -> Self {
        self.standing = Some(standing);
        self
    }

    /// Records the timeline as the server side of a request.
    #[inline]
    pub fn recorded(self, sink: Arc<dyn SpanSink>, name: &'static str, attributes: Vec<Attribute>) -> Self {
        let open = Open { name, kind: SpanKind::Server, attributes, last_word: LastWord::ClientGone };
        self.recorded_as(sink, open)
    }

    #[inline]
    fn recorded_as(mut self, sink: Arc<dyn SpanSink>, open: Open) -> Self {
        self.recording = Some(Recording { sink, open: Mutex::new(Some(Box::new(open))) });
        self
    }

    /// Returns a timeline for background work that a request has started. It has its own trace, linked to the request's.
    #[inline]
    pub fn behind(&self, name: &'static str) -> Option<Self> {
        let sink = Arc::clone(&self.recording.as_ref()?.sink);
        let links = self.standing.iter().map(|standing| standing.context).collect();
        let context = TraceContext::root(TraceFlags::SAMPLED);
        let standing = Standing { context, parent: None, state: None, links };
        let open = Open { name, kind: SpanKind::Internal, attributes: Vec::new(), last_word: LastWord::Done };
        Some(Self::new(Instant::now(), Telling::Nothing).standing(standing).recorded_as(sink, open))
    }

    /// Returns the trace and span of the exchange.
    #[inline]
    pub fn context(&self) -> Option<TraceContext> {
        self.standing.as_ref().map(|standing| standing.context)
    }

    /// Returns the trace and span of the exchange, if it is recorded, so that other spans can refer to it.
    #[inline]
    pub fn recorded_context(&self) -> Option<TraceContext> {
        self.recording.as_ref().and_then(|_| self.context())
    }

    /// Returns the `tracestate` to pass on.
    #[inline]
    pub fn state(&self) -> Option<&str> {
        self.standing.as_ref()?.state.as_deref()
    }

    /// Returns the trace and span for the access log. `None` if the trace is neither recorded nor known to another party.
    #[inline]
    pub fn logged_context(&self) -> Option<TraceContext> {
        let standing = self.standing.as_ref()?;
        (self.is_recorded() || standing.parent.is_some()).then_some(standing.context)
    }

    #[inline]
    pub fn is_recorded(&self) -> bool {
        self.recording.is_some()
    }

    /// Ends the exchange, and sends its span.
    #[inline]
    pub fn end(&self, ended: Instant, how: Ended) {
        let Some(recording) = &self.recording else { return };
        let open = recording.open.lock().take();
        if let Some(open) = open {
            self.send(*open, ended, how);
        }
    }

    fn send(&self, open: Open, ended: Instant, how: Ended) {
        let (Some(Recording { sink, .. }), Some(standing)) = (&self.recording, &self.standing) else {
            return;
        };
        let mut attributes = open.attributes;
        attributes.extend(how.attributes);
        sink.take(Span {
            context: standing.context,
            parent: standing.parent,
            state: standing.state.clone(),
            name: open.name,
            kind: open.kind,
            start_unix_ns: self.started_unix_ns,
            end_unix_ns: self.unix_ns(ended),
            attributes,
            links: standing.links.clone(),
            status: how.status,
        });
    }

    #[inline]
    fn unix_ns(&self, at: Instant) -> u64 {
        self.started_unix_ns.saturating_add(nanoseconds(at.saturating_duration_since(self.started)))
    }

    /// Returns the value of `Server-Timing`, if the client gets it.
    pub fn server_timing(&self, cache: &str, now: Instant) -> Option<String> {
        use std::fmt::Write as _;
        if self.telling == Telling::Nothing {
            return None;
        }
        let mut value = format!("cache;desc=\"{cache}\"");
        let times = *self.times.lock();
        let total = now.saturating_duration_since(self.started);
        let stages = Stage::ALL.into_iter().map(|stage| (stage.word(), times[stage as usize]));
        for (word, time) in stages.chain([("total", Some(total))]) {
            // Writing to a String can't fail.
            let _ = time.map(|time| write!(value, ", {word};dur={:.3}", time.as_secs_f64() * 1e3));
        }
        Some(value)
    }

    #[inline]
    fn add(&self, stage: Stage, time: Duration) {
        let sum = &mut self.times.lock()[stage as usize];
        *sum = Some(sum.unwrap_or_default().saturating_add(time));
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        let Some(open) = self.recording.as_ref().and_then(|recording| recording.open.lock().take()) else {
            return;
        };
        let attributes = match open.last_word {
            LastWord::ClientGone => vec![("error.type", SpanValue::from("client-gone"))],
            LastWord::Done => Vec::new(),
        };
        self.send(*open, Instant::now(), Ended { status: SpanStatus::Unset, attributes });
    }
}

/// A running measurement of a stage, which ends on drop.
#[derive(Debug)]
pub struct Measuring {
    timeline: Arc<Timeline>,
    stage: Stage,
    began: Instant,
    name: &'static str,
    /// Span of the stage, if it is recorded.
    context: Option<TraceContext>,
    ended: Ended,
    links: Vec<TraceContext>,
}

/// Starts to measure a stage, if there is a timeline.
pub fn measure(timeline: Option<&Arc<Timeline>>, stage: Stage) -> Option<Measuring> {
    timeline.map(|timeline| Measuring {
        timeline: Arc::clone(timeline),
        stage,
        began: Instant::now(),
        name: stage.span_name(),
        context: timeline.recorded_context().map(|context| context.child()),
        ended: Ended { status: SpanStatus::Unset, attributes: Vec::new() },
        links: Vec::new(),
    })
}

impl Measuring {
    /// Span of the stage, if it is recorded.
    #[inline]
    pub fn context(&self) -> Option<TraceContext> {
        self.context
    }

    #[inline]
    pub fn named(&mut self, name: &'static str) {
        self.name = name;
    }

    #[inline]
    pub fn with(&mut self, name: &'static str, value: impl Into<SpanValue>) {
        if self.context.is_some() {
            self.ended.attributes.push((name, value.into()));
        }
    }

    #[inline]
    pub fn failed(&mut self, error: impl Into<SpanValue>) {
        self.ended.status = SpanStatus::Error;
        self.with("error.type", error);
    }

    /// Links the span to another span.
    #[inline]
    pub fn linked(&mut self, context: Option<TraceContext>) {
        self.links.extend(context);
    }
}

impl Drop for Measuring {
    fn drop(&mut self) {
        let ended = Instant::now();
        self.timeline.add(self.stage, ended.saturating_duration_since(self.began));
        let (Some(context), Some(recording)) = (self.context, &self.timeline.recording) else { return };
        recording.sink.take(Span {
            context,
            parent: self.timeline.context().map(|context| context.span_id),
            state: self.timeline.state().map(Into::into),
            name: self.name,
            kind: self.stage.kind(),
            start_unix_ns: self.timeline.unix_ns(self.began),
            end_unix_ns: self.timeline.unix_ns(ended),
            attributes: std::mem::take(&mut self.ended.attributes),
            links: std::mem::take(&mut self.links),
            status: self.ended.status,
        });
    }
}

#[inline]
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the span name of a request: the method if it is a known one, because the number of span names must be small.
pub fn span_name(method: &str) -> &'static str {
    match method {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        "TRACE" => "TRACE",
        "PATCH" => "PATCH",
        "QUERY" => "QUERY",
        "PURGE" => "PURGE",
        _ => "HTTP",
    }
}

#[inline]
pub fn method_attributes(method: &str) -> Vec<Attribute> {
    match span_name(method) {
        "HTTP" => vec![
            ("http.request.method", "_OTHER".into()),
            ("http.request.method_original", method.to_owned().into()),
        ],
        known => vec![("http.request.method", known.into())],
    }
}
