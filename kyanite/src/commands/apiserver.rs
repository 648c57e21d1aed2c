//! `kyanite apiserver`: the server alone, in a set-up of the user's own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::apiserver::settings::KeyPairFiles;
use ::apiserver::{Egress, Server};
use ::store::embedded::Options as EmbeddedOptions;
use ::store::etcd::{ClientIdentity, Dialer, Options as EtcdOptions, Tls};
use ::store::{Embedded, Etcd, Store};

use super::{access, serve};
use crate::cli::Apiserver;
use crate::exit::{Code, Failure, Result};
use crate::{logging, pki};

/// Serves until told to stop.
pub(super) async fn run(flags: Apiserver) -> Result<()> {
    logging::start(&flags.serving.logging)?;
    serve::allow_many_files();
    let egress = Egress::open(&flags.nodes.egress())?;
    let store = open_store(&flags, egress.etcd()).await?;
    let listener = serve::listen(SocketAddr::new(flags.bind_address, flags.secure_port)).await?;
    let port = listener
        .local_addr()
        .map_or(flags.secure_port, |a| a.port());
    let advertise = flags
        .advertise_address
        .unwrap_or_else(|| serve::advertised(flags.bind_address, |_| true));
    let pair = match (&flags.tls_cert_file, &flags.tls_private_key_file) {
        (Some(cert), Some(key)) => pki::Pair {
            cert: cert.clone(),
            key: key.clone(),
        },
        _ => {
            let names = pki::ServerNames::new(pki::hostname().as_deref(), &[advertise]);
            pki::self_signed(&flags.cert_dir, &names, std::time::SystemTime::now())?
        }
    };
    let certificate = KeyPairFiles {
        certificate: pair.cert,
        key: pair.key,
    };
    let mut access = access::of_flags(&flags.access)?;
    access.reported_certificates = vec![("apiserver".into(), certificate.certificate.clone())];
    let advertise = SocketAddr::new(advertise, port);
    let outbound = (flags.nodes.outbound(), egress);
    let mut config = serve::config(
        &flags.serving,
        store,
        certificate,
        advertise,
        access,
        outbound,
    );
    config.encryption = flags.encryption.settings();
    let (_ready, served) = Server::build(config, vec![listener])
        .await?
        .run(serve::told_to_stop());
    Ok(served.await?)
}

async fn open_store(flags: &Apiserver, dialer: Option<Arc<dyn Dialer>>) -> Result<Arc<dyn Store>> {
    if !flags.etcd_servers.is_empty() {
        let mut options = EtcdOptions::new(flags.etcd_servers.iter().cloned());
        options.tls = etcd_tls(flags)?;
        options.dialer = dialer;
        let store: Arc<dyn Store> = Etcd::connect(options).await?;
        return Ok(store);
    }
    let Some(dir) = &flags.data_dir else {
        return Err(Failure::new(Code::Usage, "no store is named")
            .hint("use --data-dir for the embedded store, or --etcd-servers"));
    };
    let store: Arc<dyn Store> = Embedded::open(dir.join("store"), EmbeddedOptions::default())?;
    Ok(store)
}

fn etcd_tls(flags: &Apiserver) -> Result<Option<Tls>> {
    let read = |path: &PathBuf| -> Result<String> {
        std::fs::read_to_string(path).map_err(|e| Failure::file("read", Path::new(path), &e))
    };
    let Some(ca) = &flags.etcd_cafile else {
        return Ok(None);
    };
    let client = match (&flags.etcd_certfile, &flags.etcd_keyfile) {
        (Some(cert), Some(key)) => Some(ClientIdentity {
            certificate_pem: read(cert)?,
            key_pem: read(key)?,
        }),
        _ => None,
    };
    Ok(Some(Tls {
        ca_pem: read(ca)?,
        client,
        server_name: None,
    }))
}
