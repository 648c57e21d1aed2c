//! Whether the node reaches what it needs: the outside, DNS, the API server. Each has its own
//! exit code, and no shell sees a value of the configuration.

use std::net::Ipv4Addr;
use std::time::Duration;

use ::steps::engine::{Change, Failure, Scene};
use ::steps::host::{Command, NetworkError, Request};

use super::{Changes, Finding, observe};
use crate::codes::K8S_API_SERVER_AZURE_DNS_LOOKUP_FAIL;
use crate::config::Configuration;
use crate::render::azure::decoded;
use crate::render::{kubeconfig, proxy};

/// Azure's own resolver.
const AZURE_DNS: &str = "168.63.129.16";

/// Whether the API server has a name; an address needs no lookup.
pub(super) fn is_named(config: &Configuration) -> bool {
    kubeconfig::endpoint(config).0.parse::<Ipv4Addr>().is_err()
}

/// Whether its name is looked up: the hosts agent of private clusters knows it otherwise.
pub(super) fn looks_up(config: &Configuration) -> bool {
    is_named(config) && !config.enable_hosts_config_agent
}

/// Names of private links are known late: they get twice the time.
pub(super) fn is_private_link(config: &Configuration) -> bool {
    kubeconfig::endpoint(config).0.contains(".privatelink.")
}

/// Runs the command that proves egress, with the proxy in its environment.
pub(super) fn outbound(config: &Configuration, scene: &Scene<'_>) -> Finding {
    let words = words(&config.outbound_command);
    let Some((program, arguments)) = words.split_first() else {
        return Ok("no command given".to_owned());
    };
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut command = Command::new(program, &arguments).at_most(scene.remaining());
    for (name, value) in proxy::variables(config) {
        command = command.with_variable(name, &value);
    }
    let finished = scene.run(&command)?;
    if finished.success() {
        return Ok(format!("`{}` succeeded", command.line()));
    }
    Err(Failure::new(
        format!(
            "`{}` exited with {}: {}",
            command.line(),
            finished.status,
            finished.last_words()
        ),
        "check the machine's route to the internet (NAT gateway, load balancer outbound rules, \
         firewall, user-defined routes) and the proxy, if any",
    ))
}

/// Splits a command line as a shell would, but expands nothing.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut open, mut quote) = (Vec::new(), String::new(), false, None);
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        match (c, quote) {
            (c, Some(q)) if c == q => quote = None,
            ('\\', None | Some('"')) => word.extend(characters.next()),
            ('\'' | '"', None) => (quote, open) = (Some(c), true),
            (c, None) if c.is_whitespace() => {
                if open || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                open = false;
            }
            (c, _) => word.push(c),
        }
    }
    if open || !word.is_empty() {
        words.push(word);
    }
    words
}

/// Marks a network isolated node, for checks that come later.
pub(super) fn isolated(_: &Configuration, _: &Scene<'_>) -> Changes {
    let markers = [
        "/opt/azure/outbound-check-skipped",
        "/run/outbound-check-skipped",
    ];
    Ok(markers
        .into_iter()
        .map(|path| Change::file(path, 0o644, ""))
        .collect())
}

/// Looks the API server's name up.
pub(super) fn lookup(config: &Configuration, scene: &Scene<'_>) -> Finding {
    let (name, _) = kubeconfig::endpoint(config);
    match scene
        .host
        .resolve(name, scene.remaining().min(Duration::from_secs(15)))
    {
        Ok(addresses) => {
            let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            Ok(format!("{name} is {}", addresses.join(", ")))
        }
        Err(error) => Err(lookup_failure(scene, error)),
    }
}

/// Who was asked decides the code: Azure's resolver, or one of the customer's.
fn lookup_failure(scene: &Scene<'_>, error: NetworkError) -> Failure {
    // Where systemd's resolver is in between, its own file names the servers behind it.
    let files = ["/run/systemd/resolve/resolv.conf", "/etc/resolv.conf"];
    let resolver = files
        .into_iter()
        .find_map(|path| observe::read_text(scene, path));
    let resolver = resolver.unwrap_or_default();
    let first = resolver
        .lines()
        .find_map(|line| line.trim().strip_prefix("nameserver"));
    let failure = Failure::from(error);
    match first.map(str::trim) {
        Some(AZURE_DNS) => failure.with_code(K8S_API_SERVER_AZURE_DNS_LOOKUP_FAIL),
        _ => failure,
    }
}

/// Speaks to the API server: any answer over TLS that the cluster's CA vouches for will do.
pub(super) fn answers(config: &Configuration, scene: &Scene<'_>) -> Finding {
    let url = format!("{}/", kubeconfig::server(config));
    let ca = decoded(&config.kubernetes_ca_cert).unwrap_or_default();
    let request = Request::get(&url)
        .trusting(ca)
        .at_most(scene.remaining().min(Duration::from_secs(15)))
        .through(proxy::for_url(config, &url));
    match scene.host.http(&request, &mut std::io::sink(), scene.stop) {
        Ok(response) => Ok(format!("{url} answered {}", response.status)),
        Err(error) => Err(unreachable(error)),
    }
}

/// Opens a connection to the API server's address.
pub(super) fn listens(config: &Configuration, scene: &Scene<'_>) -> Finding {
    let (host, port) = kubeconfig::endpoint(config);
    let timeout = scene.remaining().min(Duration::from_secs(10));
    scene
        .host
        .connect(host, port, timeout)
        .map_err(unreachable)?;
    Ok(format!("{host}:{port} accepts connections"))
}

/// A certificate that is not believed now will not be believed in a minute.
fn unreachable(error: NetworkError) -> Failure {
    let permanent = matches!(
        error,
        NetworkError::Certificate { .. } | NetworkError::CertificateTime { .. }
    );
    Failure {
        permanent,
        ..Failure::from(error)
    }
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn command_lines_are_split_as_a_shell_would() {
        for (line, want) in [
            (
                "curl -v --insecure https://mcr.microsoft.com/v2/",
                &["curl", "-v", "--insecure", "https://mcr.microsoft.com/v2/"][..],
            ),
            (
                "a 'b c' \"d \\\" e\" f\\ g ''",
                &["a", "b c", "d \" e", "f g", ""][..],
            ),
            (
                "  nc -vz $(reboot) 443 ; ls *",
                &["nc", "-vz", "$(reboot)", "443", ";", "ls", "*"][..],
            ),
            ("", &[][..]),
        ] {
            assert_eq!(words(line), want, "{line}");
        }
    }
}
