//! Custom data is there before anything that needs it, once.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machines::{Driver as _, File, PowerOff, Spec};

use crate::host::Host;

// A unit that notes what it finds, as the node controller's unit would find it.
const WITNESS: &str = "[Unit]
After=cloud-init.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/bash -c 'cat /opt/config /opt/hook /opt/command > /opt/seen'
";

const MESSAGE: &str = "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=\"b\"\r\n\r\n\
--b\r\nContent-Type: text/cloud-boothook\r\n\r\n#cloud-boothook\n#!/bin/bash\necho hook >> /opt/hook\n\r\n\
--b\r\nContent-Type: text/cloud-config\r\n\r\n#cloud-config
write_files:
- path: /opt/config
  permissions: '0600'
  owner: nobody:nogroup
  content: |
    config
- path: /opt/config
  append: true
  permissions: '0600'
  owner: nobody:nogroup
  content: !!binary bW9yZQo=
runcmd:
- echo command >> /opt/command
\r\n--b--\r\n";

#[test]
fn files_hooks_and_commands_come_before_what_waits_for_them() {
    let Some(host) = Host::new() else { return };
    let spec = Spec {
        name: "custom".to_owned(),
        custom_data: STANDARD.encode(MESSAGE).into_bytes(),
        files: vec![File::new("/etc/systemd/system/witness.service", WITNESS)],
        units: vec!["witness.service".to_owned()],
        ..Spec::default()
    };
    host.boot(&spec);
    assert_eq!(
        host.must("custom", "cat /opt/seen"),
        "config\nmore\nhook\ncommand\n"
    );
    assert_eq!(
        host.must("custom", "stat -c '%a %U %G' /opt/config"),
        "600 nobody nogroup\n"
    );

    host.must("custom", "echo changed > /opt/config");
    host.driver
        .power_off("custom", PowerOff::Plug)
        .expect("off");
    host.boot(&spec);
    let again = host.must("custom", "cat /opt/seen");
    assert_eq!(
        again, "changed\nhook\nhook\ncommand\n",
        "only boothooks run at every start"
    );
}
