//! The real host's network, against small servers on loopback: what goes wrong is told apart.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use steps::engine::{Failure, Stop};
use steps::host::{Host as _, NetworkError, RealHost, Request, Response};

/// Serves each connection with `serve` until the test ends; gives the port.
fn listen(serve: impl Fn(TcpStream) + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || listener.incoming().flatten().for_each(serve));
    port
}

/// Reads a request's head and answers.
fn answer(mut stream: impl Read + Write, text: &str) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
        head.push(byte[0]);
    }
    // The client may have left by now.
    let _ = stream.write_all(text.as_bytes());
    let _ = stream.flush();
    String::from_utf8_lossy(&head).into_owned()
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";

fn get(request: &Request) -> Result<(Response, String), NetworkError> {
    let mut body = Vec::new();
    let stop = Stop::new().expect("an event counter");
    let response = RealHost::new().http(request, &mut body, &stop)?;
    Ok((response, String::from_utf8_lossy(&body).into_owned()))
}

struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    Authority {
        issuer: CertifiedIssuer::self_signed(params, key).expect("an authority"),
    }
}

impl Authority {
    fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A TLS server on loopback whose certificate is valid until this year.
    fn serve(&self, last_year: i32) -> u16 {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(last_year, 1, 1);
        let key = KeyPair::generate().expect("a key");
        let issuer: &Issuer<'_, KeyPair> = &self.issuer;
        let certificate = params.signed_by(&key, issuer).expect("a certificate");
        let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)
            .expect("a key that fits");
        let config = Arc::new(config);
        listen(move |stream| {
            let connection =
                rustls::ServerConnection::new(Arc::clone(&config)).expect("a connection");
            answer(rustls::StreamOwned::new(connection, stream), OK);
        })
    }
}

fn over_tls(port: u16, ca: &str) -> Result<(Response, String), NetworkError> {
    get(&Request::get(format!("https://localhost:{port}/healthz")).trusting(ca))
}

#[test]
fn a_server_of_the_right_authority_answers() {
    let authority = authority();
    let port = authority.serve(2090);
    let (response, body) = over_tls(port, &authority.pem()).expect("an answer");
    assert_eq!((response.status, body.as_str()), (200, "ok"));
}

#[test]
fn the_wrong_authority_and_the_wrong_time_are_different_things() {
    let (right, wrong) = (authority(), authority());
    let error = over_tls(right.serve(2090), &wrong.pem()).expect_err("another authority");
    assert!(matches!(error, NetworkError::Certificate { .. }), "{error}");
    assert!(
        Failure::from(error)
            .remedy
            .contains("the CA in the configuration")
    );
    let error = over_tls(right.serve(2001), &right.pem()).expect_err("an old certificate");
    assert!(
        matches!(error, NetworkError::CertificateTime { .. }),
        "{error}"
    );
    assert!(Failure::from(error).remedy.contains("this machine's clock"));
    let error = over_tls(right.serve(2090), "no PEM at all").expect_err("no authority");
    assert!(matches!(error, NetworkError::Certificate { .. }), "{error}");
}

#[test]
fn a_closed_port_and_a_silent_server_are_different_things() {
    let closed = TcpListener::bind("127.0.0.1:0")
        .expect("a port")
        .local_addr()
        .expect("an address")
        .port();
    let host = RealHost::new();
    let error = host
        .connect("127.0.0.1", closed, Duration::from_secs(5))
        .expect_err("nobody listens");
    assert!(matches!(error, NetworkError::Unreachable { .. }), "{error}");
    let silent = listen(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    assert_eq!(
        host.connect("127.0.0.1", silent, Duration::from_secs(5)),
        Ok(())
    );
    let request = Request::get(format!("http://127.0.0.1:{silent}/?signature=secret"))
        .at_most(Duration::from_millis(200));
    let error = get(&request).expect_err("no answer");
    assert!(matches!(error, NetworkError::TimedOut { .. }), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[test]
fn names_that_do_not_exist_are_an_error_and_addresses_are_names() {
    let host = RealHost::new();
    let error = host
        .resolve("no-such-name.invalid", Duration::from_secs(20))
        .expect_err("reserved by RFC 2606");
    // Where there is no network at all, nobody is there to say that the name does not exist.
    let told = matches!(
        error,
        NetworkError::UnknownName { .. }
            | NetworkError::NoResolver { .. }
            | NetworkError::TimedOut { .. }
    );
    assert!(told, "{error}");
    let addresses = host
        .resolve("127.0.0.1", Duration::from_secs(5))
        .expect("an address");
    assert_eq!(
        addresses,
        ["127.0.0.1".parse::<std::net::IpAddr>().expect("an address")]
    );
}

#[test]
fn redirects_are_followed_but_not_for_ever() {
    let port = listen(|stream| {
        answer(stream, OK);
    });
    let target = format!(
        "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{port}/\r\nContent-Length: 0\r\n\r\n"
    );
    let first = listen(move |stream| {
        answer(stream, &target);
    });
    let (_, body) = get(&Request::get(format!("http://127.0.0.1:{first}/"))).expect("an answer");
    assert_eq!(body, "ok");
    let circle = listen(|stream| {
        answer(
            stream,
            "HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n",
        );
    });
    let error = get(&Request::get(format!("http://127.0.0.1:{circle}/"))).expect_err("a circle");
    assert!(error.to_string().ends_with("too many redirects"), "{error}");
}

#[test]
fn a_proxy_is_asked_to_connect() {
    let (asked, questions) = std::sync::mpsc::sync_channel(1);
    let proxy = listen(move |mut stream| {
        let question = answer(&mut stream, "HTTP/1.1 200 Connection established\r\n\r\n");
        let _ = asked.send(question);
        answer(stream, OK);
    });
    let request = Request::get("http://registry.invalid/v2/")
        .through(Some(format!("http://node:s%40fe@127.0.0.1:{proxy}")));
    let (_, body) = get(&request).expect("an answer");
    assert_eq!(body, "ok");
    let question = questions.recv().expect("a question");
    assert!(
        question.starts_with("CONNECT registry.invalid:80 HTTP/1.1\r\n"),
        "{question}"
    );
    assert!(
        question.contains("\r\nProxy-Authorization: Basic bm9kZTpzQGZl\r\n"),
        "{question}"
    );
    let stubborn = listen(|stream| {
        answer(stream, "HTTP/1.1 403 Forbidden\r\n\r\n");
    });
    let request = request.through(Some(format!("http://node:s%40fe@127.0.0.1:{stubborn}")));
    let error = get(&request).expect_err("a refusal");
    assert!(
        error
            .to_string()
            .contains("refuses CONNECT to registry.invalid:80"),
        "{error}"
    );
    assert!(!error.to_string().contains("s%40fe"), "{error}");
}
