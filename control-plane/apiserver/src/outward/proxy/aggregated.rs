//! Requests to servers behind this one, which are told who asks.

use std::net::IpAddr;

use access::User;
use http::header::{AUTHORIZATION, HOST, HeaderName, HeaderValue, LOCATION};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::{forward, rewrite};
use crate::api::Api;
use crate::app::text_page;
use crate::connection::request_body::RequestBody;
use crate::connection::response_body::Body;
use crate::connection::websocket::is_upgrade;
use crate::outward::aggregation::Remote;
use crate::outward::outbound::Place;

const PLAIN: &str = "text/plain; charset=utf-8";
const REDIRECT: &str = "the backend attempted to redirect this request, which is not permitted";

/// A request without a body, of this server itself.
pub(crate) async fn fetch(
    api: &Api,
    place: &Place,
    (method, target): (&Method, &str),
    mut headers: HeaderMap,
) -> Result<Response<Incoming>, String> {
    insert(&mut headers, HOST, &place.authority());
    let request = forward::request(method, target, headers, forward::nothing());
    let request = request.map_err(|error| error.message)?;
    forward::send(&api.outbound, place, request).await
}

/// Passes a request on, in the name of a user.
pub(crate) async fn pass(
    api: &Api,
    remote: &Remote,
    mut request: Request<RequestBody>,
    client: IpAddr,
    user: &User,
) -> Response<Body> {
    if !remote.state().available {
        return unavailable("service unavailable");
    }
    let Ok(place) = api.remote_place(remote).await else {
        return unavailable("service unavailable");
    };
    let upgrade = hyper::upgrade::on(&mut request);
    let (parts, body) = request.into_parts();
    let mut headers = parts.headers;
    introduce(&mut headers, user);
    rewrite::forwarded_for(&mut headers, client);
    insert(&mut headers, HOST, &place.authority());
    let upgrades = is_upgrade(&headers);
    if !upgrades {
        rewrite::strip_hop_by_hop(&mut headers);
    }
    let target = parts
        .uri
        .path_and_query()
        .map_or("/", |target| target.as_str());
    let body = body.boxed_unsync();
    let request = match forward::request(&parts.method, target, headers, body) {
        Ok(request) => request,
        Err(error) => return unavailable(&error.message),
    };
    if upgrades {
        let answer = forward::upgraded(api, &place, request, upgrade).await;
        return answer.unwrap_or_else(|error| unavailable(&error.message));
    }
    match forward::send(&api.outbound, &place, request).await {
        Ok(response) => answered(response),
        Err(why) => unavailable(&format!("error trying to reach service: {why}")),
    }
}

fn answered(mut response: Response<Incoming>) -> Response<Body> {
    if response.status().is_redirection() && response.headers().contains_key(LOCATION) {
        return text_page(StatusCode::BAD_GATEWAY, PLAIN, REDIRECT);
    }
    rewrite::strip_hop_by_hop(response.headers_mut());
    response.map(Body::Passed)
}

fn unavailable(why: &str) -> Response<Body> {
    text_page(StatusCode::SERVICE_UNAVAILABLE, PLAIN, format!("{why}\n"))
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

// Whatever a client says about itself is taken out: only we may say who asks.
fn introduce(headers: &mut HeaderMap, user: &User) {
    let said: Vec<HeaderName> = headers
        .keys()
        .filter(|name| name.as_str().starts_with("x-remote-"))
        .cloned()
        .collect();
    for name in said.iter().chain([&AUTHORIZATION]) {
        headers.remove(name);
    }
    let mut say = |name: String, value: &str| {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(value)) {
            headers.append(name, value);
        }
    };
    say("x-remote-user".into(), &user.name);
    if !user.uid.is_empty() {
        say("x-remote-uid".into(), &user.uid);
    }
    for group in &user.groups {
        say("x-remote-group".into(), group);
    }
    for (key, values) in &user.extra {
        for value in values {
            say(format!("x-remote-extra-{}", escaped(key)), value);
        }
    }
}

// Header names hold less than keys do; the rest is percent-encoded, as client-go does.
fn escaped(key: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte);
    let mut out = String::with_capacity(key.len());
    for byte in key.bytes() {
        match plain(byte) {
            true => out.push(byte.to_ascii_lowercase() as char),
            false => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_we_say_who_asks() {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer secret"));
        headers.insert("x-remote-user", HeaderValue::from_static("admin"));
        headers.insert("x-remote-extra-scopes", HeaderValue::from_static("all"));
        headers.insert("accept", HeaderValue::from_static("*/*"));
        let mut user = User {
            name: "jane".into(),
            groups: vec!["a".into(), "b".into()],
            ..User::default()
        };
        user.extra.insert("acme.com/team".into(), vec!["x".into()]);
        introduce(&mut headers, &user);
        assert_eq!(headers["x-remote-user"], "jane");
        let groups: Vec<_> = headers.get_all("x-remote-group").iter().collect();
        assert_eq!(groups, ["a", "b"]);
        assert_eq!(headers["x-remote-extra-acme.com%2fteam"], "x");
        assert!(
            !headers.contains_key(AUTHORIZATION) && !headers.contains_key("x-remote-extra-scopes")
        );
        assert!(headers.contains_key("accept"));
    }
}
