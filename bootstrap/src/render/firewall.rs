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
for port in 80 32526; do
    iptables -w -C FORWARD -d 168.63.129.16 -p tcp --dport $port -j DROP 2>/dev/null ||
        iptables -w -I FORWARD -d 168.63.129.16 -p tcp --dport $port -j DROP
done
";

const COMMENT: &str =
    "AKS managed: added by AgentBaker ensureIMDSRestriction for IMDS restriction feature";

/// The tables a rule may stand in.
pub const TABLES: [&str; 2] = ["mangle", "filter"];

/// The rule that drops what pods send to the metadata service, as arguments of iptables after
/// the command.
pub fn imds_rule(primary: &str) -> Vec<String> {
    let words = [
        "!", "-s", primary, "-d", "169.254.169.254/32", "-p", "tcp", "-m", "tcp", "--dport", "80",
        "-m", "comment", "--comment", COMMENT, "-j", "DROP",
    ];
    words.map(str::to_owned).into()
}

/// The same decision as a script, for the kubelet's unit.
pub fn imds_script() -> String {
    format!(
        r#"#!/bin/sh
rule() {{
    iptables -w -t "$1" "$2" FORWARD $3 ! -s "$PRIMARY_NIC_IP" -d 169.254.169.254/32 -p tcp -m tcp \
        --dport 80 -m comment --comment "{COMMENT}" -j DROP
}}
wanted=none
if [ "$ENABLE_IMDS_RESTRICTION" = true ]; then
    wanted=filter
    [ "$INSERT_IMDS_RESTRICTION_RULE_TO_MANGLE_TABLE" = true ] && wanted=mangle
fi
[ -n "$PRIMARY_NIC_IP" ] || {{ [ "$wanted" = none ]; exit; }}
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
