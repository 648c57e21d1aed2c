#![allow(clippy::unwrap_used, reason = "tests")]

use tokio::io::{DuplexStream, duplex};

use super::*;

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
        ("http://me@proxy:1", ("proxy", 1, Some("me:"))),
    ];
    for (text, (host, port, credentials)) in cases {
        let found = Proxy::parse(text, 443).unwrap();
        assert_eq!((&*found.host, found.port), (host, port), "{text}");
        assert_eq!(found.credentials.as_deref(), credentials, "{text}");
        assert!(!format!("{found:?} {found}").contains("me"), "{text}");
    }
    assert_eq!(Proxy::parse("", 443), None);
    assert_eq!(Proxy::parse("http://proxy:port", 443), None);
}

// What a proxy that answers so was asked, and what came of it; the stream has what follows the answer.
async fn asked(url: &str, answer: &str) -> (String, Result<(), ConnectError>, DuplexStream) {
    let (mut ours, mut theirs) = duplex(4096);
    theirs.write_all(answer.as_bytes()).await.unwrap();
    let proxy = Proxy::parse(url, 80).unwrap();
    let outcome = proxy
        .connect(&mut ours, "registry.test:443", "tester")
        .await;
    let mut question = vec![0; 4096];
    let count = theirs.read(&mut question).await.unwrap();
    drop(theirs);
    let question = String::from_utf8_lossy(&question[..count]).into_owned();
    (question, outcome, ours)
}

#[tokio::test]
async fn a_proxy_is_shown_its_credentials_and_nothing_behind_its_answer_is_lost() {
    let answer = "HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\nhello";
    let (question, outcome, mut rest) = asked("http://me:p%40ss@proxy:3128", answer).await;
    outcome.unwrap();
    assert_eq!(
        question,
        "CONNECT registry.test:443 HTTP/1.1\r\nHost: registry.test:443\r\nUser-Agent: tester\r\n\
         Proxy-Authorization: Basic bWU6cEBzcw==\r\n\r\n"
    );
    let mut first = String::new();
    rest.read_to_string(&mut first).await.unwrap();
    assert_eq!(first, "hello");
    let (question, outcome, _) = asked("http://proxy:3128", answer).await;
    outcome.unwrap();
    assert!(!question.contains("Authorization"), "{question}");
}

#[tokio::test]
async fn a_refusal_is_told_in_the_proxys_words() {
    let answer = "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n";
    let (_, outcome, _) = asked("proxy:3128", answer).await;
    let said = outcome.unwrap_err().to_string();
    assert_eq!(
        said,
        "it answered `HTTP/1.1 407 Proxy Authentication Required`"
    );
    let (_, outcome, _) = asked("proxy:3128", "SSH-2.0\r\n\r\n").await;
    assert!(matches!(outcome, Err(ConnectError::Refused(line)) if line == "SSH-2.0"));
}

#[tokio::test]
async fn who_reads_ahead_is_given_what_came_with_the_answer() {
    let (mut ours, mut theirs) = duplex(4096);
    let answer = b"HTTP/1.1 200 OK\r\n\r\nhello";
    theirs.write_all(answer).await.unwrap();
    let (answer, early) = ask(&mut ours, "a:1", "Host: x\r\n", 512).await.unwrap();
    assert_eq!(answer.status, Some((200, "OK".to_owned())));
    assert_eq!(&early[..], b"hello");
}

#[tokio::test]
async fn an_answer_without_end_and_one_that_breaks_off_are_errors() {
    let (mut ours, mut theirs) = duplex(2 * MAX_HEAD);
    theirs.write_all(&vec![b'x'; MAX_HEAD + 1]).await.unwrap();
    let error = ask(&mut ours, "a:1", "", 512).await.unwrap_err();
    assert_eq!(error.to_string(), "its answer has no end");
    let (mut ours, mut theirs) = duplex(4096);
    theirs.write_all(b"HTTP/1.1 200 OK\r\n").await.unwrap();
    theirs.shutdown().await.unwrap();
    drop(theirs);
    assert!(ask(&mut ours, "a:1", "", 1).await.is_err());
}

#[test]
fn a_status_line_is_read() {
    assert_eq!(
        status("HTTP/1.1 200 Connection Established"),
        Some((200, "Connection Established"))
    );
    assert_eq!(status("HTTP/1.1 502"), Some((502, "")));
    assert_eq!(status("SSH-2.0"), None);
}
