//! What pods may not reach: the instance metadata service (where the configuration says so) and
//! the host agent's endpoint. Rules go with a reboot, so the kubelet's unit puts them back.

/// Run before every start of the kubelet.
pub const WIRESERVER_PATH: &str = "/opt/azure/containers/kubelet.sh";
/// Run before every start of the kubelet, with the variables of its drop-in.
pub const IMDS_PATH: &str = "/opt/azure/containers/ensure_imds_restriction.sh";

/// Keeps pods from the host agent, which hands out protected settings. Forwarded packets only: the
/// machine itself keeps its access.
pub const WIRESERVER_SCRIPT: &str = "\
#!/bin/sh
if command -v iptables >/dev/null; then
    for port in 80 32526; do
        iptables -w -C FORWARD -d 168.63.129.16 -p tcp --dport $port -j DROP 2>/dev/null ||
            iptables -w -I FORWARD -d 168.63.129.16 -p tcp --dport $port -j DROP
    done
elif command -v nft >/dev/null; then
    nft -f - <<'RULES'
add table ip aks_wireserver
flush table ip aks_wireserver
table ip aks_wireserver {
    chain forward {
        type filter hook forward priority 0;
        ip daddr 168.63.129.16 tcp dport { 80, 32526 } drop
    }
}
RULES
else
    echo 'neither iptables nor nft: pods may reach 168.63.129.16' >&2
fi
";

const COMMENT: &str =
    "AKS managed: added by AgentBaker ensureIMDSRestriction for IMDS restriction feature";

/// The tables a rule may stand in.
pub const TABLES: [&str; 2] = ["mangle", "filter"];

/// The rule that drops what pods send to the metadata service, as arguments of iptables after
/// the command.
pub fn imds_rule(primary: &str) -> Vec<String> {
    let words = [
        "!",
        "-s",
        primary,
        "-d",
        "169.254.169.254/32",
        "-p",
        "tcp",
        "-m",
        "tcp",
        "--dport",
        "80",
        "-m",
        "comment",
        "--comment",
        COMMENT,
        "-j",
        "DROP",
    ];
    words.map(str::to_owned).into()
}

/// The table of nftables that holds the rule where there is no iptables.
pub const NFT_TABLE: &str = "aks_imds";

/// The rule in the language of nftables; replaces the whole table at once.
pub fn imds_rules(primary: &str, mangle: bool) -> String {
    let priority = if mangle { -150 } else { 0 };
    format!(
        "add table ip {NFT_TABLE}\nflush table ip {NFT_TABLE}\ntable ip {NFT_TABLE} {{\n    \
         chain forward {{\n        type filter hook forward priority {priority};\n        \
         ip saddr != {primary} ip daddr 169.254.169.254 tcp dport 80 drop\n    }}\n}}\n"
    )
}

/// The same decision as a script, for the kubelet's unit: put back after a reboot.
pub fn imds_script() -> String {
    format!(
        r#"#!/bin/sh
wanted=none
if [ "$ENABLE_IMDS_RESTRICTION" = true ]; then
    wanted=filter priority=0
    [ "$INSERT_IMDS_RESTRICTION_RULE_TO_MANGLE_TABLE" = true ] && wanted=mangle priority=-150
fi
[ -n "$PRIMARY_NIC_IP" ] || {{ [ $wanted = none ]; exit; }}
if ! command -v iptables >/dev/null; then
    [ $wanted = none ] && {{ nft delete table ip {NFT_TABLE} 2>/dev/null; exit 0; }}
    exec nft "add table ip {NFT_TABLE}; flush table ip {NFT_TABLE};
        add chain ip {NFT_TABLE} forward {{ type filter hook forward priority $priority; }};
        add rule ip {NFT_TABLE} forward ip saddr != $PRIMARY_NIC_IP ip daddr 169.254.169.254 tcp dport 80 drop"
fi
rule() {{
    iptables -w -t "$1" "$2" FORWARD $3 ! -s "$PRIMARY_NIC_IP" -d 169.254.169.254/32 -p tcp -m tcp \
        --dport 80 -m comment --comment "{COMMENT}" -j DROP
}}
for table in mangle filter; do
    if rule $table -C "" 2>/dev/null; then present=true; else present=false; fi
    if [ $table = $wanted ]; then
        $present || rule $table -I 1 || exit 1
    elif $present && [ $wanted = none ]; then
        rule $table -D "" || exit 1
    fi
done
"#
    )
}
