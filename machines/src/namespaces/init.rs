//! The machine's first process before it is systemd: moves into the machine's control groups and namespaces,
//! makes its root, lays down its files, and becomes systemd. Runs with one thread.

use std::ffi::CString;
use std::fs;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, unshare};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::mount::{mount, mount_bind_recursive, mount_change, mount_remount, unmount};

use super::cgroups::{self, Hierarchy, Version};
use super::record::Home;
use super::{devices, lay, settings};
use crate::custom_data::CustomData;
use crate::{Bind, Error, Spec, guest};

/// Directories of the machine's own, outside the overlay: an overlay cannot be the upper layer of another, as
/// containerd and the kubelet need it, and people's homes on the host are none of the machine's business.
const PLAIN: [&str; 4] = ["home", "root", "var/lib/containerd", "var/lib/kubelet"];

/// Where systemd is, in the order of preference.
pub(crate) const SYSTEMD: [&str; 2] = ["/lib/systemd/systemd", "/usr/lib/systemd/systemd"];

/// Becomes systemd, or says on standard output why not.
pub(crate) fn init(home: PathBuf, console: &Path) -> Result<(), Error> {
    // Where the supervisor listens; it hears the end when systemd replaces this program.
    let report = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)
        .map_err(Error::kernel("keep the way to the supervisor"))?;
    let error = match prepare(&Home::at(home), console) {
        Ok(()) => become_systemd(),
        Err(error) => error,
    };
    let _ = fs::File::from(report).write_all(error.to_string().as_bytes());
    Err(error)
}

fn prepare(home: &Home, console: &Path) -> Result<(), Error> {
    let spec = home.plan()?;
    let custom_data = CustomData::read(&spec.custom_data)?;
    let hierarchies = cgroups::of_this_host()?;
    let group = home
        .record()?
        .group
        .ok_or(Error::NotFound(spec.name.clone()))?;
    cgroups::join(&hierarchies, &group)?;
    let own = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWCGROUP;
    unshare(own).map_err(Error::kernel("make the machine's namespaces"))?;
    // Nothing that is mounted from here on is seen by the host.
    change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )?;
    let root = make_root(home, &spec, &hierarchies, console)?;
    rustix::system::sethostname(spec.name.as_bytes())
        .map_err(Error::kernel("set the machine's host name"))?;
    pivot_into(&root)?;
    // The kubelet shares mounts with its containers; outside of containers systemd would do this itself.
    change(
        "/",
        MountPropagationFlags::SHARED | MountPropagationFlags::REC,
    )?;
    lay_down(&spec, &custom_data)
}

fn make_root(
    home: &Home,
    spec: &Spec,
    hierarchies: &[Hierarchy],
    console: &Path,
) -> Result<PathBuf, Error> {
    let root = home.file("root");
    overlay(home, &root)?;
    for directory in PLAIN {
        let source = home.file("data").join(directory.replace('/', "-"));
        bind_directory(&source, &root.join(directory))?;
    }
    fresh(&root.join("proc"), "proc", NOTHING_SPECIAL, "")?;
    fresh(&root.join("sys"), "sysfs", NOTHING_SPECIAL, "")?;
    fresh(
        &root.join("run"),
        "tmpfs",
        MountFlags::NOSUID.union(MountFlags::NODEV),
        "mode=0755",
    )?;
    fresh(
        &root.join("tmp"),
        "tmpfs",
        MountFlags::NOSUID.union(MountFlags::NODEV),
        "mode=1777",
    )?;
    mount_cgroups(&root, hierarchies)?;
    settings::shadow(&root)?;
    devices::make(&root.join("dev"), console)?;
    hide(home, &root)?;
    spec.binds.iter().try_for_each(|bind| show(bind, &root))?;
    Ok(root)
}

fn overlay(home: &Home, root: &Path) -> Result<(), Error> {
    let [upper, work] = ["upper", "work"].map(|name| home.file(name));
    for directory in [&upper, &work, &root.to_owned()] {
        make_directory(directory)?;
    }
    let options = format!(
        "lowerdir=/,upperdir={},workdir={}",
        upper.display(),
        work.display()
    );
    fresh(root, "overlay", MountFlags::empty(), &options)
}

const NOTHING_SPECIAL: MountFlags = MountFlags::NOSUID
    .union(MountFlags::NODEV)
    .union(MountFlags::NOEXEC);

/// Mounts a file system of its own on a directory, which is made if need be.
pub(super) fn fresh(on: &Path, kind: &str, flags: MountFlags, options: &str) -> Result<(), Error> {
    make_directory(on)?;
    let options = CString::new(options).map_err(Error::file("mount", on))?;
    mount(kind, on, kind, flags, options.as_c_str()).map_err(Error::file("mount", on))
}

pub(super) fn make_directory(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(Error::file("make the directory", path))
}

pub(super) fn bind(source: &Path, target: &Path) -> Result<(), Error> {
    mount_bind_recursive(source, target).map_err(Error::file("show in the machine", source))
}

fn bind_directory(source: &Path, target: &Path) -> Result<(), Error> {
    make_directory(source)?;
    make_directory(target)?;
    bind(source, target)
}

fn change(path: &str, how: MountPropagationFlags) -> Result<(), Error> {
    mount_change(path, how).map_err(Error::file("change the propagation of", Path::new(path)))
}

// Fresh mounts show the machine's group as the root, because its namespace is rooted there.
fn mount_cgroups(root: &Path, hierarchies: &[Hierarchy]) -> Result<(), Error> {
    let inside = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
    let top = inside(Path::new(cgroups::MOUNT));
    if hierarchies
        .iter()
        .any(|h| h.mount != Path::new(cgroups::MOUNT))
    {
        fresh(&top, "tmpfs", NOTHING_SPECIAL, "mode=0755")?;
    }
    for Hierarchy { mount, version } in hierarchies {
        match version {
            Version::Two => fresh(&inside(mount), "cgroup2", NOTHING_SPECIAL, "")?,
            Version::One(names) => {
                fresh(&inside(mount), "cgroup", NOTHING_SPECIAL, &names.join(","))?;
                link_each(mount, &top, names)?;
            }
        }
    }
    Ok(())
}

// Controllers that share a hierarchy are also found by their own names.
fn link_each(mount: &Path, top: &Path, names: &[String]) -> Result<(), Error> {
    let Some(shared) = mount.file_name().filter(|_| names.len() > 1) else {
        return Ok(());
    };
    for name in names {
        let link = top.join(name);
        std::os::unix::fs::symlink(shared, &link).map_err(Error::file("link", &link))?;
    }
    Ok(())
}

// The host's root has this driver's directory in it, with the disks and custom data of all machines.
fn hide(home: &Home, root: &Path) -> Result<(), Error> {
    let Some(all) = home.path().ancestors().nth(2) else {
        return Ok(());
    };
    let inside = root.join(all.strip_prefix("/").unwrap_or(all));
    match inside.is_dir() {
        true => fresh(
            &inside,
            "tmpfs",
            MountFlags::RDONLY.union(NOTHING_SPECIAL),
            "mode=0700",
        ),
        false => Ok(()),
    }
}

fn show(wanted: &Bind, root: &Path) -> Result<(), Error> {
    let target = root.join(wanted.target.strip_prefix("/").unwrap_or(&wanted.target));
    if wanted.source.is_dir() {
        make_directory(&target)?;
    } else {
        if let Some(parent) = target.parent() {
            make_directory(parent)?;
        }
        fs::File::create(&target).map_err(Error::file("make", &target))?;
    }
    bind(&wanted.source, &target)?;
    mount_remount(&target, MountFlags::BIND | MountFlags::RDONLY, "")
        .map_err(Error::file("make read-only", &target))
}

fn pivot_into(root: &Path) -> Result<(), Error> {
    let steps = || {
        std::env::set_current_dir(root)?;
        // The old root lands on top of the new one and is taken away from there.
        rustix::process::pivot_root(".", ".")?;
        unmount(".", UnmountFlags::DETACH)?;
        std::env::set_current_dir("/")
    };
    steps().map_err(Error::file("change the root to", root))
}

fn lay_down(spec: &Spec, custom_data: &CustomData) -> Result<(), Error> {
    let first_start = !Path::new(guest::LAID_DOWN).exists();
    if first_start {
        enable_nothing()?;
    }
    for laid in guest::files(spec, &machine_id(), custom_data) {
        lay::down(&laid)?;
    }
    if first_start {
        for file in guest::programs(spec, custom_data) {
            lay::file(&file)?;
        }
        for file in &custom_data.files {
            lay::written(file)?;
        }
        lay::file(&crate::File::new(guest::LAID_DOWN, ""))?;
    }
    Ok(())
}

fn enable_nothing() -> Result<(), Error> {
    let units = fs::read_dir(guest::UNITS).into_iter().flatten().flatten();
    for entry in units.filter(|e| {
        e.file_name()
            .to_str()
            .is_some_and(guest::says_what_is_enabled)
    }) {
        let path = entry.path();
        fs::remove_dir_all(&path).map_err(Error::file("remove", &path))?;
    }
    Ok(())
}

// Made at the first start and kept on the machine's disk. The host's own is in the layer below.
fn machine_id() -> String {
    const KEPT: &str = "/var/lib/kyanite/machine-id";
    match fs::read_to_string(KEPT) {
        Ok(kept) => kept.trim().to_owned(),
        Err(_) => {
            let fresh = format!("{:032x}", rand::random::<u128>());
            // Without it the machine would only be another one after a restart.
            let _ = lay::file(&crate::File::new(KEPT, fresh.as_str()));
            fresh
        }
    }
}

fn become_systemd() -> Error {
    let console = || {
        fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/console")
    };
    let run = || -> Result<std::convert::Infallible, std::io::Error> {
        let systemd = SYSTEMD.iter().find(|path| Path::new(path).exists());
        let mut command = Command::new(systemd.unwrap_or(&SYSTEMD[0]));
        command
            .arg(format!("--unit={}", guest::TARGET))
            .arg("--show-status=yes")
            .env_clear()
            .env("container", "kyanite")
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .stdin(Stdio::null())
            .stdout(console()?)
            .stderr(console()?);
        Err(command.exec())
    };
    match run() {
        Ok(never) => match never {},
        Err(error) => Error::kernel("start systemd")(error),
    }
}
