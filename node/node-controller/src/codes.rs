//! Exit codes of a provision: what each means and what to check. The table is `data/codes.tbl`.

const TABLE: &str = include_str!("../data/codes.tbl");

/// The codes that steps and the controller end with, by upstream's names without `ERR_`.
macro_rules! names {
    ($($name:ident = $number:literal,)*) => {
        $(
            #[doc = concat!("`ERR_", stringify!($name), "`")]
            pub const $name: u8 = $number;
        )*

        #[cfg(test)]
        const NAMED: &[(&str, u8)] = &[$((stringify!($name), $number)),*];
    };
}

names! {
    SYSTEMCTL_START_FAIL = 4,
    FILE_WATCH_TIMEOUT = 6,
    CONTAINERD_INSTALL_TIMEOUT = 28,
    K8S_DOWNLOAD_TIMEOUT = 31,
    KUBELET_START_FAIL = 34,
    CNI_DOWNLOAD_TIMEOUT = 41,
    MODPROBE_FAIL = 49,
    OUTBOUND_CONN_FAIL = 50,
    K8S_API_SERVER_CONN_FAIL = 51,
    K8S_API_SERVER_DNS_LOOKUP_FAIL = 52,
    K8S_API_SERVER_AZURE_DNS_LOOKUP_FAIL = 53,
    VHD_FILE_NOT_FOUND = 65,
    CONTAINERD_DOWNLOAD_TIMEOUT = 70,
    RUNC_DOWNLOAD_TIMEOUT = 71,
    CUSTOM_SEARCH_DOMAINS_FAIL = 80,
    SYSCTL_RELOAD = 103,
    NODE_EXPORTER_START_FAIL = 128,
    SWAP_CREATE_FAIL = 130,
    SWAP_CREATE_INSUFFICIENT_DISK_SPACE = 131,
    ARTIFACT_STREAMING_INSTALL = 153,
    UPDATE_CA_CERTS = 161,
    SECURE_TLS_BOOTSTRAP_CLIENT_DOWNLOAD_ERROR = 169,
    DISABLE_SSH = 172,
    PRIMARY_NIC_IP_NOT_FOUND = 173,
    INSERT_IMDS_RESTRICTION_RULE_INTO_MANGLE_TABLE = 174,
    INSERT_IMDS_RESTRICTION_RULE_INTO_FILTER_TABLE = 175,
    DELETE_IMDS_RESTRICTION_RULE_FROM_FILTER_TABLE = 177,
    CONFIG_PUBKEY_AUTH_SSH = 178,
    SNAPSHOT_UPDATE_START_FAIL = 202,
    K8S_INSTALL_ERR = 204,
    CREDENTIAL_PROVIDER_DOWNLOAD_TIMEOUT = 205,
    LOOKUP_DISABLE_KUBELET_SERVING_CERTIFICATE_ROTATION_TAG = 213,
    LOCALDNS_FAIL = 216,
    SECURE_TLS_BOOTSTRAP_ENABLE_FAILURE = 220,
    NVIDIA_DRIVER_INSTALL = 224,
    IMDS_FETCH_FAILED = 234,
    AKS_NODE_CONTROLLER_ERROR = 240,
    SECONDARY_NIC_CONFIG_FAIL = 243,
}

/// An exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    /// The number.
    pub number: u8,
    name: &'static str,
    /// What happened.
    pub meaning: &'static str,
    /// What to look at.
    pub check: &'static str,
}

impl Code {
    /// Upstream's name, such as `ERR_OUTBOUND_CONN_FAIL`, where it has one.
    pub fn name(&self) -> Option<String> {
        (self.name != "-").then(|| format!("ERR_{}", self.name))
    }
}

/// Every code, by number.
pub fn all() -> impl Iterator<Item = Code> {
    TABLE.lines().filter_map(|line| {
        let mut cells = line.split('|');
        Some(Code {
            number: cells.next()?.parse().ok()?,
            name: cells.next()?,
            meaning: cells.next()?,
            check: cells.next()?,
        })
    })
}

/// The code with this number or name; a name may lack `ERR_` and be in any case.
pub fn find(wanted: &str) -> Option<Code> {
    let name = wanted.trim().to_ascii_uppercase();
    let name = name.strip_prefix("ERR_").unwrap_or(&name);
    let number: Option<u8> = name.parse().ok();
    all().find(|code| Some(code.number) == number || (code.name != "-" && code.name == name))
}

/// Names that contain `part`, for whoever misspelled one.
pub fn similar(part: &str) -> Vec<String> {
    let part = part.trim().to_ascii_uppercase();
    let names = all().filter_map(|code| code.name());
    names.filter(|name| name.contains(&part)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn every_row_is_whole_and_every_number_and_name_stands_once() {
        let rows = TABLE.lines().filter(|line| !line.starts_with('#'));
        assert!(rows.clone().all(|row| row.split('|').count() == 4));
        assert_eq!(all().count(), rows.count());
        let mut numbers: Vec<_> = all().map(|code| code.number).collect();
        assert!(numbers.is_sorted());
        numbers.dedup();
        assert_eq!(numbers.len(), all().count());
        let mut names: Vec<_> = all().filter_map(|code| code.name()).collect();
        let named = names.len();
        names.sort();
        names.dedup();
        assert_eq!((named, names.len()), (128, 128));
        assert!(all().all(|code| !code.meaning.is_empty() && !code.check.is_empty()));
    }

    #[test]
    fn every_name_in_the_program_is_the_tables() {
        for (name, number) in NAMED {
            assert_eq!(find(name).map(|code| code.number), Some(*number), "{name}");
        }
    }

    #[test]
    fn codes_are_found_by_number_and_by_name() {
        for wanted in [
            "51",
            "ERR_K8S_API_SERVER_CONN_FAIL",
            "k8s_api_server_conn_fail",
            " 51\n",
        ] {
            assert_eq!(find(wanted).unwrap().number, 51, "{wanted}");
        }
        for unknown in ["3", "999", "-", "", "ERR_", "-1"] {
            assert_eq!(find(unknown), None, "{unknown}");
        }
        assert_eq!(find("124").unwrap().name(), None);
        assert_eq!(similar("swap").len(), 2);
    }
}
