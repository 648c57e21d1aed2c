//! What a host must have to run machines, asked before anything is tried.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde::Serialize;

use crate::namespaces::init::SYSTEMD;
use crate::namespaces::of_this_host;

/// What the kernel calls the right to mount and to enter namespaces.
const CAP_SYS_ADMIN: u32 = 21;
/// What it calls the right to change networks.
const CAP_NET_ADMIN: u32 = 12;

/// The type of overlays, from the kernel's `magic.h`.
const OVERLAYFS_MAGIC: u32 = 0x794c_7630;

/// Something that this host lacks, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// What.
    pub what: String,
    /// The next step.
    pub remedy: &'static str,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.what, self.remedy)
    }
}

/// What was found on this host.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) root: bool,
    /// The capabilities that this process may use, as a set of bits.
    pub(crate) capabilities: u64,
    pub(crate) systemd: bool,
    /// Whether `/usr` is part of the root's file system, which is all that a machine sees.
    pub(crate) one_file_system: bool,
    pub(crate) overlay: bool,
    /// Whether the machines' directory lies on an overlay itself.
    pub(crate) on_overlay: bool,
    /// The machines' directory, whose name goes into options of a mount.
    pub(crate) directory: String,
    pub(crate) namespaces: Vec<String>,
    /// Whether there is a hierarchy of control groups that systemd can use.
    pub(crate) control_groups: bool,
}

impl Facts {
    /// Looks, and changes nothing but loading the kernel's overlay module by asking for it.
    pub(crate) fn gather(directory: &Path) -> Facts {
        let device = |path: &str| fs::metadata(path).map(|m| m.dev()).ok();
        let namespaces = fs::read_dir("/proc/self/ns")
            .into_iter()
            .flatten()
            .flatten();
        Facts {
            root: rustix::process::geteuid().is_root(),
            capabilities: effective(&fs::read_to_string("/proc/self/status").unwrap_or_default()),
            systemd: SYSTEMD.iter().any(|path| Path::new(path).exists()),
            one_file_system: device("/") == device("/usr"),
            overlay: overlay_is_there(),
            on_overlay: rustix::fs::statfs(directory)
                .is_ok_and(|s| s.f_type as u32 == OVERLAYFS_MAGIC),
            directory: directory.display().to_string(),
            namespaces: namespaces
                .filter_map(|e| e.file_name().into_string().ok())
                .collect(),
            control_groups: of_this_host()
                .is_ok_and(|all| all.iter().any(crate::namespaces::Hierarchy::suits_systemd)),
        }
    }
}

// Opening it as a file system loads the module where it is one.
fn overlay_is_there() -> bool {
    rustix::mount::fsopen("overlay", rustix::mount::FsOpenFlags::FSOPEN_CLOEXEC).is_ok()
        || fs::read_to_string("/proc/filesystems").is_ok_and(|text| text.contains("\toverlay"))
}

fn effective(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .unwrap_or(0)
}

/// Something that a host needs: whether it is there, what is missing otherwise, and the next step.
struct Need {
    is_there: fn(&Facts) -> bool,
    what: fn(&Facts) -> String,
    remedy: &'static str,
}

const PRIVILEGED: &str = "in a container: start it with --privileged";
const OTHER_KERNEL: &str = "use a kernel that has them";

/// Everything that a host needs.
const NEEDS: [Need; 15] = [
    Need {
        is_there: |facts| facts.root,
        what: |_| "not root".to_owned(),
        remedy: "run it with sudo",
    },
    // Of somebody who is not root they are not worth a word.
    Need {
        is_there: |facts| !facts.root || facts.can(CAP_SYS_ADMIN),
        what: |_| "no CAP_SYS_ADMIN".to_owned(),
        remedy: PRIVILEGED,
    },
    Need {
        is_there: |facts| !facts.root || facts.can(CAP_NET_ADMIN),
        what: |_| "no CAP_NET_ADMIN".to_owned(),
        remedy: PRIVILEGED,
    },
    Need {
        is_there: |facts| facts.systemd,
        what: |_| "no systemd in /lib/systemd".to_owned(),
        remedy: "install the package systemd",
    },
    Need {
        is_there: |facts| facts.one_file_system,
        what: |_| "/usr is another file system than /".to_owned(),
        remedy: "machines see only the root's file system: use a host whose /usr is part of it",
    },
    Need {
        is_there: |facts| facts.overlay,
        what: |_| "no overlay file system".to_owned(),
        remedy: "load the kernel module: modprobe overlay",
    },
    Need {
        is_there: |facts| !facts.on_overlay,
        what: |facts| format!("`{}` lies on an overlay", facts.directory),
        remedy: "choose a directory on a real file system, in a container: a volume",
    },
    Need {
        is_there: |facts| !facts.directory.contains([',', ':', '\\']),
        what: |facts| format!("`{}` has a comma, colon or backslash", facts.directory),
        remedy: "choose a directory without",
    },
    Need {
        is_there: |facts| facts.has_namespace("cgroup"),
        what: |_| "no cgroup namespaces".to_owned(),
        remedy: OTHER_KERNEL,
    },
    Need {
        is_there: |facts| facts.has_namespace("ipc"),
        what: |_| "no ipc namespaces".to_owned(),
        remedy: OTHER_KERNEL,
    },
    Need {
        is_there: |facts| facts.has_namespace("mnt"),
        what: |_| "no mnt namespaces".to_owned(),
        remedy: OTHER_KERNEL,
    },
    Need {
        is_there: |facts| facts.has_namespace("net"),
        what: |_| "no net namespaces".to_owned(),
        remedy: OTHER_KERNEL,
    },
    Need {
        is_there: |facts| facts.has_namespace("pid"),
        what: |_| "no pid namespaces".to_owned(),
        remedy: OTHER_KERNEL,
    },
    Need {
        is_there: |facts| facts.has_namespace("uts"),
        what: |_| "no uts namespaces".to_owned(),
        remedy: OTHER_KERNEL,
    },
    Need {
        is_there: |facts| facts.control_groups,
        what: |_| "no control groups for systemd below /sys/fs/cgroup".to_owned(),
        remedy: "mount them: mount -t cgroup2 none /sys/fs/cgroup; in a container: --privileged --cgroupns=host",
    },
];

impl Facts {
    fn can(&self, capability: u32) -> bool {
        self.capabilities & (1 << capability) != 0
    }

    fn has_namespace(&self, name: &str) -> bool {
        self.namespaces.iter().any(|known| known == name)
    }
}

/// Everything that is missing, not only the first.
pub(crate) fn missing(facts: &Facts) -> Vec<Missing> {
    let missing = NEEDS.iter().filter(|need| !(need.is_there)(facts));
    missing
        .map(|need| Missing {
            what: (need.what)(facts),
            remedy: need.remedy,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn able() -> Facts {
        Facts {
            root: true,
            capabilities: u64::MAX,
            systemd: true,
            one_file_system: true,
            overlay: true,
            on_overlay: false,
            directory: "/var/lib/kyanite".to_owned(),
            namespaces: ["cgroup", "ipc", "mnt", "net", "pid", "uts"]
                .map(str::to_owned)
                .to_vec(),
            control_groups: true,
        }
    }

    #[test]
    fn a_host_that_has_everything_lacks_nothing() {
        assert_eq!(missing(&able()), []);
    }

    #[test]
    fn everything_that_is_missing_is_said_at_once_with_what_to_do() {
        let poor = Facts {
            root: true,
            capabilities: 1 << 12,
            systemd: false,
            one_file_system: false,
            overlay: false,
            on_overlay: true,
            directory: "/a:b".to_owned(),
            namespaces: vec!["mnt".to_owned()],
            control_groups: false,
        };
        let said: Vec<String> = missing(&poor).iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 12, "{said:#?}");
        assert_eq!(
            said[0],
            "no CAP_SYS_ADMIN (in a container: start it with --privileged)"
        );
    }

    #[test]
    fn without_root_capabilities_are_not_worth_a_word() {
        let user = Facts {
            root: false,
            capabilities: 0,
            ..able()
        };
        let said: Vec<String> = missing(&user).iter().map(ToString::to_string).collect();
        assert_eq!(said, ["not root (run it with sudo)"]);
    }

    #[test]
    fn the_effective_set_is_read_from_the_process_status() {
        assert_eq!(
            effective("CapPrm:\tff\nCapEff:\t000001fffeffffff\n"),
            0x1ff_feff_ffff
        );
        assert_eq!(effective(""), 0);
    }
}
