#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::Write as _;

use super::*;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn written(path: &str, mode: u32, content: &[u8]) -> WrittenFile {
    WrittenFile {
        path: path.into(),
        mode,
        owner: None,
        append: false,
        content: content.to_vec(),
    }
}

const CONFIG: &str = "/opt/azure/containers/aks-node-controller-config.json";

#[test]
fn nothing_is_no_custom_data() {
    assert_eq!(CustomData::read(b"").unwrap(), CustomData::default());
    assert_eq!(CustomData::read(b" \n").unwrap(), CustomData::default());
}

#[test]
fn the_write_files_form_of_the_node_controller() {
    // The content is indented as upstream's template indents it.
    let yaml = format!(
        "#cloud-config\nwrite_files:\n- path: {CONFIG}\n  permissions: \"0755\"\n  owner: root\n  content: !!binary |\n   {}\n",
        STANDARD.encode(br#"{"version":"v1"}"#)
    );
    let expected = written(CONFIG, 0o755, br#"{"version":"v1"}"#);
    for packed in [
        yaml.clone().into_bytes(),
        STANDARD.encode(&yaml).into_bytes(),
        gzip(yaml.as_bytes()),
    ] {
        let read = CustomData::read(&packed).unwrap();
        assert_eq!(read.files, std::slice::from_ref(&expected));
        assert_eq!(read.ignored, Vec::<String>::new());
    }
}

#[test]
fn binary_content_need_not_be_text() {
    let compressed = gzip(b"hello");
    let yaml = format!(
        "#cloud-config\nwrite_files:\n- path: /a\n  encoding: gzip\n  content: !!binary {}\n- path: /b\n  content: !!binary {}\n",
        STANDARD.encode(&compressed),
        STANDARD.encode(&compressed),
    );
    let files = CustomData::read(yaml.as_bytes()).unwrap().files;
    assert_eq!(
        files,
        [
            written("/a", 0o644, b"hello"),
            written("/b", 0o644, &compressed)
        ]
    );
}

#[test]
fn encodings_permissions_and_owners() {
    let both = STANDARD.encode(gzip(b"x"));
    let cases = [
        ("content: x".to_owned(), 0o644, None),
        ("content: eA==\n  encoding: b64".to_owned(), 0o644, None),
        (
            format!("content: {both}\n  encoding: gz+b64\n  permissions: '600'"),
            0o600,
            None,
        ),
        ("content: x\n  permissions: 0o700".to_owned(), 0o700, None),
        (
            "content: x\n  permissions: '1777'\n  owner: root:root".to_owned(),
            0o1777,
            None,
        ),
        (
            "content: x\n  owner: nobody:daemon".to_owned(),
            0o644,
            Some(("nobody", "daemon")),
        ),
    ];
    for (fields, mode, owner) in cases {
        let yaml = format!("#cloud-config\nwrite_files:\n- path: /f\n  {fields}\n");
        let file = &CustomData::read(yaml.as_bytes()).unwrap().files[0];
        assert_eq!(file.content, b"x", "{fields}");
        assert_eq!(file.mode, mode, "{fields}");
        let expected = owner.map(|(user, group)| (user.to_owned(), group.to_owned()));
        assert_eq!(file.owner, expected, "{fields}");
    }
}

#[test]
fn the_boothook_form_of_the_node_controller() {
    let message = "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=\"abc\"\r\n\r\n\
        --abc\r\nContent-Transfer-Encoding: 7bit\r\nContent-Type: text/cloud-boothook\r\nMime-Version: 1.0\r\n\r\n\
        #cloud-boothook\n#!/bin/bash\nset -e\n\necho '--abcd'\r\n\
        --abc\r\nContent-Transfer-Encoding: 7bit\r\nContent-Type: text/cloud-config\r\nMime-Version: 1.0\r\n\r\n\
        runcmd:\n- echo \"it's done\"\n- [echo, \"it's\", 5]\n\r\n--abc--\r\n";
    for packed in [message.to_owned(), STANDARD.encode(message)] {
        let read = CustomData::read(packed.as_bytes()).unwrap();
        assert_eq!(
            read.boothooks,
            [b"#!/bin/bash\nset -e\n\necho '--abcd'".to_vec()]
        );
        assert_eq!(
            read.scripts,
            [b"#!/bin/sh\necho \"it's done\"\n'echo' 'it'\\''s' '5'\n".to_vec()]
        );
    }
}

#[test]
fn parts_may_be_encoded_nested_and_unknown() {
    let inner = "Content-Type: multipart/mixed; boundary=in\n\n--in\nContent-Type: text/plain\n\n#!/bin/sh\ntrue\n--in--\n";
    let message = format!(
        "Content-Type: multipart/mixed;\n boundary=out\n\npreamble\n--out\n{inner}\n--out\n\
        Content-Type: text/x-shellscript; charset=\"us-ascii\"\nContent-Transfer-Encoding: base64\n\n{}\n--out\n\
        Content-Type: text/x-shellscript\nContent-Transfer-Encoding: quoted-printable\n\n#!/bin/sh=0Aech=\no 1=3D1\n--out\n\
        Content-Type: text/jinja2\n\nx {{{{y}}}}\n--out--\nepilogue",
        STANDARD.encode("#!/bin/sh\r\nfalse\r\n")
    );
    let read = CustomData::read(message.as_bytes()).unwrap();
    let expected = [
        "#!/bin/sh\ntrue",
        "#!/bin/sh\nfalse\n",
        "#!/bin/sh\necho 1=1",
    ];
    assert_eq!(read.scripts, expected.map(|s| s.as_bytes().to_vec()));
    assert_eq!(read.ignored, ["text/jinja2"]);
}

#[test]
fn a_boothook_without_an_interpreter_gets_the_shell() {
    let read = CustomData::read(b"#cloud-boothook\r\necho a\r\n").unwrap();
    assert_eq!(read.boothooks, [b"#!/bin/sh\necho a\n".to_vec()]);
}

#[test]
fn what_is_not_done_is_named() {
    let read = CustomData::read(b"#cloud-config\npackages: [a]\nusers:\n- name: x\n").unwrap();
    assert_eq!(read.ignored, ["packages"]);
    assert_eq!(
        CustomData::read(b"#cloud-config\n").unwrap(),
        CustomData::default()
    );
}

#[test]
fn errors_say_what_is_wrong() {
    let cases: [(&[u8], &str); 7] = [
        (b"hello, world", "it starts with `hello, world`"),
        (
            b"#cloud-config\nwrite_files: [",
            "the cloud-config is not valid",
        ),
        (
            b"#cloud-config\nwrite_files:\n- path: a\n",
            "`a`: the path is not absolute",
        ),
        (
            b"#cloud-config\nwrite_files:\n- {path: /a, permissions: rw}",
            "the permissions are not octal",
        ),
        (
            b"#cloud-config\nwrite_files:\n- {path: /a, encoding: b64, content: '%'}",
            "the content of `/a`",
        ),
        (b"Content-Type: multipart/mixed\n\nx", "no boundary"),
        (
            b"Content-Type: multipart/mixed; boundary=a\n\n--a\n\nx\n",
            "no end",
        ),
    ];
    for (input, expected) in cases {
        let said = CustomData::read(input).unwrap_err().to_string();
        assert!(said.contains(expected), "{said}");
    }
}

proptest::proptest! {
    #[test]
    fn no_bytes_are_too_strange(bytes: Vec<u8>, text in "(#cloud-config|Content-Type: multipart/mixed; boundary=a\n\n)?(--a\n|[a-z:\\- \n=])*") {
        let _ = CustomData::read(&bytes);
        let _ = CustomData::read(text.as_bytes());
    }
}
