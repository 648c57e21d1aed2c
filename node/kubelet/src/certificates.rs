//! The node's certificates: the first by a token, later ones before the last runs out, and the one it serves with.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use client_runtime::{Actor, Connection, SyncError};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use rcgen::{CertificateParams, DnType, DnValue, KeyPair, SanType};
use serde_json::{Value, json};
use x509_parser::pem::Pem;

use crate::config::Settings;

/// How long a request may take to be approved and signed.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server.
    #[error("{0}")]
    Api(#[from] SyncError),
    /// The connection to it.
    #[error("{0}")]
    Client(#[from] client_runtime::Error),
    /// A file.
    #[error("`{path}` cannot be used: {cause}")]
    File {
        /// Which file.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
    /// A key or a request could not be made.
    #[error("a certificate request cannot be made: {0}")]
    Request(#[from] rcgen::Error),
    /// Somebody said no, or nobody said anything.
    #[error("the certificate request `{name}` was {what}")]
    Refused {
        /// Which request.
        name: String,
        /// What became of it.
        what: String,
    },
    /// Neither of the files that could say how to reach the API server does.
    #[error("no usable --kubeconfig, and no --bootstrap-kubeconfig to get one with")]
    NoWay,
}

/// What a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To be somebody at the API server.
    Client,
    /// To be asked by it.
    Serving,
}

impl Purpose {
    fn file(self) -> &'static str {
        match self {
            Purpose::Client => "kubelet-client",
            Purpose::Serving => "kubelet-server",
        }
    }

    fn signer(self) -> &'static str {
        match self {
            Purpose::Client => "kubernetes.io/kube-apiserver-client-kubelet",
            Purpose::Serving => "kubernetes.io/kubelet-serving",
        }
    }

    fn usages(self) -> Vec<String> {
        let purpose = match self {
            Purpose::Client => "client auth",
            Purpose::Serving => "server auth",
        };
        ["digital signature", purpose].map(str::to_owned).into()
    }

    /// Where the newest is.
    pub fn current(self, directory: &Path) -> PathBuf {
        directory.join(format!("{}-current.pem", self.file()))
    }
}

fn file_error(path: &Path) -> impl FnOnce(io::Error) -> Error + '_ {
    move |cause| Error::File {
        path: path.to_owned(),
        cause,
    }
}

/// Makes sure that there is a kubeconfig that works: the one there is, or one with a certificate asked for with the
/// bootstrap kubeconfig.
pub async fn ensure_client(settings: &Settings) -> Result<PathBuf, Error> {
    let Some(kubeconfig) = settings.kubeconfig.clone() else {
        return Err(Error::NoWay);
    };
    let Some(bootstrap) = settings
        .bootstrap_kubeconfig
        .as_ref()
        .filter(|path| path.exists())
    else {
        return if kubeconfig.exists() {
            Ok(kubeconfig)
        } else {
            Err(Error::NoWay)
        };
    };
    let current = Purpose::Client.current(&settings.cert_dir);
    if kubeconfig.exists() && (!current.exists() || is_valid(&current)) {
        return Ok(kubeconfig);
    }
    let connection = Connection::Kubeconfig(bootstrap.clone());
    let (client, _) = client_runtime::clients(&connection, "kubelet").await?;
    tracing::info!("there is no certificate yet: one is asked for");
    renew(&Actor::of_client(client), settings, Purpose::Client, &[]).await?;
    write_kubeconfig(bootstrap, &kubeconfig, &current)?;
    Ok(kubeconfig)
}

/// Asks for a certificate until there is one, and keeps it.
pub async fn renew(
    actor: &Actor,
    settings: &Settings,
    purpose: Purpose,
    ips: &[String],
) -> Result<(), Error> {
    let key = KeyPair::generate()?;
    let request = request(&settings.node_name, purpose, ips, &key)?;
    let mut wait = Duration::from_secs(2);
    let name = loop {
        match submit(actor, purpose, &request).await {
            Ok(name) => break name,
            Err(error) => {
                tracing::warn!(%error, "a certificate cannot be asked for yet");
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(Duration::from_secs(32));
            }
        }
    };
    let certificate = signed(actor, &name).await?;
    store(
        &settings.cert_dir,
        purpose,
        &key.serialize_pem(),
        &certificate,
    )
}

fn request(node: &str, purpose: Purpose, ips: &[String], key: &KeyPair) -> Result<String, Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    let text = |text: String| DnValue::Utf8String(text);
    params
        .distinguished_name
        .push(DnType::OrganizationName, text("system:nodes".to_owned()));
    params
        .distinguished_name
        .push(DnType::CommonName, text(format!("system:node:{node}")));
    if purpose == Purpose::Serving {
        params
            .subject_alt_names
            .push(SanType::DnsName(node.to_owned().try_into()?));
        let ips = ips.iter().filter_map(|ip| ip.parse::<IpAddr>().ok());
        params.subject_alt_names.extend(ips.map(SanType::IpAddress));
    }
    Ok(params.serialize_request(key)?.pem()?)
}

async fn submit(actor: &Actor, purpose: Purpose, request: &str) -> Result<String, Error> {
    let csr = CertificateSigningRequest {
        metadata: ObjectMeta {
            generate_name: Some("csr-".to_owned()),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            request: ByteString(request.as_bytes().to_vec()),
            signer_name: purpose.signer().to_owned(),
            usages: Some(purpose.usages()),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    let made = actor.create::<CertificateSigningRequest>("", &csr).await?;
    Ok(made.metadata.name.unwrap_or_default())
}

async fn signed(actor: &Actor, name: &str) -> Result<Vec<u8>, Error> {
    let refused = |what: &str| Error::Refused {
        name: name.to_owned(),
        what: what.to_owned(),
    };
    let asking = async {
        loop {
            if let Ok(Some(csr)) = actor.get::<CertificateSigningRequest>("", name).await {
                let status = csr.status.unwrap_or_default();
                let conditions = status.conditions.unwrap_or_default();
                if let Some(no) = conditions
                    .iter()
                    .find(|c| matches!(c.type_.as_str(), "Denied" | "Failed"))
                {
                    return Err(refused(&no.type_.to_lowercase()));
                }
                if let Some(certificate) = status.certificate.filter(|c| !c.0.is_empty()) {
                    return Ok(certificate.0);
                }
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asking)
        .await
        .unwrap_or_else(|_| Err(refused("not signed in time")))
}

/// Key and certificate in one private file with its time in the name, and the link that says which is the newest.
fn store(directory: &Path, purpose: Purpose, key: &str, certificate: &[u8]) -> Result<(), Error> {
    fs::create_dir_all(directory).map_err(file_error(directory))?;
    let stamp = Timestamp::now().strftime("%Y-%m-%d-%H-%M-%S");
    let path = directory.join(format!("{}-{stamp}.pem", purpose.file()));
    let mut text = certificate.to_vec();
    text.extend(key.as_bytes());
    write_private(&path, &text).map_err(file_error(&path))?;
    let current = purpose.current(directory);
    let next = directory.join(format!("{}-next.pem", purpose.file()));
    let _ = fs::remove_file(&next);
    symlink(&path, &next).map_err(file_error(&next))?;
    fs::rename(&next, &current).map_err(file_error(&current))
}

fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use io::Write as _;
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// The bootstrap kubeconfig's cluster with the certificate's identity, under upstream's names.
fn write_kubeconfig(bootstrap: &Path, kubeconfig: &Path, pem: &Path) -> Result<(), Error> {
    let text = fs::read_to_string(bootstrap).map_err(file_error(bootstrap))?;
    let unreadable = |e: &dyn std::fmt::Display| io::Error::other(e.to_string());
    let value: Value =
        serde_saphyr::from_str(&text).map_err(|e| file_error(bootstrap)(unreadable(&e)))?;
    let cluster = value["clusters"][0]["cluster"].clone();
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "default-cluster", "cluster": cluster}],
        "users": [{"name": "default-auth", "user": {"client-certificate": pem, "client-key": pem}}],
        "contexts": [{"name": "default-context",
            "context": {"cluster": "default-cluster", "namespace": "default", "user": "default-auth"}}],
        "current-context": "default-context",
    });
    write_private(kubeconfig, config.to_string().as_bytes()).map_err(file_error(kubeconfig))
}

/// From when to when the first certificate of a file is good.
pub fn validity(path: &Path) -> Option<(Timestamp, Timestamp)> {
    let bytes = fs::read(path).ok()?;
    let pem = Pem::iter_from_buffer(&bytes)
        .flatten()
        .find(|pem| pem.label == "CERTIFICATE")?;
    let certificate = pem.parse_x509().ok()?;
    let validity = certificate.validity();
    let at = |seconds: i64| Timestamp::from_second(seconds).ok();
    Some((
        at(validity.not_before.timestamp())?,
        at(validity.not_after.timestamp())?,
    ))
}

fn is_valid(path: &Path) -> bool {
    validity(path).is_some_and(|(_, end)| Timestamp::now() < end)
}

/// How long until a certificate is renewed: at 70 to 90 per cent of its life. `dice` is between 0 and 1.
pub fn until_renewal(validity: (Timestamp, Timestamp), now: Timestamp, dice: f64) -> Duration {
    let life = validity.1.duration_since(validity.0).as_secs_f64();
    let due = validity.0.as_second() as f64 + life * (0.7 + 0.2 * dice);
    Duration::try_from_secs_f64(due - now.as_second() as f64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_renewed_in_the_last_third_of_its_life() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let life = (at(0), at(1000));
        assert_eq!(until_renewal(life, at(0), 0.0).as_secs(), 700);
        assert_eq!(until_renewal(life, at(0), 1.0).as_secs(), 900);
        assert_eq!(until_renewal(life, at(950), 0.5).as_secs(), 0);
    }

    #[test]
    fn the_newest_certificate_is_found_by_a_link_and_is_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().expect("a directory");
        store(directory.path(), Purpose::Client, "KEY", b"CERT").expect("stored");
        store(directory.path(), Purpose::Client, "KEY2", b"CERT2").expect("stored again");
        let current = Purpose::Client.current(directory.path());
        assert_eq!(fs::read_to_string(&current).expect("read"), "CERT2KEY2");
        let mode = fs::metadata(&current)
            .expect("metadata")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
