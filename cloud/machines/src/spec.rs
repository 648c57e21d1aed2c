//! What a caller asks for.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Error;

/// A machine as it should be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// Its name here and its host name.
    pub name: String,
    /// Its network card; without one it has only its loopback.
    pub attachment: Option<Attachment>,
    /// What cloud-init would get: base64 or plain, a cloud-config, a script, a boothook or several of them.
    #[serde(with = "base64_text", default)]
    pub custom_data: Vec<u8>,
    /// Files of the machine's image that the host's root does not have.
    #[serde(default)]
    pub files: Vec<File>,
    /// Files and directories of the host that the machine sees, read-only.
    #[serde(default)]
    pub binds: Vec<Bind>,
    /// Units that start with the machine, in addition to those of the basic system.
    #[serde(default)]
    pub units: Vec<String>,
    /// People who may log in.
    #[serde(default)]
    pub users: Vec<User>,
    /// Its data disks; those it had, if nothing is said of them.
    #[serde(default)]
    pub disks: Option<Vec<Disk>>,
}

/// Somebody with an account, who may do everything by `sudo`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The name.
    pub name: String,
    /// Public keys that let in, as `authorized_keys` has them.
    #[serde(default)]
    pub keys: Vec<String>,
}

/// A data disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Where the machine finds it: `/dev/disk/azure/scsi1/lun<n>`.
    pub lun: u32,
    /// The file of the host that it is.
    pub file: PathBuf,
}

/// A network card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The network, as [`crate::Namespaces::create_network`] named it.
    pub network: String,
    /// The address in it.
    pub address: Ipv4Addr,
    /// Name servers for `/etc/resolv.conf`.
    #[serde(default)]
    pub name_servers: Vec<Ipv4Addr>,
}

/// A file to be laid down before the machine starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Where, inside the machine.
    pub path: PathBuf,
    /// Permissions.
    pub mode: u32,
    /// What is in it.
    #[serde(with = "base64_text")]
    pub content: Vec<u8>,
}

impl File {
    /// A file that all may read.
    pub fn new(path: impl Into<PathBuf>, content: impl Into<Vec<u8>>) -> File {
        File {
            path: path.into(),
            mode: 0o644,
            content: content.into(),
        }
    }
}

/// A part of the host that a machine sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    /// The file or directory of the host.
    pub source: PathBuf,
    /// Where the machine finds it.
    pub target: PathBuf,
}

/// Names become directories, control groups and host names.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_' || c == '.';
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    match starts_well && name.len() <= 63 && name.chars().all(letter) {
        true => Ok(()),
        false => Err(Error::Name(name.to_owned())),
    }
}

// Bytes in JSON.
mod base64_text {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        STANDARD
            .decode(String::deserialize(from)?)
            .map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_path_component_and_a_host_name() {
        for good in ["a", "aks-pool1-12345678-vmss000000", "Node_1.x"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "-a", "a b", "ü", &"a".repeat(64)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
