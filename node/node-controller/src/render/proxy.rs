//! The HTTP proxy, where everything on a node looks for it.

use super::merge::without_variables;
use crate::config::Configuration;

/// Read at login, and by the units below.
pub const ENVIRONMENT: &str = "/etc/environment";
/// Read by apt.
pub const APT: &str = "/etc/apt/apt.conf.d/95proxy";
/// Read by systemd for every unit.
pub const MANAGER: &str = "/etc/systemd/system.conf.d/proxy.conf";
/// The drop-in of units that go through the proxy.
pub const UNIT_DROP_IN: &str = "[Service]\nEnvironmentFile=/etc/environment\n";

/// Whether there is a proxy.
pub fn wanted(config: &Configuration) -> bool {
    let proxy = &config.http_proxy_config;
    !proxy.http_proxy.is_empty() || !proxy.https_proxy.is_empty()
}

/// The variables, each in upper and in lower case: some programs know only one.
pub fn variables(config: &Configuration) -> Vec<(&'static str, String)> {
    let proxy = &config.http_proxy_config;
    let rows = [
        (
            ["HTTP_PROXY", "http_proxy"],
            proxy.http_proxy.reveal().to_owned(),
        ),
        (
            ["HTTPS_PROXY", "https_proxy"],
            proxy.https_proxy.reveal().to_owned(),
        ),
        (["NO_PROXY", "no_proxy"], proxy.no_proxy_entries.join(",")),
    ];
    let given = rows.into_iter().filter(|(_, value)| !value.is_empty());
    given
        .flat_map(|(names, value)| names.map(|name| (name, value.clone())))
        .collect()
}

/// `/etc/environment` with the proxy in place of what it said of one before.
pub fn environment(present: &str, config: &Configuration) -> String {
    let names = [
        "HTTP_PROXY",
        "http_proxy",
        "HTTPS_PROXY",
        "https_proxy",
        "NO_PROXY",
        "no_proxy",
    ];
    let kept = without_variables(present, &names);
    let ours: String = variables(config)
        .iter()
        .map(|(name, value)| format!("{name}={value}\n"))
        .collect();
    kept + &ours
}

/// apt's settings.
pub fn apt(config: &Configuration) -> String {
    let proxy = &config.http_proxy_config;
    let rows = [("http", &proxy.http_proxy), ("https", &proxy.https_proxy)];
    let given = rows.into_iter().filter(|(_, value)| !value.is_empty());
    given
        .map(|(scheme, value)| format!("Acquire::{scheme}::proxy \"{}\";\n", value.reveal()))
        .collect()
}

/// systemd's settings; a percent sign of a password is doubled, or systemd reads it as one of its own.
pub fn manager(config: &Configuration) -> String {
    let line = |(name, value): (&str, String)| {
        format!(
            "DefaultEnvironment=\"{name}={}\"\n",
            value.replace('%', "%%")
        )
    };
    let lines: String = variables(config).into_iter().map(line).collect();
    format!("[Manager]\n{lines}")
}

/// The proxy for downloads of our own, where a host is not exempt from it.
pub fn for_url(config: &Configuration, url: &str) -> Option<String> {
    let proxy = &config.http_proxy_config;
    let (scheme, rest) = url.split_once("://")?;
    let host = rest.split(['/', ':']).next().unwrap_or_default();
    let exempt = |entry: &String| {
        let entry = entry.trim().trim_start_matches('*').trim_start_matches('.');
        !entry.is_empty() && (host == entry || host.ends_with(&format!(".{entry}")))
    };
    if proxy.no_proxy_entries.iter().any(exempt) {
        return None;
    }
    let chosen = if scheme == "https" {
        &proxy.https_proxy
    } else {
        &proxy.http_proxy
    };
    (!chosen.is_empty()).then(|| chosen.reveal().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Configuration {
        let mut config = Configuration::default();
        config.http_proxy_config.http_proxy = "http://p:3128".into();
        config.http_proxy_config.https_proxy = "http://s:3128".into();
        config.http_proxy_config.no_proxy_entries =
            vec!["localhost".into(), ".corp.example".into()];
        config
    }

    #[test]
    fn saying_it_twice_says_it_once() {
        let before = "PATH=\"/usr/bin\"\nHTTP_PROXY=http://old:1\n# no_proxy=x\n";
        let once = environment(before, &config());
        assert_eq!(
            once,
            "PATH=\"/usr/bin\"\n# no_proxy=x\n\
             HTTP_PROXY=http://p:3128\nhttp_proxy=http://p:3128\n\
             HTTPS_PROXY=http://s:3128\nhttps_proxy=http://s:3128\n\
             NO_PROXY=localhost,.corp.example\nno_proxy=localhost,.corp.example\n"
        );
        assert_eq!(environment(&once, &config()), once);
    }

    #[test]
    fn downloads_go_through_the_proxy_of_their_scheme_unless_exempt() {
        let proxy = |url| for_url(&config(), url);
        assert_eq!(
            proxy("https://a.example/x").as_deref(),
            Some("http://s:3128")
        );
        assert_eq!(
            proxy("http://a.example:80/x").as_deref(),
            Some("http://p:3128")
        );
        assert_eq!(proxy("https://a.corp.example/x"), None);
        assert_eq!(
            proxy("https://notcorp.example/x").as_deref(),
            Some("http://s:3128")
        );
        assert_eq!(
            for_url(&Configuration::default(), "https://a.example"),
            None
        );
    }
}
