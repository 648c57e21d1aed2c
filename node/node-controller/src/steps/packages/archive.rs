//! How programs get here: packages, downloads, archives. Scripts are given their values as
//! arguments or through a pipe, so that no shell reads one as anything else.

use std::time::Duration;

use ::steps::engine::{Change, Check, CommandChange, Content, Failure, File, Scene};
use ::steps::host::{Command, Request};

use crate::config::Configuration;
use crate::render::proxy;
use crate::render::source::{Location, Source, digest};

/// Waits for other users of the package database, and refreshes its lists only when need be.
pub(super) const APT_INSTALL: &str = r#"set -eu
export DEBIAN_FRONTEND=noninteractive
dpkg --configure -a
install() { apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends --allow-downgrades "$@"; }
install "$@" || { apt-get -o DPkg::Lock::Timeout=300 update; install "$@"; }"#;

/// Takes named files out of an archive, wherever they lie in it. Done beside their place first:
/// what has its name is whole, and what is named last comes last. Arguments: archive, directory,
/// suffix, names.
const UNPACK: &str = r#"set -eu
archive=$1 directory=$2 suffix=$3
shift 3
draft=$directory/.unpacking
rm -rf "$draft"
mkdir -p "$draft"
tar -xzf "$archive" -C "$draft" --no-same-owner
for name in "$@"; do
    found=$(find "$draft" -type f -name "$name" | head -n 1)
    [ -n "$found" ] || { echo "$archive has no $name" >&2; exit 1; }
    chmod 0755 "$found"
    mv -f "$found" "$directory/$name$suffix"
done
rm -rf "$draft""#;

/// Downloads where nobody says what the bytes must be (an archive must at least be one), or where
/// the URL holds a signature or the way goes through a proxy. The URL comes through a pipe, where
/// nobody logs it. Arguments: place, digest or nothing.
const FETCH: &str = r#"set -eu
IFS= read -r url
printf 'url = "%s"\n' "$url" | curl -fsSL --connect-timeout 15 -o "$1.draft" -K -
if [ -n "$2" ]; then echo "$2  $1.draft" | sha256sum -c --quiet; fi
case $1 in *.deb) ;; *) tar -tzf "$1.draft" >/dev/null ;; esac
mv -f "$1.draft" "$1""#;

/// Takes everything out of an archive, `$3` last: once it is there, all is.
const UNPACK_WHOLE: &str = r#"set -eu
draft=$2/.unpacking
rm -rf "$draft"
mkdir -p "$draft"
tar -xzf "$1" -C "$draft" --no-same-owner
mv -f "$draft/$3" "$2/.last"
mv -f "$draft"/* "$2/" 2>/dev/null || [ -z "$(ls -A "$draft")" ]
mv -f "$2/.last" "$2/$3"
rm -rf "$draft""#;

/// Whether each of these packages is installed to the end.
const APT_INSTALLED: &str = r#"for package in "$@"; do
    dpkg-query -W -f '${Status}' "${package%%=*}" 2>/dev/null | grep -q 'ok installed' || exit 1
done"#;

/// Packages of the distribution. A mark lies on the machine while they are installed: a program
/// that is there may be half of an installation that was cut off.
pub(super) fn apt_install(scene: &Scene<'_>, packages: &[&str]) -> Vec<Change> {
    let script = |text: &'static str| {
        let arguments: Vec<&str> = ["-c", text, "sh"].iter().chain(packages).copied().collect();
        Command::new("sh", &arguments).at_most(scene.remaining())
    };
    let mark = mark(packages[0]);
    let check = Check::Succeeds(script(APT_INSTALLED));
    let name = format!("install {}", packages.join(" "));
    vec![
        Change::file(&mark, 0o644, ""),
        Change::command(name, check, script(APT_INSTALL)),
        Change::absent(mark),
    ]
}

/// Whether the installation of a package was cut off.
pub(super) fn cut_off(scene: &Scene<'_>, package: &str) -> bool {
    scene.host.files().exists(mark(package))
}

fn mark(package: &str) -> String {
    let name = package.split('=').next().unwrap_or_default();
    format!("/opt/azure/containers/installing-{name}")
}

/// The whole of an archive, `sign` last.
pub(super) fn unpacked_whole(
    scene: &Scene<'_>,
    archive: &str,
    directory: &str,
    sign: &str,
) -> Change {
    let command = Command::new("sh", &["-c", UNPACK_WHOLE, "sh", archive, directory, sign]);
    let check = Check::Exists(format!("{directory}/{sign}").into());
    Change::command(
        format!("unpack {archive}"),
        check,
        command.at_most(scene.remaining()),
    )
}

/// Brings an archive here unless it is, and says where it is then.
pub(super) fn fetched(
    config: &Configuration,
    scene: &Scene<'_>,
    source: &Source,
    directory: &str,
) -> Result<(Vec<Change>, String), Failure> {
    let url = match &source.location {
        Location::File(path) => return local(scene, path).map(|path| (Vec::new(), path)),
        Location::Url(url) => url,
    };
    let path = format!("{directory}/{}", source.file_name);
    let sha256 = source
        .sha256
        .clone()
        .or_else(|| published_digest(config, scene, url, &path));
    let direct = !url.contains('?') && proxy::for_url(config, url).is_none();
    let change = match sha256 {
        Some(sha256) if direct => {
            let content = Content::Download {
                urls: vec![url.clone()],
                sha256,
            };
            Change::File(File::new(&path, 0o644, content))
        }
        sha256 => download(
            config,
            scene,
            url,
            &path,
            sha256.as_deref().unwrap_or_default(),
        ),
    };
    Ok((vec![Change::directory(directory, 0o755), change], path))
}

fn local(scene: &Scene<'_>, path: &str) -> Result<String, Failure> {
    if scene.planning || scene.host.files().exists(path) {
        return Ok(path.to_owned());
    }
    Err(Failure::permanent(
        format!("{path}, which the configuration names, is not on this machine"),
        "put the file there, or name a URL instead",
    ))
}

/// What the publisher says the bytes are, in a file beside the archive. Not asked for an archive
/// that is already here.
fn published_digest(
    config: &Configuration,
    scene: &Scene<'_>,
    url: &str,
    path: &str,
) -> Option<String> {
    if scene.planning || scene.host.files().exists(path) {
        return None;
    }
    let url = format!("{url}.sha256");
    let request = Request::get(&url)
        .at_most(scene.remaining().min(Duration::from_secs(15)))
        .through(proxy::for_url(config, &url));
    let mut body = Vec::new();
    let response = scene.host.http(&request, &mut body, scene.stop).ok()?;
    (response.status == 200)
        .then(|| digest(&String::from_utf8_lossy(&body)))
        .flatten()
}

fn download(
    config: &Configuration,
    scene: &Scene<'_>,
    url: &str,
    path: &str,
    sha256: &str,
) -> Change {
    let mut command =
        Command::new("sh", &["-c", FETCH, "sh", path, sha256]).reading(format!("{url}\n"));
    for (name, value) in proxy::variables(config) {
        command = command.with_variable(name, &value);
    }
    Change::Command(CommandChange {
        name: format!("download {path}"),
        check: Check::Exists(path.into()),
        apply: command.at_most(scene.remaining()),
        undo: Some(Command::new("rm", &["-f", path])),
    })
}

/// Files of an archive, each under its name and a suffix.
pub(super) fn unpacked(
    scene: &Scene<'_>,
    archive: &str,
    directory: &str,
    suffix: &str,
    names: &[&str],
) -> Change {
    let mut arguments = vec!["-c", UNPACK, "sh", archive, directory, suffix];
    arguments.extend(names);
    let places: Vec<String> = names
        .iter()
        .map(|name| format!("{directory}/{name}{suffix}"))
        .collect();
    // In the order of their names here: once the last is there, all are.
    let last = places.last().cloned().unwrap_or_default();
    let mut undo = vec!["-f"];
    undo.extend(places.iter().map(String::as_str));
    Change::Command(CommandChange {
        name: format!("unpack {archive}"),
        check: Check::Exists(last.into()),
        apply: Command::new("sh", &arguments).at_most(scene.remaining()),
        undo: Some(Command::new("rm", &undo)),
    })
}

#[cfg(test)]
mod tests;
