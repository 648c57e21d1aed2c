//! Which versions a node runs where an upgrade chose others than the configuration's. Kept beside the journal, so that whoever looks for
//! drift finds what the upgrade meant.

use std::io;
use std::path::Path;

use ::steps::host::Files;
use serde::{Deserialize, Serialize};

use crate::config::{KUBELET_URL, Kubelet};
use crate::steps::Wish;

/// Where it is kept.
pub const FILE: &str = "/var/lib/aks-flex-node/versions.json";

/// What an upgrade chose; nothing where the configuration's counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// The kubelet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
    /// containerd.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub containerd: Option<String>,
    /// runc.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runc: Option<String>,
    /// This program: the file that it is a copy of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

impl Versions {
    /// What is kept.
    pub fn read(files: &Files) -> Versions {
        let text = files.text(FILE).ok().flatten().unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Keeps it.
    pub fn write(&self, files: &Files) -> io::Result<()> {
        let path = Path::new(FILE);
        match *self == Versions::default() {
            true => files.remove(path),
            false => {
                let text = serde_json::to_string(self).expect("versions have string keys only");
                files.replace(path, text.as_bytes(), 0o600)
            }
        }
    }

    /// This, and where it says nothing, the other.
    pub fn or(self, other: &Versions) -> Versions {
        Versions {
            kubernetes: self.kubernetes.or_else(|| other.kubernetes.clone()),
            containerd: self.containerd.or_else(|| other.containerd.clone()),
            runc: self.runc.or_else(|| other.runc.clone()),
            agent: self.agent.or_else(|| other.agent.clone()),
        }
    }

    /// A configuration with these versions instead of its own.
    pub fn applied(&self, wish: &Wish) -> Wish {
        let mut wish = wish.clone();
        let components = &mut wish.config.components;
        if let Some(version) = &self.kubernetes {
            let url = match &components.kubelet {
                Kubelet::Upstream { url, .. } => url.clone(),
                Kubelet::Own => KUBELET_URL.to_owned(),
            };
            let version = version.trim_start_matches('v').to_owned();
            components.kubelet = Kubelet::Upstream { version, url };
        }
        for (program, own, version) in [
            ("containerd", &mut components.containerd, &self.containerd),
            ("runc", &mut components.runc, &self.runc),
        ] {
            if let Some(version) = version {
                version.trim_start_matches('v').clone_into(own);
                components.chosen.push(program);
            }
        }
        wish.agent.clone_from(&self.agent);
        wish
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_upgrade_says_nothing_of_stays_as_it_is() {
        let old = Versions {
            kubernetes: Some("1.35.0".into()),
            containerd: Some("2.0.0".into()),
            ..Versions::default()
        };
        let new = Versions {
            kubernetes: Some("1.36.0".into()),
            ..Versions::default()
        };
        let both = new.or(&old);
        assert_eq!(both.kubernetes.as_deref(), Some("1.36.0"));
        assert_eq!(both.containerd.as_deref(), Some("2.0.0"));
    }
}
