//! How provisions fail: the step, the exit code, the cause, what to do, and how long it takes on
//! the machine's own clock.

use std::time::Duration;

use ::steps::host::{
    Answer, Fault, Files, Finished, Host as _, NetworkError, SimulatedHost, UnitRecord,
};
use serde_json::json;

use crate::cases::{Case, base};
use crate::machines::{Image, configuration, provision, put};

/// What goes wrong with a machine before it is provisioned.
type Trouble = fn(SimulatedHost) -> SimulatedHost;

struct Failing {
    patch: &'static str,
    trouble: Trouble,
    image: Image,
    step: &'static str,
    code: u8,
    cause: &'static str,
    remedy: &'static str,
    /// Seconds on the machine's clock.
    within: u64,
}

const FINE: Trouble = |host| host;
const API: &str = "https://c-dns-1.hcp.westeurope.azmk8s.io:443/";
const OFF_AZURE: &str = r#"{"is_vhd": false, "cluster_config": {"use_instance_metadata": false}}"#;

fn files(host: &SimulatedHost) -> &Files {
    host.files()
}

fn remove(host: SimulatedHost, path: &str) -> SimulatedHost {
    files(&host).remove(path.as_ref()).unwrap();
    host
}

fn fails(words: &str) -> Answer {
    Answer::Ends(Finished::failed(1, words))
}

fn broken(host: SimulatedHost, unit: &str) -> SimulatedHost {
    host.with_unit(
        unit,
        UnitRecord {
            broken: true,
            ..UnitRecord::default()
        },
    )
}

fn timed_out(server: &str) -> Result<(u16, Vec<u8>), NetworkError> {
    Err(NetworkError::TimedOut {
        server: server.to_owned(),
        limit: Duration::ZERO,
    })
}

use Image::{Aks22, Bare, Debian};

#[rustfmt::skip]
const FAILING: &[Failing] = &[
    Failing { image: Debian, patch: OFF_AZURE, trouble: |host| { put(files(&host), "/etc/os-release", "ID=azurelinux\nPRETTY_NAME=\"Azure Linux 3.0\"\n", 0o644); host }, step: "checkDistribution", code: 240, cause: "Azure Linux 3.0 cannot be provisioned natively", remedy: "Ubuntu or Debian image", within: 1 },
    Failing { image: Debian, patch: OFF_AZURE, trouble: |host| host.at("2001-01-01T00:00:00Z".parse().unwrap()), step: "checkClock", code: 51, cause: "the clock of this machine says 2001-01-01T00:00:00Z", remedy: "timedatectl", within: 1 },
    Failing { image: Aks22, patch: r#"{"kubernetes_ca_cert": null}"#, trouble: FINE, step: "ensureKubeCACert", code: 51, cause: "`kubernetes_ca_cert` is missing", remedy: "base64 -w0", within: 1 },
    Failing { image: Aks22, patch: r#"{"kubernetes_ca_cert": "bm90IHBlbQ=="}"#, trouble: FINE, step: "ensureKubeCACert", code: 51, cause: "`kubernetes_ca_cert` is not base64 of PEM", remedy: "base64 -w0", within: 1 },
    Failing { image: Aks22, patch: "{}", trouble: |host| host.serving("http://169.254.169.254/", timed_out("169.254.169.254")), step: "fetch_and_cache_imds_instance_metadata", code: 234, cause: "did not answer", remedy: "169.254.169.254", within: 180 },
    Failing { image: Aks22, patch: "{}", trouble: |host| host.serving("http://169.254.169.254/", Ok((404, b"no".to_vec()))), step: "fetch_and_cache_imds_instance_metadata", code: 234, cause: "answered 404", remedy: "use_instance_metadata: false", within: 120 },
    Failing { image: Aks22, patch: r#"{"outbound_command": "curl https://mcr.microsoft.com/v2/"}"#, trouble: |host| host.answering("curl", fails("Could not resolve host")), step: "checkOutbound", code: 50, cause: "Could not resolve host", remedy: "NAT gateway", within: 320 },
    Failing { image: Debian, patch: OFF_AZURE, trouble: |host| host.resolving("other.example", &[]), step: "apiserverNslookup", code: 52, cause: "c-dns-1.hcp.westeurope.azmk8s.io", remedy: "virtual network", within: 301 },
    Failing { image: Aks22, patch: "{}", trouble: |host| host.resolving("169.254.169.254", &[]).resolving("127.0.0.1", &[]), step: "apiserverNslookup", code: 53, cause: "c-dns-1.hcp.westeurope.azmk8s.io", remedy: "virtual network", within: 301 },
    Failing { image: Debian, patch: OFF_AZURE, trouble: |host| { host.fault(Fault::NoResolver); host }, step: "apiserverNslookup", code: 52, cause: "no DNS server answered", remedy: "resolvectl", within: 320 },
    Failing { image: Debian, patch: r#"{"is_vhd": false, "cluster_config": {"use_instance_metadata": false}, "api_server_config": {"api_server_name": "c.privatelink.westeurope.azmk8s.io"}}"#, trouble: |host| host.serving("https://c.privatelink.westeurope.azmk8s.io:443/", timed_out("c")), step: "apiserverCurl", code: 51, cause: "did not answer", remedy: "firewalls", within: 620 },
    Failing { image: Aks22, patch: "{}", trouble: |host| host.serving(API, timed_out("c-dns-1")), step: "apiserverCurl", code: 51, cause: "`c-dns-1` did not answer within", remedy: "network security groups", within: 320 },
    Failing { image: Aks22, patch: "{}", trouble: |host| host.serving(API, Err(NetworkError::Certificate { server: "c".to_owned(), cause: "unknown issuer".to_owned() })), step: "apiserverCurl", code: 51, cause: "not trusted: unknown issuer", remedy: "the CA in the configuration", within: 2 },
    Failing { image: Aks22, patch: r#"{"api_server_config": {"api_server_name": "10.1.2.3"}}"#, trouble: |host| host.serving("10.1.2.3:443", Err(NetworkError::Unreachable { server: "10.1.2.3:443".to_owned(), cause: "connection refused".to_owned() })), step: "apiserverNC", code: 51, cause: "connection refused", remedy: "something listens there", within: 620 },
    Failing { image: Aks22, patch: r#"{"custom_linux_os_config": {"sysctl_config": {"vm_max_map_count": 7}}}"#, trouble: FINE, step: "ensureSysctl", code: 103, cause: "no setting `vm.max_map_count`", remedy: "custom_linux_os_config.sysctl_config", within: 1 },
    Failing { image: Aks22, patch: r#"{"custom_linux_os_config": {"enable_swap_config": true, "swap_file_size": 90000}}"#, trouble: FINE, step: "configureSwapFile", code: 131, cause: "a swap file of 90000000 kB does not fit: there are 60000000 kB on /", remedy: "swap_file_size", within: 1 },
    Failing { image: Aks22, patch: r#"{"custom_linux_os_config": {"enable_swap_config": true, "swap_file_size": 9}}"#, trouble: |host| host.answering("swapon", fails("Operation not permitted")), step: "configureSwapFile", code: 130, cause: "Operation not permitted", remedy: "swapon /swapfile", within: 30 },
    Failing { image: Aks22, patch: r#"{"custom_ca_certs": ["LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkEK", "bm9uZQ=="]}"#, trouble: FINE, step: "configureCustomCaCertificate", code: 161, cause: "`custom_ca_certs[1]` is not a certificate", remedy: "base64 -w0", within: 1 },
    Failing { image: Bare, patch: r#"{"cluster_config": {"use_instance_metadata": false}}"#, trouble: FINE, step: "installContainerRuntime", code: 65, cause: "containerd and runc not installed", remedy: "is_vhd: false", within: 1 },
    Failing { image: Bare, patch: OFF_AZURE, trouble: |host| host.answering("sh -c 'set -eu\nexport DEBIAN", fails("E: Unable to locate package containerd")), step: "installContainerRuntime", code: 28, cause: "Unable to locate package", remedy: "by hand", within: 60 },
    Failing { image: Bare, patch: r#"{"is_vhd": false, "kubernetes_version": null, "cluster_config": {"use_instance_metadata": false}}"#, trouble: FINE, step: "configureKubeletAndKubectl", code: 204, cause: "the kubelet is not installed", remedy: "kube_binary_url", within: 1 },
    Failing { image: Aks22, patch: r#"{"kubernetes_version": "1.35.0", "kube_binary_config": {"kube_binary_url": "https://downloads.example/kube.tar.gz#sha256=0000000000000000000000000000000000000000000000000000000000000000"}}"#, trouble: FINE, step: "configureKubeletAndKubectl", code: 31, cause: "has SHA-256", remedy: "digest", within: 60 },
    Failing { image: Aks22, patch: r#"{"kubernetes_version": "1.35.0", "kube_binary_config": {"kube_binary_url": "/opt/missing.tar.gz"}}"#, trouble: FINE, step: "configureKubeletAndKubectl", code: 31, cause: "/opt/missing.tar.gz, which the configuration names, is not on this machine", remedy: "put the file there", within: 1 },
    Failing { image: Aks22, patch: r#"{"kubelet_config": {"kubelet_config_file_config": {"kubeReservedCgroup": "/other.slice"}}}"#, trouble: FINE, step: "ensureKubeletCgroupHierarchy", code: 34, cause: "only `/kubereserved.slice` is supported", remedy: "leave it out", within: 1 },
    Failing { image: Debian, patch: r#"{"is_vhd": false, "cluster_config": {"use_instance_metadata": false}, "kubelet_config": {"kubelet_config_file_config": {"kubeReservedCgroup": "/kubereserved.slice"}}}"#, trouble: FINE, step: "ensureKubeletCgroupHierarchy", code: 34, cause: "reserved cgroups need cgroup2", remedy: "unified_cgroup_hierarchy", within: 1 },
    Failing { image: Debian, patch: r#"{"is_vhd": false, "cluster_config": {"use_instance_metadata": false}, "gpu_config": {"enable_nvidia": true}}"#, trouble: FINE, step: "checkGPUDriver", code: 224, cause: "does not install GPU drivers", remedy: "enable_nvidia", within: 1 },
    Failing { image: Aks22, patch: "{}", trouble: |host| { host.fault(Fault::NoSystemd); host }, step: "ensureContainerd", code: 4, cause: "`systemctl` is not installed", remedy: "systemd as init", within: 1 },
    Failing { image: Aks22, patch: "{}", trouble: |host| broken(host, "containerd.service"), step: "ensureContainerd", code: 4, cause: "containerd.service failed", remedy: "journalctl -u containerd.service", within: 30 },
    Failing { image: Aks22, patch: "{}", trouble: |host| host.answering("ctr", fails("connection refused")), step: "waitForContainerdReady", code: 4, cause: "containerd does not answer (active): connection refused", remedy: "journalctl -u containerd", within: 125 },
    Failing { image: Aks22, patch: "{}", trouble: |host| broken(host, "kubelet.service"), step: "ensureKubelet", code: 34, cause: "kubelet.service failed", remedy: "journalctl -u kubelet.service", within: 30 },
    Failing { image: Aks22, patch: "{}", trouble: |host| host.serving("http://127.0.0.1:10248/", Err(NetworkError::Unreachable { server: "127.0.0.1:10248".to_owned(), cause: "connection refused".to_owned() })).answering("journalctl", Answer::Ends(Finished::ok("failed to load kubeconfig\n"))), step: "checkKubeletHealth", code: 34, cause: "its last words: failed to load kubeconfig", remedy: "journalctl -u kubelet", within: 245 },
    Failing { image: Aks22, patch: r#"{"local_dns_profile": {"enable_local_dns": true}}"#, trouble: |host| broken(host, "localdns.service"), step: "enableLocalDNS", code: 216, cause: "localdns.service failed", remedy: "journalctl -u localdns.service", within: 30 },
    Failing { image: Debian, patch: r#"{"is_vhd": false, "cluster_config": {"use_instance_metadata": false}, "custom_search_domain_config": {"domain_name": "d", "realm_user": "u", "realm_password": "hunter2"}}"#, trouble: FINE, step: "runCustomSearchDomain", code: 80, cause: "setup-custom-search-domains.sh", remedy: "leave `custom_search_domain_config` out", within: 1 },
    Failing { image: Debian, patch: r#"{"is_vhd": false, "cluster_config": {"use_instance_metadata": false}, "enable_hosts_config_agent": true}"#, trouble: FINE, step: "configPrivateClusterHosts", code: 4, cause: "reconcile-private-hosts.service", remedy: "private DNS zone", within: 1 },
    Failing { image: Debian, patch: r#"{"is_vhd": false, "cluster_config": {"use_instance_metadata": false}, "enable_artifact_streaming": true}"#, trouble: FINE, step: "ensureContainerd.ensureArtifactStreaming", code: 153, cause: "acr-mirror.service", remedy: "enable_artifact_streaming", within: 1 },
    Failing { image: Debian, patch: r#"{"is_vhd": false, "cluster_config": {"use_instance_metadata": false}, "bootstrapping_config": {"bootstrapping_auth_method": 2}}"#, trouble: FINE, step: "installSecureTLSBootstrapClient", code: 169, cause: "aks-secure-tls-bootstrap-client", remedy: "secure_tls_bootstrapping_custom_client_download_url", within: 1 },
    Failing { image: Aks22, patch: r#"{"kubelet_config": {"kubelet_flags": {"--image-credential-provider-config": "a", "--image-credential-provider-bin-dir": "b"}}}"#, trouble: FINE, step: "ensureKubelet.installCredentialProvider", code: 205, cause: "acr-credential-provider, which is not installed", remedy: "linux_credential_provider_url", within: 1 },
    Failing { image: Debian, patch: OFF_AZURE, trouble: |host| remove(remove(host, "/proc/sys/net/bridge/bridge-nf-call-iptables"), "/proc/sys/net/bridge").answering("modprobe", fails("Module br_netfilter not found")), step: "configureCNI", code: 49, cause: "Module br_netfilter not found", remedy: "modprobe br_netfilter", within: 120 },
    Failing { image: Debian, patch: r#"{"is_vhd": false, "cluster_config": {"use_instance_metadata": false}, "imds_restriction_config": {"enable_imds_restriction": true}}"#, trouble: |host| host.answering("ip -4", fails("Network is unreachable")), step: "ensureKubelet.ensureIMDSRestriction", code: 173, cause: "machine's own address", remedy: "default route", within: 90 },
    Failing { image: Debian, patch: r#"{"is_vhd": false, "cluster_config": {"use_instance_metadata": false}, "imds_restriction_config": {"enable_imds_restriction": true}}"#, trouble: |host| remove(host, "/usr/sbin/nft"), step: "ensureKubelet.ensureIMDSRestriction", code: 175, cause: "neither iptables nor nft", remedy: "install iptables", within: 1 },
    Failing { image: Aks22, patch: r#"{"imds_restriction_config": {"enable_imds_restriction": true, "insert_imds_restriction_rule_to_mangle_table": true}}"#, trouble: |host| host.answering("iptables -w -t mangle -I", fails("Table does not exist")), step: "ensureKubelet.ensureIMDSRestriction", code: 174, cause: "Table does not exist", remedy: "by hand", within: 90 },
    Failing { image: Aks22, patch: r#"{"disable_pubkey_auth": true}"#, trouble: |host| host.answering("/usr/sbin/sshd -t", fails("Bad configuration option: Foo")), step: "disableSSHPubkeyAuth", code: 178, cause: "Bad configuration option: Foo", remedy: "/etc/ssh/sshd_config", within: 1 },
    Failing { image: Aks22, patch: r#"{"network_config": {"standard_secondary_nic_count": 1}, "cluster_config": {"use_instance_metadata": false}}"#, trouble: FINE, step: "configureSecondaryNICs", code: 243, cause: "instance metadata service, which was not asked", remedy: "standard_secondary_nic_count", within: 1 },
    Failing { image: Aks22, patch: r#"{"message_of_the_day": "%%%"}"#, trouble: FINE, step: "configureMotd", code: 240, cause: "`message_of_the_day` is not base64", remedy: "encode", within: 1 },
];

#[test]
fn every_failure_has_its_code_its_cause_and_what_to_do() {
    for case in FAILING {
        let about = format!("{} ({})", case.step, case.cause);
        let mut machine = case.image.machine("");
        machine.host = (case.trouble)(machine.host);
        let name = "failing";
        let config = Case {
            name,
            image: case.image,
            tags: "",
            patch: case.patch,
        }
        .configuration();
        let report = provision(&machine, &config);
        let Some((step, code, failure)) = report.failure else {
            panic!("{about}: nothing failed")
        };
        assert_eq!(
            (step.as_deref(), code),
            (Some(case.step), case.code),
            "{about}: {failure:?}"
        );
        assert!(
            failure.cause.contains(case.cause),
            "{about}: {}",
            failure.cause
        );
        assert!(
            failure.remedy.contains(case.remedy),
            "{about}: {}",
            failure.remedy
        );
        let limit = Duration::from_secs(case.within);
        assert!(
            report.duration <= limit,
            "{about}: took {:?}",
            report.duration
        );
    }
}

#[test]
fn no_secret_is_in_what_a_run_says_or_runs() {
    let mut config = base();
    config["http_proxy_config"] = json!({"http_proxy": "http://u:hunter2@proxy:1/"});
    config["custom_search_domain_config"] =
        json!({"domain_name": "d", "realm_user": "u", "realm_password": "hunter2"});
    config["auth_config"]["service_principal_secret"] = json!("aHVudGVyMg==");
    config["kubernetes_version"] = json!("1.35.0");
    config["kube_binary_config"]["kube_binary_url"] =
        json!("https://downloads.example/plain.tar.gz?sig=hunter2");
    let machine = Image::Aks22.machine("");
    let report = provision(&machine, &configuration(&config));
    assert_eq!(report.code(), 0, "{:?}", report.failure);
    let said = format!("{report:?} {:?}", machine.host.commands());
    for secret in ["hunter2", "aHVudGVyMg", "0123456789abcdef"] {
        assert!(!said.contains(secret), "{secret} is in: {said}");
    }
}

#[test]
fn a_foreign_distribution_is_left_alone() {
    let machine = Image::Debian.machine("");
    put(
        machine.host.files(),
        "/etc/os-release",
        "ID=azurelinux\n",
        0o644,
    );
    let before = machine.host.tree().unwrap();
    let report = provision(&machine, &configuration(&base()));
    assert_eq!(report.code(), 240);
    let mut after = machine.host.tree().unwrap();
    after.retain(|path, _| !path.starts_with("/var"));
    assert_eq!(after, before);
    assert_eq!(machine.host.commands(), Vec::<String>::new());
}
