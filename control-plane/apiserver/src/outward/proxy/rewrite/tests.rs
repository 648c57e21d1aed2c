#![allow(clippy::unwrap_used, reason = "tests")]
use super::*;

#[test]
fn headers_of_one_connection_stay_there() {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("connection", "close, x-mine"),
        ("x-mine", "1"),
        ("te", "trailers"),
        ("keep-alive", "1"),
        ("accept", "a"),
    ] {
        headers.insert(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
    }
    strip_hop_by_hop(&mut headers);
    let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
    left.sort_unstable();
    assert_eq!(left, ["accept", "te"]);
}

#[test]
fn the_client_is_added_to_those_it_was_forwarded_for() {
    let mut headers = HeaderMap::new();
    headers.insert(FORWARDED_FOR, "10.0.0.9".parse().unwrap());
    forwarded_for(&mut headers, "::ffff:10.0.0.1".parse().unwrap());
    assert_eq!(headers[&FORWARDED_FOR], "10.0.0.9, 10.0.0.1");
}

#[test]
fn the_path_behind_is_clean_and_keeps_its_last_slash() {
    let cases = [
        ("", "/proxy", ""),
        ("", "/proxy/", "/"),
        ("a/b", "/proxy/a/b", "/a/b"),
        ("a", "/proxy/a/", "/a/"),
        ("a//b/../../../c", "/proxy/a//b/../../../c", "/c"),
        ("..", "/proxy/../", "/"),
    ];
    for (rest, request, wanted) in cases {
        assert_eq!(path_behind(rest, request), wanted, "{request}");
    }
    assert_eq!(escape_path("/a b?/é@:"), "/a%20b%3F/%C3%A9@:");
}

#[test]
fn an_empty_path_is_sent_to_its_slash() {
    let to = |method, behind| redirect_to_root(&method, behind, "/n/proxy", Some("a=1"));
    assert_eq!(to(Method::GET, "").unwrap(), "/n/proxy/?a=1");
    assert_eq!(to(Method::POST, ""), None);
    assert_eq!(to(Method::GET, "/"), None);
}

#[test]
fn links_to_where_the_server_thinks_it_is_get_our_prefix() {
    let links = Links::new(
        "/n/proxy/page",
        "/page",
        "10.0.0.1:80".into(),
        "api:6443".into(),
    );
    let cases = [
        ("/x", Some("/n/proxy/x")),
        ("/x/../y/?q=/a#f", Some("/n/proxy/y/?q=/a#f")),
        ("/", Some("/n/proxy/")),
        ("http://10.0.0.1:80/x", Some("/n/proxy/x")),
        ("//10.0.0.1:80/x", Some("/n/proxy/x")),
        ("https://api:6443/x", Some("https://api:6443/n/proxy/x")),
        ("/n/proxy/x", Some("/n/proxy/x")),
        ("x/y", None),
        ("#top", None),
        ("?q=1", None),
        ("http://elsewhere/x", None),
        ("//elsewhere/x", None),
        ("mailto:a@b", None),
        ("javascript:void(0)", None),
        ("", None),
    ];
    let escaped = Links::new(
        "/s/https%3Aa%3Aweb/proxy/a%20b",
        "/a b",
        "x".into(),
        "y".into(),
    );
    assert_eq!(escaped.rewrite("/c").unwrap(), "/s/https:a:web/proxy/c");
    for (link, wanted) in cases {
        assert_eq!(links.rewrite(link).as_deref(), wanted, "{link}");
    }
}
