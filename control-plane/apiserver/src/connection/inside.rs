//! Callers in the same process: no TLS and no HTTP between, and what they read are the very bytes that the cache
//! holds. Who they are and what they may do is decided as for everybody else.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use rustls_pki_types::CertificateDer;

use crate::app::App;
use crate::connection::guests::Guests;
use crate::door::identity::Peer;

/// An answer's body.
pub type Said = UnsyncBoxBody<Bytes, hyper::Error>;

/// The way in.
#[derive(Clone)]
pub struct Inside(Arc<App>);

impl std::fmt::Debug for Inside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Inside")
    }
}

/// One caller.
#[derive(Clone)]
pub struct Caller {
    app: Arc<App>,
    peer: Arc<Peer>,
}

impl Inside {
    pub(crate) fn of(app: &Arc<App>) -> Inside {
        Inside(Arc::clone(app))
    }

    /// A caller that holds these certificates, its own first; one without any brings tokens.
    pub fn caller(&self, chain: Vec<CertificateDer<'static>>) -> Caller {
        // A room of its own: it takes nobody's place among the connections.
        let guest = Guests::new(1).admit(Ipv4Addr::LOCALHOST.into());
        let guest = guest.expect("the first guest has room");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Caller {
            app: Arc::clone(&self.0),
            peer: Arc::new(Peer::new(address, chain, guest)),
        }
    }
}

impl Caller {
    /// Asks the server. A request goes on to its end when nobody waits for it any more, as on a connection.
    pub async fn ask(self, request: Request<Bytes>) -> Response<Said> {
        let answered = tokio::spawn(self.app.inside(request, self.peer));
        match answered.await {
            Ok(response) => response.map(|body| body.boxed_unsync()),
            // The runtime ends.
            Err(_) => {
                let mut response =
                    Response::new(Full::default().map_err(|e| match e {}).boxed_unsync());
                *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                response
            }
        }
    }
}
