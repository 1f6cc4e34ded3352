//! Answers: their bodies, their headers, and the one shape of every error.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::Stream;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Response, StatusCode};
use http_body::{Frame, SizeHint};
use hyper::body::Bytes;
use serde::Serialize;

use super::Api;
use super::shape::{Dev, ErrorBody};

pub(super) type Reply = Response<Body>;
pub(super) type FrameStream = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// A whole body, or a stream that ends with its connection.
pub(super) enum Body {
    Whole(Option<Bytes>),
    Stream(FrameStream),
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Body::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Body::Stream(stream) => {
                stream.as_mut().poll_next(cx).map(|next| next.map(|bytes| bytes.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Body::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Body::Stream(_) => SizeHint::default(),
        }
    }
}

/// A request that is answered with an error.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    error: String,
    header: Option<(HeaderName, HeaderValue)>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, error: impl Into<String>) -> Refusal {
        Refusal { status, error: error.into(), header: None }
    }

    pub(super) fn bad_request(error: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, error)
    }

    /// Well-formed, but out of range.
    pub(super) fn out_of_range(error: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, error)
    }

    pub(super) fn not_found(path: &str) -> Refusal {
        Refusal::new(StatusCode::NOT_FOUND, format!("nothing is served at {path}"))
    }

    pub(super) fn unauthorized(error: impl Into<String>) -> Refusal {
        let challenge = (WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"tenure\""));
        Refusal { header: Some(challenge), ..Refusal::new(StatusCode::UNAUTHORIZED, error) }
    }

    pub(super) fn method_not_allowed(method: &Method, allowed: &[Method]) -> Refusal {
        let names: Vec<&str> = allowed.iter().map(Method::as_str).collect();
        let names = names.join(", ");
        let error = format!("{method} is not allowed here; allowed: {names}");
        let header = HeaderValue::try_from(names).ok().map(|names| (ALLOW, names));
        Refusal { header, ..Refusal::new(StatusCode::METHOD_NOT_ALLOWED, error) }
    }
}

impl Api {
    pub(super) fn refuse(&self, refusal: Refusal) -> Reply {
        let mut reply = self.json(refusal.status, &ErrorBody { error: &refusal.error });
        if let Some((name, value)) = refusal.header {
            reply.headers_mut().insert(name, value);
        }
        reply
    }

    pub(super) fn json(&self, status: StatusCode, body: &impl Serialize) -> Reply {
        let mut json = self.to_json(body);
        // A prompt after curl begins a line of its own.
        json.push(b'\n');
        reply(status, "application/json", Body::Whole(Some(json.into())))
    }

    pub(super) fn to_json(&self, body: &impl Serialize) -> Vec<u8> {
        let json = if self.config.dev {
            serde_json::to_vec(&Dev { body, dev: true })
        } else {
            serde_json::to_vec(body)
        };
        json.expect("bodies are plain structs with string keys")
    }
}

pub(super) fn reply(status: StatusCode, content_type: &'static str, body: Body) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}

/// The head of a GET's answer whose body would be a grant: HEAD tells none, so none is computed.
pub(super) fn head_only(content_type: &'static str) -> Reply {
    reply(StatusCode::OK, content_type, Body::Whole(None))
}
