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
