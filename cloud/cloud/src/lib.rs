//! The cloud's front door: an Azure that az and the SDKs accept, on this machine.
//!
//! [`Cloud::build`] opens the state and the port, [`Cloud::run`] serves until told to stop. Inside:
//!
//! ```text
//! server     TLS connections (shell)
//! door       who gets a request, and with what token
//! entra      tenant, directory, tokens, Graph
//! arm        ids, verbs, operations, roles, locks: once for every type
//! providers  the types: tables, and what is special about some
//! turn       what one request sees and wants changed: every decision is a pure function of it
//! books      the state on disk, changed all or nothing (shell)
//! metadata   IMDS and HIMDS, one service for each machine
//! runner     brings operations to their end when they are due, and orders what they need (shell)
//! fabric     networks and load balancers, for whoever carries packets
//! region     what stands behind resources: nothing (hollow), or what the program puts there
//! az         the files that make az speak to this cloud
//! ```

#[cfg(test)]
mod arena;
mod arm;
pub mod az;
mod books;
mod chance;
mod door;
mod entra;
mod exchange;
mod fabric;
mod first_start;
mod metadata;
mod providers;
mod region;
#[cfg(test)]
mod replay;
mod runner;
mod server;
mod settings;
mod throttle;
mod turn;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

pub use ::clock::Clock;
use books::Books;
pub use books::BooksError;
use door::Door;
pub use entra::token::KeyError;
pub use fabric::{
    Card, Distribution, Fabric, Gate, Hop, Packet, Peer, Probe, Protocol, Routes, Rule, Says,
    SecurityRule, Spans, VirtualNetwork, Zone, ZoneRecord, allows,
};
pub use first_start::Credentials;
pub use metadata::{Find, Machine, Metadata};
pub use providers::containers::Adopted;
pub use region::{Disk, Done, Hollow, Node, Order, Region, Task, Trouble};
pub use server::TlsError;
pub use settings::{ClusterAccess, Config, Issuer, KeyPairFiles};

/// Why a cloud cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its state cannot be opened.
    #[error(transparent)]
    Books(#[from] BooksError),
    /// Its certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Its signing key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Its port cannot be used.
    #[error("the cloud's port cannot be used: {0}")]
    Port(#[source] std::io::Error),
    /// What was to be made known is refused by its own rules.
    #[error("the cloud refuses what runs already: {0}")]
    Refused(String),
}

/// A cloud that is ready to serve.
pub struct Cloud {
    door: Arc<Door>,
    listener: TcpListener,
    tls: TlsAcceptor,
    credentials: Credentials,
}

impl std::fmt::Debug for Cloud {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cloud")
            .field("listener", &self.listener)
            .finish_non_exhaustive()
    }
}

impl Cloud {
    /// Opens the state, makes the tenant at its first start, and takes the listener.
    pub async fn build(config: Config, listener: TcpListener) -> Result<Cloud, Error> {
        let tls = server::acceptor(&config.certificate)?;
        let books = Books::open(&config.directory).await?;
        let first = first_start::tenant(&books, &config).await?;
        let door = Door::new(books, first.settings, first.keys, config.clock);
        Ok(Cloud {
            door: Arc::new(door),
            listener,
            tls,
            credentials: first.credentials,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> Result<SocketAddr, Error> {
        self.listener.local_addr().map_err(Error::Port)
    }

    /// The application that owns the subscription, and the person who does.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Makes a cluster known that runs already; gives its resource id.
    pub async fn adopt(&self, adopted: &Adopted) -> Result<String, Error> {
        self.fabric().adopt(adopted).await
    }

    /// The metadata services of this cloud's machines.
    pub fn metadata(&self) -> Metadata {
        Metadata(Arc::clone(&self.door))
    }

    /// This cloud's load balancers, for whoever carries their packets.
    pub fn fabric(&self) -> Fabric {
        Fabric(Arc::clone(&self.door))
    }

    /// Serves until `stop` completes; then open requests finish and the state is closed.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) {
        let (tell, told) = watch::channel(false);
        let runner = runner::run(Arc::clone(&self.door), told.clone());
        let server = server::serve(Arc::clone(&self.door), self.listener, Some(self.tls), told);
        let stopping = async {
            stop.await;
            // Both ends may be gone already; then there is nobody to tell.
            let _ = tell.send(true);
        };
        tokio::join!(runner, server, stopping);
        self.door.books.close();
    }
}
