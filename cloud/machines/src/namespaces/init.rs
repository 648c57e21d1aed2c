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
const PLAIN: [&str; 4] = ["/home", "/root", "/var/lib/containerd", "/var/lib/kubelet"];

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
    let record = home.record()?;
    let group = record.group.ok_or(Error::NotFound(spec.name.clone()))?;
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
    rustix::system::sethostname(spec.name.as_bytes())
        .map_err(Error::kernel("set the machine's host name"))?;
    let root = overlay(home)?;
    pivot_into(&root)?;
    furnish(home, &hierarchies)?;
    devices::make(&of_host(console), &record.disks)?;
    show_parts_of_host(home, &spec)?;
    leave_host()?;
    // The kubelet shares mounts with its containers; outside of containers systemd would do this itself.
    change(
        "/",
        MountPropagationFlags::SHARED | MountPropagationFlags::REC,
    )?;
    lay_down(&spec, &custom_data)
}

/// Where the host's root is until the machine is furnished. Everything is done from inside the machine's own
/// root: links in it must lead nowhere else.
const HOST: &str = "/run/host";

/// A path of the host, as seen from inside.
pub(super) fn of_host(path: &Path) -> PathBuf {
    Path::new(HOST).join(path.strip_prefix("/").unwrap_or(path))
}

fn overlay(home: &Home) -> Result<PathBuf, Error> {
    let [upper, work, root] = ["upper", "work", "root"].map(|name| home.file(name));
    for directory in [&upper, &work, &root] {
        make_directory(directory)?;
    }
    let options = format!(
        "lowerdir=/,upperdir={},workdir={}",
        upper.display(),
        work.display()
    );
    fresh(&root, "overlay", MountFlags::empty(), &options)?;
    Ok(root)
}

fn pivot_into(root: &Path) -> Result<(), Error> {
    fresh(&root.join("run"), "tmpfs", FILES_ONLY, "mode=0755")?;
    let host = root.join(HOST.trim_start_matches('/'));
    make_directory(&host)?;
    rustix::process::pivot_root(root, &host).map_err(Error::file("change the root to", root))?;
    std::env::set_current_dir("/").map_err(Error::file("enter", root))
}

fn leave_host() -> Result<(), Error> {
    let host = Path::new(HOST);
    unmount(host, UnmountFlags::DETACH).map_err(Error::file("leave", host))?;
    fs::remove_dir(host).map_err(Error::file("remove", host))
}

fn furnish(home: &Home, hierarchies: &[Hierarchy]) -> Result<(), Error> {
    for directory in PLAIN {
        let source = of_host(&home.file("data")).join(directory[1..].replace('/', "-"));
        make_directory(&source)?;
        make_directory(Path::new(directory))?;
        bind(&source, Path::new(directory))?;
    }
    fresh(Path::new("/proc"), "proc", NOTHING_SPECIAL, "")?;
    fresh(Path::new("/sys"), "sysfs", NOTHING_SPECIAL, "")?;
    fresh(Path::new("/tmp"), "tmpfs", FILES_ONLY, "mode=1777")?;
    mount_cgroups(hierarchies)?;
    settings::shadow()
}

fn show_parts_of_host(home: &Home, spec: &Spec) -> Result<(), Error> {
    hide(home)?;
    spec.binds.iter().try_for_each(show)
}

const FILES_ONLY: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);
const NOTHING_SPECIAL: MountFlags = FILES_ONLY.union(MountFlags::NOEXEC);

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

fn change(path: &str, how: MountPropagationFlags) -> Result<(), Error> {
    mount_change(path, how).map_err(Error::file("change the propagation of", Path::new(path)))
}

// Fresh mounts show the machine's group as the root, because its namespace is rooted there.
fn mount_cgroups(hierarchies: &[Hierarchy]) -> Result<(), Error> {
    let top = Path::new(cgroups::MOUNT);
    if hierarchies.iter().any(|h| h.mount != top) {
        fresh(top, "tmpfs", NOTHING_SPECIAL, "mode=0755")?;
    }
    for Hierarchy { mount, version } in hierarchies {
        match version {
            Version::Two => fresh(mount, "cgroup2", NOTHING_SPECIAL, "")?,
            Version::One(names) => {
                fresh(mount, "cgroup", NOTHING_SPECIAL, &names.join(","))?;
                link_each(mount, top, names)?;
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

// The layer below has this driver's directory in it, with the disks and custom data of all machines.
fn hide(home: &Home) -> Result<(), Error> {
    match home.path().ancestors().nth(2) {
        Some(all) if all.is_dir() => {
            let flags = MountFlags::RDONLY.union(NOTHING_SPECIAL);
            fresh(all, "tmpfs", flags, "mode=0700")
        }
        _ => Ok(()),
    }
}

fn show(wanted: &Bind) -> Result<(), Error> {
    let (source, target) = (of_host(&wanted.source), &wanted.target);
    if source.is_dir() {
        make_directory(target)?;
    } else {
        target.parent().map_or(Ok(()), make_directory)?;
        fs::File::create(target).map_err(Error::file("make", target))?;
    }
    bind(&source, target)?;
    mount_remount(target, MountFlags::BIND | MountFlags::RDONLY, "")
        .map_err(Error::file("make read-only", target))
}

fn lay_down(spec: &Spec, custom_data: &CustomData) -> Result<(), Error> {
    lay::down(&guest::every_start(spec))?;
    if Path::new(guest::LAID_DOWN).exists() {
        return Ok(());
    }
    enable_nothing()?;
    let machine_id = format!("{:032x}", rand::random::<u128>());
    for laid in guest::first_start(spec, &machine_id, custom_data) {
        lay::down(&laid)?;
    }
    for file in guest::programs(spec, custom_data) {
        lay::file(&file)?;
    }
    for user in guest::users(spec, custom_data) {
        lay::user(&user)?;
    }
    for file in &custom_data.files {
        lay::written(file)?;
    }
    lay::file(&crate::File::new(guest::LAID_DOWN, ""))
}

fn enable_nothing() -> Result<(), Error> {
    let units = fs::read_dir(guest::UNITS).into_iter().flatten().flatten();
    let paths = units.map(|entry| entry.path());
    for path in paths.filter(|path| guest::says_what_is_enabled(path)) {
        fs::remove_dir_all(&path).map_err(Error::file("remove", &path))?;
    }
    Ok(())
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
