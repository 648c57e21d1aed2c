//! What comes from elsewhere: fetched, verified by the digest that is published beside it, unpacked, and put in place file
//! by file, so that the journal knows each.

use ::steps::engine::{Change, Check, Content, Failure, File, Scene};
use ::steps::host::{Command, Request};

use super::{Changes, Wish};
use crate::codes::INTEGRITY;
use crate::paths;

use crate::bundle::CACHE;

/// Something to fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Archive {
    /// Of the cache's file, and of a mirror in the configuration.
    name: &'static str,
    version: String,
    /// `%v` is the version, `%a` the architecture.
    url: String,
    /// Where its digest is: appended to the URL, or a file beside it that lists several.
    digest: Digest,
    /// Not an archive but the program itself.
    plain: bool,
    /// Inside of it, and where that goes.
    files: Vec<(&'static str, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Digest {
    Suffix(&'static str),
    Beside(&'static str),
}

impl Archive {
    pub(super) fn runc(version: &str) -> Archive {
        Archive {
            name: "runc",
            version: version.to_owned(),
            url: "https://github.com/opencontainers/runc/releases/download/v%v/runc.%a".to_owned(),
            digest: Digest::Beside("runc.sha256sum"),
            plain: true,
            files: vec![("", "/usr/local/sbin/runc".to_owned())],
        }
    }

    pub(super) fn containerd(version: &str) -> Archive {
        let programs = ["containerd", "containerd-shim-runc-v2", "ctr"];
        let files = ["bin/containerd", "bin/containerd-shim-runc-v2", "bin/ctr"];
        Archive {
            name: "containerd",
            version: version.to_owned(),
            url: "https://github.com/containerd/containerd/releases/download/v%v/containerd-%v-linux-%a.tar.gz".to_owned(),
            digest: Digest::Suffix(".sha256sum"),
            plain: false,
            files: files.into_iter().zip(programs.map(|p| format!("/usr/local/bin/{p}"))).collect(),
        }
    }

    pub(super) fn cni(version: &str) -> Archive {
        let files = ["bridge", "host-local", "loopback", "portmap"];
        Archive {
            name: "cni",
            version: version.to_owned(),
            url: "https://github.com/containernetworking/plugins/releases/download/v%v/cni-plugins-linux-%a-v%v.tgz".to_owned(),
            digest: Digest::Suffix(".sha256"),
            plain: false,
            files: files.map(|f| (f, format!("{}/{f}", paths::CNI_BIN))).to_vec(),
        }
    }

    /// A single program, or era A's archive of several.
    pub(super) fn kubelet(version: &str, template: &str) -> Archive {
        let plain = !template.ends_with(".tar.gz") && !template.ends_with(".tgz");
        let inside = if plain {
            ""
        } else {
            "kubernetes/node/bin/kubelet"
        };
        Archive {
            name: "kubelet",
            version: version.to_owned(),
            url: template.replacen("%s", "%v", 1).replacen("%s", "%a", 1),
            digest: Digest::Suffix(".sha256"),
            plain,
            files: vec![(inside, paths::KUBELET.to_owned())],
        }
    }

    /// The address. A mirror has the same files under another address.
    fn address(&self, mirror: Option<&str>) -> String {
        let url = match mirror {
            None => self.url.clone(),
            Some(base) => {
                let file = self.url.rsplit('/').next().unwrap_or_default();
                format!("{}/{file}", base.trim_end_matches('/'))
            }
        };
        url.replace("%v", &self.version)
            .replace("%a", architecture())
    }

    fn digest_address(&self, address: &str) -> String {
        match &self.digest {
            Digest::Suffix(suffix) => format!("{address}{suffix}"),
            Digest::Beside(file) => {
                let directory = address.rsplit_once('/').map_or(address, |(d, _)| d);
                format!("{directory}/{file}")
            }
        }
    }
}

/// As releases name it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The digest of a file in a list of digests, or in a file with nothing but one.
fn digest_in(text: &str, file: &str) -> Option<String> {
    let is_digest = |word: &&str| word.len() == 64 && word.chars().all(|c| c.is_ascii_hexdigit());
    let mut lines = text.lines().map(|line| {
        let mut words = line.split_whitespace();
        (words.next().filter(is_digest), words.next())
    });
    let found = lines.find_map(|(digest, name)| {
        let name = name.map(|name| name.trim_start_matches('*'));
        let fits = name.is_none_or(|name| name.rsplit('/').next() == Some(file));
        digest.filter(|_| fits)
    });
    found.map(str::to_lowercase)
}

/// Where it is fetched from: the places that the configuration names for it, else the public one.
pub(super) fn addresses(wish: &Wish, archive: &Archive) -> Vec<String> {
    let named = wish.config.components.mirrors.get(archive.name);
    let places = named
        .map(String::as_str)
        .unwrap_or_default()
        .split([',', ' ']);
    let places: Vec<String> = places
        .filter(|place| !place.is_empty())
        .map(|place| archive.address(Some(place)))
        .collect();
    match places.is_empty() {
        true => vec![archive.address(None)],
        false => places,
    }
}

/// Where it lies once it is fetched. The digest lies beside it: what is there needs no network.
fn cached(archive: &Archive, address: &str) -> String {
    let file = address.rsplit('/').next().unwrap_or_default();
    format!("{CACHE}/{}-{}-{file}", archive.name, archive.version)
}

/// The changes that bring it.
pub(super) fn fetched(wish: &Wish, scene: &Scene<'_>, archive: &Archive) -> Changes {
    let addresses = addresses(wish, archive);
    if scene.planning {
        // Nothing is asked of the network for a plan: the places that would change are enough.
        let targets = archive.files.iter();
        return Ok(targets
            .map(|(_, target)| {
                let content = Content::Bytes(format!("fetched from {}", addresses[0]).into_bytes());
                Change::File(File::new(target, 0o755, content))
            })
            .collect());
    }
    let cached = cached(archive, &addresses[0]);
    let unpacked = format!("{CACHE}/{}-{}", archive.name, archive.version);
    let mut changes = brought(scene, archive, &addresses, &cached, &unpacked)?;
    for (inside, target) in &archive.files {
        let source = match archive.plain {
            true => cached.clone(),
            false => format!("{unpacked}/{inside}"),
        };
        let content = Content::CopyOf(source.into());
        changes.push(Change::File(File::new(target, 0o755, content)));
    }
    Ok(changes)
}

/// What brings it into the cache, and nowhere else.
pub(super) fn prepared(wish: &Wish, scene: &Scene<'_>, archive: &Archive) -> Changes {
    let addresses = addresses(wish, archive);
    let cached = cached(archive, &addresses[0]);
    let unpacked = format!("{CACHE}/{}-{}", archive.name, archive.version);
    match scene.planning {
        true => Ok(Vec::new()),
        false => brought(scene, archive, &addresses, &cached, &unpacked),
    }
}

fn brought(
    scene: &Scene<'_>,
    archive: &Archive,
    addresses: &[String],
    cached: &str,
    unpacked: &str,
) -> Changes {
    let noted = format!("{cached}.sha256");
    let kept = scene.host.files().text(&noted).ok().flatten();
    let sha256 = match kept.as_deref().and_then(|text| digest_in(text, "")) {
        Some(sha256) => sha256,
        None => published(scene, archive, addresses)?,
    };
    let content = Content::Download {
        urls: addresses.to_vec(),
        sha256: sha256.clone(),
    };
    let mut changes = vec![
        Change::File(File::new(cached, 0o600, content)),
        Change::file(noted, 0o600, format!("{sha256}\n")),
    ];
    if !archive.plain {
        let script = "set -eu\nmkdir -p \"$2\"\ntar -xzf \"$1\" -C \"$2\"";
        let unpack = Command::new("sh", &["-c", script, "sh", cached, unpacked]);
        changes.push(Change::Command(::steps::engine::CommandChange {
            name: format!("unpack {} {}", archive.name, archive.version),
            check: Check::Inputs {
                paths: vec![cached.into()],
                per_boot: false,
            },
            apply: unpack,
            undo: Some(Command::new("rm", &["-rf", unpacked])),
        }));
    }
    Ok(changes)
}

/// Everything that lies in a bundle, verified by this program itself, in the cache.
pub(super) fn unpack_bundle(wish: &Wish, _: &Scene<'_>) -> Changes {
    let Some(file) = &wish.bundle else {
        return Ok(Vec::new());
    };
    let apply = Command::new("tar", &["-xf", file, "-C", CACHE, "--no-same-owner"]);
    let verify = wish.own(&["bundle", "show", file]);
    let check = |paths: Vec<std::path::PathBuf>| Check::Inputs {
        paths,
        per_boot: false,
    };
    Ok(vec![
        Change::command(
            "verify the bundle",
            check(vec![file.into()]),
            verify.at_most(LONG),
        ),
        Change::command(
            "unpack the bundle",
            check(vec![file.into()]),
            apply.at_most(LONG),
        ),
    ])
}

/// How long it may take to read a bundle.
const LONG: std::time::Duration = std::time::Duration::from_secs(300);

/// Everything that this configuration would fetch, with where it comes from: by the name it has in the cache.
pub(crate) fn everything(wish: &Wish) -> Vec<(String, Archive)> {
    let components = &wish.config.components;
    let mut all = vec![
        Archive::runc(&components.runc),
        Archive::containerd(&components.containerd),
        Archive::cni(&components.cni),
    ];
    if let crate::config::Kubelet::Upstream { version, url } = &components.kubelet {
        all.push(Archive::kubelet(version, url));
    }
    let named = all.into_iter().map(|archive| {
        let path = cached(&archive, &addresses(wish, &archive)[0]);
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        (name, archive)
    });
    named.collect()
}

/// What brings one of them to another directory than the cache, with its digest beside it.
pub(crate) fn brought_to(
    wish: &Wish,
    scene: &Scene<'_>,
    archive: &Archive,
    target: &str,
) -> Changes {
    let addresses = addresses(wish, archive);
    let sha256 = published(scene, archive, &addresses)?;
    let content = Content::Download {
        urls: addresses,
        sha256: sha256.clone(),
    };
    Ok(vec![
        Change::File(File::new(target, 0o644, content)),
        Change::file(format!("{target}.sha256"), 0o644, format!("{sha256}\n")),
    ])
}

/// The published digest, from the first place that has it. Without one nothing is believed.
fn published(
    scene: &Scene<'_>,
    archive: &Archive,
    addresses: &[String],
) -> Result<String, Failure> {
    let mut last = Failure::permanent("no place to fetch from", "name one in `mirrors`");
    for address in addresses {
        match published_at(scene, archive, address) {
            Ok(sha256) => return Ok(sha256),
            Err(failure) => last = failure,
        }
    }
    Err(last)
}

fn published_at(scene: &Scene<'_>, archive: &Archive, address: &str) -> Result<String, Failure> {
    let file = address.rsplit('/').next().unwrap_or_default();
    let place = archive.digest_address(address);
    let mut text = Vec::new();
    let request = Request::get(&place).at_most(scene.remaining());
    let response = scene.host.http(&request, &mut text, scene.stop)?;
    if response.status != 200 {
        return Err(Failure::new(
            format!("{place} answers {}", response.status),
            format!(
                "check that {} {} exists, or name a place that has it in `mirrors.{}`",
                archive.name, archive.version, archive.name
            ),
        ));
    }
    digest_in(&String::from_utf8_lossy(&text), file).ok_or_else(|| {
        Failure::permanent(
            format!("{place} has no SHA-256 of {file}"),
            "what cannot be verified is not installed: check what answers at that address",
        )
        .with_code(INTEGRITY)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_found_alone_and_in_lists() {
        let (one, two) = ("a".repeat(64), "B".repeat(64));
        let list = format!("{one}  runc.arm64\n{two} *runc.amd64\n");
        assert_eq!(digest_in(&list, "runc.amd64"), Some("b".repeat(64)));
        assert_eq!(
            digest_in(&format!("{one}\n"), "anything"),
            Some(one.clone())
        );
        assert_eq!(
            digest_in(&format!("{one}  ./_output/bin/x.tar.gz"), "x.tar.gz"),
            Some(one)
        );
        assert_eq!(digest_in("<html>404</html>", "runc.amd64"), None);
    }

    #[test]
    fn addresses_follow_templates_and_mirrors() {
        let a = architecture();
        let era_a = Archive::kubelet(
            "1.32.7",
            "https://m/kubernetes/v%s/binaries/kubernetes-node-linux-%s.tar.gz",
        );
        assert_eq!(
            era_a.address(None),
            format!("https://m/kubernetes/v1.32.7/binaries/kubernetes-node-linux-{a}.tar.gz")
        );
        assert_eq!(era_a.files[0].0, "kubernetes/node/bin/kubelet");
        let runc = Archive::runc("1.1.12");
        assert_eq!(
            runc.address(Some("http://mirror/x/")),
            format!("http://mirror/x/runc.{a}")
        );
        assert_eq!(
            runc.digest_address("http://mirror/x/runc.amd64"),
            "http://mirror/x/runc.sha256sum"
        );
        let cni = Archive::cni("1.5.1");
        let address = cni.address(None);
        assert!(
            address.ends_with(&format!("/v1.5.1/cni-plugins-linux-{a}-v1.5.1.tgz")),
            "{address}"
        );
        assert!(cni.digest_address(&address).ends_with(".tgz.sha256"));
    }
}
