//! Requests over as few connections as their server allows.
//!
//! Some twenty watches and all requests share one connection where that is enough. Servers bound the streams of a
//! connection (upstream's allow 100 unless told otherwise), and a request beyond that waits for one to end, which
//! watches do not: further watches get further connections.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::connect::Connect;
use hyper_util::client::legacy::{self, Client};
use kube::client::Body;
use tower_service::Service;

use crate::connection::Said;

/// How many watches a connection carries; the rest of its streams is for requests that end.
const WATCHES: usize = 64;

/// Makes a client with a connection of its own.
pub(crate) type Make<C> = Box<dyn Fn() -> Client<C, Body> + Send>;

/// All connections to a server.
pub(crate) struct Connections<C> {
    make: Make<C>,
    open: Mutex<Vec<Open<C>>>,
}

/// A connection, with what its watches hold while they last.
type Open<C> = (Client<C, Body>, Arc<()>);

impl<C: Clone> Connections<C> {
    pub(crate) fn new(make: Make<C>) -> Connections<C> {
        let first = (make(), Arc::default());
        Connections {
            make,
            open: Mutex::new(vec![first]),
        }
    }

    /// The connection for a request, and what it holds until its end.
    fn choose(&self, is_watch: bool) -> (Client<C, Body>, Option<Arc<()>>) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_watch {
            return (open[0].0.clone(), None);
        }
        let has_room = |(_, held): &&Open<C>| Arc::strong_count(held) <= WATCHES;
        let (client, held) = match open.iter().find(has_room) {
            Some(found) => found.clone(),
            None => {
                open.push(((self.make)(), Arc::default()));
                open[open.len() - 1].clone()
            }
        };
        (client, Some(held))
    }
}

fn is_watch(request: &Request<Body>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    query
        .split('&')
        .any(|part| matches!(part, "watch=true" | "watch=1"))
}

impl<C> Service<Request<Body>> for Connections<C>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    type Response = Response<Said>;
    type Error = legacy::Error;
    type Future = BoxFuture<'static, Result<Response<Said>, legacy::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), legacy::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (client, held) = self.choose(is_watch(&request));
        async move {
            let response = client.request(request).await?;
            Ok(response.map(|body| {
                body.map_frame(move |frame| {
                    let _ = &held;
                    frame
                })
                .boxed_unsync()
            }))
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use hyper_util::client::legacy::connect::HttpConnector;
    use hyper_util::rt::TokioExecutor;

    use super::*;

    #[test]
    fn watches_beyond_what_a_connection_carries_get_another() {
        let make: Make<HttpConnector> =
            Box::new(|| Client::builder(TokioExecutor::new()).build_http());
        let connections = Connections::new(make);
        let count =
            |connections: &Connections<_>| connections.open.lock().map_or(0, |open| open.len());
        let held: Vec<_> = (0..WATCHES).map(|_| connections.choose(true)).collect();
        assert_eq!(count(&connections), 1);
        let one_more = connections.choose(true);
        assert_eq!(count(&connections), 2);
        assert!(
            connections.choose(false).1.is_none(),
            "what ends holds nothing"
        );
        // Whoever has ended leaves room behind.
        drop((held, one_more));
        let again: Vec<_> = (0..2 * WATCHES).map(|_| connections.choose(true)).collect();
        assert_eq!((again.len(), count(&connections)), (2 * WATCHES, 2));
    }

    #[test]
    fn a_watch_is_known_by_its_query() {
        let request = |uri: &str| Request::get(uri).body(Body::empty()).expect("a request");
        assert!(is_watch(&request("/api/v1/pods?a=b&watch=true")));
        assert!(is_watch(&request("/api/v1/pods?watch=1")));
        assert!(!is_watch(&request("/api/v1/pods?fieldSelector=x%3Dwatch")));
        assert!(!is_watch(&request("/api/v1/pods")));
    }
}
