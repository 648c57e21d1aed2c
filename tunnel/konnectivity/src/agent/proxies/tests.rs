#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

#[test]
fn a_proxy_is_taken_where_gos_programs_take_it() {
    let cases = [
        // NO_PROXY, host, whether the proxy is on the way
        ("", "api.example", true),
        ("", "localhost", false),
        ("", "127.8.8.8", false),
        ("", "::1", false),
        ("*", "api.example", false),
        ("other, api.example", "api.example", false),
        ("example", "api.example", false),
        (".example", "api.example", false),
        ("*.example", "api.example", false),
        (".api.example", "api.example", true),
        ("xample", "api.example", true),
        ("API.Example:8132", "api.example", false),
        ("api.example:443", "api.example", true),
        ("10.0.0.0/8", "10.1.2.3", false),
        ("10.0.0.0/8", "11.1.2.3", true),
        ("10.1.2.3:8132", "10.1.2.3", false),
        ("10.1.2.3:1", "10.1.2.3", true),
        ("fd00::1", "fd00::1", false),
        ("[fd00::1]:8132", "fd00::1", false),
    ];
    for (exempt, host, expected) in cases {
        let proxies = Proxies::parse("http://proxy:3128", exempt);
        let found = proxies.towards(host, 8132).is_some();
        assert_eq!(found, expected, "NO_PROXY={exempt} {host}");
    }
    assert!(Proxies::default().towards("api.example", 1).is_none());
}

#[test]
fn a_proxys_address_may_be_written_in_several_ways() {
    let cases = [
        ("http://proxy:3128", ("proxy", 3128, None)),
        ("http://proxy:3128/path", ("proxy", 3128, None)),
        ("proxy:3128", ("proxy", 3128, None)),
        ("https://proxy", ("proxy", 443, None)),
        ("http://[fd00::1]:3128", ("fd00::1", 3128, None)),
        ("http://[fd00::1]", ("fd00::1", 443, None)),
        ("http://me:p%40ss@proxy:1", ("proxy", 1, Some("me:p@ss"))),
    ];
    for (text, (host, port, credentials)) in cases {
        let found = Proxy::parse(text).unwrap();
        assert_eq!((&*found.host, found.port), (host, port), "{text}");
        assert_eq!(found.credentials.as_deref(), credentials, "{text}");
        assert!(!format!("{found:?}").contains("p@ss"));
    }
    assert_eq!(Proxy::parse(""), None);
    assert_eq!(Proxy::parse("http://proxy:port"), None);
}
