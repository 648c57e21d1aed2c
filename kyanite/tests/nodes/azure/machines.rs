//! The life of a virtual machine and its disks, as the real az leads it.

use std::fs;
use std::path::Path;
use std::process::Command;

use harness::{eventually, said, skip};
use serde_json::Value;

use super::{IMAGE, KEY, Person};
use crate::cluster::traces;

const CUSTOM_DATA: &str = "#cloud-config
write_files:
  - path: /srv/www/index.html
    content: made of custom data
runcmd:
  - [systemd-run, --unit=web, python3, -m, http.server, '80', -d, /srv/www]
";

impl Person {
    fn file(&self, name: &str, content: &str) -> String {
        let path = self.home.path().join(name);
        fs::write(&path, content).expect("a file");
        path.to_string_lossy().into_owned()
    }

    /// What a script prints in a machine, by `az vm run-command invoke`.
    fn runs(&self, machine: &str, script: &str) -> String {
        let file = self.file("script.sh", script);
        let ran = self.ok(&format!(
            "vm run-command invoke -g g -n {machine} --command-id RunShellScript --scripts @{file}"
        ));
        let message = ran["value"][0]["message"].as_str().unwrap_or_default();
        message.to_owned()
    }

    fn makes_machine(&self, name: &str, more: &str) -> Value {
        let key = self.file("key.pub", KEY);
        self.ok(&format!(
            "vm create -g g -n {name} --image {IMAGE} --size Standard_D4s_v3 --admin-username somebody \
             --ssh-key-values {key} {more}"
        ))
    }

    fn power(&self, machine: &str) -> String {
        let view = self.ok(&format!(
            "vm get-instance-view -g g -n {machine} --query instanceView.statuses[1].code"
        ));
        view.as_str().unwrap_or_default().to_owned()
    }

    fn disk_state(&self, disk: &str) -> Value {
        self.ok(&format!("disk show -g g -n {disk} --query diskState"))
    }

    fn is_killed(&self) {
        let status = self.home.kyanite("status -o json").expect("a status");
        let status: Value = serde_json::from_str(&status).expect("JSON");
        said(Command::new("kill").args(["-9", &status["pid"].to_string()])).expect("it is killed");
    }

    fn loop_devices(&self) -> Vec<String> {
        traces::loop_devices(self.home.path())
    }
}

#[test]
fn az_leads_the_life_of_a_machine() {
    let Some(person) = Person::new() else { return };
    person
        .home
        .kyanite("up --port 0 --nodes 0")
        .expect("it comes up");
    person.ok("group create -n g -l eastus");
    let custom = person.file("custom.yaml", CUSTOM_DATA);
    let made = person.makes_machine("m", &format!("--custom-data {custom}"));
    person.ok("vm open-port -g g -n m --port 80");
    let address = made["publicIpAddress"].as_str().expect("an address");
    let address = address.parse().expect("an address");
    eventually("its port answers", || {
        match person.home.world().gets(address, "/")?.as_str() {
            "made of custom data" => Ok(()),
            other => Err(other.to_owned()),
        }
    });

    // The administrator was there before the first unit, with the key that lets in.
    let said = person.runs("m", "id -un somebody; cat ~somebody/.ssh/authorized_keys; grep somebody /etc/sudoers.d/*; echo no >&2");
    assert!(
        said.starts_with("Enable succeeded: \n[stdout]\nsomebody\n"),
        "{said}"
    );
    assert!(
        said.contains(KEY) && said.ends_with("[stderr]\nno\n"),
        "{said}"
    );
    let said = person.runs("m", "echo before; exit 3");
    assert!(said.contains("exit status=3\n[stdout]\nbefore\n"), "{said}");

    // Extensions: what they printed, and how they ended.
    let set = |command: &str| {
        let settings = person.file(
            "settings.json",
            &format!("{{\"commandToExecute\": \"{command}\"}}"),
        );
        person.az(&format!(
            "vm extension set -g g --vm-name m -n CustomScript --publisher Microsoft.Azure.Extensions \
             --version 2.1 --settings {settings}"
        ))
    };
    set("echo extended > /etc/extended; echo said").expect("it runs");
    let statuses = "vm get-instance-view -g g -n m --query instanceView.extensions[0].statuses[0]";
    let status = person.ok(statuses);
    assert_eq!(status["code"], "ProvisioningState/succeeded");
    assert_eq!(
        status["message"],
        "Enable succeeded: \n[stdout]\nsaid\n\n[stderr]\n"
    );
    let failed = set("echo oh >&2; exit 9").unwrap_err();
    assert!(
        failed.contains("VMExtensionProvisioningError") && failed.contains("exit status=9"),
        "{failed}"
    );
    assert_eq!(person.ok(statuses)["code"], "ProvisioningState/failed/9");
    let script = "vm run-command create -g g --vm-name m --name kept --script hostname";
    person.ok(script);
    let view = person.ok(
        "vm run-command show -g g --vm-name m --name kept --instance-view --query instanceView",
    );
    assert_eq!(
        (view["output"].as_str(), view["exitCode"].as_i64()),
        (Some("m\n"), Some(0)),
        "{view}"
    );

    // The power state is the machine's own, also when nobody asked the cloud.
    person.runs("m", "systemctl poweroff --no-block");
    eventually("it is seen to be off", || match person.power("m") {
        state if state == "PowerState/stopped" => Ok(()),
        state => Err(state),
    });
    person.ok("vm start -g g -n m");
    assert_eq!(person.power("m"), "PowerState/running");
    let log = person
        .az_text("vm boot-diagnostics get-boot-log -g g -n m")
        .expect("a log");
    assert!(log.contains("Reached target"), "{log}");

    // A new image has the machine's custom data and nothing of what was done since.
    person.ok("vm reimage -g g -n m");
    let said = person.runs("m", "cat /etc/extended /srv/www/index.html");
    assert!(said.contains("[stdout]\nmade of custom data"), "{said}");
    person.ok("vm redeploy -g g -n m");
    assert_eq!(person.home.vm("m"), "running");

    // Killed while it is deleted, and while another boots: what ARM says is what there is.
    person.ok("vm delete -g g -n m -y --no-wait");
    person.is_killed();
    person
        .home
        .kyanite("up --port 0 --nodes 0")
        .expect("it comes up");
    eventually("it is gone", || match person.home.vm("m").as_str() {
        "gone" => Ok(()),
        state => Err(state.to_owned()),
    });
    assert!(person.az("vm show -g g -n m").is_err());
    person.home.kyanite("down --purge").expect("it goes down");
    assert_eq!(person.home.mounts(), Vec::<String>::new());
}

#[test]
fn disks_of_az_keep_their_bytes_from_machine_to_machine_and_leave_no_device() {
    if !Path::new("/sbin/mkfs.ext4").exists() || !Path::new("/dev/loop-control").exists() {
        return skip("there is no mkfs.ext4 (scripts/setup --for test), or no loop devices");
    }
    let Some(person) = Person::new() else { return };
    person
        .home
        .kyanite("up --port 0 --nodes 0")
        .expect("it comes up");
    person.ok("group create -n g -l eastus");
    for name in ["a", "b"] {
        person.makes_machine(name, "--vnet-name v --subnet s --nsg= --public-ip-address=");
    }
    person.ok("disk create -g g -n d --size-gb 1 --sku Premium_LRS");
    assert_eq!(person.disk_state("d"), "Unattached");
    person.ok("vm disk attach -g g --vm-name a -n d --lun 5");
    assert_eq!(person.disk_state("d"), "Attached");
    let lun = "/dev/disk/azure/scsi1/lun5";
    let said = person.runs(
        "a",
        &format!("mkfs.ext4 -q {lun} && mount {lun} /mnt && echo kept > /mnt/f && sync && echo ok"),
    );
    assert!(said.contains("[stdout]\nok\n"), "{said}");
    assert!(
        person
            .runs("b", "ls /dev/disk/azure/scsi1")
            .contains("[stdout]\n\n[stderr]")
    );
    let refused = person
        .az("vm disk attach -g g --vm-name b -n d")
        .unwrap_err();
    assert!(refused.contains("already owned by VM"), "{refused}");
    let refused = person.az("disk delete -g g -n d -y").unwrap_err();
    assert!(refused.contains("attached to VM"), "{refused}");

    // A snapshot of the disk as it is, while it is in use; and a disk of it.
    person.ok("snapshot create -g g -n s --source d");
    person.runs("a", "echo later > /mnt/f; sync");
    person.ok("disk create -g g -n r --source s --size-gb 2");

    // Deallocated, its disks wait; killed and started again, the cloud finds what it had.
    person.ok("vm deallocate -g g -n a");
    assert_eq!(person.disk_state("d"), "Reserved");
    assert_eq!(person.loop_devices(), Vec::<String>::new());
    person.ok("vm start -g g -n a");
    person.is_killed();
    person
        .home
        .kyanite("up --port 0 --nodes 0")
        .expect("it comes up");
    let said = person.runs("a", &format!("mount {lun} /mnt; cat /mnt/f"));
    assert!(said.contains("[stdout]\nlater\n"), "{said}");

    // Away from the one, still mounted, and to the other; the restored one beside it, and larger than before.
    person.ok("vm disk detach -g g --vm-name a -n d");
    assert_eq!(person.disk_state("d"), "Unattached");
    person.ok("vm disk attach -g g --vm-name b -n d --lun 5");
    person.ok("vm disk attach -g g --vm-name b -n r --lun 6");
    let said = person.runs(
        "b",
        &format!("mkdir /r; mount {lun} /mnt; mount /dev/disk/azure/scsi1/lun6 /r; cat /mnt/f /r/f; blockdev --getsize64 {lun}"),
    );
    assert!(
        said.contains("[stdout]\nlater\nkept\n1073741824\n"),
        "{said}"
    );
    person.ok("disk update -g g -n d --size-gb 3");
    let said = person.runs("b", &format!("blockdev --getsize64 {lun}"));
    assert!(said.contains("[stdout]\n3221225472\n"), "{said}");

    person.ok("vm delete -g g -n b -y");
    assert_eq!(person.disk_state("d"), "Unattached");
    person.ok("disk delete -g g -n r -y");
    assert_eq!(
        person.home.entries("disks").len(),
        2,
        "{:?}",
        person.home.entries("disks")
    );
    assert_eq!(person.loop_devices(), Vec::<String>::new());
    person.ok("group delete -n g -y");
    assert_eq!(person.home.entries("disks"), Vec::<String>::new());
    person.home.kyanite("down --purge").expect("it goes down");
    assert_eq!(person.home.mounts(), Vec::<String>::new());
}

#[test]
fn az_leads_the_machines_of_a_scale_set() {
    let Some(person) = Person::new() else { return };
    person
        .home
        .kyanite("up --port 0 --nodes 0")
        .expect("it comes up");
    person.ok("group create -n g -l eastus");
    let (key, custom) = (
        person.file("key.pub", KEY),
        person.file("custom.yaml", CUSTOM_DATA),
    );
    person.ok(&format!(
        "vmss create -g g -n web --image {IMAGE} --vm-sku Standard_D2s_v3 --instance-count 2 \
         --orchestration-mode Uniform --admin-username somebody --ssh-key-values {key} --custom-data {custom} \
         --load-balancer= --public-ip-address= --computer-name-prefix web"
    ));
    let states = || ["web000000", "web000001", "web000002"].map(|name| person.home.vm(name));
    assert_eq!(states(), ["running", "running", "gone"]);
    let runs = |id: u8, line: &str| {
        let script = person.file("script.sh", line);
        let ran = person.ok(&format!(
            "vmss run-command invoke -g g -n web --instance-id {id} --command-id RunShellScript --scripts @{script}"
        ));
        ran["value"][0]["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let said = runs(1, "hostname; cat /srv/www/index.html; touch /etc/here");
    assert!(
        said.contains("[stdout]\nweb000001\nmade of custom data"),
        "{said}"
    );
    person.ok("vmss stop -g g -n web --instance-ids 0");
    assert_eq!(states(), ["off", "running", "gone"]);
    person.ok("vmss start -g g -n web --instance-ids 0");
    person.ok("vmss restart -g g -n web --instance-ids 1");
    person.ok("vmss reimage -g g -n web --instance-ids 1");
    assert_eq!(states(), ["running", "running", "gone"]);
    assert!(runs(1, "ls /etc/here").contains("No such file"));

    // A disk at an instance.
    person.ok("disk create -g g -n d --size-gb 1");
    let id = person.ok("disk show -g g -n d --query id");
    person.ok(&format!(
        "vmss disk attach -g g --vmss-name web --instance-id 1 --lun 3 --disk {}",
        id.as_str().expect("an id")
    ));
    assert!(
        runs(1, "blockdev --getsize64 /dev/disk/azure/scsi1/lun3")
            .contains("[stdout]\n1073741824\n")
    );
    person.ok("vmss scale -g g -n web --new-capacity 3");
    person.ok("vmss delete-instances -g g -n web --instance-ids 0");
    assert_eq!(states(), ["gone", "running", "running"]);
    assert!(runs(1, "ls /dev/disk/azure/scsi1").contains("[stdout]\nlun3\n"));
    person.ok("vmss delete -g g -n web");
    assert_eq!(states(), ["gone", "gone", "gone"]);
    assert_eq!(person.loop_devices(), Vec::<String>::new());
    person.home.kyanite("down --purge").expect("it goes down");
    assert_eq!(person.home.mounts(), Vec::<String>::new());
}
