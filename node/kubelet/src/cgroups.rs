//! The cgroups of pods: where they are, what they may use, and how they are made and removed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;

use crate::config::KubeletConfiguration;
use crate::machine::Machine;
use crate::resources::{self, Qos};
use crate::spec;

/// Who makes cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// We do, as directories.
    Cgroupfs,
    /// systemd does, as slices.
    Systemd,
}

/// How the kernel shows cgroups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hierarchy {
    /// One tree for all controllers.
    Unified(PathBuf),
    /// A tree per controller.
    Separate(Vec<PathBuf>),
}

impl Hierarchy {
    /// As it is mounted here.
    pub fn read() -> Self {
        let root = Path::new("/sys/fs/cgroup");
        if root.join("cgroup.controllers").exists() {
            return Self::Unified(root.to_owned());
        }
        let trees = [
            "cpu", "cpuacct", "cpuset", "memory", "pids", "hugetlb", "blkio", "systemd",
        ];
        let trees = trees.iter().map(|name| root.join(name));
        // `cpu` and `cpuacct` may be links to one tree; a directory alone is where a tree could be mounted.
        let real = trees.filter(|path| path.join("cgroup.procs").exists() && !path.is_symlink());
        Self::Separate(real.collect())
    }

    /// Whether it is cgroup2's alone.
    pub fn is_unified(&self) -> bool {
        matches!(self, Self::Unified(_))
    }
}

/// The cgroups of this node.
#[derive(Clone, Debug)]
pub struct Cgroups {
    driver: Driver,
    hierarchy: Hierarchy,
    root: String,
    pids: i64,
}

/// More memory than anybody has: how cgroup v1 says that there is no limit.
const UNLIMITED: i64 = 1 << 60;

/// What a pod's cgroup allows. What is not said is not limited, or not changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Weight among others.
    pub shares: Option<i64>,
    /// Microseconds per period.
    pub quota: Option<i64>,
    /// Bytes.
    pub memory: Option<i64>,
    /// Processes.
    pub pids: Option<i64>,
}

impl Allowance {
    /// By the pod's class and limits.
    pub fn of(pod: &Pod, pids: i64) -> Self {
        let limit = |name: &str| match resources::qos(pod) {
            Qos::BestEffort => None,
            _ => resources::pod_limit(pod, name),
        };
        Self {
            shares: Some(resources::shares(resources::pod_request(pod, "cpu"))),
            quota: limit("cpu").map(resources::quota),
            memory: limit("memory"),
            pids: (pids > 0).then_some(pids),
        }
    }

    /// A part of the processors, and no limits.
    fn share(milli: i64) -> Self {
        Self {
            shares: Some(resources::shares(milli)),
            quota: None,
            memory: None,
            pids: None,
        }
    }

    /// For all pods of a node together: what is not reserved. What hard eviction keeps free is no limit here: eviction
    /// comes before the kernel's own remedy.
    pub fn of_node(machine: &Machine, config: &KubeletConfiguration) -> Self {
        let left = machine.unreserved(config);
        let amount = |name: &str| left.get(name).copied().unwrap_or_default();
        Self {
            memory: Some(amount("memory")).filter(|bytes| *bytes > 0),
            ..Self::share(amount("cpu"))
        }
    }

    /// Files and values below a pod's directory in a tree.
    fn files(&self, unified: bool) -> Vec<(&'static str, String)> {
        let mut files = Vec::new();
        let memory = self.memory.map(|bytes| bytes.to_string());
        let pids = self.pids.map(|count| count.to_string());
        if unified {
            let weight = self
                .shares
                .map(|shares| resources::weight(shares).to_string());
            files.extend(weight.map(|text| ("cpu.weight", text)));
            let period = resources::PERIOD;
            let quota = self.quota.map(|quota| format!("{quota} {period}"));
            files.extend(quota.map(|text| ("cpu.max", text)));
            files.extend(memory.map(|text| ("memory.max", text)));
        } else {
            files.extend(self.shares.map(|n| ("cpu.shares", n.to_string())));
            files.extend(
                self.quota
                    .map(|quota| ("cpu.cfs_quota_us", quota.to_string())),
            );
            files.extend(memory.map(|text| ("memory.limit_in_bytes", text)));
        }
        files.extend(pids.map(|text| ("pids.max", text)));
        files
    }
}

impl Cgroups {
    /// The cgroups below `root` (empty for the top).
    pub fn new(driver: Driver, hierarchy: Hierarchy, root: &str, pids: i64) -> Self {
        let root = root.trim_end_matches('/').to_owned();
        Self {
            driver,
            hierarchy,
            root,
            pids,
        }
    }

    /// A pod's cgroup, as the runtime is told.
    pub fn parent(&self, pod: &Pod) -> String {
        format!(
            "{}{}",
            self.root,
            path(self.driver, resources::qos(pod), spec::uid(pod))
        )
    }

    /// Whether the hierarchy is cgroup2's alone.
    pub fn is_unified(&self) -> bool {
        self.hierarchy.is_unified()
    }

    /// Makes a pod's cgroup with all above it. With containers in it, it keeps its limits: they change only when the
    /// pod is resized, and in an order.
    pub async fn ensure(&self, pod: &Pod, is_empty: bool) -> io::Result<()> {
        let path = self.parent(pod);
        let mut places = self.trees().iter().map(|tree| below(tree, &path));
        // systemd has slices only where it has something to limit.
        let made = match self.driver {
            Driver::Cgroupfs => places.all(|place| place.is_dir()),
            Driver::Systemd => places.any(|place| place.is_dir()),
        };
        if made && !is_empty {
            return Ok(());
        }
        self.allow(&path, &Allowance::of(pod, self.pids)).await
    }

    /// What a pod's cgroup should allow.
    pub fn wanted(&self, pod: &Pod) -> Allowance {
        Allowance::of(pod, self.pids)
    }

    /// What a pod's cgroup allows now.
    pub fn current(&self, pod: &Pod) -> Allowance {
        let path = self.parent(pod);
        let value = |name: &str| self.first(&path, name);
        let number = |name: &str| value(name)?.parse().ok();
        let bounded = |bytes: &i64| (0..UNLIMITED).contains(bytes);
        if self.is_unified() {
            let quota = value("cpu.max");
            let quota = quota.as_deref().and_then(|text| text.split(' ').next());
            let shares = |weight: i64| 2 + (weight - 1) * 262_142 / 9999;
            return Allowance {
                shares: number("cpu.weight").map(shares),
                quota: quota.and_then(|text| text.parse().ok()),
                memory: number("memory.max").filter(bounded),
                pids: None,
            };
        }
        Allowance {
            shares: number("cpu.shares"),
            quota: number("cpu.cfs_quota_us").filter(|quota| *quota > 0),
            memory: number("memory.limit_in_bytes").filter(bounded),
            pids: None,
        }
    }

    /// Changes what a pod's cgroup allows; what is not said stays.
    pub async fn change(&self, pod: &Pod, allowance: &Allowance) -> io::Result<()> {
        self.allow(&self.parent(pod), allowance).await
    }

    /// The memory that a pod uses, or one of its containers.
    pub fn memory_used(&self, pod: &Pod, container: Option<&str>) -> Option<i64> {
        let pod = self.parent(pod);
        let path = match (self.driver, container) {
            (_, None) => pod,
            (Driver::Cgroupfs, Some(id)) => format!("{pod}/{id}"),
            (Driver::Systemd, Some(id)) => format!("{pod}/cri-containerd-{id}.scope"),
        };
        let name = match self.is_unified() {
            true => "memory.current",
            false => "memory.usage_in_bytes",
        };
        self.first(&path, name)?.parse().ok()
    }

    /// A file of a cgroup, in the tree that has it.
    fn first(&self, path: &str, name: &str) -> Option<String> {
        let mut files = self.trees().iter().map(|tree| below(tree, path).join(name));
        let text = files.find_map(|file| fs::read_to_string(file).ok())?;
        Some(text.trim().to_owned())
    }

    /// Bounds what all pods may use together.
    pub async fn bound(&self, all: &Allowance) -> io::Result<()> {
        self.allow(&self.class(Qos::Guaranteed), all).await
    }

    /// Gives the classes their part of the processors: what burstable pods asked for together, next to nothing for
    /// those that asked for nothing.
    pub async fn share(&self, burstable: i64) -> io::Result<()> {
        for (qos, milli) in [(Qos::Burstable, burstable), (Qos::BestEffort, 0)] {
            let allowance = Allowance::share(milli);
            self.allow(&self.class(qos), &allowance).await?;
        }
        Ok(())
    }

    /// Where the pods of a class are.
    fn class(&self, qos: Qos) -> String {
        let pod = path(self.driver, qos, "");
        let class = pod.rsplit_once('/').map_or("", |(class, _)| class);
        format!("{}{class}", self.root)
    }

    async fn allow(&self, path: &str, allowance: &Allowance) -> io::Result<()> {
        if self.driver == Driver::Systemd {
            return slice(path, allowance).await;
        }
        for tree in self.trees() {
            make(tree, path, self.is_unified())?;
            let directory = below(tree, path);
            for (name, value) in allowance.files(self.is_unified()) {
                let file = directory.join(name);
                // Trees without the controller do not have the file.
                if file.exists() {
                    fs::write(file, value)?;
                }
            }
        }
        Ok(())
    }

    /// Removes a pod's cgroup, whatever its class was; processes that are left are ended.
    pub async fn remove(&self, uid: &str) {
        for qos in [Qos::Guaranteed, Qos::Burstable, Qos::BestEffort] {
            let path = format!("{}{}", self.root, path(self.driver, qos, uid));
            if self.driver == Driver::Systemd {
                let name = path.rsplit('/').next().unwrap_or_default();
                if self.trees().iter().any(|tree| below(tree, &path).is_dir()) {
                    let _ = systemctl(&["stop", name]).await;
                }
                continue;
            }
            for tree in self.trees() {
                remove_tree(&below(tree, &path)).await;
            }
        }
    }

    /// The UIDs of pods that have a cgroup.
    pub fn uids(&self) -> Vec<String> {
        let Some(tree) = self.trees().first() else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for qos in [Qos::Guaranteed, Qos::Burstable, Qos::BestEffort] {
            let sample = format!("{}{}", self.root, path(self.driver, qos, "X"));
            let Some((parent, name)) = sample.rsplit_once('/') else {
                continue;
            };
            let Some((prefix, suffix)) = name.split_once('X') else {
                continue;
            };
            let entries = fs::read_dir(below(tree, parent))
                .into_iter()
                .flatten()
                .flatten();
            let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            let uid = |name: String| {
                Some(
                    name.strip_prefix(prefix)?
                        .strip_suffix(suffix)?
                        .replace('_', "-"),
                )
            };
            found.extend(names.filter_map(uid));
        }
        found
    }

    fn trees(&self) -> &[PathBuf] {
        match &self.hierarchy {
            Hierarchy::Unified(root) => std::slice::from_ref(root),
            Hierarchy::Separate(trees) => trees,
        }
    }
}

fn below(tree: &Path, path: &str) -> PathBuf {
    tree.join(path.trim_start_matches('/'))
}

/// Where a pod's cgroup is.
pub fn path(driver: Driver, qos: Qos, uid: &str) -> String {
    let class = match qos {
        Qos::Guaranteed => "",
        Qos::Burstable => "burstable",
        Qos::BestEffort => "besteffort",
    };
    match (driver, class) {
        (Driver::Cgroupfs, "") => format!("/kubepods/pod{uid}"),
        (Driver::Cgroupfs, class) => format!("/kubepods/{class}/pod{uid}"),
        (Driver::Systemd, "") => format!(
            "/kubepods.slice/kubepods-pod{}.slice",
            uid.replace('-', "_")
        ),
        (Driver::Systemd, class) => format!(
            "/kubepods.slice/kubepods-{class}.slice/kubepods-{class}-pod{}.slice",
            uid.replace('-', "_")
        ),
    }
}

/// Makes the directories of a path one by one: each needs something of the one above.
fn make(tree: &Path, path: &str, unified: bool) -> io::Result<()> {
    let mut directory = tree.to_owned();
    for step in path.split('/').filter(|step| !step.is_empty()) {
        if unified {
            for controller in ["+cpu", "+cpuset", "+memory", "+pids", "+hugetlb"] {
                // One that the kernel does not have is not asked for again by anybody.
                let _ = fs::write(directory.join("cgroup.subtree_control"), controller);
            }
        }
        let above = directory.clone();
        directory.push(step);
        match fs::create_dir(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let own = fs::read_to_string(directory.join(file)).unwrap_or_default();
            if !unified && own.trim().is_empty() {
                let inherited = fs::read(above.join(file)).unwrap_or_default();
                let _ = fs::write(directory.join(file), inherited);
            }
        }
    }
    Ok(())
}

/// Ends what is left in a tree and removes it, the innermost first. The kernel takes some milliseconds to let go.
async fn remove_tree(directory: &Path) {
    for _ in 0..50 {
        if !directory.is_dir() {
            return;
        }
        end_all(directory);
        if remove_directories(directory).is_ok() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    tracing::warn!(cgroup = %directory.display(), "a cgroup cannot be removed: something in it does not end");
}

fn end_all(directory: &Path) {
    let processes = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    for pid in processes
        .lines()
        .filter_map(|line| line.parse().ok())
        .filter_map(rustix::process::Pid::from_raw)
    {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    for child in fs::read_dir(directory).into_iter().flatten().flatten() {
        if child.file_type().is_ok_and(|kind| kind.is_dir()) {
            end_all(&child.path());
        }
    }
}

fn remove_directories(directory: &Path) -> io::Result<()> {
    for child in fs::read_dir(directory)?.flatten() {
        if child.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_directories(&child.path())?;
        }
    }
    fs::remove_dir(directory)
}

/// Has systemd make the slice and set its limits until the next boot.
async fn slice(path: &str, allowance: &Allowance) -> io::Result<()> {
    let name = path.rsplit('/').next().unwrap_or_default();
    systemctl(&["start", name]).await?;
    let mut words = vec![
        "set-property".to_owned(),
        "--runtime".to_owned(),
        name.to_owned(),
    ];
    let weight = |shares| format!("CPUWeight={}", resources::weight(shares));
    words.extend(allowance.shares.map(weight));
    // systemd's is a share of each second.
    let percent = |quota: i64| (quota * 100 + resources::PERIOD - 1) / resources::PERIOD;
    words.extend(
        allowance
            .quota
            .map(|quota| format!("CPUQuota={}%", percent(quota))),
    );
    words.extend(allowance.memory.map(|bytes| format!("MemoryMax={bytes}")));
    words.extend(allowance.pids.map(|count| format!("TasksMax={count}")));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    systemctl(&words).await
}

async fn systemctl(arguments: &[&str]) -> io::Result<()> {
    let output = tokio::process::Command::new("systemctl")
        .args(arguments)
        .output()
        .await?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "systemctl {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_upstream() {
        let cases = [
            (Driver::Cgroupfs, Qos::Guaranteed, "/kubepods/poda-b"),
            (
                Driver::Cgroupfs,
                Qos::BestEffort,
                "/kubepods/besteffort/poda-b",
            ),
            (
                Driver::Systemd,
                Qos::Guaranteed,
                "/kubepods.slice/kubepods-poda_b.slice",
            ),
            (
                Driver::Systemd,
                Qos::Burstable,
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice",
            ),
        ];
        for (driver, qos, expected) in cases {
            assert_eq!(path(driver, qos, "a-b"), expected);
        }
    }

    #[test]
    fn classes_are_above_their_pods() {
        let class = |driver, qos| {
            let hierarchy = Hierarchy::Separate(Vec::new());
            Cgroups::new(driver, hierarchy, "/node", 0).class(qos)
        };
        let cases = [
            (Driver::Cgroupfs, Qos::Guaranteed, "/node/kubepods"),
            (Driver::Cgroupfs, Qos::Burstable, "/node/kubepods/burstable"),
            (Driver::Systemd, Qos::Guaranteed, "/node/kubepods.slice"),
            (
                Driver::Systemd,
                Qos::BestEffort,
                "/node/kubepods.slice/kubepods-besteffort.slice",
            ),
        ];
        for (driver, qos, expected) in cases {
            assert_eq!(class(driver, qos), expected);
        }
    }

    #[tokio::test]
    async fn what_is_above_pods_is_written_where_the_controller_is() {
        let tree = tempfile::tempdir().expect("a directory");
        let classes = ["kubepods", "kubepods/burstable", "kubepods/besteffort"];
        for class in classes {
            fs::create_dir(tree.path().join(class)).expect("a directory");
            for file in ["cpu.shares", "memory.limit_in_bytes"] {
                fs::write(tree.path().join(class).join(file), "").expect("a file");
            }
        }
        let hierarchy = Hierarchy::Separate(vec![tree.path().to_owned()]);
        let cgroups = Cgroups::new(Driver::Cgroupfs, hierarchy, "", 0);
        let machine = Machine {
            cpus: 2,
            memory: 8 << 30,
            ..Machine::default()
        };
        let reserved = [("cpu", "1"), ("memory", "1Gi")];
        let config = KubeletConfiguration {
            kube_reserved: reserved
                .map(|(name, text)| (name.to_owned(), text.to_owned()))
                .into(),
            eviction_hard: [("memory.available".to_owned(), "1Gi".to_owned())].into(),
            ..KubeletConfiguration::default()
        };
        let all = Allowance::of_node(&machine, &config);
        cgroups.bound(&all).await.expect("written");
        cgroups.share(500).await.expect("written");
        let written = |class: &str, file: &str| {
            fs::read_to_string(tree.path().join(class).join(file)).expect("there")
        };
        assert_eq!(
            classes.map(|c| written(c, "cpu.shares")),
            ["1024", "512", "2"]
        );
        let limits = classes.map(|c| written(c, "memory.limit_in_bytes"));
        assert_eq!(limits, [(7_u64 << 30).to_string().as_str(), "", ""]);
    }

    #[test]
    fn allowances_become_files_of_either_version() {
        let allowance = Allowance {
            shares: Some(512),
            quota: Some(50_000),
            memory: Some(1 << 20),
            pids: None,
        };
        assert_eq!(
            allowance.files(false),
            [
                ("cpu.shares", "512".to_owned()),
                ("cpu.cfs_quota_us", "50000".to_owned()),
                ("memory.limit_in_bytes", "1048576".to_owned())
            ]
        );
        assert_eq!(
            allowance.files(true),
            [
                ("cpu.weight", "20".to_owned()),
                ("cpu.max", "50000 100000".to_owned()),
                ("memory.max", "1048576".to_owned())
            ]
        );
    }
}
