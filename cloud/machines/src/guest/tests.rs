#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

fn content(laid: &[Laid], path: &str) -> String {
    let mut files = laid.iter().filter_map(|laid| match laid {
        Laid::File(file) if file.path.to_str() == Some(path) => Some(file),
        _ => None,
    });
    String::from_utf8(files.next_back().unwrap().content.clone()).unwrap()
}

fn spec() -> Spec {
    Spec {
        name: "node-1".to_owned(),
        attachment: Some(Attachment {
            network: "net".to_owned(),
            address: Ipv4Addr::new(10, 0, 0, 4),
            name_servers: vec![Ipv4Addr::new(10, 0, 0, 1)],
        }),
        units: vec!["containerd.service".to_owned()],
        ..Spec::default()
    }
}

#[test]
fn a_machine_knows_who_it_is() {
    let laid = first_start(&spec(), "0123", &CustomData::default());
    assert_eq!(content(&laid, "/etc/hostname"), "node-1\n");
    assert_eq!(content(&laid, "/etc/machine-id"), "0123\n");
    assert_eq!(content(&laid, "/etc/resolv.conf"), "nameserver 10.0.0.1\n");
    assert!(content(&laid, "/etc/hosts").ends_with("\n10.0.0.4 node-1\n"));
    assert_eq!(
        content(&laid, "/etc/fstab"),
        "",
        "the host's disks are not mounted"
    );
    assert!(
        content(
            &[every_start(&spec())],
            "/etc/systemd/system/kyanite-machine.target"
        )
        .contains("containerd.service")
    );
}

#[test]
fn the_callers_files_win() {
    let mut spec = spec();
    spec.files = vec![File::new("/etc/hosts", "mine")];
    assert_eq!(
        content(
            &first_start(&spec, "0", &CustomData::default()),
            "/etc/hosts"
        ),
        "mine"
    );
}

#[test]
fn hooks_and_scripts_are_run_where_they_are_laid() {
    let custom_data = CustomData {
        boothooks: vec![b"a".to_vec(), b"b".to_vec()],
        scripts: vec![b"c".to_vec()],
        ignored: vec!["packages".to_owned()],
        ..CustomData::default()
    };
    let laid = first_start(&spec(), "0", &custom_data);
    let programs = programs(&spec(), &custom_data);
    let units = ["cloud-init", "cloud-final"]
        .map(|name| content(&laid, &format!("/etc/systemd/system/{name}.service")))
        .concat();
    for program in programs.iter().filter(|program| program.mode == 0o700) {
        let line = format!("ExecStart=-{}\n", program.path.display());
        assert_eq!(units.matches(&line).count(), 1, "{line}");
    }
    assert_eq!(programs.len(), 5, "two hooks, a script, a log and the data");
    assert_eq!(programs[4].mode, 0o600, "it has secrets");
    assert_eq!(programs[3].content, b"not done: packages\n");
}
