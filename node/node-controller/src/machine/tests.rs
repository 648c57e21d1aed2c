use super::*;

const DOCUMENT: &str = r#"{
  "compute": {"tagsList": [
    {"name": "SkipGpuDriverInstall", "value": "TRUE"},
    {"name": "owner", "value": "not true"}]},
  "network": {"interface": [
    {"macAddress": "7CED8D8A4DCE",
     "ipv4": {"ipAddress": [{"privateIpAddress": "10.224.0.4", "publicIpAddress": ""}]},
     "ipv6": {"ipAddress": []}},
    {"macAddress": "7CED8D8A4DCF", "ipv4": {"ipAddress": []},
     "ipv6": {"ipAddress": [{"privateIpAddress": "fd00::5"}]}},
    {"macAddress": "nonsense"}]}}"#;

#[test]
fn metadata_gives_addresses_tags_and_the_other_interfaces() {
    let metadata = Metadata::parse(DOCUMENT.as_bytes()).unwrap();
    assert_eq!(metadata.addresses, ["10.224.0.4"]);
    assert_eq!(metadata.tags["owner"], "not true");
    let mac = "7c:ed:8d:8a:4d:cf".to_owned();
    assert_eq!(metadata.secondary, [Interface { mac, ipv6: true }]);
    assert_eq!(Metadata::parse(b"<html>"), None);
}

#[test]
fn a_tag_counts_only_as_a_whole_name_that_is_true() {
    let machine = Machine {
        tags: Metadata::parse(DOCUMENT.as_bytes()).unwrap().tags,
        ..Machine::default()
    };
    assert!(machine.is_tagged("skipgpudriverinstall"));
    assert!(!machine.is_tagged("owner"));
    assert!(!machine.is_tagged("SkipGpu"));
}

#[test]
fn distributions_are_read_from_os_release() {
    let ubuntu = Distribution::parse(
        "PRETTY_NAME=\"Ubuntu 22.04.5 LTS\"\nVERSION_ID=\"22.04\"\nID=ubuntu\nID_LIKE=debian\n",
    );
    assert!(ubuntu.is_ubuntu() && ubuntu.is_supported());
    assert_eq!(ubuntu.version, "22.04");
    let debian = Distribution::parse("ID=debian\nVERSION_ID=\"12\"\n");
    assert!(debian.is_supported() && !debian.is_ubuntu());
    assert!(!Distribution::parse("ID='azurelinux'\n").is_supported());
}

#[test]
fn programs_of_distributions_say_their_version_in_their_own_way() {
    let two = Version::parse("2.1.4");
    assert_eq!(version_of("v2.1.4"), two);
    assert_eq!(version_of("2.1.4-rc.1"), two);
    assert_eq!(version_of("1.6.20~ds1"), Version::parse("1.6.20"));
    assert_eq!(version_of("unknown"), None);
}

#[test]
fn an_unknown_containerd_is_taken_for_an_old_one() {
    let machine = |version: &str| Machine {
        containerd: version_of(version),
        ..Machine::default()
    };
    assert!(machine("2.0.0").has_containerd_2());
    assert!(!machine("1.7.27").has_containerd_2());
    assert!(!machine("").has_containerd_2());
}
