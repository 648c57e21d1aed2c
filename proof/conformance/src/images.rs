//! The images that the suite asks for, under exactly its names, made here: no registry is needed, and none is asked.
//!
//! An image is a row of [`IMAGES`]: layers, how it is started, and what is special about it. A layer is made of programs
//! of this machine, of upstream's, or of a few words.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use images::archive::{self, Image};
use images::{Layer, Settings};

/// Where everything comes from.
#[derive(Debug)]
pub(crate) struct Sources {
    /// Upstream's programs.
    pub(crate) upstream: PathBuf,
    /// Of containerd, runc and busybox.
    pub(crate) containerd: PathBuf,
    /// Our own, beside this one.
    pub(crate) own: PathBuf,
    pub(crate) etcd: Option<PathBuf>,
}

/// What an image is put together from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// busybox with all its names, a static bash as its shell, and accounts.
    Shell,
    /// What the suite calls in its own image, and in that with the GNU C library.
    Tools,
    /// Upstream's one program for everything, with what it reads.
    Agnhost,
    /// A page for a web server.
    Page,
    /// What the update demo tells its image by.
    Picture(&'static str),
    /// A program that becomes root, if it may, and says who it is.
    EffectiveUid,
    /// Upstream's example of an aggregated API server.
    SampleApiserver,
    Etcd,
}

/// A row: name, layers, entrypoint, arguments, user.
type Row = (
    &'static str,
    &'static [Part],
    &'static [&'static str],
    &'static [&'static str],
    &'static str,
);

const AGNHOST: &[Part] = &[Part::Shell, Part::Tools, Part::Agnhost];
const WEB: &[Part] = &[Part::Shell, Part::Page];
const NAUTILUS: &[Part] = &[Part::Shell, Part::Agnhost, Part::Picture("nautilus.jpg")];
const KITTEN: &[Part] = &[Part::Shell, Part::Agnhost, Part::Picture("kitten.jpg")];
const SERVE_PAGE: &[&str] = &[
    "/bin/httpd",
    "-f",
    "-p",
    "80",
    "-h",
    "/usr/share/nginx/html",
];

/// What the suite asks for, apart from the image of sandboxes, which nodes have.
#[rustfmt::skip]
const IMAGES: [Row; 12] = [
    ("registry.k8s.io/e2e-test-images/agnhost:2.63.0", AGNHOST, &["/agnhost"], &["pause"], ""),
    ("registry.k8s.io/e2e-test-images/agnhost:2.55", AGNHOST, &["/agnhost"], &["pause"], ""),
    ("registry.k8s.io/e2e-test-images/busybox:1.37.0-1", &[Part::Shell], &[], &["sh"], ""),
    ("registry.k8s.io/e2e-test-images/nginx:1.15-4", WEB, SERVE_PAGE, &[], ""),
    ("registry.k8s.io/e2e-test-images/nginx:1.27-0", WEB, SERVE_PAGE, &[], ""),
    ("registry.k8s.io/e2e-test-images/nonewprivs:1.4", &[Part::EffectiveUid], &[], &["nnp"], ""),
    ("registry.k8s.io/e2e-test-images/nonroot:1.5", &[Part::Shell], &[], &["sh"], "1234"),
    ("registry.k8s.io/e2e-test-images/nautilus:1.8", NAUTILUS, &["/agnhost"], &["test-webserver"], ""),
    ("registry.k8s.io/e2e-test-images/kitten:1.8", KITTEN, &["/agnhost"], &["test-webserver"], ""),
    ("registry.k8s.io/e2e-test-images/glibc-dns-testing:2.0.0", &[Part::Shell, Part::Tools], &[], &["sh"], ""),
    ("registry.k8s.io/e2e-test-images/sample-apiserver:1.29.2", &[Part::SampleApiserver], &["/sample-apiserver"], &[], ""),
    ("registry.k8s.io/etcd:3.6.8-0", &[Part::Etcd], &[], &["/usr/local/bin/etcd"], ""),
];

const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Programs of this machine that go into images, and where else they may be here.
const TOOLS: [(&str, &[&str]); 5] = [
    ("/usr/bin/curl", &[]),
    ("/usr/bin/dig", &[]),
    ("/usr/bin/nc", &["/bin/nc", "/bin/nc.openbsd"]),
    ("/usr/bin/ss", &["/bin/ss", "/usr/sbin/ss"]),
    ("/usr/bin/getent", &[]),
];

/// Small files that images with a shell have. One spec wants a group that only the image knows.
const ACCOUNTS: [(&str, &str); 3] = [
    (
        "/etc/passwd",
        "root:x:0:0:root:/root:/bin/sh\nuser-defined-in-image:x:1000:1000::/home/user:/bin/sh\nnobody:x:65534:65534:nobody:/home:/bin/false\n",
    ),
    (
        "/etc/group",
        "root:x:0:\nuser-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\nnobody:x:65534:\n",
    ),
    (
        "/etc/nsswitch.conf",
        "passwd: files\ngroup: files\nhosts: files dns\n",
    ),
];

impl Sources {
    /// Makes all images and writes them into one archive; says which cannot be made here, and why.
    pub(crate) fn write(&self, to: &Path) -> Result<Vec<String>> {
        let mut made: BTreeMap<Part, Result<Arc<Vec<u8>>, String>> = BTreeMap::new();
        let (mut images, mut missing) = (Vec::new(), Vec::new());
        for (name, parts, entrypoint, arguments, user) in IMAGES {
            let layers = parts.iter().map(|part| {
                let layer = made.entry(*part).or_insert_with(|| self.layer(*part));
                layer.clone()
            });
            match layers.collect::<Result<Vec<_>, _>>() {
                Err(why) => missing.push(format!("{name}: {why}")),
                Ok(mut layers) => {
                    // Images that are alike are still two: runtimes know an image by what is in it.
                    layers.push(Arc::new(own_layer(name)));
                    images.push(Image {
                        names: vec![name.to_owned()],
                        settings: settings(entrypoint, arguments, user),
                        layers,
                    });
                }
            }
        }
        fs::write(to, archive::bundle(&images))
            .with_context(|| format!("cannot write {}", to.display()))?;
        Ok(missing)
    }

    fn layer(&self, part: Part) -> Result<Arc<Vec<u8>>, String> {
        let mut layer = Layer::default();
        self.fill(part, &mut layer).map_err(|e| format!("{e:#}"))?;
        Ok(Arc::new(layer.to_tar()))
    }

    fn fill(&self, part: Part, layer: &mut Layer) -> Result<()> {
        match part {
            Part::Shell => self.shell(layer)?,
            Part::Tools => tools(layer)?,
            Part::Agnhost => {
                layer.add_program(&self.upstream.join("agnhost"), "/agnhost")?;
                // The suite replaces one by the other, and sees which was run.
                layer.add_link("/agnhost-2", "agnhost");
                layer.add_directory("/uploads", 0o755);
                let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
                layer.add_file("/localhost.crt", 0o644, own.cert.pem());
                layer.add_file("/localhost.key", 0o644, own.signing_key.serialize_pem());
            }
            Part::Page => layer.add_file("/usr/share/nginx/html/index.html", 0o644, "Welcome\n"),
            Part::Picture(name) => {
                layer.add_file("/data.json", 0o644, format!("{{\"image\": \"{name}\"}}\n"));
                layer.add_file(&format!("/{name}"), 0o644, name);
            }
            Part::EffectiveUid => {
                let at = "/usr/local/bin/nnp";
                layer.add_program(&self.own.join("kyanite-effective-uid"), at)?;
                layer.set_mode(at, 0o4755);
            }
            Part::SampleApiserver => {
                let program = self.upstream.join("sample-apiserver");
                layer.add_program(&program, "/sample-apiserver")?;
            }
            Part::Etcd => {
                let etcd = self.etcd.as_deref().context("etcd is not here")?;
                layer.add_program(etcd, "/usr/local/bin/etcd")?;
            }
        }
        Ok(())
    }

    // One spec goes by what busybox's shell says at `/bin/sh`; others, which look for `sh`, have variables with names that
    // Debian's build of it drops.
    fn shell(&self, layer: &mut Layer) -> Result<()> {
        let busybox = self.containerd.join("busybox");
        let listed = Command::new(&busybox).arg("--list").output();
        let listed = listed.with_context(|| format!("cannot run {}", busybox.display()))?;
        layer.add_program(&busybox, "/bin/busybox")?;
        let names = String::from_utf8_lossy(&listed.stdout).into_owned();
        for name in names.lines().filter(|name| *name != "busybox") {
            layer.add_link(&format!("/bin/{name}"), "busybox");
        }
        for at in ["/bin/bash", "/usr/local/bin/sh"] {
            layer.add_program(Path::new("/bin/bash-static"), at)?;
        }
        for (path, text) in ACCOUNTS {
            layer.add_file(path, 0o644, text);
        }
        layer.add_directory("/tmp", 0o1777);
        layer.add_directory("/root", 0o700);
        layer.add_directory("/home", 0o755);
        Ok(())
    }
}

fn tools(layer: &mut Layer) -> Result<()> {
    for (at, elsewhere) in TOOLS {
        let mut places = [at].into_iter().chain(elsewhere.iter().copied());
        let found = places.find(|place| Path::new(place).exists());
        let found = found.with_context(|| format!("{at} is not here (scripts/setup)"))?;
        layer.add_program(Path::new(found), at)?;
    }
    Ok(())
}

fn own_layer(name: &str) -> Vec<u8> {
    let mut layer = Layer::default();
    layer.add_file("/etc/image", 0o644, format!("{name}\n"));
    layer.to_tar()
}

fn settings(entrypoint: &[&str], arguments: &[&str], user: &str) -> Settings {
    let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect();
    Settings {
        entrypoint: words(entrypoint),
        cmd: words(arguments),
        env: vec![PATH.to_owned()],
        user: user.to_owned(),
        working_dir: "/".to_owned(),
        ..Settings::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn what_cannot_be_made_is_said_and_the_rest_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let own = std::env::current_exe().unwrap();
        fs::copy(own, dir.path().join("kyanite-effective-uid")).unwrap();
        let sources = Sources {
            upstream: dir.path().join("nothing"),
            containerd: dir.path().join("nothing"),
            own: dir.path().to_owned(),
            etcd: None,
        };
        let file = dir.path().join("images.tar");
        let missing = sources.write(&file).unwrap();
        assert_eq!(missing.len(), IMAGES.len() - 1, "{missing:?}");
        let there = archive::contents(&fs::read(file).unwrap());
        assert_eq!(there.len(), 1);
        assert!(there[0].0.contains("nonewprivs"));
    }

    #[test]
    fn images_that_are_alike_are_two() {
        assert_ne!(own_layer("a:1"), own_layer("a:2"));
    }
}
