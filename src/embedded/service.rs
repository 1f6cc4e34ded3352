//! From an HTTP request to its answer: route, faults, authorization, the operation itself.

use std::collections::HashMap;
use std::future::{Future, pending};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Query;
use futures_util::stream;
use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode, request::Parts};
use http_body_util::{BodyExt, Limited};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::fault::{Canned, Cut, Plan, Tamper, Verb, pass};
use super::operation::{self, Call, Reply};
use super::request_log::{self, summarize};
use super::serve::ConnectionCut;
use super::status::{self, Refusal};
use super::{LeaseApi, Shared};

/// The real server's limit of a request body.
const BODY_LIMIT_BYTES: usize = 3 * 1024 * 1024;

/// Who a request is from, as an extension of it; wins over the bearer token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller(pub String);

/// How a request ends.
enum Answer {
    Response(Response<Body>),
    Disconnect { reset: bool },
}

impl LeaseApi {
    /// The API as a router. A fault that cuts the connection needs [`LeaseApi::serve`] or
    /// [`LeaseApi::client_service`]; under another server it is a 200 whose body breaks.
    pub fn router(&self) -> Router {
        let shared = self.shared.clone();
        Router::new().fallback(move |request: Request<Body>| {
            let shared = shared.clone();
            async move {
                let cut = request.extensions().get::<ConnectionCut>().cloned();
                match (answer(&shared, request).await, cut) {
                    (Answer::Response(response), _) => response,
                    (Answer::Disconnect { reset }, Some(cut)) => {
                        cut.cut(reset);
                        pending().await
                    }
                    (Answer::Disconnect { .. }, None) => {
                        let broken: io::Result<Bytes> = Err(io::ErrorKind::ConnectionReset.into());
                        Response::new(Body::from_stream(stream::iter([broken])))
                    }
                }
            }
        })
    }

    /// A transport for `kube::Client::new` without sockets; its requests are `caller`'s. A connection
    /// that is cut is an error of the service.
    #[must_use]
    pub fn client_service(&self, caller: &str) -> ClientService {
        ClientService { shared: self.shared.clone(), caller: Caller(caller.to_owned()) }
    }
}

/// See [`LeaseApi::client_service`].
#[derive(Debug, Clone)]
pub struct ClientService {
    shared: Arc<Shared>,
    caller: Caller,
}

impl<B> tower::Service<Request<B>> for ClientService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response<Body>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Response<Body>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let shared = self.shared.clone();
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(self.caller.clone());
        Box::pin(async move {
            match answer(&shared, request).await {
                Answer::Response(response) => Ok(response),
                Answer::Disconnect { reset: true } => Err(io::ErrorKind::ConnectionReset.into()),
                Answer::Disconnect { reset: false } => Err(io::ErrorKind::UnexpectedEof.into()),
            }
        })
    }
}

async fn answer(shared: &Arc<Shared>, request: Request<Body>) -> Answer {
    let (parts, body) = request.into_parts();
    let body = match Limited::new(body, BODY_LIMIT_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            return Answer::Response(refuse(&status::too_large_body()));
        }
        Err(_) => return Answer::Disconnect { reset: false },
    };
    let (call, plan) = arrive(shared, &parts, &body);
    let (seq, tampers) = (call.seq, plan.tampers.clone());
    let answer = run(shared, Arc::new(call), plan).await;
    let answer = match answer {
        Ok(reply) => Answer::Response(render(reply, &tampers)),
        Err(Cut::Answer(canned)) => Answer::Response(render_canned(&canned)),
        Err(Cut::Disconnect { reset }) => Answer::Disconnect { reset },
        Err(Cut::Silence) => pending().await,
    };
    if let Answer::Response(response) = &answer {
        let code = response.status().as_u16();
        shared.change(|state| state.log.answered(seq, Instant::now(), code));
    }
    answer
}

/// Reads the request, enters it in the log and asks what is to happen to it.
fn arrive(shared: &Shared, parts: &Parts, bytes: &[u8]) -> (Call, Plan) {
    let (resource, verb) = route(parts);
    let token = parts
        .headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let body = if bytes.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(bytes) };
    let text = parts.uri.query().unwrap_or_default();
    let query = Query::<HashMap<String, String>>::try_from_uri(&parts.uri);
    let media_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = media_type.and_then(|t| t.split(';').next()).unwrap_or("application/json");
    shared.change(|state| {
        let known = token.and_then(|t| state.tokens.iter().find(|(known, _)| known == t));
        let caller = match (parts.extensions.get::<Caller>(), known, token) {
            (Some(Caller(caller)), _, _) => caller.clone(),
            (None, Some((_, caller)), _) => caller.clone(),
            (None, None, Some(token)) => token.to_owned(),
            (None, None, None) => "anonymous".to_owned(),
        };
        let mut call = Call {
            seq: 0,
            authentic: token.is_none_or(|token| !state.revoked.contains(token)),
            caller,
            verb,
            namespace: resource.namespace,
            name: resource.name,
            query: query.map_or_else(|_| HashMap::new(), |Query(query)| query),
            media_type: media_type.trim().to_owned(),
            body: body.map_err(|error| error.to_string()),
            replay_old: None,
            watch: Vec::new(),
            tampers: Vec::new(),
        };
        if verb == Verb::Watch {
            call.name = operation::selected_name(&call).unwrap_or_default();
        }
        let (name, null) = (call.name.clone().unwrap_or_default(), Value::Null);
        let body = call.body.as_ref().unwrap_or(&null);
        call.seq = state.log.arrive(request_log::Request {
            seq: 0,
            at: Instant::now(),
            caller: call.caller.clone(),
            verb,
            namespace: call.namespace.clone().unwrap_or_default(),
            name: name.clone(),
            query: text.to_owned(),
            status: None,
            answered_at: None,
            committed_rv: None,
            committed_at: None,
            summary: summarize(body),
        });
        let plan = state.faults.plan(verb, &call.caller, &name, body);
        call.replay_old = plan.replay_old;
        call.watch.clone_from(&plan.watch);
        call.tampers.clone_from(&plan.tampers);
        (call, plan)
    })
}

#[derive(Default)]
struct Resource {
    namespace: Option<String>,
    name: Option<String>,
}

fn route(parts: &Parts) -> (Resource, Verb) {
    let segments: Vec<&str> = parts.uri.path().split('/').skip(1).collect();
    let method = &parts.method;
    let at = |namespace: Option<&str>, name: Option<&str>| Resource {
        namespace: namespace.map(str::to_owned),
        name: name.map(str::to_owned),
    };
    match segments.as_slice() {
        ["apis", "coordination.k8s.io", "v1", "leases"] if *method == Method::GET => {
            (at(None, None), list_or_watch(parts))
        }
        ["apis", "coordination.k8s.io", "v1", "namespaces", namespace, "leases"] => {
            let verb = match *method {
                Method::GET => list_or_watch(parts),
                Method::POST => Verb::Post,
                _ => Verb::Other,
            };
            (at(Some(namespace), None), verb)
        }
        ["apis", "coordination.k8s.io", "v1", "namespaces", namespace, "leases", name] => {
            let verb = match *method {
                Method::GET => Verb::Get,
                Method::PUT => Verb::Put,
                Method::PATCH => Verb::Patch,
                Method::DELETE => Verb::Delete,
                _ => Verb::Other,
            };
            (at(Some(namespace), Some(name)), verb)
        }
        ["apis", "events.k8s.io", "v1", "namespaces", namespace, "events"]
            if *method == Method::POST =>
        {
            (at(Some(namespace), None), Verb::Event)
        }
        ["apis", "authorization.k8s.io", "v1", "selfsubjectaccessreviews"]
            if *method == Method::POST =>
        {
            (at(None, None), Verb::Ssar)
        }
        _ => (Resource::default(), Verb::Other),
    }
}

fn list_or_watch(parts: &Parts) -> Verb {
    let query = parts.uri.query().unwrap_or_default();
    let watch = query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1" | "watch"));
    if watch { Verb::Watch } else { Verb::List }
}

/// Carries a request out, with everything the faults add.
async fn run(shared: &Arc<Shared>, call: Arc<Call>, plan: Plan) -> Result<Reply, Cut> {
    if let Some(cut) = plan.cut_before {
        if wait_before(plan.delay_before, plan.gates_before).await {
            return Err(cut);
        }
        return Err(Cut::Silence);
    }
    let reply = if plan.waits_before() {
        // On a task of its own: a request that is under way is carried out although its client is gone.
        let (shared, call) = (shared.clone(), call.clone());
        let (delay, gates) = (plan.delay_before, plan.gates_before);
        let task = tokio::spawn(async move {
            let passed = wait_before(delay, gates).await;
            passed.then(|| operation::execute(&shared, &call))
        });
        task.await.ok().flatten().ok_or(Cut::Silence)?
    } else {
        operation::execute(shared, &call)
    };
    sleep_if(plan.delay_after).await;
    for gate in plan.gates_after {
        if !pass(gate).await {
            return Err(Cut::Silence);
        }
    }
    match plan.cut_after {
        Some(cut) => Err(cut),
        None => Ok(reply),
    }
}

async fn wait_before(delay: Duration, gates: Vec<watch::Receiver<bool>>) -> bool {
    sleep_if(delay).await;
    for gate in gates {
        if !pass(gate).await {
            return false;
        }
    }
    true
}

async fn sleep_if(delay: Duration) {
    if !delay.is_zero() {
        sleep(delay).await;
    }
}

fn render(reply: Reply, tampers: &[Tamper]) -> Response<Body> {
    match reply {
        Reply::Json(code, mut value) => {
            for Tamper(change) in tampers {
                change(&mut value);
            }
            json_response(code, &value)
        }
        Reply::Refused(refusal) => refuse(&refusal),
        Reply::Watch(stream) => {
            let mut response = Response::new(stream.into_body());
            response.headers_mut().insert(CONTENT_TYPE, JSON);
            response
        }
    }
}

const JSON: http::HeaderValue = http::HeaderValue::from_static("application/json");
const TEXT: http::HeaderValue = http::HeaderValue::from_static("text/plain; charset=utf-8");

fn json_response(code: StatusCode, value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

fn refuse(refusal: &Refusal) -> Response<Body> {
    let mut response = json_response(refusal.code, &refusal.body);
    if let Some(seconds) = refusal.retry_after_seconds {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

fn render_canned(canned: &Canned) -> Response<Body> {
    let code = StatusCode::from_u16(canned.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut refusal = status::of_code(code);
    refusal.retry_after_seconds = canned.retry_after_seconds;
    let mut response = refuse(&refusal);
    if let Some(text) = &canned.text {
        *response.body_mut() = Body::from(text.clone());
        response.headers_mut().insert(CONTENT_TYPE, TEXT);
    }
    response
}
