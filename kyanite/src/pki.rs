//! The keys of a cluster, made at its first start and renewed when due. File names are kubeadm's.
//!
//! ```text
//! ca.crt, ca.key                   signs everybody's certificates; ca.crt is what clients trust
//! front-proxy-ca.*                 signs who may vouch for users in headers
//! ca-cross.crt                     only while a CA is being replaced: the new CA, signed by the old one
//! <leaf>.crt, <leaf>.key           one per row of LEAVES, followed by the cross certificate
//! sa.key, sa.pub                   signs service account tokens; sa.pub may hold older keys as well
//! encryption.yaml                  encrypts secrets in the store: an EncryptionConfiguration
//! ```
//!
//! A `ca.crt` or `sa.pub` starts with the current entry. While a CA is being replaced the old one
//! follows: both are trusted until `kyanite certs rotate --ca --finish`, or until the old one expires.

pub(crate) mod inspect;
mod issue;
pub(crate) mod rotate;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{Issuer, KeyPair};
use rustls_pki_types::CertificateDer;

use crate::datadir::write_private;
use crate::exit::{Code, Failure, Result};
pub(crate) use issue::{ServerNames, hostname, key_for_clients};

/// A certificate with less than this to live is renewed when the server starts.
const RENEW_BEFORE: Duration = Duration::from_secs(30 * 86_400);

/// Who signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Authority {
    /// Servers and clients of the cluster.
    Cluster,
    /// Proxies that vouch for users.
    FrontProxy,
}

impl Authority {
    pub(crate) const ALL: [Authority; 2] = [Authority::Cluster, Authority::FrontProxy];

    /// The name of its files and of its row in `certs list`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Authority::Cluster => "ca",
            Authority::FrontProxy => "front-proxy-ca",
        }
    }

    fn common_name(self) -> &'static str {
        match self {
            Authority::Cluster => "kyanite-ca",
            Authority::FrontProxy => "kyanite-front-proxy-ca",
        }
    }
}

/// What a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Usage {
    Server,
    Client,
}

/// A certificate the cluster cannot do without.
#[derive(Debug)]
pub(crate) struct Leaf {
    pub(crate) name: &'static str,
    authority: Authority,
    usage: Usage,
    pub(crate) common_name: &'static str,
    organization: Option<&'static str>,
    /// The kubeconfig in the data directory that holds it.
    pub(crate) kubeconfig: Option<&'static str>,
}

const fn client(name: &'static str, common_name: &'static str) -> Leaf {
    Leaf {
        name,
        authority: Authority::Cluster,
        usage: Usage::Client,
        common_name,
        organization: None,
        kubeconfig: None,
    }
}

/// The serving certificate's name.
const SERVER: &str = "apiserver";

/// Every certificate below the authorities.
pub(crate) const LEAVES: [Leaf; 6] = [
    Leaf {
        usage: Usage::Server,
        ..client(SERVER, "kube-apiserver")
    },
    // May use the kubelets' API through a binding of its own, not as a master of everything.
    client("apiserver-kubelet-client", "kube-apiserver-kubelet-client"),
    Leaf {
        organization: Some("system:masters"),
        kubeconfig: Some("kubeconfig"),
        ..client("admin", "kubernetes-admin")
    },
    Leaf {
        kubeconfig: Some("controller-manager.conf"),
        ..client("controller-manager", "system:kube-controller-manager")
    },
    Leaf {
        kubeconfig: Some("scheduler.conf"),
        ..client("scheduler", "system:kube-scheduler")
    },
    Leaf {
        authority: Authority::FrontProxy,
        ..client("front-proxy-client", "front-proxy-client")
    },
];

/// A certificate and its key on disk.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

impl Pair {
    fn at(dir: &Path, name: &str) -> Pair {
        Pair {
            cert: dir.join(format!("{name}.crt")),
            key: dir.join(format!("{name}.key")),
        }
    }

    fn exists(&self) -> bool {
        self.cert.exists() && self.key.exists()
    }

    fn write(&self, cert: &str, key: &str) -> Result<()> {
        write_private(&self.key, key.as_bytes())?;
        write_private(&self.cert, cert.as_bytes())
    }
}

/// The keys of a data directory, at a moment.
#[derive(Debug, Clone)]
pub(crate) struct Pki {
    dir: PathBuf,
    now: SystemTime,
}

impl Pki {
    pub(crate) fn at(dir: PathBuf, now: SystemTime) -> Pki {
        Pki { dir, now }
    }

    /// Makes what is missing, unusable or about to expire; the serving certificate also when it does
    /// not cover `names`.
    pub(crate) fn ensure(&self, names: &ServerNames) -> Result<()> {
        self.ensure_service_account_key()?;
        self.ensure_encryption()?;
        for authority in Authority::ALL {
            let signer = self.ensure_authority(authority)?;
            for leaf in LEAVES.iter().filter(|leaf| leaf.authority == authority) {
                let covered = leaf.name != SERVER || self.covers(names);
                if !covered || !self.is_usable(leaf, &signer) {
                    self.issue(leaf, &signer, names)?;
                }
            }
        }
        Ok(())
    }

    /// A leaf's files.
    pub(crate) fn leaf(&self, name: &str) -> Pair {
        Pair::at(&self.dir, name)
    }

    /// The serving certificate.
    pub(crate) fn server(&self) -> Pair {
        self.leaf(SERVER)
    }

    /// An authority's bundle and key.
    pub(crate) fn authority(&self, authority: Authority) -> Pair {
        Pair::at(&self.dir, authority.name())
    }

    /// The key that signs service account tokens.
    pub(crate) fn service_account_key(&self) -> PathBuf {
        self.dir.join("sa.key")
    }

    /// The keys that verify service account tokens.
    pub(crate) fn service_account_public_keys(&self) -> PathBuf {
        self.dir.join("sa.pub")
    }

    /// Every certificate file by name: the authorities' and the leaves'.
    pub(crate) fn certificates(&self) -> Vec<(&'static str, PathBuf)> {
        let authorities = Authority::ALL
            .iter()
            .map(|a| (a.name(), self.authority(*a)));
        let leaves = LEAVES.iter().map(|leaf| (leaf.name, self.leaf(leaf.name)));
        authorities
            .chain(leaves)
            .map(|(name, pair)| (name, pair.cert))
            .collect()
    }

    fn cross(&self, authority: Authority) -> PathBuf {
        self.dir.join(format!("{}-cross.crt", authority.name()))
    }

    fn ensure_authority(&self, authority: Authority) -> Result<Signer> {
        let pair = self.authority(authority);
        if !pair.exists() {
            let key = issue::new_key()?;
            let cert = issue::authority(authority.common_name(), self.now)
                .self_signed(&key)
                .map_err(issue::cannot_make)?;
            pair.write(&cert.pem(), &key.serialize_pem())?;
        }
        let signer = self.signer(authority)?;
        signer.tidy(&pair.cert, self.now)?;
        Ok(signer)
    }

    /// How objects are encrypted in the store: an EncryptionConfiguration with its keys.
    pub(crate) fn encryption(&self) -> PathBuf {
        self.dir.join("encryption.yaml")
    }

    // Secrets are encrypted with a key of this cluster; what was stored before is read as it is.
    fn ensure_encryption(&self) -> Result<()> {
        let file = self.encryption();
        if file.exists() {
            return Ok(());
        }
        let secret = issue::new_secret()?;
        let text = format!(
            "# How objects are encrypted in the store. A new key goes to the front of the others: this file is read again
# when it changes, and `kubectl get secrets -A -o json | kubectl replace -f -` has every secret written anew.
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - secretbox: {{keys: [{{name: key1, secret: {secret}}}]}}
  - identity: {{}}
"
        );
        write_private(&file, text.as_bytes())
    }

    fn ensure_service_account_key(&self) -> Result<()> {
        let (key_file, public_file) = (
            self.service_account_key(),
            self.service_account_public_keys(),
        );
        if !key_file.exists() {
            let key = issue::new_key()?;
            write_private(&key_file, key.serialize_pem().as_bytes())?;
            write_private(&public_file, key.public_key_pem().as_bytes())?;
        } else if !public_file.exists() {
            let key = issue::key_of(&key_file)?;
            write_private(&public_file, key.public_key_pem().as_bytes())?;
        }
        Ok(())
    }

    fn signer(&self, authority: Authority) -> Result<Signer> {
        let pair = self.authority(authority);
        let key = issue::key_of(&pair.key)?;
        let bundle = inspect::chain(&pair.cert)?;
        let own = bundle.iter().position(|cert| issue::fits(cert, &key));
        let Some(own) = own else {
            let text = format!(
                "`{}` is not the key of any CA in `{}`",
                pair.key.display(),
                pair.cert.display()
            );
            return Err(Failure::new(Code::Failure, text)
                .hint("put back the files that belong together, or remove both to start anew"));
        };
        let issuer = Issuer::from_ca_cert_der(&bundle[own], key).map_err(issue::cannot_make)?;
        Ok(Signer {
            issuer,
            own,
            bundle,
            cross: std::fs::read_to_string(self.cross(authority)).unwrap_or_default(),
        })
    }

    fn issue(&self, leaf: &Leaf, signer: &Signer, names: &ServerNames) -> Result<()> {
        let params = issue::leaf(leaf, names, self.now)?;
        let key = issue::new_key()?;
        let cert = params
            .signed_by(&key, &signer.issuer)
            .map_err(issue::cannot_make)?;
        let chain = format!("{}{}", cert.pem(), signer.cross);
        self.leaf(leaf.name).write(&chain, &key.serialize_pem())
    }

    /// A serving certificate for the kubelet of a node that this program makes itself, and its key, PEM.
    pub(crate) fn kubelet(&self, node: &str, address: IpAddr) -> Result<(String, String)> {
        let signer = self.signer(Authority::Cluster)?;
        let key = issue::new_key()?;
        let cert = issue::kubelet(node, address, self.now)?
            .signed_by(&key, &signer.issuer)
            .map_err(issue::cannot_make)?;
        Ok((
            format!("{}{}", cert.pem(), signer.cross),
            key.serialize_pem(),
        ))
    }

    // Whether a leaf can go on: it fits its key, one of the trusted CAs made it, and it is not due.
    fn is_usable(&self, leaf: &Leaf, signer: &Signer) -> bool {
        let pair = self.leaf(leaf.name);
        let (Ok(chain), Ok(key)) = (inspect::chain(&pair.cert), issue::key_of(&pair.key)) else {
            return false;
        };
        chain.first().is_some_and(|own| {
            issue::fits(own, &key)
                && signer
                    .bundle
                    .iter()
                    .any(|ca| inspect::is_issued_by(own, ca))
                && inspect::is_valid_at(own, self.now + RENEW_BEFORE)
        })
    }

    fn covers(&self, names: &ServerNames) -> bool {
        let present = inspect::first(&self.server().cert);
        present.is_ok_and(|cert| names.all().all(|name| cert.names.contains(&name)))
    }
}

/// An authority that can sign.
struct Signer {
    issuer: Issuer<'static, KeyPair>,
    /// Where our own certificate stands in the bundle.
    own: usize,
    bundle: Vec<CertificateDer<'static>>,
    /// What connects our certificates to the CA that is being replaced, PEM.
    cross: String,
}

impl Signer {
    // Our own certificate first, without CAs that have expired.
    fn tidy(&self, file: &Path, now: SystemTime) -> Result<()> {
        let own = &self.bundle[self.own];
        let others = self.bundle.iter().filter(|cert| *cert != own);
        let wanted: Vec<_> = std::iter::once(own)
            .chain(others.filter(|cert| inspect::is_valid_at(cert, now)))
            .collect();
        if wanted.len() == self.bundle.len() && self.own == 0 {
            return Ok(());
        }
        write_private(file, inspect::to_pem(wanted).as_bytes())
    }
}

/// A self-signed serving certificate in a directory, as upstream makes one when none is given.
pub(crate) fn self_signed(dir: &Path, names: &ServerNames, now: SystemTime) -> Result<Pair> {
    std::fs::create_dir_all(dir).map_err(|e| Failure::file("create", dir, &e))?;
    let pki = Pki::at(dir.to_owned(), now);
    let pair = pki.server();
    let valid = |path: &Path| {
        let chain = inspect::chain(path).unwrap_or_default();
        chain
            .first()
            .is_some_and(|own| inspect::is_valid_at(own, now))
    };
    if !pair.exists() || !pki.covers(names) || !valid(&pair.cert) {
        let key = issue::new_key()?;
        let cert = issue::leaf(&LEAVES[0], names, now)?
            .self_signed(&key)
            .map_err(issue::cannot_make)?;
        pair.write(&cert.pem(), &key.serialize_pem())?;
    }
    Ok(pair)
}

#[cfg(test)]
mod tests;
